//! A call's arguments, bound to a contract: checked values, one argv, the declared files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use model::{ArgumentName, ArgumentValue, Digest, Hasher, JsonObject, RelativePath, ToolName};

use crate::backend::{Unserved, Work};
use crate::command::{Command, Filling, ScanId, TooLong};
use crate::contract::{ArgumentSpec, Contract};
use crate::grants::SamePath;
use crate::kind::{Checked, Given};
use crate::limits::{ARGV_BYTES_MAX, ARGV_ENTRIES_MAX};
use crate::reach::{NoResolver, Resolver};
use crate::reader::{listed, quoted, suggestion};
use crate::value::ValueFault;

/// What a call with accepted arguments will run and touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundCall {
    /// Given and default values; an optional argument without either is absent.
    pub arguments: BTreeMap<ArgumentName, ArgumentValue>,
    /// The program first.
    pub argv: Vec<String>,
    /// By argument name, or by index for a literal path.
    pub reads: BTreeMap<String, RelativePath>,
    pub creates: BTreeMap<String, RelativePath>,
    pub clamped: Vec<Clamped>,
    /// Present arguments for whose value only a salted hash may stand, in a record or a message.
    pub sensitive: BTreeSet<ArgumentName>,
    /// Arguments whose hidden parts were taken out.
    pub stripped: BTreeSet<ArgumentName>,
    /// The argv with `[sensitive]` in place of such values, for whoever shows it.
    pub shown_argv: Vec<String>,
    /// The public addresses that a host name had when it was checked: whoever connects for it uses
    /// these.
    pub resolved: BTreeMap<ArgumentName, Vec<IpAddr>>,
}

/// What a record says of one argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedValue {
    Plain(ArgumentValue),
    /// SHA-256 of a purpose, the salt, and the lengths and bytes of name and value.
    Salted(Digest),
}

/// What a call is checked against besides the manifest and the project.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// For host names under `block_internal`.
    pub resolver: &'a dyn Resolver,
    /// For `{_scan_id}`.
    pub scan_id: Option<&'a ScanId>,
}

impl fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings")
            .field("scan_id", &self.scan_id)
            .finish_non_exhaustive()
    }
}

impl Default for Surroundings<'_> {
    /// No host is known, and no call has an identity.
    fn default() -> Self {
        Self {
            resolver: &NoResolver,
            scan_id: None,
        }
    }
}

impl BoundCall {
    /// The arguments as a record may keep them. `salt` is secret and random, one a run.
    #[must_use]
    pub fn recorded(&self, salt: &[u8; 32]) -> BTreeMap<ArgumentName, RecordedValue> {
        let record = |(name, value): (&ArgumentName, &ArgumentValue)| {
            let recorded = if self.sensitive.contains(name) {
                RecordedValue::Salted(salted_digest(salt, name, value))
            } else {
                RecordedValue::Plain(value.clone())
            };
            (name.clone(), recorded)
        };
        self.arguments.iter().map(record).collect()
    }
}

/// The hash that stands for a sensitive argument's value, as it prints in argv.
#[must_use]
pub fn salted_digest(salt: &[u8; 32], name: &ArgumentName, value: &ArgumentValue) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update(b"symbi sensitive argument v1\0");
    hasher.update(salt);
    let printed = value.to_string();
    for part in [name.as_str(), printed.as_str()] {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finish()
}

/// A value that the manifest's bounds changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clamped {
    pub argument: ArgumentName,
    pub asked: ArgumentValue,
    pub used: ArgumentValue,
}

/// Why a call's arguments do not fit the contract. The message is safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindError {
    /// `argument` is raw: a client wrote it.
    Undeclared {
        tool: ToolName,
        argument: String,
        valid: Vec<ArgumentName>,
    },
    Missing {
        argument: ArgumentName,
    },
    Value {
        argument: ArgumentName,
        fault: ValueFault,
    },
    /// The same where the value is sensitive: what is wrong with it would tell of it.
    Sensitive {
        argument: ArgumentName,
    },
    /// Two grants name one file.
    SamePath {
        first: String,
        second: String,
        path: RelativePath,
    },
    /// All arguments together make too long a command.
    ArgvTooLong {
        bytes_max: usize,
    },
    ArgvTooMany {
        entries_max: usize,
    },
    /// The manifest's backend or parser is not served yet.
    Unserved(Unserved),
    /// The command has `{_scan_id}`, and the caller gave none.
    NoScanId,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undeclared {
                tool,
                argument,
                valid,
            } => {
                write!(f, "tool `{tool}` has no argument {}", quoted(argument))?;
                let names: Vec<&str> = valid.iter().map(ArgumentName::as_str).collect();
                if names.is_empty() {
                    return f.write_str("; it takes none");
                }
                if let Some(help) = suggestion(argument, &names) {
                    write!(f, "; {help}")?;
                }
                write!(f, "; valid arguments are {}", listed(names))
            }
            Self::Missing { argument } => {
                write!(f, "argument `{argument}` is required; give it a value")
            }
            Self::Value { argument, fault } => write!(f, "argument `{argument}` {fault}"),
            Self::Sensitive { argument } => write!(
                f,
                "argument `{argument}` does not fit its type; it is sensitive, so what is wrong with \
                 it is not told: `symbi tools schema` says what is right"
            ),
            Self::SamePath {
                first,
                second,
                path,
            } => write!(
                f,
                "`{first}` and `{second}` name the same file {}; name two",
                quoted(path.as_str())
            ),
            Self::ArgvTooLong { bytes_max } => write!(
                f,
                "the arguments make a command of more than the {bytes_max} bytes allowed; give less"
            ),
            Self::ArgvTooMany { entries_max } => write!(
                f,
                "the arguments make a command of more than the {entries_max} entries allowed; give less"
            ),
            Self::Unserved(unserved) => unserved.fmt(f),
            Self::NoScanId => {
                f.write_str("the command names its call's id, and this call has none")
            }
        }
    }
}

impl std::error::Error for BindError {}

impl From<SamePath> for BindError {
    fn from(same: SamePath) -> Self {
        Self::SamePath {
            first: same.first,
            second: same.second,
            path: same.path,
        }
    }
}

impl From<TooLong> for BindError {
    fn from(too_long: TooLong) -> Self {
        match too_long {
            TooLong::Bytes => Self::ArgvTooLong {
                bytes_max: ARGV_BYTES_MAX,
            },
            TooLong::Entries => Self::ArgvTooMany {
                entries_max: ARGV_ENTRIES_MAX,
            },
        }
    }
}

/// The arguments of one call, checked.
#[derive(Default)]
struct CheckedArguments {
    values: BTreeMap<ArgumentName, ArgumentValue>,
    clamped: Vec<Clamped>,
    stripped: BTreeSet<ArgumentName>,
    resolved: BTreeMap<ArgumentName, Vec<IpAddr>>,
}

impl Contract {
    /// Checks a call's arguments and renders what the call will run, where no host name must be
    /// looked up and the command does not name its call. JSON numbers and booleans and their
    /// spellings as strings are both accepted.
    ///
    /// # Errors
    /// [`BindError`] for the first argument that does not fit.
    pub fn bind(&self, arguments: &JsonObject) -> Result<BoundCall, BindError> {
        self.bind_with(arguments, &Surroundings::default())
    }

    /// The same with what the call's surroundings know.
    ///
    /// # Errors
    /// [`BindError`] for the first argument that does not fit.
    pub fn bind_with(
        &self,
        arguments: &JsonObject,
        surroundings: &Surroundings<'_>,
    ) -> Result<BoundCall, BindError> {
        let command = self.served_command()?;
        self.refuse_undeclared(arguments)?;
        if surroundings.scan_id.is_none() && command.names_scan_id() {
            return Err(BindError::NoScanId);
        }
        let checked = self.check_arguments(arguments, surroundings.resolver)?;
        let sensitive: BTreeSet<ArgumentName> = self
            .arguments
            .iter()
            .filter(|spec| spec.sensitive && checked.values.contains_key(&spec.name))
            .map(|spec| spec.name.clone())
            .collect();
        let filling = Filling {
            values: &checked.values,
            scan_id: surroundings.scan_id,
            hidden: &BTreeSet::new(),
        };
        let argv = command.render(filling)?;
        let shown_argv = if sensitive.is_empty() {
            argv.clone()
        } else {
            let hidden = &sensitive;
            command.render(Filling { hidden, ..filling })?
        };
        let files = self.grants.bind(&checked.values)?;
        Ok(BoundCall {
            arguments: checked.values,
            argv,
            reads: files.reads,
            creates: files.creates,
            clamped: checked.clamped,
            sensitive,
            stripped: checked.stripped,
            shown_argv,
            resolved: checked.resolved,
        })
    }

    fn served_command(&self) -> Result<&Command, BindError> {
        match (&self.work, self.unserved()) {
            (_, Some(unserved)) => Err(BindError::Unserved(unserved)),
            (Work::Command(command), None) => Ok(command),
            (Work::Mcp(_), None) => Err(BindError::Unserved(Unserved::Mcp)),
            (Work::Source(_), None) => Err(BindError::Unserved(Unserved::Source)),
            (Work::Session(_), None) => Err(BindError::Unserved(Unserved::Session)),
        }
    }

    fn refuse_undeclared(&self, arguments: &JsonObject) -> Result<(), BindError> {
        let declared = |key: &str| self.arguments.iter().any(|spec| spec.name.as_str() == key);
        match arguments.as_map().keys().find(|key| !declared(key)) {
            Some(key) => Err(BindError::Undeclared {
                tool: self.name.clone(),
                argument: key.clone(),
                valid: self
                    .arguments
                    .iter()
                    .map(|spec| spec.name.clone())
                    .collect(),
            }),
            None => Ok(()),
        }
    }

    /// All values first; a name is looked up only where every value is accepted.
    fn check_arguments(
        &self,
        arguments: &JsonObject,
        resolver: &dyn Resolver,
    ) -> Result<CheckedArguments, BindError> {
        let mut all = CheckedArguments::default();
        let mut targets = Vec::new();
        for spec in &self.arguments {
            let Some(checked) = check_argument(spec, arguments)? else {
                continue;
            };
            if let Some(asked) = checked.clamped {
                all.clamped.push(Clamped {
                    argument: spec.name.clone(),
                    asked,
                    used: checked.value.clone(),
                });
            }
            if checked.stripped {
                all.stripped.insert(spec.name.clone());
            }
            if let Some(target) = checked.target {
                targets.push((spec, target));
            }
            all.values.insert(spec.name.clone(), checked.value);
        }
        for (spec, target) in targets {
            let rules = spec.kind.target_rules();
            let found = rules.check(&target, self.scope.as_deref(), resolver);
            let found = found.map_err(|fault| told(spec, ValueFault::Target(fault)))?;
            if let Some(addresses) = found {
                all.resolved.insert(spec.name.clone(), addresses);
            }
        }
        Ok(all)
    }
}

/// What may be told of a value that is not accepted.
fn told(spec: &ArgumentSpec, fault: ValueFault) -> BindError {
    let argument = spec.name.clone();
    match fault {
        fault @ ValueFault::Type { .. } => BindError::Value { argument, fault },
        _ if spec.sensitive => BindError::Sensitive { argument },
        fault => BindError::Value { argument, fault },
    }
}

/// The value that a call gives, or the manifest's default. A default that names a target is looked
/// at again: what it reaches is the project's and the network's to say.
fn check_argument(
    spec: &ArgumentSpec,
    arguments: &JsonObject,
) -> Result<Option<Checked>, BindError> {
    let fault = |fault| told(spec, fault);
    if let Some(json) = arguments.as_map().get(spec.name.as_str()) {
        let given = Given::from_json(json).map_err(|found| {
            fault(ValueFault::Type {
                expected: "a single value",
                found,
            })
        })?;
        return spec.kind.check(&given).map(Some).map_err(fault);
    }
    match &spec.default {
        Some(ArgumentValue::Text(text) | ArgumentValue::IpAddress(text))
            if spec.kind.target_rules().any() =>
        {
            let given = Given::Text(text);
            spec.kind.check(&given).map(Some).map_err(fault)
        }
        Some(default) => Ok(Some(Checked::plain(default.clone()))),
        None if spec.required => Err(BindError::Missing {
            argument: spec.name.clone(),
        }),
        None => Ok(None),
    }
}
