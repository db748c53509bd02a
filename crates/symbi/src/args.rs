//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use model::{Digest, PublicationId, RunId};

/// Contain an AI agent that nobody trusts, and serve it governed tools.
#[derive(Debug, Parser)]
#[command(
    name = "symbi",
    version,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What all commands take.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The project's folder [default: the nearest parent with a symbiont.toml]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// One JSON object on stdout; diagnostics go to stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The names of the fault points; a release build has none
    #[cfg(debug_assertions)]
    #[command(hide = true)]
    Faults,
    /// Make a project that works at once
    Init(InitArgs),
    /// Show what a project's control files say, and let them take effect
    Trust {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// One governed call of a tool, by the operator
    Call {
        #[command(flatten)]
        call: CallArgs,
        #[command(flatten)]
        approval: ApprovalArgs,
        #[command(flatten)]
        invocation: InvocationId,
    },
    /// Run a contained agent of the project
    Run {
        #[command(flatten)]
        run: RunArgs,
        #[command(flatten)]
        approval: ApprovalArgs,
        #[command(flatten)]
        invocation: InvocationId,
    },
    /// Serve the project's tools to an MCP client over standard input and output
    Mcp(McpArgs),
    /// Watch a hostile agent do real work, contained, with every promise checked
    Demo(DemoArgs),
    /// Show, check and try the project's tools
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Check, explain and test the project's policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Decide held calls of running runs, from another terminal
    #[command(subcommand)]
    Gate(GateCommand),
    /// Verify and read journals
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Look into an interrupted call or run, and finish what it left
    #[command(subcommand)]
    Invocation(InvocationCommand),
    /// Try on this machine whether workers are isolated, and say what to do where they are not
    Doctor(DoctorArgs),
    /// Keep watch, so that no container outlives its owner; runs start it by themselves
    Supervisor(SupervisorArgs),
    /// Look at containers, capacity and staging space, and remove what is dead
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// Print what lets a shell complete commands and options
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands, for `man`
    Manual {
        /// The folder for the pages, which must be there: ~/.local/share/man/man1
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Only print the AppArmor profile of symbi-init
    #[arg(long)]
    pub(crate) apparmor_profile: bool,
}

/// Who is asked about calls that demand a person's approval. Without any of these and without
/// `[approval] surfaces` such calls are refused at once.
#[derive(Debug, Default, Args)]
pub(crate) struct ApprovalArgs {
    /// Ask on this terminal
    #[arg(long)]
    pub(crate) approval_terminal: bool,
    /// Let `symbi gate` in another terminal answer
    #[arg(long)]
    pub(crate) approval_gate: bool,
    /// How long a held call waits for an answer, in seconds [default: the configuration's]
    #[arg(long, value_name = "S",
          value_parser = clap::value_parser!(u64).range(1..=project::limits::APPROVAL_SECONDS_MAX))]
    pub(crate) approval_timeout: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GateCommand {
    /// All held calls
    List,
    /// The whole of one held call; exactly this text is signed
    Show {
        /// The held call's id
        id: String,
        /// Show this input instead: an argument's name. It is the snapshot that the call gets,
        /// escaped, 64 KiB at a time
        #[arg(long, value_name = "ARGUMENT")]
        file: Option<String>,
        /// Where to begin in it
        #[arg(long, value_name = "BYTE", requires = "file", default_value_t = 0)]
        from: u64,
    },
    /// Let exactly this call run
    Approve {
        /// The held call's id
        id: String,
        /// Sign with this SSH private key, or with the ssh-agent's where it is a public key
        #[arg(long, value_name = "KEY")]
        sign: Option<PathBuf>,
        /// A signature made elsewhere: ssh-keygen -Y sign -n symbi-approval-v1
        #[arg(long, value_name = "FILE", conflicts_with = "sign")]
        signature: Option<PathBuf>,
    },
    /// Refuse this call
    Deny {
        /// The held call's id
        id: String,
    },
    /// Held calls as they come and go
    Watch,
}

#[derive(Debug, Args)]
pub(crate) struct SupervisorArgs {
    /// Stay when there is nothing left to do
    #[arg(long)]
    pub(crate) persistent: bool,
    /// The user's folders, where the environment is empty: configuration, state, sockets
    #[arg(long, hide = true, num_args = 3, value_names = ["DIR", "DIR", "DIR"])]
    pub(crate) folders: Vec<PathBuf>,
    /// Start another one, detached from the caller, and end
    #[arg(long, hide = true)]
    pub(crate) detach: bool,
    /// Say on standard output when it listens
    #[arg(long, hide = true)]
    pub(crate) ready: bool,
    /// It runs in a unit of a service manager's
    #[arg(long, hide = true)]
    pub(crate) unit: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Supervisor, leases, containers, capacity and staging space; changes nothing
    Status,
    /// Remove what is provably dead, and say what that was
    Prune,
}

#[derive(Debug, Args)]
pub(crate) struct InvocationId {
    /// The run's id. It is claimed before any work and does work once: repeated, it gives the
    /// saved result
    #[arg(long = "invocation-id", value_name = "UUID")]
    pub(crate) id: Option<RunId>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InvocationCommand {
    /// Where an invocation stands, and what to do next
    Inspect {
        /// The run's id
        #[arg(long, value_name = "RUN")]
        id: RunId,
    },
    /// Where one unfinished publication stands; changes nothing
    FileInspect {
        /// The run's id
        #[arg(long, value_name = "RUN")]
        id: RunId,
        /// The publication's id
        #[arg(long, value_name = "ID")]
        publication: PublicationId,
    },
    /// Finish one publication, exactly as it was inspected
    FileRecover {
        /// The run's id
        #[arg(long, value_name = "RUN")]
        id: RunId,
        /// The publication's id
        #[arg(long, value_name = "ID")]
        publication: PublicationId,
        /// What `file-inspect` printed
        #[arg(long, value_name = "HASH")]
        snapshot_hash: Digest,
    },
    /// Close an invocation for good: nothing of it is published or run any more
    Resolve {
        /// The run's id
        #[arg(long, value_name = "RUN")]
        id: RunId,
        /// How it ended, and how that is known
        #[arg(long, value_name = "TEXT")]
        rationale: String,
        /// A file that speaks for it; its hash is signed
        #[arg(long, value_name = "FILE")]
        evidence: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// A folder that is absent or holds none of the files to be made
    #[arg(required_unless_present = "mcp_json")]
    pub(crate) dir: Option<PathBuf>,
    /// Make nothing; print what a client's .mcp.json needs to use a project that is there
    #[arg(long)]
    pub(crate) mcp_json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// The client's name in policies: `mcp`, or an agent of the project
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) principal: Option<String>,
    /// Most tool calls of the session
    #[arg(long, value_name = "N", default_value_t = governance::limits::CALLS_MAX)]
    pub(crate) max_calls: u64,
    /// Most time of the session, in seconds
    #[arg(long, value_name = "S", default_value_t = governance::limits::LIFETIME_MAX.as_secs())]
    pub(crate) budget_timeout: u64,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// The tool's name
    pub(crate) tool: String,
    /// An argument, as often as needed
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// An argument whose value is a file's text, without the line end at its end; `-` reads
    /// standard input. Others can list this command's words, and not the file
    #[arg(long = "arg-file", value_name = "NAME=FILE")]
    pub(crate) argument_files: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The agent's name in `[agents.NAME]`
    pub(crate) agent: String,
    /// What the agent is to do
    #[arg(long)]
    pub(crate) task: String,
    /// Most turns of the agent's own client, where it counts them (Claude Code) [default: the
    /// configuration's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_turns: Option<u64>,
    /// Most tool calls of the run
    #[arg(long, value_name = "N", default_value_t = governance::limits::CALLS_DEFAULT)]
    pub(crate) max_calls: u64,
    /// Most time of the run, in seconds
    #[arg(long, value_name = "S", default_value_t = governance::limits::LIFETIME_DEFAULT.as_secs())]
    pub(crate) budget_timeout: u64,
    /// Most output tokens that the run may reserve [default: the configuration's]
    #[arg(long, value_name = "N")]
    pub(crate) budget_tokens: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Leave the project in a folder that is absent or empty
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// The Cargo.lock to make the report of [default: the one of symbi itself]
    #[arg(long, value_name = "FILE")]
    pub(crate) lock: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// The project's tools
    List,
    /// Check manifests without trusting the project
    Validate {
        /// One manifest [default: all of the project's]
        file: Option<PathBuf>,
        /// Warn of what plain ToolClad runners would not do
        #[arg(long)]
        portable: bool,
    },
    /// Check arguments as a call does, and show what would run; nothing runs
    Test(CallArgs),
    /// A tool's definition as clients see it, in JSON
    Schema {
        /// The tool's name
        tool: String,
    },
    /// Write a commented manifest that is valid, and a policy for it; nothing is overwritten
    Init {
        /// The new tool's name
        name: model::ToolName,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// What the policies say to a call, and why; nothing runs
    Explain {
        #[command(flatten)]
        call: CallArgs,
        /// Whose call: operator, mcp or the name of an agent
        #[arg(long = "as", value_name = "NAME", default_value = crate::open::OPERATOR)]
        principal: String,
    },
    /// Check a table of calls against the verdicts that they must get
    Test {
        /// TOML with a `[[case]]` for each call
        file: PathBuf,
    },
    /// Parse and strictly validate all policies against the project's tools
    Check,
    /// The generated Cedar schema
    Schema {
        /// call, run or mcp
        #[arg(default_value = "call")]
        surface: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// All runs of the project's ledger, with a verdict each
    List {
        /// Check every signature, compare the anchors, name journals that no run explains
        #[arg(long)]
        strict: bool,
    },
    /// Verify a run's journal
    Verify(VerifyArgs),
    /// A run as a story
    Show {
        /// A run id or a file
        target: String,
        /// Only this call, by its id or digest
        #[arg(long, value_name = "ID")]
        call: Option<String>,
    },
    /// Prove what one call did, disclosing nothing else of its run
    Prove {
        /// A run id or a file
        target: String,
        /// The call's id or digest
        call: String,
        /// Write a new file [default: stdout]
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Check a proof of one call; needs no journal and no project
    CheckProof {
        /// What `audit prove` wrote
        file: PathBuf,
        /// The verifier key: C2SP text, hex, or a file that holds it
        #[arg(long, value_name = "KEY")]
        public_key: Option<String>,
    },
    /// The project's verifier key
    #[command(args_conflicts_with_subcommands = true)]
    Key {
        /// As 64 hexadecimal digits
        #[arg(long)]
        hex: bool,
        #[command(subcommand)]
        command: Option<KeyCommand>,
    },
    /// Move the journals of old runs to another folder
    Archive(ArchiveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// A run id or a file
    pub(crate) target: String,
    /// The verifier key: C2SP text, hex, or a file that holds it [default: the project's own]
    #[arg(long, value_name = "KEY")]
    pub(crate) public_key: Option<String>,
    /// The run that the file must hold
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<RunId>,
    /// A file of checkpoints that somebody else keeps, besides the configured ones
    #[arg(long, value_name = "FILE")]
    pub(crate) anchor: Vec<PathBuf>,
    /// Demand that an anchor holds the last record's head
    #[arg(long)]
    pub(crate) require_anchor: bool,
    /// Where the files are that records name as evidence [default: the project's, for its own runs]
    #[arg(long, value_name = "DIR", conflicts_with = "last_only")]
    pub(crate) evidence: Option<PathBuf>,
    /// Check the last signature only, which vouches for all records: ten times faster
    #[arg(long)]
    pub(crate) last_only: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Replace the signing key; old runs stay verifiable through the ledger
    Rotate,
}

#[derive(Debug, Args)]
pub(crate) struct ArchiveArgs {
    /// The runs to move
    #[arg(required_unless_present = "before")]
    pub(crate) runs: Vec<RunId>,
    /// All ended runs that started before this day
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day, conflicts_with = "runs")]
    pub(crate) before: Option<String>,
    /// Where the journals go; made (0700) where absent
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
}

/// A day as RFC 3339 writes it, which sorts as text.
fn day(text: &str) -> Result<String, String> {
    let form = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    match text.len() == 10 && text.bytes().enumerate().all(form) {
        true => Ok(text.to_owned()),
        false => Err("write the day like 2026-01-31".to_owned()),
    }
}
