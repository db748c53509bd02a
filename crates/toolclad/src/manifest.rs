//! A manifest's text becomes a contract. What is not understood is refused with its place; what
//! nothing serves is refused at load or at the call, and says so. Nothing is ignored.

mod arguments;
mod backends;
mod command;
mod filesystem;
mod kinds;
mod output;
mod session;
mod spreads;
mod tool;
mod types;
mod unserved;

use std::collections::BTreeSet;

use model::{Digest, RiskTier, SourceError, SourceErrors};
use serde_spanned::Spanned;
use toml::de::DeTable;

use crate::backend::Work;
use crate::contract::Contract;
use crate::grants::Grants;
use crate::hygiene::{hidden_in_prose, name as character_name};
use crate::kind::Kind;
use crate::limits::{DESCRIPTION_BYTES_MAX, MANIFEST_BYTES_MAX};
use crate::reader::{Faults, Section, listed, parse_document, quoted, suggestion};
use crate::rules::ProjectRules;

use arguments::Arguments;
pub(crate) use types::CustomTypes;

pub(crate) fn parse(
    file: &str,
    text: &str,
    rules: &ProjectRules,
) -> Result<Contract, SourceErrors> {
    let document = parse_document(file, text, MANIFEST_BYTES_MAX)?;
    let mut faults = Faults::new(file, text);
    let contract = read_document(file, text, document.get_ref(), rules, &mut faults);
    faults.check()?;
    contract.ok_or_else(|| SourceError::whole_file(file, "the manifest is incomplete").into())
}

/// `None` only beside a fault.
fn read_document(
    file: &str,
    text: &str,
    document: &DeTable<'_>,
    rules: &ProjectRules,
    faults: &mut Faults<'_>,
) -> Option<Contract> {
    let mut root = Section::new(String::new(), 0..0, document);
    let tool_table = root.table(faults, "tool");
    let argument_table = root.table(faults, "args");
    let filesystem_table = root.table(faults, "filesystem");
    let output_table = root.table(faults, "output");

    let binary = tool_table.as_ref().and_then(tool::binary_of);
    let arguments = arguments::read(argument_table, &rules.types, faults);
    let grants = filesystem::read(filesystem_table, &arguments, faults);
    let reading = backends::Reading {
        binary: binary.as_ref(),
        arguments: &arguments,
        types: &rules.types,
        creates: grants
            .as_ref()
            .is_some_and(|grants| !grants.create.is_empty()),
    };
    let kind = backends::choose(&mut root, faults);
    let tool = match tool_table {
        Some(section) => tool::read(file, section, kind, faults),
        None => {
            root.missing(faults, "tool", "a manifest begins with a `[tool]` table");
            None
        }
    };
    let work = kind.and_then(|kind| backends::read(kind, &mut root, &reading, faults));
    if let (Some(grants), Some(work)) = (&grants, &work) {
        check_files(grants, work, &arguments, faults);
    }
    let output = output::read(output_table, faults);
    root.finish(faults);

    let tool = tool?;
    Some(Contract {
        name: tool.name,
        version: tool.version,
        description: tool.description,
        digest: Digest::of(text.as_bytes()),
        risk_tier: tool.risk_tier,
        human_approval: tool.human_approval,
        timeout_seconds: tool.timeout_seconds,
        cedar: tool.cedar,
        limits: tool.limits,
        evidence: tool.evidence,
        arguments: arguments.specs,
        work: work?,
        grants: grants?,
        output: output?,
        scope: rules.scope.clone(),
    })
}

/// A credential file reaches a worker only as a grant, and a source query brings its own files.
fn check_files(grants: &Grants, work: &Work, arguments: &Arguments, faults: &mut Faults<'_>) {
    let granted: BTreeSet<&str> = grants.read.iter().map(crate::grants::Grant::key).collect();
    for spec in &arguments.specs {
        let place = arguments.place(&spec.name);
        if matches!(spec.kind, Kind::CredentialFile(_)) && !granted.contains(spec.name.as_str()) {
            let message = format!("the credential file `{}` is not granted", spec.name);
            let help = format!("add `\"{{{}}}\"` to `filesystem.read`", spec.name);
            faults.add(place, message, help);
        }
    }
    if matches!(work, Work::Source(_)) && !(grants.read.is_empty() && grants.create.is_empty()) {
        faults.add(
            0..0,
            "a `[source]` query reads by itself: remove `[filesystem]`",
            "remove `[filesystem]`",
        );
    }
}

/// Text for people and models: bounded, and all of it visible.
fn prose(key: &str, given: &Spanned<&str>, faults: &mut Faults<'_>) -> Option<String> {
    let text = *given.get_ref();
    if text.len() > DESCRIPTION_BYTES_MAX {
        let bytes = text.len();
        let message =
            format!("{key} has {bytes} bytes, more than the {DESCRIPTION_BYTES_MAX} allowed");
        faults.add(given.span(), message, "shorten it");
        return None;
    }
    if let Some((at, character)) = hidden_in_prose(text) {
        let message = format!(
            "{key} has a hidden character, {}",
            character_name(character)
        );
        let place = faults.inside(&given.span(), text, at..at + character.len_utf8());
        faults.add(
            place,
            message,
            "remove the character; it may have come by copy and paste",
        );
        return None;
    }
    Some(text.to_owned())
}

fn read_risk_tier(section: &mut Section<'_>, faults: &mut Faults<'_>) -> Option<RiskTier> {
    const TIERS: [RiskTier; 4] = [
        RiskTier::Low,
        RiskTier::Medium,
        RiskTier::High,
        RiskTier::Critical,
    ];
    if section.entry("risk_tier").is_none() {
        return Some(RiskTier::Low);
    }
    let given = section.string(faults, "risk_tier")?;
    let found = TIERS
        .into_iter()
        .find(|tier| tier.as_str() == *given.get_ref());
    if found.is_none() {
        let names = TIERS.map(RiskTier::as_str);
        unknown_word(&section.name_of("risk_tier"), &given, &names, faults);
    }
    found
}

/// A fault for a word outside a closed list.
fn unknown_word(key: &str, given: &Spanned<&str>, valid: &[&str], faults: &mut Faults<'_>) {
    let word = *given.get_ref();
    let help = suggestion(word, valid)
        .unwrap_or_else(|| format!("valid are {}", listed(valid.iter().copied())));
    faults.add(
        given.span(),
        format!("{key} has the unknown value {}", quoted(word)),
        help,
    );
}
