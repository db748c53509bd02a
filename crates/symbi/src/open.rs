//! Opening a project: found, owned, trusted, read.

use std::path::{Path, PathBuf};

use model::{Digest, SourceError, ToolName};
use policy::{LaunchShape, Policies, PolicySource, ToolShape};
use project::{AgentExecutor, Config, Project, Surface, Trust, TrustStatus, UserDirs};
use toolclad::{Contract, ContractSet, ProjectRules};

use crate::exit::{Exit, Failure};

/// Principal of `symbi call`.
pub(crate) const OPERATOR: &str = "operator";
/// Principal of `symbi mcp`.
pub(crate) const CLIENT: &str = "mcp";

/// A project whose files are the caller's own; not necessarily trusted.
#[derive(Debug)]
pub(crate) struct OpenProject {
    pub(crate) project: Project,
    pub(crate) dirs: UserDirs,
}

impl OpenProject {
    /// Finds the project from `dir`, or from the current folder up.
    pub(crate) fn find(dir: Option<&Path>) -> Result<Self, Failure> {
        let project = match dir {
            Some(dir) => Project::open(dir),
            None => Project::find(&current_dir()?),
        };
        let project = project.map_err(|error| Failure::of(Exit::Usage, &error))?;
        Ok(Self {
            project,
            dirs: crate::dirs::user_dirs()?,
        })
    }

    /// Finds a project that its operator trusts as it is now.
    pub(crate) fn find_trusted(dir: Option<&Path>) -> Result<(Self, Option<Digest>), Failure> {
        let open = Self::find(dir)?;
        let status = Trust::status(&open.project, &open.dirs)
            .map_err(|error| Failure::of(Exit::Usage, &error))?;
        let refuse = |message: String| {
            let path = open.project.path().display();
            Err(Failure::new(Exit::Usage, message).help(format!(
                "read its files, then type: symbi --project '{path}' trust"
            )))
        };
        match status {
            TrustStatus::Trusted { policy_verdict } => Ok((open, policy_verdict)),
            TrustStatus::NeverTrusted => {
                refuse("the project is not trusted yet, so nothing of it runs".to_owned())
            }
            TrustStatus::Unusable(record) => refuse(record.to_string()),
            TrustStatus::Changed(changes) => refuse(format!(
                "the project's control files are not as they were when it was trusted, so nothing \
                 of it runs\n{}",
                changes.brief().trim_end()
            )),
        }
    }

    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let parsed = Config::parse(project::CONFIG_FILE, self.project.config_text());
        let config = parsed.map_err(|error| {
            let exit = if error.tier_refused() {
                Exit::Isolation
            } else {
                Exit::Usage
            };
            Failure::new(exit, error.to_string())
        })?;
        self.project
            .check_ceilings(&config.sandbox, &self.dirs)
            .map_err(|error| Failure::of(Exit::Usage, &error))?;
        Ok(config)
    }

    pub(crate) fn contracts(&self) -> Result<ContractSet, Failure> {
        let files = self
            .project
            .manifests()
            .map(|file| (file.path.clone(), file.text.clone()));
        ContractSet::parse_with(files, &self.rules()?)
            .map_err(|errors| Failure::new(Exit::Usage, errors.to_string()))
    }

    /// The project's custom types and scope.
    pub(crate) fn rules(&self) -> Result<ProjectRules, Failure> {
        let file = |path| {
            let file = self.project.control_file(path)?;
            Some((file.path.as_str(), file.text.as_str()))
        };
        let servers = file("mcp-config.toml");
        let checked = servers.map_or(Ok(()), |(path, text)| {
            ProjectRules::check_servers(path, text)
        });
        checked
            .and_then(|()| ProjectRules::parse(file("toolclad.toml"), file("scope/scope.toml")))
            .map_err(|errors| Failure::new(Exit::Usage, errors.to_string()))
    }

    pub(crate) fn sources(&self, surface: Surface) -> Vec<PolicySource> {
        self.project
            .policies(surface)
            .map(|file| PolicySource {
                file: file.path.clone(),
                text: file.text.clone(),
            })
            .collect()
    }

    /// Loads and strictly validates the policies of a surface against all tools.
    pub(crate) fn policies(
        &self,
        surface: Surface,
        config: &Config,
        contracts: &ContractSet,
    ) -> Result<Policies, Failure> {
        let tools: Vec<ToolShape> = contracts.iter().map(shape).collect();
        Policies::load(
            &self.sources(surface),
            &tools,
            &launches(),
            &principals(config),
            &[],
        )
        .map_err(|errors| Failure::new(Exit::Usage, errors.to_string()))
    }

    /// What a full check of all surfaces' policies stands for while no file changes.
    pub(crate) fn policy_verdict(&self) -> Digest {
        let mut hasher = model::Hasher::new();
        for surface in Surface::ALL {
            hasher.update(Policies::digest_of(&self.sources(surface)).as_bytes());
        }
        hasher.finish()
    }
}

fn current_dir() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        Failure::new(
            Exit::Usage,
            format!("the current folder cannot be read: {error}"),
        )
        .help("change into a folder that exists, or name one: --project DIR")
    })
}

/// Everybody who may act in the project, on whatever surface: policies that all surfaces share can
/// name any of them.
pub(crate) fn principals(config: &Config) -> Vec<String> {
    let agents = config.agents.keys().map(ToString::to_string);
    [OPERATOR.to_owned(), CLIENT.to_owned()]
        .into_iter()
        .chain(agents)
        .collect()
}

/// The launches that policies can speak of.
pub(crate) fn launches() -> Vec<LaunchShape> {
    let executors = [
        AgentExecutor::ClaudeCode,
        AgentExecutor::Command {
            command: Vec::new(),
        },
    ];
    executors
        .iter()
        .map(|it| LaunchShape {
            executor: it.as_str().to_owned(),
        })
        .collect()
}

/// Checks that every tool an agent may use has a manifest.
pub(crate) fn check_agents(
    open: &OpenProject,
    config: &Config,
    contracts: &ContractSet,
) -> Result<(), Failure> {
    let text = open.project.config_text();
    for (agent, settings) in &config.agents {
        let places = settings.allowed_places.iter();
        for (tool, place) in settings.allowed_tools.iter().zip(places) {
            find_tool(contracts, tool.as_str()).map_err(|failure| {
                let message = format!("`[agents.{agent}]`: {}", failure.message);
                let fault = SourceError::at(project::CONFIG_FILE, text, place.clone(), message);
                Failure {
                    exit: Exit::Usage,
                    message: fault.to_string(),
                    help: failure.help,
                }
            })?;
        }
    }
    Ok(())
}

/// A contract as Cedar sees it.
pub(crate) fn shape(contract: &Contract) -> ToolShape {
    let keys = |creates: bool| {
        contract
            .file_arguments()
            .into_iter()
            .filter(|file| file.creates == creates)
            .map(|file| (file.key, file.optional))
            .collect()
    };
    ToolShape {
        name: contract.name().clone(),
        kind: policy::ToolKind::Command,
        action: contract.cedar_action(),
        resource: contract.cedar_resource_type().map(str::to_owned),
        arguments: contract
            .arguments()
            .filter(|argument| !argument.sensitive())
            .map(|argument| {
                (
                    argument.name().clone(),
                    argument.kind(),
                    argument.always_present(),
                )
            })
            .collect(),
        read_keys: keys(false),
        create_keys: keys(true),
        needs_approval: contract.needs_approval(),
    }
}

/// The tool of that name, or a refusal with the nearest name.
pub(crate) fn find_tool<'a>(
    contracts: &'a ContractSet,
    name: &str,
) -> Result<&'a Contract, Failure> {
    let found = ToolName::new(name)
        .ok()
        .and_then(|name| contracts.get(&name));
    found.ok_or_else(|| {
        let names: Vec<&str> = contracts
            .iter()
            .map(|contract| contract.name().as_str())
            .collect();
        let shown = model::Untrusted::new(name).escaped();
        let failure = Failure::new(Exit::Refused, format!("the project has no tool `{shown}`"));
        match model::nearest(name, names.iter().copied()) {
            Some(near) => failure.help(format!("did you mean `{near}`?")),
            None if names.is_empty() => failure.help("put a manifest into tools/NAME.clad.toml"),
            None => failure.help(format!("its tools are: {}", names.join(", "))),
        }
    })
}
