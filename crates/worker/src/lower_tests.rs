use std::collections::BTreeMap;

use model::{ArgumentName, OutputFormat, RiskTier, ToolName};

use super::*;
use crate::descriptor::{
    Filesystem, ParserDescriptor, ProgramFile, ReadGrant, SealedValues, TierKind,
};

const SALT: [u8; 32] = [7; 32];

fn program(path: &str) -> ProgramIdentity {
    ProgramIdentity::Content(ProgramFile {
        path: path.to_owned(),
        sha256: Digest::of(path.as_bytes()),
        owner_uid: 0,
        mode: 0o755,
        interpreter: None,
    })
}

fn boundary() -> CommandBoundary {
    CommandBoundary {
        tier: TierKind::Namespace,
        root: WorkerRoot::System { also: Vec::new() },
        network: Network::None,
        working_dir: "/workspace".to_owned(),
        limits: Limits::wanted([1; 7]),
        filesystem: Filesystem::default(),
    }
}

fn command() -> CommandDescriptor {
    let sealed = sealed_entry_digest(&SALT, 1, "--token=secret");
    let token = ArgumentName::new("token").unwrap();
    CommandDescriptor {
        tool: ToolName::new("login").unwrap(),
        version: "1.0.0".to_owned(),
        contract_sha256: Digest::of(b"manifest"),
        risk_tier: RiskTier::Low,
        human_approval: false,
        arguments: BTreeMap::new(),
        argv: vec!["login".to_owned(), "--token=[sensitive]".to_owned()],
        sealed: SealedValues {
            arguments: BTreeMap::from([(token, Digest::of(b"salted"))]),
            argv: BTreeMap::from([(1, sealed)]),
        },
        environment: BTreeMap::new(),
        program: program("/usr/bin/login"),
        output_format: OutputFormat::Text,
        boundary: boundary(),
        parser: Some(ParserDescriptor {
            argv: vec!["/opt/parse".to_owned()],
            environment: BTreeMap::new(),
            program: program("/opt/parse"),
            boundary: boundary(),
        }),
    }
}

fn holding(index: usize, entry: &str) -> WorkerHoldings {
    WorkerHoldings {
        sealed: Some(SealedArgv {
            salt: SALT,
            entries: BTreeMap::from([(index, Redacted::new(entry.to_owned()))]),
        }),
        ..WorkerHoldings::default()
    }
}

fn lowered(command: CommandDescriptor, holdings: WorkerHoldings) -> Result<Workers, LowerError> {
    lower(&Descriptor::Command(Box::new(command)), holdings)
}

#[test]
fn a_sealed_entry_of_argv_is_the_authorized_one_or_nothing_runs() {
    let workers = lowered(command(), holding(1, "--token=secret")).unwrap();
    assert_eq!(workers.first.argv(), ["login", "--token=secret"]);
    let shown = format!("{workers:?}");
    assert!(!shown.contains("secret"), "{shown}");
    let mut plain = command();
    plain.sealed = SealedValues::default();
    for (command, holdings) in [
        (command(), holding(1, "--token=other")),
        (command(), holding(0, "--token=secret")),
        (command(), WorkerHoldings::default()),
        (plain, holding(1, "--token=secret")),
    ] {
        let refused = lowered(command, holdings).unwrap_err();
        assert!(matches!(refused, LowerError::Sealed { .. }), "{refused}");
    }
}

#[test]
fn a_parser_is_a_worker_of_the_same_call_with_no_file_and_with_what_it_reads() {
    let workers = lowered(command(), holding(1, "--token=secret")).unwrap();
    assert!(workers.first.stdin().is_none());
    let digest = workers.first.call_digest();
    let parser = workers.parser.unwrap();
    let spec = parser.reading(File::open("/dev/null").unwrap());
    assert_eq!(spec.call_digest(), digest);
    assert_eq!(spec.argv(), ["/opt/parse"]);
    assert!(spec.stdin().is_some() && spec.inputs().is_empty() && spec.output().is_none());
}

#[test]
fn a_parser_that_would_get_files_is_never_made() {
    let mut greedy = command();
    let grant = ReadGrant {
        path: RelativePath::new("a").unwrap(),
        bytes: 1,
        sha256: Digest::of(b"a"),
    };
    let files = &mut greedy.parser.as_mut().unwrap().boundary.filesystem;
    files.read.insert("input".to_owned(), grant);
    let refused = lowered(greedy, holding(1, "--token=secret")).unwrap_err();
    assert!(matches!(refused, LowerError::ParserWithFiles), "{refused}");
}
