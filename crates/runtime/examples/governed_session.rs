//! A program of your own that lets an untrusted client call governed tools: all the parts, once.
//!
//! `cargo run -p symbi-runtime --example governed_session` (Linux; needs `symbi-init` beside the
//! built program: `cargo build -p sandbox-init`).

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use filegrants::{Ceilings, FileBroker};
use governance::{LoopConfig, LoopState};
use journal::{Client, ProjectKey, RunFiles, Verdict, VerifyOptions, verify_file};
use model::RunId;
use policy::{Policies, PolicySource, ToolKind, ToolShape};
use sandbox::{NamespaceConfig, NamespaceTier};
use symbi_runtime::reasoning::governed_session::{
    Answer, Approvals, BrokerToolCall, GovernedToolSession, SessionParts,
};
use symbi_runtime::tools::{BoundarySettings, ToolExecutor};
use symbi_runtime::{CedarGate, LedgerRegister};
use toolclad::ContractSet;
use worker::WorkerRoot;

/// Who the client is, in policies and records. No client can say so itself.
const PRINCIPAL: &str = "assistant";

/// What may be called, and how it runs.
const MANIFEST: &str = r#"
[tool]
name = "count_words"
version = "1.0.0"
description = "Count the words of a file"
binary = "wc"
timeout_seconds = 10
[args.input]
position = 1
required = true
type = "path"
[command]
exec = ["wc", "-w", "{input}"]
[filesystem]
read = ["{input}"]
"#;

/// Who may call it, and with which files. What nothing permits is denied.
const POLICY: &str = r#"
@id("notes-only")
permit(principal == Agent::"assistant", action == Action::"tool_call::count_words", resource)
when { context.invocation.resolved.command_boundary.filesystem.read.input.parent == "notes" };
"#;

/// The tools on a tier, with the files that they may see.
fn executor(folder: &Path) -> Result<ToolExecutor, Box<dyn Error>> {
    let contracts =
        ContractSet::parse([("count_words.clad.toml".to_owned(), MANIFEST.to_owned())])?;
    let init = sandbox::locate_init(&std::env::current_exe()?, None)?;
    let tier = NamespaceTier::new(NamespaceConfig::new(init))?;
    let volume = "./notes:/workspace/notes:ro".to_owned();
    let ceilings = Ceilings::parse(&[volume], "/workspace")?;
    let project = std::fs::File::open(folder)?.into();
    let files = FileBroker::open(project, &folder.join("staging"), ceilings)?;
    let settings = BoundarySettings {
        root: WorkerRoot::System { also: Vec::new() },
        network: worker::Network::None,
        working_dir: "/workspace".to_owned(),
        memory_mib: 256,
        cpu_milli: 1000,
        pids: 16,
        file_bytes: 1 << 20,
        scratch_bytes: 1 << 20,
        stream_bytes: 1 << 20,
        time_ms: 10_000,
        require_enforced: false,
        parsers: Vec::new(),
    };
    Ok(ToolExecutor::new(
        contracts,
        None,
        files,
        Box::new(tier),
        settings,
    ))
}

/// The policies, strictly validated against what the tools are.
fn gate() -> Result<CedarGate, Box<dyn Error>> {
    let source = PolicySource {
        file: "policy.cedar".to_owned(),
        text: POLICY.to_owned(),
    };
    let shape = ToolShape {
        name: model::ToolName::new("count_words")?,
        kind: ToolKind::Command,
        action: None,
        resource: None,
        arguments: vec![(
            model::ArgumentName::new("input")?,
            model::PolicyType::Text,
            true,
        )],
        read_keys: vec![("input".to_owned(), false)],
        create_keys: Vec::new(),
        needs_approval: false,
    };
    let principals = [PRINCIPAL.to_owned()];
    let policies = Policies::load(&[source], &[shape], &[], &principals, &[])?;
    Ok(CedarGate::new(Arc::new(policies)))
}

/// Serves two calls in a session whose signed journal is below `folder`; returns what they said.
pub(crate) async fn serve(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let (run, key) = (RunId::new(), ProjectKey::generate()?);
    let files = RunFiles::create(&folder.join("state"), run, PRINCIPAL, &key)?;
    let journal = files.path().to_owned();
    let session = GovernedToolSession::start(SessionParts {
        executor: Box::new(executor(folder)?),
        gate: Box::new(gate()?),
        journal: files.journal().clone(),
        register: Some(Box::new(LedgerRegister::new(files))),
        state: LoopState {
            run,
            principal: PRINCIPAL.to_owned(),
            trusted: BTreeMap::new(),
        },
        config: LoopConfig {
            max_calls: 10,
            lifetime: Duration::from_secs(60),
            ..LoopConfig::default()
        },
        approvals: Approvals::Nobody {
            advice: "this program asks nobody".to_owned(),
        },
        project: "example".to_owned(),
        client: Client::Library,
        init_sha256: None,
        one_shot: false,
        observer: None,
    })?;
    let names = session.tools().iter().map(|tool| tool.name.to_string());
    let mut said = vec![format!("tools: {}", names.collect::<Vec<_>>().join(", "))];
    // A call is all that a client can send: an id, a name, arguments.
    for (call_id, input) in [("1", "notes/today.txt"), ("2", "notes/private/key.txt")] {
        let call = BrokerToolCall {
            call_id: call_id.to_owned(),
            name: "count_words".to_owned(),
            arguments: serde_json::json!({ "input": input }),
        };
        said.push(match session.call(call).await? {
            Answer::Settled(outcome) => {
                let stdout = String::from_utf8_lossy(&outcome.output.stdout).into_owned();
                format!("{input}: {:?}: {}", outcome.outcome, stdout.trim_end())
            }
            Answer::Refused(refusal) => format!("{input}: {refusal}"),
        });
    }
    // Only this awaits the last record, and says whether the run is whole.
    session.close().await?;
    let options = VerifyOptions {
        public_key: Some(key.signer().public().clone()),
        run: Some(run),
        ..VerifyOptions::default()
    };
    let report = verify_file(&journal, &options)?;
    if report.verdict != Verdict::Intact {
        return Err(format!("the journal is {:?}", report.verdict).into());
    }
    said.push("journal: intact".to_owned());
    Ok(said)
}

/// A folder with two notes.
pub(crate) fn folder() -> Result<tempfile::TempDir, Box<dyn Error>> {
    use std::os::unix::fs::DirBuilderExt as _;
    let folder = tempfile::tempdir()?;
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700).create(folder.path().join("state"))?;
    std::fs::create_dir_all(folder.path().join("notes/private"))?;
    for note in ["today.txt", "private/key.txt"] {
        std::fs::write(
            folder.path().join("notes").join(note),
            "three short words\n",
        )?;
    }
    Ok(folder)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = folder()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for line in runtime.block_on(serve(folder.path()))? {
        println!("{line}");
    }
    Ok(())
}
