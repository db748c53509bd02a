//! Tools, descriptors and policies for tests and benches.

use std::collections::BTreeMap;

use model::{
    AgentName, ArgumentName, ArgumentValue, CreateMode, Digest, OutputFormat, RelativePath,
    RiskTier, ToolName,
};
use worker::{
    CommandBoundary, CommandDescriptor, CreateGrant, Descriptor, Enforcement, Filesystem,
    InferenceTerms, LaunchDescriptor, Limit, Limits, Network, ParentIdentity, ProgramFile,
    ProgramIdentity, ReadGrant, TierKind, WorkerRoot,
};

use super::api::{LaunchShape, PolicySource, PolicyType, Request, ToolKind, ToolShape};

/// `copy_csv`: files, every argument type, one optional input and one optional integer.
pub(crate) fn copy_tool(name: &str) -> ToolShape {
    let argument = |name: &str, kind, required| (ArgumentName::new(name).unwrap(), kind, required);
    ToolShape {
        name: ToolName::new(name).unwrap(),
        kind: ToolKind::Command,
        action: None,
        resource: None,
        arguments: vec![
            argument("input", PolicyType::Text, true),
            argument("output", PolicyType::Text, true),
            argument("count", PolicyType::Integer, true),
            argument("limit", PolicyType::Integer, false),
            argument("ratio", PolicyType::Decimal, false),
            argument("target", PolicyType::IpAddress, false),
            argument("dry", PolicyType::Boolean, false),
            argument("extra", PolicyType::Text, false),
        ],
        read_keys: vec![
            ("input".into(), false),
            ("extra".into(), true),
            ("0".into(), true),
        ],
        create_keys: vec![("output".into(), false)],
        needs_approval: false,
    }
}

/// `echo`: one text, no files.
pub(crate) fn echo_tool() -> ToolShape {
    ToolShape {
        name: ToolName::new("echo").unwrap(),
        kind: ToolKind::Command,
        action: None,
        resource: None,
        arguments: vec![(ArgumentName::new("text").unwrap(), PolicyType::Text, true)],
        read_keys: Vec::new(),
        create_keys: Vec::new(),
        needs_approval: false,
    }
}

pub(crate) fn notify_tool() -> ToolShape {
    ToolShape {
        name: ToolName::new("notify").unwrap(),
        kind: ToolKind::Custom,
        arguments: Vec::new(),
        ..echo_tool()
    }
}

pub(crate) fn launches() -> Vec<LaunchShape> {
    vec![LaunchShape {
        executor: "claude_code".into(),
    }]
}

pub(crate) fn principals() -> Vec<String> {
    vec!["operator".into(), "reviewer".into(), "mcp".into()]
}

pub(crate) fn source(file: &str, text: &str) -> PolicySource {
    PolicySource {
        file: file.into(),
        text: text.into(),
    }
}

pub(crate) fn program(path: &str) -> ProgramIdentity {
    ProgramIdentity::Content(ProgramFile {
        path: path.into(),
        sha256: Digest::of(path.as_bytes()),
        owner_uid: 0,
        mode: 0o755,
        interpreter: None,
    })
}

fn boundary(filesystem: Filesystem) -> CommandBoundary {
    let limit = |value| Limit {
        value,
        enforcement: Enforcement::Enforced,
    };
    CommandBoundary {
        tier: TierKind::Namespace,
        root: WorkerRoot::System { also: Vec::new() },
        network: Network::None,
        working_dir: "/workspace".into(),
        limits: Limits {
            memory_mib: Limit {
                value: 512,
                enforcement: Enforcement::Partly,
            },
            cpu_milli: limit(1000),
            pids: limit(64),
            file_bytes: limit(8 << 20),
            scratch_bytes: limit(64 << 20),
            stream_bytes: limit(8 << 20),
            time_ms: limit(30_000),
            landlock: Enforcement::Enforced,
        },
        filesystem,
    }
}

/// `copy_csv input=data/a.csv output=out/b.csv count=3`
pub(crate) fn copy_call() -> CommandDescriptor {
    let name = |name: &str| ArgumentName::new(name).unwrap();
    let path = |path: &str| RelativePath::new(path).unwrap();
    CommandDescriptor {
        tool: ToolName::new("copy_csv").unwrap(),
        version: "1.0.0".into(),
        contract_sha256: Digest::of(b"manifest"),
        risk_tier: RiskTier::Low,
        human_approval: false,
        arguments: BTreeMap::from([
            (name("input"), ArgumentValue::Text("data/a.csv".into())),
            (name("output"), ArgumentValue::Text("out/b.csv".into())),
            (name("count"), ArgumentValue::Integer(3)),
        ]),
        argv: vec!["cp".into(), "data/a.csv".into(), "out/b.csv".into()],
        sealed: worker::SealedValues::default(),
        environment: BTreeMap::new(),
        program: program("/usr/bin/cp"),
        output_format: OutputFormat::Text,
        boundary: boundary(Filesystem {
            read: BTreeMap::from([(
                "input".to_owned(),
                ReadGrant {
                    path: path("data/a.csv"),
                    bytes: 1234,
                    sha256: Digest::of(b"a"),
                },
            )]),
            create: BTreeMap::from([(
                "output".to_owned(),
                CreateGrant {
                    path: path("out/b.csv"),
                    mode: CreateMode::File,
                    parent: ParentIdentity {
                        device: "64".into(),
                        inode: "18446744073709551615".into(),
                    },
                },
            )]),
            max_file_bytes: 8 << 20,
        }),
        parser: None,
    }
}

pub(crate) fn with_argument(
    mut call: CommandDescriptor,
    name: &str,
    value: ArgumentValue,
) -> CommandDescriptor {
    call.arguments
        .insert(ArgumentName::new(name).unwrap(), value);
    call
}

pub(crate) fn command(call: CommandDescriptor) -> Descriptor {
    Descriptor::Command(Box::new(call))
}

pub(crate) fn echo_call() -> CommandDescriptor {
    CommandDescriptor {
        tool: ToolName::new("echo").unwrap(),
        arguments: BTreeMap::from([(
            ArgumentName::new("text").unwrap(),
            ArgumentValue::Text("hello".into()),
        )]),
        argv: vec!["echo".into(), "hello".into()],
        program: program("/usr/bin/echo"),
        boundary: boundary(Filesystem {
            max_file_bytes: 8 << 20,
            ..Filesystem::default()
        }),
        ..copy_call()
    }
}

pub(crate) fn launch_call() -> LaunchDescriptor {
    LaunchDescriptor {
        agent: AgentName::new("reviewer").unwrap(),
        executor: "claude_code".into(),
        task: "review".into(),
        argv: vec!["claude".into(), "--print".into()],
        environment: BTreeMap::new(),
        program: program("/opt/claude/claude"),
        shown: None,
        tools: vec![ToolName::new("copy_csv").unwrap()],
        tool_set_sha256: Digest::of(b"tools"),
        policy_sha256: Digest::of(b"policies"),
        max_calls: 100,
        lifetime_ms: 1_800_000,
        human_approval: false,
        inference: Some(InferenceTerms {
            provider: "work".into(),
            base_url: "https://api.example".into(),
            model: "model-1".into(),
            max_requests: 64,
            max_output_tokens: 8192,
            max_total_output_tokens: 64 * 8192,
            beta_headers: Vec::new(),
        }),
        boundary: boundary(Filesystem {
            max_file_bytes: 8 << 20,
            ..Filesystem::default()
        }),
    }
}

pub(crate) fn request<'a>(
    principal: &'a str,
    descriptor: &'a Descriptor,
    trusted: &'a BTreeMap<String, String>,
) -> Request<'a> {
    Request {
        principal,
        descriptor,
        approval: None,
        call_sha256: descriptor.canonical().unwrap().digest(),
        trusted,
    }
}
