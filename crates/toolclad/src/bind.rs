//! A call's arguments, bound to a contract: checked values, one argv, the declared files.

use std::collections::BTreeMap;
use std::fmt;

use model::{ArgumentName, ArgumentValue, JsonObject, RelativePath, ToolName};

use crate::command::TooLong;
use crate::contract::Contract;
use crate::grants::SamePath;
use crate::kind::Given;
use crate::limits::{ARGV_BYTES_MAX, ARGV_ENTRIES_MAX};
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
            Self::Missing { argument } => write!(f, "argument `{argument}` is required"),
            Self::Value { argument, fault } => write!(f, "argument `{argument}` {fault}"),
            Self::SamePath {
                first,
                second,
                path,
            } => write!(
                f,
                "`{first}` and `{second}` name the same file {}",
                quoted(path.as_str())
            ),
            Self::ArgvTooLong { bytes_max } => write!(
                f,
                "the arguments make a command of more than the {bytes_max} bytes allowed"
            ),
            Self::ArgvTooMany { entries_max } => write!(
                f,
                "the arguments make a command of more than the {entries_max} entries allowed"
            ),
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

impl Contract {
    /// Checks a call's arguments and renders what the call will run. JSON numbers and booleans and
    /// their spellings as strings are both accepted.
    ///
    /// # Errors
    /// [`BindError`] for the first argument that does not fit.
    pub fn bind(&self, arguments: &JsonObject) -> Result<BoundCall, BindError> {
        self.refuse_undeclared(arguments)?;
        let (arguments, clamped) = self.check_values(arguments)?;
        let argv = self.command.render(&arguments)?;
        let files = self.grants.bind(&arguments)?;
        Ok(BoundCall {
            arguments,
            argv,
            reads: files.reads,
            creates: files.creates,
            clamped,
        })
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

    fn check_values(
        &self,
        arguments: &JsonObject,
    ) -> Result<(BTreeMap<ArgumentName, ArgumentValue>, Vec<Clamped>), BindError> {
        let mut values = BTreeMap::new();
        let mut clamped = Vec::new();
        for spec in &self.arguments {
            let fault = |fault| BindError::Value {
                argument: spec.name.clone(),
                fault,
            };
            let Some(json) = arguments.as_map().get(spec.name.as_str()) else {
                match &spec.default {
                    Some(default) => {
                        values.insert(spec.name.clone(), default.clone());
                    }
                    None if spec.required => {
                        return Err(BindError::Missing {
                            argument: spec.name.clone(),
                        });
                    }
                    None => {}
                }
                continue;
            };
            let given = Given::from_json(json).map_err(|found| {
                fault(ValueFault::Type {
                    expected: "a single value",
                    found,
                })
            })?;
            let checked = spec.kind.check(&given).map_err(fault)?;
            if let Some(asked) = checked.clamped {
                clamped.push(Clamped {
                    argument: spec.name.clone(),
                    asked,
                    used: checked.value.clone(),
                });
            }
            values.insert(spec.name.clone(), checked.value);
        }
        Ok((values, clamped))
    }
}
