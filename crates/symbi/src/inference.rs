//! An agent's model provider, from the project's terms and the user's own configuration.

use std::time::Duration;

use inference::{BaseUrl, Terms};
use journal::Journal;
use model::Redacted;
use project::{Config, Credential, InferenceSettings, UserConfig, read_key_file};
use symbi_runtime::cli_executor::ProtectedInference;
use symbi_runtime::cli_executor::limits::PROVIDER_ANSWER_MAX;
use worker::InferenceTerms;

use crate::exit::{Exit, Failure};
use crate::open::OpenProject;

/// The version of the Messages API that requests are sent with.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// A checked provider with its credential.
#[derive(Debug)]
pub(crate) struct Inference {
    settings: InferenceSettings,
    base_url: BaseUrl,
    credential: Redacted<String>,
    max_total_output_tokens: u64,
}

/// The project's provider, if it has one. Checked, with its credential read, before anything
/// is recorded.
pub(crate) fn configured(
    open: &OpenProject,
    config: &Config,
    budget_tokens: Option<u64>,
) -> Result<Option<Inference>, Failure> {
    let Some(settings) = config.inference.clone() else {
        return Ok(None);
    };
    let user = UserConfig::load(&open.dirs).map_err(|error| Failure::of(Exit::Usage, &error))?;
    let file = open.dirs.config.join("config.toml");
    let Some(provider) = user.providers.get(&settings.provider) else {
        let name = &settings.provider;
        return Err(Failure::new(
            Exit::Usage,
            format!("there is no provider `{name}` for the agent"),
        )
        .help(format!(
            "describe it under [providers.{name}] in {}: base_url, and api_key_env or \
                 api_key_file",
            file.display()
        )));
    };
    let base_url =
        BaseUrl::parse(&provider.base_url).map_err(|error| Failure::of(Exit::Usage, &error))?;
    let credential = match &provider.credential {
        Credential::Environment(variable) => crate::dirs::secret(variable).ok_or_else(|| {
            Failure::new(Exit::Usage, format!("the variable `{variable}` is not set")).help(
                format!(
                    "provider `{}` takes its key from it: set it where symbi is started",
                    settings.provider
                ),
            )
        })?,
        Credential::File(path) => {
            read_key_file(path).map_err(|error| Failure::of(Exit::Usage, &error))?
        }
    };
    let configured = settings.max_total_output_tokens;
    let max_total_output_tokens = budget_tokens.map_or(configured, |budget| budget.min(configured));
    Ok(Some(Inference {
        settings,
        base_url,
        credential,
        max_total_output_tokens,
    }))
}

impl Inference {
    /// The beta features that the agent's client needs, where the configuration names none.
    pub(crate) fn or_betas(mut self, defaults: &[&str]) -> Self {
        if self.settings.beta_headers.is_empty() {
            self.settings.beta_headers = defaults.iter().map(|&it| it.to_owned()).collect();
        }
        self
    }

    pub(crate) fn model(&self) -> &str {
        &self.settings.model
    }

    /// Most output tokens that one request can ask for.
    pub(crate) fn max_request_tokens(&self) -> u64 {
        self.settings
            .max_output_tokens
            .min(self.max_total_output_tokens)
    }

    /// The terms as the launch records them.
    pub(crate) fn terms(&self) -> InferenceTerms {
        InferenceTerms {
            provider: self.settings.provider.clone(),
            base_url: self.base_url.to_string(),
            model: self.settings.model.clone(),
            max_requests: self.settings.max_requests,
            max_output_tokens: self.settings.max_output_tokens,
            max_total_output_tokens: self.max_total_output_tokens,
            beta_headers: self.settings.beta_headers.clone(),
        }
    }

    /// The channel that serves them.
    pub(crate) fn protect(self, journal: Journal) -> Result<ProtectedInference, Failure> {
        let terms = Terms {
            model: self.settings.model,
            max_requests: self.settings.max_requests,
            max_output_tokens: self.settings.max_output_tokens,
            max_total_output_tokens: self.max_total_output_tokens,
            beta_headers: self.settings.beta_headers,
            anthropic_version: ANTHROPIC_VERSION.to_owned(),
        };
        let answer_timeout: Duration = PROVIDER_ANSWER_MAX;
        ProtectedInference::new(
            self.base_url,
            self.credential,
            terms,
            answer_timeout,
            journal,
        )
        .map_err(|error| Failure::of(Exit::Usage, &error))
    }
}
