//! `[managed_cli.inference]`: what an agent may ask of its model provider.

use super::label;
use crate::limits::{
    BETA_HEADERS_MAX, INFERENCE_REQUESTS_DEFAULT, INFERENCE_REQUESTS_MAX, LABEL_BYTES_MAX,
    OUTPUT_TOKENS_DEFAULT, OUTPUT_TOKENS_MAX, TOTAL_OUTPUT_TOKENS_MAX,
};
use crate::reader::{Entry, Table};

/// The operator's terms for an agent's model requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InferenceSettings {
    /// A name of the user's own configuration.
    pub provider: String,
    pub model: String,
    /// Of one run.
    pub max_requests: u64,
    /// Of one request.
    pub max_output_tokens: u64,
    /// Of one run; at least one request's.
    pub max_total_output_tokens: u64,
    /// Replaces the client's own list. Each once, in the order of the file.
    pub beta_headers: Vec<String>,
}

pub(super) fn read(root: &Table<'_>) -> Option<InferenceSettings> {
    let outer = root.table("managed_cli")?;
    let table = outer.table("inference");
    outer.finish();
    let table = table?;
    let provider = table
        .required("provider", "\"NAME\"")
        .and_then(|entry| name(&entry));
    let model = table
        .required("model", "\"MODEL\"")
        .and_then(|entry| label(&entry));
    let integer = |key, max| table.entry(key).and_then(|entry| entry.integer(1..=max));
    let max_requests =
        integer("max_requests", INFERENCE_REQUESTS_MAX).unwrap_or(INFERENCE_REQUESTS_DEFAULT);
    let max_output_tokens =
        integer("max_output_tokens", OUTPUT_TOKENS_MAX).unwrap_or(OUTPUT_TOKENS_DEFAULT);
    let total = table.entry("max_total_output_tokens");
    let read = total
        .as_ref()
        .and_then(|entry| entry.integer(1..=TOTAL_OUTPUT_TOKENS_MAX));
    if let (Some(entry), Some(read)) = (&total, read)
        && read < max_output_tokens
    {
        entry.fault(
            format!(
                "the whole run's {read} tokens are fewer than one request's {max_output_tokens}"
            ),
            "raise `max_total_output_tokens` or lower `max_output_tokens`",
        );
    }
    let beta_headers = table
        .entry("beta_headers")
        .map(|entry| read_headers(&entry));
    table.finish();
    Some(InferenceSettings {
        provider: provider?,
        model: model?,
        max_requests,
        max_output_tokens,
        max_total_output_tokens: read.unwrap_or(max_requests * max_output_tokens),
        beta_headers: beta_headers.unwrap_or_default(),
    })
}

/// A name of a provider or an anchor: `A-Z a-z 0-9 _ -`.
pub(super) fn is_name(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !text.is_empty() && text.len() <= LABEL_BYTES_MAX && text.chars().all(word)
}

fn name(entry: &Entry<'_>) -> Option<String> {
    let text = entry.text()?;
    if !is_name(text) {
        entry.fault(
            format!("`{}` is no name: allowed are A-Z a-z 0-9 _ -", entry.name()),
            "write a name of [providers.NAME] in your own config.toml, not a URL",
        );
        return None;
    }
    Some(text.to_owned())
}

fn read_headers(entry: &Entry<'_>) -> Vec<String> {
    let mut headers = Vec::new();
    for (text, element) in entry.distinct_texts(BETA_HEADERS_MAX) {
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || text.len() > LABEL_BYTES_MAX || !text.chars().all(word) {
            element.fault(
                "a beta header is written with A-Z a-z 0-9 - _ . only",
                "write each header as an element of its own",
            );
        } else {
            headers.push(text.to_owned());
        }
    }
    headers
}
