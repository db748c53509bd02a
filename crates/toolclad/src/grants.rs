//! `[filesystem]`: the files that one call may read, and the one that it may create.

use std::collections::BTreeMap;

use model::{ArgumentName, ArgumentValue, CreateMode, RelativePath};

use crate::contract::ArgumentSpec;
use crate::limits::FILE_BYTES_DEFAULT;

/// One entry of `read` or `create`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Grant {
    Literal {
        /// Its index in the manifest's array, as text.
        key: String,
        path: RelativePath,
    },
    Argument(ArgumentName),
}

impl Grant {
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Literal { key, .. } => key,
            Self::Argument(name) => name.as_str(),
        }
    }
}

/// The whole table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grants {
    pub(crate) read: Vec<Grant>,
    pub(crate) create: Vec<Grant>,
    pub(crate) max_file_bytes: u64,
    pub(crate) create_mode: CreateMode,
}

impl Default for Grants {
    fn default() -> Self {
        Self {
            read: Vec::new(),
            create: Vec::new(),
            max_file_bytes: FILE_BYTES_DEFAULT,
            create_mode: CreateMode::File,
        }
    }
}

/// A key that can stand under `filesystem.read` or `filesystem.create` of a bound call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileArgument {
    /// The argument's name, or a literal's index in the manifest's array as text.
    pub key: String,
    /// Under `create`, else under `read`.
    pub creates: bool,
    /// A call can leave it out, and then nothing is granted.
    pub optional: bool,
}

/// A path that two grants of one call name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SamePath {
    pub(crate) first: String,
    pub(crate) second: String,
    pub(crate) path: RelativePath,
}

/// The paths of one call, by key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BoundFiles {
    pub(crate) reads: BTreeMap<String, RelativePath>,
    pub(crate) creates: BTreeMap<String, RelativePath>,
}

impl Grants {
    pub(crate) fn file_arguments(&self, arguments: &[ArgumentSpec]) -> Vec<FileArgument> {
        let describe = |grant: &Grant, creates: bool| FileArgument {
            key: grant.key().to_owned(),
            creates,
            optional: match grant {
                Grant::Literal { .. } => false,
                Grant::Argument(name) => !arguments
                    .iter()
                    .any(|argument| argument.name == *name && argument.always_present()),
            },
        };
        let reads = self.read.iter().map(|grant| describe(grant, false));
        let creates = self.create.iter().map(|grant| describe(grant, true));
        reads.chain(creates).collect()
    }

    /// The files of one call. An absent argument grants nothing.
    pub(crate) fn bind(
        &self,
        arguments: &BTreeMap<ArgumentName, ArgumentValue>,
    ) -> Result<BoundFiles, SamePath> {
        let mut files = BoundFiles::default();
        let mut seen: BTreeMap<RelativePath, String> = BTreeMap::new();
        let reads = self.read.iter().map(|grant| (grant, false));
        let creates = self.create.iter().map(|grant| (grant, true));
        for (grant, create) in reads.chain(creates) {
            let Some(path) = path_of(grant, arguments) else {
                continue;
            };
            let key = grant.key().to_owned();
            if let Some(first) = seen.insert(path.clone(), key.clone()) {
                return Err(SamePath {
                    first,
                    second: key,
                    path,
                });
            }
            let kind = if create {
                &mut files.creates
            } else {
                &mut files.reads
            };
            kind.insert(key, path);
        }
        Ok(files)
    }
}

fn path_of(
    grant: &Grant,
    arguments: &BTreeMap<ArgumentName, ArgumentValue>,
) -> Option<RelativePath> {
    match grant {
        Grant::Literal { path, .. } => Some(path.clone()),
        Grant::Argument(name) => match arguments.get(name)? {
            // A `path` argument was checked as one; the type makes this the same check.
            ArgumentValue::Text(text) => RelativePath::new(text.as_str()).ok(),
            _ => None,
        },
    }
}
