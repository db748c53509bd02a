//! `symbiont.toml` and the user's `config.toml`: what they say, and what is wrong with them.

use std::path::Path;

use model::{AgentName, ToolName};
use project::{
    AgentExecutor, Anchor, AnchorPlace, ApprovalSurface, Config, ConfigError, Credential, HostPath,
    UserConfig, VolumeAccess, limits,
};
use proptest::prelude::*;
use worker::TierKind;

const WHOLE: &str = r#"
[project]
name = "demo"
production = false
[sandbox]
tier = "namespace"
require_enforced = true
init = "/usr/lib/symbi/symbi-init"
[sandbox.namespace]
working_dir = "/workspace"
volumes = ["./data:/workspace/data:ro", "/srv/out:/workspace/out:rw", "./:/workspace:ro"]
memory_mib = 1024
cpus = 1.5
pids = 32
max_execution_seconds = 10
max_output_bytes = 65536
scratch_mib = 16
system = ["/usr/local"]
[sandbox.docker]
image = "tools:1"
memory_mib = 256
[sandbox.gvisor]
image = "tools:1"
socket = "/run/docker.sock"
[agents.reviewer]
executor = "claude_code"
program = "/opt/claude/claude"
allowed_tools = ["read_file", "grep_files"]
human_approval = true
memory_mib = 768
cpus = 0.25
pids = 20
max_turns = 12
[agents.script]
executor = "command"
command = ["python3", "agent.py"]
env = { LANG = "C" }
allowed_tools = ["read_file"]
[managed_cli.inference]
provider = "work"
model = "some-model-1"
max_requests = 3
max_output_tokens = 100
beta_headers = ["a-1", "b.2"]
[approval]
surfaces = ["gate"]
timeout_seconds = 5
holds_per_hour = 7
"#;

fn parse(text: &str) -> Config {
    Config::parse("symbiont.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

fn faults(text: &str) -> ConfigError {
    let error = Config::parse("symbiont.toml", text).expect_err(text);
    for fault in error.faults() {
        assert!(fault.help.is_some(), "no remedy: {fault}");
    }
    error
}

fn message(text: &str) -> String {
    faults(text).to_string()
}

#[test]
fn a_whole_configuration_is_read_as_it_is_written() {
    let config = parse(WHOLE);
    assert_eq!(config.name.as_deref(), Some("demo"));
    assert!(!config.production);
    assert!(config.sandbox.require_enforced);
    assert_eq!(config.sandbox.tier, TierKind::Namespace);
    let limits = config.sandbox.limits();
    assert_eq!(
        (limits.memory_mib, limits.cpu_milli, limits.pids),
        (1024, 1500, 32)
    );
    assert_eq!((limits.time_ms, limits.stream_bytes), (10_000, 65_536));
    assert_eq!(
        (limits.scratch_bytes, limits.file_bytes),
        (16 << 20, 64 << 20)
    );
    assert_eq!(config.sandbox.namespace.system, ["/usr/local"]);
    let volumes = config.sandbox.volumes();
    assert_eq!(
        volumes[0].host.resolve(Path::new("/p")),
        Path::new("/p/data")
    );
    assert_eq!(volumes[0].below.as_ref().unwrap().as_str(), "data");
    assert_eq!(volumes[1].access, VolumeAccess::ReadWrite);
    assert_eq!(
        (&volumes[2].host, &volumes[2].below),
        (&HostPath::Project(None), &None)
    );
    assert_eq!(
        config.sandbox.docker.as_ref().unwrap().limits.memory_mib,
        256
    );
    assert_eq!(
        config.sandbox.gvisor.as_ref().unwrap().limits.memory_mib,
        512
    );
    let reviewer = &config.agents[&AgentName::new("reviewer").unwrap()];
    assert_eq!(reviewer.executor, AgentExecutor::ClaudeCode);
    assert_eq!(
        (reviewer.memory_mib, reviewer.cpu_milli, reviewer.pids),
        (768, 250, 20)
    );
    assert!(reviewer.human_approval);
    assert_eq!(reviewer.max_turns, Some(12));
    assert_eq!(
        reviewer.allowed_tools[1],
        ToolName::new("grep_files").unwrap()
    );
    let script = &config.agents[&AgentName::new("script").unwrap()];
    assert_eq!(script.executor.as_str(), "command");
    assert_eq!(
        (script.memory_mib, script.cpu_milli, script.pids),
        (1024, 1500, 32)
    );
    assert_eq!(script.env["LANG"], "C");
}

#[test]
fn the_terms_of_people_and_providers_are_read_as_they_are_written() {
    let config = parse(WHOLE);
    let inference = config.inference.unwrap();
    assert_eq!(
        (inference.max_requests, inference.max_total_output_tokens),
        (3, 300)
    );
    assert_eq!(inference.beta_headers, ["a-1", "b.2"]);
    assert_eq!(config.approval.surfaces, [ApprovalSurface::Gate]);
    assert_eq!(
        (
            config.approval.timeout_seconds,
            config.approval.holds_per_hour
        ),
        (5, 7)
    );
}

#[test]
fn an_empty_configuration_has_the_documented_defaults() {
    let config = parse("");
    assert!(config.production && !config.sandbox.require_enforced);
    assert_eq!(config.sandbox.tier, TierKind::Namespace);
    assert_eq!(config.sandbox.working_dir(), "/workspace");
    assert!(config.sandbox.volumes().is_empty() && config.agents.is_empty());
    let limits = config.sandbox.limits();
    assert_eq!(
        (limits.memory_mib, limits.cpu_milli, limits.pids),
        (512, 1000, 64)
    );
    assert_eq!((limits.time_ms, limits.stream_bytes), (30_000, 8 << 20));
    assert_eq!(config.approval.timeout_seconds, 300);
    assert!(config.approval.surfaces.is_empty() && config.approval.operators.is_empty());
    assert_eq!(
        (config.approval.holds_per_hour, config.approval.require),
        (8, 1)
    );
}

#[test]
fn a_tier_uses_its_own_table_only() {
    let config = parse(
        "[sandbox]\ntier = \"docker\"\n[sandbox.namespace]\nmemory_mib = 64\n\
         [sandbox.docker]\nimage = \"x\"\n",
    );
    assert_eq!(config.sandbox.limits().memory_mib, 512);
    assert!(message("[sandbox]\ntier = \"docker\"\n").contains("needs a table `[sandbox.docker]`"));
    let error = message("[sandbox.gvisor]\npids = 3\n");
    assert!(
        error.contains("`[sandbox.gvisor]` has no `image`"),
        "{error}"
    );
}

#[test]
fn a_tier_that_does_not_exist_is_told_from_other_faults() {
    for name in ["host", "none", "vm", "Namespace", "firecracker"] {
        let error = faults(&format!("[sandbox]\ntier = \"{name}\"\n"));
        assert!(error.tier_refused(), "{name}");
        let text = error.to_string();
        assert!(
            text.contains("he tiers are namespace, docker, gvisor"),
            "{text}"
        );
    }
    assert!(!faults("[sandbox]\ntier = 5\n").tier_refused());
    assert!(!faults("[sandbox]\nteir = \"host\"\n").tier_refused());
}

#[test]
fn numbers_hold_at_their_bounds_and_not_past_them() {
    let mib = limits::MEMORY_MIB_MAX;
    for (key, low, high) in [
        ("memory_mib", limits::MEMORY_MIB_MIN, mib),
        ("pids", limits::PIDS_MIN, limits::PIDS_MAX),
        ("max_execution_seconds", 1, limits::EXECUTION_SECONDS_MAX),
        ("max_output_bytes", 1, limits::STREAM_BYTES_MAX),
        ("scratch_mib", 1, limits::SCRATCH_MIB_MAX),
    ] {
        for good in [low, high] {
            parse(&format!("[sandbox.namespace]\n{key} = {good}\n"));
        }
        for bad in [
            format!("{}", i128::from(low) - 1),
            format!("{}", high + 1),
            "-1".into(),
        ] {
            let error = message(&format!("[sandbox.namespace]\n{key} = {bad}\n"));
            assert!(error.contains("out of range"), "{error}");
        }
    }
    for good in ["0.01", "1024", "1024.0", "2"] {
        parse(&format!("[sandbox.namespace]\ncpus = {good}\n"));
    }
    for bad in [
        "0.009", "1024.001", "0", "-1.0", "0.0101", "nan", "inf", "1e2",
    ] {
        let error = message(&format!("[sandbox.namespace]\ncpus = {bad}\n"));
        assert!(error.contains("out of range"), "{bad}: {error}");
    }
}

#[test]
fn counted_lists_hold_at_their_bounds_and_not_past_them() {
    let volumes = |count: usize| {
        let list: Vec<String> = (0..count)
            .map(|n| format!("\"/d:/workspace/{n}:ro\""))
            .collect();
        format!("[sandbox.namespace]\nvolumes = [{}]\n", list.join(","))
    };
    parse(&volumes(limits::VOLUMES_MAX));
    assert!(message(&volumes(limits::VOLUMES_MAX + 1)).contains("at most 32 are allowed"));
    let agents = |count: usize| -> String {
        let agent = "executor = \"command\"\ncommand = [\"x\"]\nallowed_tools = [\"t\"]\n";
        (0..count)
            .map(|n| format!("[agents.a{n}]\n{agent}"))
            .collect()
    };
    assert_eq!(
        parse(&agents(limits::AGENTS_MAX)).agents.len(),
        limits::AGENTS_MAX
    );
    assert!(message(&agents(limits::AGENTS_MAX + 1)).contains("at most 64 are allowed"));
}

#[test]
fn every_list_and_number_of_an_agent_is_bounded() {
    let agent = |line: &str| {
        let text = format!("[agents.a]\nexecutor = \"command\"\n{line}\n");
        Config::parse("symbiont.toml", &text).is_ok()
    };
    let list = |count: usize| -> String {
        let names: Vec<String> = (0..count).map(|n| format!("\"t{n}\"")).collect();
        format!("[{}]", names.join(","))
    };
    let tools = |count| {
        agent(&format!(
            "command = [\"x\"]\nallowed_tools = {}",
            list(count)
        ))
    };
    assert!(tools(limits::ALLOWED_TOOLS_MAX) && !tools(limits::ALLOWED_TOOLS_MAX + 1));
    let words = |count| {
        agent(&format!(
            "allowed_tools = [\"t\"]\ncommand = {}",
            list(count)
        ))
    };
    assert!(words(limits::COMMAND_WORDS_MAX) && !words(limits::COMMAND_WORDS_MAX + 1));
    let with = |line: &str| {
        agent(&format!(
            "command = [\"x\"]\nallowed_tools = [\"t\"]\n{line}"
        ))
    };
    let word = |bytes| with(&format!("env = {{ A = \"{}\" }}", "x".repeat(bytes)));
    assert!(word(limits::WORD_BYTES_MAX) && !word(limits::WORD_BYTES_MAX + 1));
    let variables = |count: usize| {
        let lines: String = (0..count).map(|n| format!("V{n} = \"\"\n")).collect();
        with(&format!("[agents.a.env]\n{lines}"))
    };
    assert!(variables(limits::ENVIRONMENT_MAX) && !variables(limits::ENVIRONMENT_MAX + 1));
    let variable = |bytes| with(&format!("env = {{ {} = \"\" }}", "A".repeat(bytes)));
    assert!(variable(limits::LABEL_BYTES_MAX) && !variable(limits::LABEL_BYTES_MAX + 1));
    let turns = |count: u64| with(&format!("max_turns = {count}"));
    assert!(turns(1) && turns(limits::TURNS_MAX));
    assert!(!turns(0) && !turns(limits::TURNS_MAX + 1));
}

#[test]
fn every_number_of_people_and_providers_is_bounded() {
    let approval = |line: String| Config::parse("x", &format!("[approval]\n{line}")).is_ok();
    let terms = |line: String| {
        let table = "[managed_cli.inference]\nprovider = \"p\"\nmodel = \"m\"";
        Config::parse("x", &format!("{table}\n{line}\n")).is_ok()
    };
    let seconds = limits::APPROVAL_SECONDS_MAX;
    assert!(approval(format!("timeout_seconds = {seconds}")));
    assert!(!approval(format!("timeout_seconds = {}", seconds + 1)));
    assert!(!approval("timeout_seconds = 0".into()));
    let holds = limits::HOLDS_PER_HOUR_MAX;
    assert!(approval(format!("holds_per_hour = {holds}")));
    assert!(!approval(format!("holds_per_hour = {}", holds + 1)));
    for (key, max) in [
        ("max_requests", limits::INFERENCE_REQUESTS_MAX),
        ("max_output_tokens", limits::OUTPUT_TOKENS_MAX),
        ("max_total_output_tokens", limits::TOTAL_OUTPUT_TOKENS_MAX),
    ] {
        assert!(terms(format!("{key} = {max}")), "{key}");
        assert!(!terms(format!("{key} = {}", max + 1)), "{key}");
        assert!(!terms(format!("{key} = 0")), "{key}");
    }
    let headers = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("\"h{n}\"")).collect();
        terms(format!("beta_headers = [{}]", names.join(",")))
    };
    assert!(headers(limits::BETA_HEADERS_MAX) && !headers(limits::BETA_HEADERS_MAX + 1));
}

#[test]
fn a_users_configuration_is_bounded() {
    let anchors = |count: usize| {
        let text: String = (0..count)
            .map(|n| format!("[anchors.a{n}]\nfile = \"/x\"\n"))
            .collect();
        UserConfig::parse("config.toml", &text).is_ok()
    };
    assert!(anchors(limits::USER_ENTRIES_MAX) && !anchors(limits::USER_ENTRIES_MAX + 1));
    let url = |bytes: usize| {
        let path = "p".repeat(bytes - "https://h/".len());
        let text = format!("[providers.w]\nbase_url = \"https://h/{path}\"\napi_key_env = \"K\"\n");
        UserConfig::parse("config.toml", &text).is_ok()
    };
    assert!(url(limits::BASE_URL_BYTES_MAX) && !url(limits::BASE_URL_BYTES_MAX + 1));
}

#[test]
fn a_workers_root_is_the_systems_and_the_folders_that_are_named() {
    let config = parse("[sandbox.namespace]\nsystem = [\"/usr/local\"]\n");
    assert_eq!(config.sandbox.namespace.system, ["/usr/local"]);
    let error = message("[sandbox.namespace]\nrootfs = \"/r\"\n");
    assert!(error.contains("not supported in this version"), "{error}");
    for bad in ["usr/local", "/", "/usr/../etc", "/a:b"] {
        let error = message(&format!("[sandbox.namespace]\nsystem = [\"{bad}\"]\n"));
        assert!(error.contains("no system folder"), "{error}");
    }
    let list: Vec<String> = (0..=limits::SYSTEM_FOLDERS_MAX)
        .map(|n| format!("\"/{n}\""))
        .collect();
    let error = message(&format!(
        "[sandbox.namespace]\nsystem = [{}]\n",
        list.join(",")
    ));
    assert!(error.contains("at most 32"), "{error}");
}

#[test]
fn a_volume_that_no_call_could_use_or_that_is_dangerous_is_refused() {
    for (volume, found) in [
        ("./data:/workspace/data", "has not three parts"),
        ("./data:/workspace/data:rx", "neither in `:ro` nor in `:rw`"),
        (
            "data:/workspace/data:ro",
            "starts neither with `./` nor with `/`",
        ),
        ("../data:/workspace/data:ro", "starts neither"),
        ("./a/../b:/workspace/data:ro", "`..` component"),
        ("./data:workspace:ro", "the target of"),
        (
            "./data:/other:ro",
            "not below the working directory `/workspace`",
        ),
        ("./data:/workspaces:ro", "not below the working directory"),
        (
            "./:/workspace:rw",
            "`symbiont.toml` of the project writable",
        ),
        ("./tools:/workspace/t:rw", "`tools` of the project writable"),
        (
            "./policies/run:/workspace/t:rw",
            "`policies` of the project writable",
        ),
        (
            "./.symbiont:/workspace/t:rw",
            "`.symbiont` of the project writable",
        ),
    ] {
        let error = message(&format!("[sandbox.namespace]\nvolumes = [\"{volume}\"]\n"));
        assert!(error.contains(found), "{volume}: {error}");
    }
    let error = message(
        "[sandbox.namespace]\nvolumes = [\"./a:/workspace/x:ro\", \"./b:/workspace/x:rw\"]\n",
    );
    assert!(
        error.contains("two volumes have the target `/workspace/x`"),
        "{error}"
    );
}

#[test]
fn a_working_directory_stands_apart_from_the_workers_own_root() {
    for bad in [
        "/",
        "workspace",
        "/usr/x",
        "/proc",
        "/channel",
        "/tmp",
        "/a/../b",
    ] {
        let error = message(&format!("[sandbox.namespace]\nworking_dir = \"{bad}\"\n"));
        assert!(error.contains("working"), "{error}");
    }
    assert_eq!(
        parse("[sandbox.namespace]\nworking_dir = \"/job\"\n")
            .sandbox
            .working_dir(),
        "/job"
    );
}

#[test]
fn an_agent_may_only_lower_its_tiers_limits() {
    let agent = |line: &str| {
        format!(
            "[agents.a]\nexecutor = \"command\"\ncommand = [\"x\"]\nallowed_tools = [\"t\"]\n{line}\n"
        )
    };
    for good in ["memory_mib = 512", "cpus = 1", "pids = 64", "pids = 1"] {
        parse(&agent(good));
    }
    for (bad, found) in [
        (
            "memory_mib = 513",
            "is 513, more than the 512 of `[sandbox.namespace]`",
        ),
        ("cpus = 1.001", "is 1.001, more than the 1.000"),
        ("pids = 65", "is 65, more than the 64"),
        ("pids = 0", "out of range"),
    ] {
        let error = message(&agent(bad));
        assert!(error.contains(found), "{error}");
    }
}

#[test]
fn a_tools_name_must_fit_the_provider_with_the_prefix_of_claude_code() {
    let agent = |executor: &str, bytes: usize| {
        let name = "n".repeat(bytes);
        format!("[agents.a]\n{executor}\nallowed_tools = [\"t\", \"{name}\"]\n")
    };
    let claude_code = "executor = \"claude_code\"\nprogram = \"/a/claude\"";
    let longest = limits::CLAUDE_CODE_TOOL_NAME_BYTES_MAX;
    parse(&agent(claude_code, longest));
    let error = message(&agent(claude_code, longest + 1));
    for part in ["symbiont.toml:4:23", "has 117 characters", "at most 116"] {
        assert!(error.contains(part), "{error}");
    }
    parse(&agent("executor = \"command\"\ncommand = [\"x\"]", 128));
}

#[test]
fn an_agent_needs_a_program_its_executor_can_start() {
    let agent = |text: &str| message(&format!("[agents.a]\nallowed_tools = [\"t\"]\n{text}\n"));
    for (text, found) in [
        ("", "has no `executor`"),
        ("executor = \"codex\"", "there is no executor `codex`"),
        ("executor = \"claude_code\"", "has no `program`"),
        ("executor = \"command\"", "needs a `command`"),
        ("executor = \"command\"\ncommand = []", "names no program"),
        (
            "executor = \"command\"\ncommand = [\"\"]",
            "names no program",
        ),
        (
            "executor = \"command\"\ncommand = [\"a\\u0000\"]",
            "NUL byte",
        ),
        (
            "executor = \"claude_code\"\nprogram = \"/a/b\"\ncommand = [\"x\"]",
            "does not go with",
        ),
        (
            "executor = \"command\"\ncommand = [\"x\"]\nprogram_root = \"/a\"",
            "`program_root` is not supported",
        ),
        (
            "executor = \"command\"\ncommand = [\"x\"]\nenv = { \"1A\" = \"x\" }",
            "no name of a variable",
        ),
        (
            "executor = \"command\"\ncommand = [\"x\"]\nenv = { A = 1 }",
            "is an integer, but must be a string",
        ),
    ] {
        let error = agent(text);
        assert!(error.contains(found), "{text}: {error}");
    }
    let error = message(
        "[agents.\"a b\"]\nexecutor = \"command\"\ncommand = [\"x\"]\nallowed_tools = [\"t\"]\n",
    );
    assert!(error.contains("agent name has ` `"), "{error}");
    let error = message(
        "[agents.a]\nexecutor = \"command\"\ncommand = [\"x\"]\nallowed_tools = [\"t\", \"t\"]\n",
    );
    assert!(error.contains("names `t` twice"), "{error}");
}

#[test]
fn the_inference_terms_are_bounded() {
    let terms = |text: &str| {
        let text = format!("[managed_cli.inference]\nprovider = \"w\"\nmodel = \"m\"\n{text}\n");
        Config::parse("symbiont.toml", &text)
    };
    let config = terms("").unwrap().inference.unwrap();
    assert_eq!((config.max_requests, config.max_output_tokens), (64, 8192));
    assert_eq!(config.max_total_output_tokens, 64 * 8192);
    for bad in [
        "max_requests = 0",
        "max_requests = 100001",
        "max_output_tokens = 1000001",
        "max_output_tokens = 10\nmax_total_output_tokens = 9",
        "beta_headers = [\"a b\"]",
        "beta_headers = [\"a,b\"]",
        "beta_headers = [\"\"]",
        "beta_headers = [\"a\", \"a\"]",
        "base_url = \"https://h\"",
    ] {
        assert!(terms(bad).is_err(), "{bad}");
    }
    let error = message("[managed_cli.inference]\nmodel = \"m\"\nprovider = \"https://h\"\n");
    assert!(error.contains("not a URL"), "{error}");
}

#[test]
fn all_faults_of_a_file_are_reported_together_in_order() {
    let error = faults("[sandbox]\ntier = 1\n[project]\nname = 2\n[approval]\nsurfaces = []\n");
    let lines: Vec<usize> = error.faults().iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [2, 4, 6]);
}

#[test]
fn what_is_no_list_is_one_fault_with_one_remedy() {
    let agent = "[agents.a]\nexecutor = \"command\"\n";
    let command = "command = [\"true\"]\n";
    for (text, help) in [
        (
            format!("{agent}{command}allowed_tools = 5\n"),
            "write it like [\"one\", \"two\"]",
        ),
        (
            format!("{agent}{command}allowed_tools = \"t\"\n"),
            "write it in brackets: [\"t\"]",
        ),
        (
            format!("{agent}command = \"true\"\nallowed_tools = [\"t\"]\n"),
            "write it in brackets: [\"true\"]",
        ),
        (
            "[approval]\nsurfaces = \"gate\"\n".to_owned(),
            "write it in brackets: [\"gate\"]",
        ),
        (
            "[approval]\nsurfaces = [\"gate\"]\n[approval.operators]\na = 5\n".to_owned(),
            "write it like [\"one\", \"two\"]",
        ),
    ] {
        let faults = faults(&text);
        assert_eq!(faults.faults().iter().count(), 1, "{faults}");
        assert!(
            faults.to_string().ends_with(&format!("help: {help}")),
            "{faults}"
        );
    }
    let anchor = "[anchors.x]\ncommand = \"true\"\n";
    let error = UserConfig::parse("config.toml", anchor).unwrap_err();
    assert_eq!(error.iter().count(), 1, "{error}");
}

#[test]
fn an_element_of_a_list_is_named_with_its_place_in_it() {
    let error = message("[sandbox.namespace]\nvolumes = [\"./a:/workspace/a:ro\", 5]\n");
    assert!(
        error.contains("`sandbox.namespace.volumes[1]` is an integer, but must be a string"),
        "{error}"
    );
}

#[test]
fn a_system_folder_that_no_worker_is_shown_is_refused_where_it_stands() {
    for folder in ["/etc", "/proc/1", "/run/x", "/tmp"] {
        let error = message(&format!("[sandbox.namespace]\nsystem = [\"{folder}\"]\n"));
        assert!(error.starts_with("symbiont.toml:2:11: `/"), "{error}");
        assert!(error.contains("is its own, never the host's"), "{error}");
    }
}

#[test]
fn a_volume_is_told_what_is_wrong_with_a_volume() {
    let volume = |text: &str| message(&format!("[sandbox.namespace]\nvolumes = [\"{text}\"]\n"));
    for (text, why) in [
        ("./a/../b:/workspace/a:ro", "has a `.` or `..` component\n"),
        ("./a:/workspace/../b:ro", "has a `.` or `..` component\n"),
        ("./a:workspace/a:ro", "it does not start with `/`\n"),
    ] {
        let error = volume(text);
        assert!(error.contains(why), "{error}");
        assert!(!error.contains("like `data/a.csv`"), "{error}");
    }
}

#[test]
fn no_agent_has_the_name_of_the_operator_or_of_an_uncontained_client() {
    for name in ["operator", "mcp"] {
        let error = message(&format!(
            "[agents.{name}]\nexecutor = \"command\"\ncommand = [\"true\"]\n\
             allowed_tools = [\"t\"]\n"
        ));
        assert!(
            error.contains(&format!("no agent can be named `{name}`")),
            "{error}"
        );
        assert!(error.contains("choose another name"), "{error}");
    }
}

#[test]
fn a_placeholder_that_nothing_fills_in_is_refused() {
    let agent = |command: &str| {
        format!(
            "[agents.a]\nexecutor = \"command\"\ncommand = [{command}]\nallowed_tools = [\"t\"]\n"
        )
    };
    for (command, why) in [
        ("\"x\", \"{taks}\"", "did you mean `{task}`?"),
        ("\"x\", \"{other}\"", "filled in are {program}, {task}"),
        ("\"{program}\"", "add: program = "),
    ] {
        let error = message(&agent(command));
        assert!(error.contains(why), "{error}");
    }
    for command in [
        "\"sh\", \"-c\", \"{ true; }\"",
        "\"find\", \"{}\"",
        "\"x{task}\"",
    ] {
        assert!(
            Config::parse("symbiont.toml", &agent(command)).is_ok(),
            "{command}"
        );
    }
}

#[test]
fn ten_typical_mistakes_read_well() {
    let mistakes = [
        ("an unclosed string", "[project]\nname = \"demo\n"),
        (
            "a key given twice",
            "[project]\nname = \"a\"\nname = \"b\"\n",
        ),
        ("a misspelt key", "[sandbox.namespace]\nmemory_mb = 512\n"),
        ("a misspelt table", "[sanbox]\ntier = \"namespace\"\n"),
        (
            "a wrong type",
            "[sandbox.namespace]\nmemory_mib = \"512\"\n",
        ),
        ("no isolation", "[sandbox]\ntier = \"none\"\n"),
        ("a number out of range", "[sandbox.namespace]\npids = 0\n"),
        (
            "a volume without its mode",
            "[sandbox.namespace]\nvolumes = [\"./data:/workspace/data\"]\n",
        ),
        (
            "an agent with more than its tier",
            "[agents.helper]\nexecutor = \"command\"\ncommand = [\"python3\", \"a.py\"]\n\
             allowed_tools = [\"copy_csv\"]\nmemory_mib = 2048\n",
        ),
        (
            "an agent that is half written",
            "[agents.helper]\nexecutor = \"claude_code\"\n",
        ),
        (
            "an unknown approval surface",
            "[approval]\nsurfaces = [\"terminal\", \"mail\"]\n",
        ),
        (
            "a key of the user's file",
            "[managed_cli.inference]\nprovider = \"work\"\nmodel = \"m\"\napi_key_env = \"K\"\n",
        ),
    ];
    let shown: String = mistakes
        .iter()
        .map(|(title, text)| format!("## {title}\n{}\n\n", message(text)))
        .collect();
    insta::assert_snapshot!("typical_mistakes", shown);
}

#[test]
fn a_users_configuration_names_providers_and_anchors() {
    let config = UserConfig::parse(
        "config.toml",
        "[providers.work]\nbase_url = \"https://api.example.com/\"\napi_key_file = \"/k\"\n\
         [anchors.vault]\nfile = \"/var/log/anchor\"\n[anchors.log]\ncommand = [\"logger\", \"-t\"]\n\
         required = true\n",
    )
    .unwrap();
    assert_eq!(config.providers["work"].base_url, "https://api.example.com");
    assert_eq!(
        config.providers["work"].credential,
        Credential::File("/k".into())
    );
    let vault = Anchor {
        place: AnchorPlace::File("/var/log/anchor".into()),
        required: false,
    };
    let log = Anchor {
        place: AnchorPlace::Command(vec!["logger".into(), "-t".into()]),
        required: true,
    };
    assert_eq!(config.anchors["vault"], vault);
    assert_eq!(config.anchors["log"], log);
}

#[test]
fn a_fault_of_the_users_configuration_never_shows_a_secret() {
    let provider = "[providers.work]\nbase_url = \"https://h\"\n";
    for text in [
        "[providers.work]\nbase_url = \"https://me:hunter2@h\"\napi_key_env = \"K\"\n".to_owned(),
        "[providers.work]\nbase_url = \"https://h?k=hunter2\"\napi_key_env = \"K\"\n".to_owned(),
        format!("{provider}api_key = \"hunter2\"\n"),
        format!("{provider}secret = \"hunter2\"\n"),
        format!("{provider}api_key_env = \"sk-hunter2\"\n"),
        format!("{provider}api_key_env = \"K\"\napi_key_file = \"hunter2\"\n"),
        format!("{provider}api_key_file = \"hunter2\"\n"),
        format!("{provider}api_key_env = \"hunter2\n"),
        format!("{provider}api_key_env = hunter2\n"),
        format!("{provider}api_key_env = [\n\"hunter2\"\n]\n"),
        format!("{provider}api_key_env = \"\"\"\nhunter2\n\"\"\"\n"),
        "[providers]\nwork = \"hunter2\"\n".to_owned(),
        "[anchors.a]\ncommand = [\"\", \"hunter2\"]\n".to_owned(),
        "[anchors.a]\nfile = \"hunter2\"\n".to_owned(),
    ] {
        let error = UserConfig::parse("config.toml", &text)
            .expect_err(&text)
            .to_string();
        assert!(!error.contains("hunter2"), "{error}");
        assert!(error.contains("config.toml:"), "{error}");
    }
}

#[test]
fn mistakes_in_the_users_configuration_read_well() {
    let mistakes = [
        "[providers.work]\nbase_url = \"http://api.example.com\"\napi_key_env = \"K\"\n",
        "[providers.work]\nbase_url = \"https://h\"\napi_key = \"sk-1\"\n",
        "[providers.work]\nbase_url = \"https://h\"\n",
        "[anchors.vault]\npath = \"/x\"\n",
    ];
    let shown: Vec<String> = mistakes
        .iter()
        .map(|text| {
            UserConfig::parse("config.toml", text)
                .expect_err(text)
                .to_string()
        })
        .collect();
    insta::assert_snapshot!("user_mistakes", shown.join("\n\n"));
}

#[test]
fn a_name_in_a_message_cannot_write_to_the_terminal() {
    let error = message("[agents.\"a\\u001b[2J\"]\nmemory_mib = 1\n");
    assert!(!error.contains('\u{1b}'), "{error:?}");
    let error = message("[project]\n\"\\u001b[2J\" = 1\n");
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

#[test]
fn a_deeply_nested_text_is_an_error_and_no_crash() {
    let error = message(&format!("x = {}", "[".repeat(200_000)));
    assert!(error.contains("symbiont.toml:1:"), "{error}");
    let error = message(&format!("x{} = 1", ".x".repeat(200_000)));
    assert!(error.contains("symbiont.toml:1:"), "{error}");
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>()) {
        let _ = Config::parse("symbiont.toml", &text);
        let _ = UserConfig::parse("config.toml", &text);
    }

    #[test]
    fn no_damage_to_a_right_text_makes_the_reader_panic(
        at in 0..WHOLE.len(), cut in 0..40_usize, put in "[ -~\n]{0,8}",
    ) {
        let end = (at + cut).min(WHOLE.len());
        let text = format!("{}{put}{}", &WHOLE[..at], &WHOLE[end..]);
        if let Err(error) = Config::parse("symbiont.toml", &text) {
            prop_assert!(error.faults().iter().count() > 0);
            prop_assert!(error.to_string().contains("symbiont.toml:"));
        }
    }
}

#[test]
fn operators_have_one_key_or_several_and_as_many_must_sign_as_there_are() {
    let config = parse(
        "[approval]\nsurfaces = [\"gate\"]\nrequire = 2\n[approval.operators]\n\
         alice = [\"ssh-ed25519 A\", \"ssh-ed25519 B\"]\nbob = \"ssh-ed25519 C\"\n",
    );
    let operators = &config.approval.operators;
    assert_eq!(operators["alice"], ["ssh-ed25519 A", "ssh-ed25519 B"]);
    assert_eq!(operators["bob"], ["ssh-ed25519 C"]);
    assert_eq!(config.approval.require, 2);
    for (text, wanted) in [
        ("[approval]\nrequire = 1\n", "0 operators are named"),
        ("[approval]\nrequire = 9\n", "out of range"),
        (
            "[approval.operators]\nalice = []\n",
            "no operator with a key",
        ),
        (
            "[approval.operators]\n\"a b\" = \"k\"\n",
            "no operator with a key",
        ),
        ("[approval.operators]\nalice = 1\n", "must be a list"),
        (
            "[approval]\nsurfaces = [\"terminal\"]\n[approval.operators]\nalice = \"k\"\n",
            "where no operator can sign",
        ),
    ] {
        let error = message(text);
        assert!(error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn a_flood_of_unknown_keys_is_counted_and_not_printed() {
    let mut text: String = (0..50_000)
        .map(|key| format!("unknown_{key} = 1\n"))
        .collect();
    text.push_str(&format!("\"{}\" = 1\n", "\u{202e}".repeat(50_000)));
    let began = std::time::Instant::now();
    let said = project::Config::parse("symbiont.toml", &text)
        .unwrap_err()
        .to_string();
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    assert!(said.len() < 64 << 10, "{}", said.len());
    let reported = said
        .lines()
        .filter(|line| line.contains("unknown table or key"));
    assert_eq!(reported.count(), project::limits::FAULTS_MAX);
    let more = 50_001 - project::limits::FAULTS_MAX;
    assert!(
        said.ends_with(&format!("… and {more} more\n  help: correct these first")),
        "{said}"
    );
}

#[test]
fn a_chat_is_named_by_the_project_and_described_by_the_user() {
    let text = "[approval]\nsurfaces = [\"chat\", \"gate\"]\nchat = \"ops\"\n";
    let config = Config::parse("x", text).unwrap();
    assert_eq!(config.approval.chat.as_deref(), Some("ops"));
    for (text, why) in [
        ("[approval]\nsurfaces = [\"chat\"]\n", "does not say which"),
        (
            "[approval]\nchat = \"ops\"\n",
            "`approval.surfaces` does not",
        ),
        (
            "[approval]\nsurfaces = [\"chat\"]\nchat = \"a/b\"\n",
            "is no name",
        ),
        (
            "[approval]\nsurfaces = [\"chat\"]\nchat = \"ops\"\n[approval.operators]\na = \"k\"\n",
            "names the chat, where no operator can sign",
        ),
    ] {
        let error = Config::parse("x", text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let chat = "[chat.ops]\nplatform = \"slack\"\nwebhook_env = \"W\"\nsigning_secret_file = \
                \"/s\"\nlisten = \"[::1]:8930\"\nsenders = [\"T1/C1/U1\", \"T1/C1/U2\"]\n";
    let user = UserConfig::parse("config.toml", chat).unwrap();
    let ops = &user.chats["ops"];
    assert_eq!(ops.webhook, Credential::Environment("W".into()));
    assert_eq!(ops.signing_secret, Credential::File("/s".into()));
    assert_eq!(ops.senders.len(), 2);
    assert_eq!(
        ops.listen,
        project::ChatListen::Loopback("[::1]:8930".parse().unwrap())
    );
    for (from, to) in [
        ("webhook_env = \"W\"", "webhook = \"https://hunter2\""),
        ("[::1]:8930", "hunter2:80"),
        ("[::1]:8930", "127.0.0.1:0"),
        ("T1/C1/U2", "hunter2"),
        ("\"T1/C1/U1\", \"T1/C1/U2\"", ""),
        ("signing_secret_file = \"/s\"\n", ""),
    ] {
        let error = UserConfig::parse("config.toml", &chat.replace(from, to)).expect_err(to);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    let most = project::limits::CHAT_SENDERS_MAX;
    let many = |count: usize| {
        let all: Vec<String> = (0..count).map(|it| format!("\"T1/C1/U{it}\"")).collect();
        let text = chat.replace("\"T1/C1/U1\", \"T1/C1/U2\"", &all.join(", "));
        UserConfig::parse("config.toml", &text)
    };
    assert!(many(most).is_ok() && many(most + 1).is_err());
}
