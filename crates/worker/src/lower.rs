//! From the frozen descriptor to the workers that a tier may start.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;

use model::json::CanonicalError;
use model::{CreateMode, Digest, Hasher, Redacted, RelativePath};

use crate::descriptor::{
    CommandBoundary, CommandDescriptor, Descriptor, LaunchDescriptor, Limits, Network, ProgramFile,
    ProgramIdentity, WorkerRoot,
};

/// Resources that a prepared call owns for its worker. None of them can say what runs.
#[derive(Debug, Default)]
pub struct WorkerHoldings {
    /// Snapshots by their grant's path.
    pub inputs: BTreeMap<RelativePath, File>,
    /// The agent's channel folder on the host.
    pub channel: Option<PathBuf>,
    /// Where the launch's `shown` file is on the host.
    pub shown: Option<PathBuf>,
    /// The entries of argv that the descriptor seals.
    pub sealed: Option<SealedArgv>,
}

/// Entries of a command's argv that are written nowhere, with the salt of their hashes.
#[derive(Debug)]
pub struct SealedArgv {
    pub salt: [u8; 32],
    pub entries: BTreeMap<usize, Redacted<String>>,
}

/// The workers of one call, in the order in which they run.
#[derive(Debug)]
pub struct Workers {
    pub first: WorkerSpec,
    /// Starts after the first has ended well and is gone.
    pub parser: Option<ParserSpec>,
}

/// A worker that lacks only what it reads: the command's output.
#[derive(Debug)]
pub struct ParserSpec(WorkerSpec);

impl ParserSpec {
    /// The parser's worker. `output` is read from its start, and nobody can change it any more.
    #[must_use]
    pub fn reading(self, output: File) -> WorkerSpec {
        WorkerSpec {
            stdin: Some(output),
            ..self.0
        }
    }
}

/// A read-only file in the worker.
#[derive(Debug)]
pub struct WorkerFile {
    /// Below the working directory.
    pub path: RelativePath,
    /// The snapshot; its bytes are the file's content.
    pub content: File,
    pub bytes: u64,
}

/// The one file that the worker may hand back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOutput {
    /// Below the working directory.
    pub path: RelativePath,
    pub mode: CreateMode,
}

/// All that a tier is told. Only [`lower`] makes one.
pub struct WorkerSpec {
    call_digest: Digest,
    argv: Vec<String>,
    environment: BTreeMap<String, String>,
    program: ProgramIdentity,
    root: WorkerRoot,
    network: Network,
    working_dir: String,
    limits: Limits,
    inputs: Vec<WorkerFile>,
    output: Option<WorkerOutput>,
    stdin: Option<File>,
    channel: Option<PathBuf>,
    shown: Option<(ProgramFile, PathBuf)>,
}

/// Without argv, which can hold what nobody may see.
impl fmt::Debug for WorkerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerSpec")
            .field("call_digest", &self.call_digest)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

impl WorkerSpec {
    /// The digest of the call that this worker serves.
    #[must_use]
    pub const fn call_digest(&self) -> Digest {
        self.call_digest
    }
    #[must_use]
    pub fn argv(&self) -> &[String] {
        &self.argv
    }
    #[must_use]
    pub const fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }
    #[must_use]
    pub const fn program(&self) -> &ProgramIdentity {
        &self.program
    }
    #[must_use]
    pub const fn root(&self) -> &WorkerRoot {
        &self.root
    }
    #[must_use]
    pub const fn network(&self) -> Network {
        self.network
    }
    #[must_use]
    pub fn working_dir(&self) -> &str {
        &self.working_dir
    }
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }
    #[must_use]
    pub fn inputs(&self) -> &[WorkerFile] {
        &self.inputs
    }
    #[must_use]
    pub const fn output(&self) -> Option<&WorkerOutput> {
        self.output.as_ref()
    }
    /// What the worker reads as its standard input, from the start of the file; without one there
    /// is nothing to read. A memory file that nobody can change.
    #[must_use]
    pub const fn stdin(&self) -> Option<&File> {
        self.stdin.as_ref()
    }
    /// The agent's channel folder, to be shown read-only at `/channel`.
    #[must_use]
    pub const fn channel(&self) -> Option<&PathBuf> {
        self.channel.as_ref()
    }
    /// A file that has to be shown besides the root, read-only, and its place on the host.
    #[must_use]
    pub const fn shown(&self) -> Option<&(ProgramFile, PathBuf)> {
        self.shown.as_ref()
    }
}

/// Why a descriptor and its holdings do not fit each other.
#[derive(Debug)]
pub enum LowerError {
    MissingInput { path: RelativePath },
    LeftOverInput { path: RelativePath },
    Channel { expected: bool },
    Shown { expected: bool },
    Sealed { expected: bool },
    ParserWithFiles,
    TwoOutputs,
    NoWorker,
    Canonical(CanonicalError),
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingInput { path } => write!(f, "the call holds no snapshot of `{path}`"),
            Self::LeftOverInput { path } => {
                write!(
                    f,
                    "the call holds a snapshot of `{path}` that its descriptor does not name"
                )
            }
            Self::Channel { expected: true } => f.write_str("a launch needs its channel folder"),
            Self::Channel { expected: false } => {
                f.write_str("a command must not hold a channel folder")
            }
            Self::Shown { expected: true } => f.write_str("the launch's own file is missing"),
            Self::Shown { expected: false } => {
                f.write_str("the call holds a file of its own that its descriptor does not name")
            }
            Self::Sealed { expected: true } => {
                f.write_str("a sealed entry of argv is missing, or is not the authorized one")
            }
            Self::Sealed { expected: false } => {
                f.write_str("the call holds an entry of argv that its descriptor does not seal")
            }
            Self::ParserWithFiles => f.write_str("an output parser gets no files"),
            Self::TwoOutputs => f.write_str("a call creates at most one file"),
            Self::NoWorker => f.write_str("this kind of call runs in no worker"),
            Self::Canonical(_) => f.write_str("the descriptor has no canonical form"),
        }
    }
}

impl std::error::Error for LowerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Canonical(error) => Some(error),
            _ => None,
        }
    }
}

/// The workers of `descriptor`, given what its call holds. Pure; consumes the holdings, and
/// fails where one is missing or left over.
///
/// # Errors
/// [`LowerError`] says what does not fit.
pub fn lower(descriptor: &Descriptor, holdings: WorkerHoldings) -> Result<Workers, LowerError> {
    let call_digest = descriptor
        .canonical()
        .map_err(LowerError::Canonical)?
        .digest();
    match descriptor {
        Descriptor::Command(it) => command(it, holdings, call_digest),
        Descriptor::Launch(it) => launch(it, holdings, call_digest),
        Descriptor::Custom { .. } => Err(LowerError::NoWorker),
    }
}

fn command(
    command: &CommandDescriptor,
    holdings: WorkerHoldings,
    call_digest: Digest,
) -> Result<Workers, LowerError> {
    if holdings.channel.is_some() {
        return Err(LowerError::Channel { expected: false });
    }
    if holdings.shown.is_some() {
        return Err(LowerError::Shown { expected: false });
    }
    let work = Work {
        call_digest,
        argv: unsealed(command, holdings.sealed)?,
        environment: &command.environment,
        program: &command.program,
        boundary: &command.boundary,
    };
    let parser = command.parser.as_ref().map(|parser| {
        let files = &parser.boundary.filesystem;
        if !(files.read.is_empty() && files.create.is_empty()) {
            return Err(LowerError::ParserWithFiles);
        }
        let work = Work {
            call_digest,
            argv: parser.argv.clone(),
            environment: &parser.environment,
            program: &parser.program,
            boundary: &parser.boundary,
        };
        work.spec(BTreeMap::new()).map(ParserSpec)
    });
    Ok(Workers {
        first: work.spec(holdings.inputs)?,
        parser: parser.transpose()?,
    })
}

fn launch(
    launch: &LaunchDescriptor,
    holdings: WorkerHoldings,
    call_digest: Digest,
) -> Result<Workers, LowerError> {
    let Some(channel) = holdings.channel else {
        return Err(LowerError::Channel { expected: true });
    };
    if holdings.sealed.is_some() {
        return Err(LowerError::Sealed { expected: false });
    }
    let shown = match (launch.shown.clone(), holdings.shown) {
        (Some(identity), Some(host)) => Some((identity, host)),
        (None, None) => None,
        (own_file, _) => {
            return Err(LowerError::Shown {
                expected: own_file.is_some(),
            });
        }
    };
    let work = Work {
        call_digest,
        argv: launch.argv.clone(),
        environment: &launch.environment,
        program: &launch.program,
        boundary: &launch.boundary,
    };
    Ok(Workers {
        first: WorkerSpec {
            channel: Some(channel),
            shown,
            ..work.spec(holdings.inputs)?
        },
        parser: None,
    })
}

/// The command's real argv: each sealed entry is the one whose salted hash was authorized.
fn unsealed(
    command: &CommandDescriptor,
    sealed: Option<SealedArgv>,
) -> Result<Vec<String>, LowerError> {
    let mut argv = command.argv.clone();
    let Some(SealedArgv { salt, mut entries }) = sealed else {
        return match command.sealed.argv.is_empty() {
            true => Ok(argv),
            false => Err(LowerError::Sealed { expected: true }),
        };
    };
    for (index, digest) in &command.sealed.argv {
        let entry = entries
            .remove(index)
            .filter(|entry| sealed_entry_digest(&salt, *index, entry.expose()) == *digest);
        match (argv.get_mut(*index), entry) {
            (Some(shown), Some(entry)) => shown.clone_from(entry.expose()),
            _ => return Err(LowerError::Sealed { expected: true }),
        }
    }
    match entries.is_empty() {
        true => Ok(argv),
        false => Err(LowerError::Sealed { expected: false }),
    }
}

/// The hash that stands for a whole entry of argv.
#[must_use]
pub fn sealed_entry_digest(salt: &[u8; 32], index: usize, entry: &str) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update(b"symbi sealed argv v1\0");
    hasher.update(salt);
    hasher.update(&(index as u64).to_be_bytes());
    hasher.update(entry.as_bytes());
    hasher.finish()
}

/// What a descriptor says of one of its workers.
struct Work<'a> {
    call_digest: Digest,
    argv: Vec<String>,
    environment: &'a BTreeMap<String, String>,
    program: &'a ProgramIdentity,
    boundary: &'a CommandBoundary,
}

impl Work<'_> {
    fn spec(self, mut inputs: BTreeMap<RelativePath, File>) -> Result<WorkerSpec, LowerError> {
        let files = take_inputs(self.boundary, &mut inputs)?;
        if let Some((path, _)) = inputs.pop_first() {
            return Err(LowerError::LeftOverInput { path });
        }
        let mut created = self.boundary.filesystem.create.values();
        let output = created.next().map(|grant| WorkerOutput {
            path: grant.path.clone(),
            mode: grant.mode,
        });
        if created.next().is_some() {
            return Err(LowerError::TwoOutputs);
        }
        Ok(WorkerSpec {
            call_digest: self.call_digest,
            argv: self.argv,
            environment: self.environment.clone(),
            program: self.program.clone(),
            root: self.boundary.root.clone(),
            network: self.boundary.network,
            working_dir: self.boundary.working_dir.clone(),
            limits: self.boundary.limits.clone(),
            inputs: files,
            output,
            stdin: None,
            channel: None,
            shown: None,
        })
    }
}

fn take_inputs(
    boundary: &CommandBoundary,
    inputs: &mut BTreeMap<RelativePath, File>,
) -> Result<Vec<WorkerFile>, LowerError> {
    let take = |grant: &crate::descriptor::ReadGrant| match inputs.remove(&grant.path) {
        Some(content) => Ok(WorkerFile {
            path: grant.path.clone(),
            content,
            bytes: grant.bytes,
        }),
        None => Err(LowerError::MissingInput {
            path: grant.path.clone(),
        }),
    };
    boundary.filesystem.read.values().map(take).collect()
}

#[cfg(test)]
#[path = "lower_tests.rs"]
mod tests;
