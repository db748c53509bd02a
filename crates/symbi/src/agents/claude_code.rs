//! Claude Code as a contained agent: its command line, its environment, and what it needs.
//!
//! All of this is for the agent's good, not for safety: the worker has no network, no files and
//! no credential, whatever the client does. The flags make it use its governed tools, never wait
//! for a person, and ask its model for no more than the proxy lets through.
//!
//! Flags and variables: measured with Claude Code 2.1 (`scripts/test-claude-code.py` repeats it).

mod story;

use std::collections::BTreeMap;

use model::ToolName;
use sandbox::ProgramCache;
use symbi_runtime::cli_executor::broker::{McpToolBroker, SERVER_NAME};
use symbi_runtime::cli_executor::limits::PROVIDER_ANSWER_MAX;
use worker::{ProgramFile, WorkerRoot};

use crate::exit::{Exit, Failure};

pub(crate) use story::{Remark, Story};

/// Its program inside the worker, whatever the file is called on the host.
pub(crate) const PROGRAM: &str = "/agent/claude";

/// Least memory of its worker, in MiB: it is killed with 128, and works with this.
pub(crate) const MEMORY_MIB_MIN: u64 = 192;
/// Its own processes and threads; it aborts with 16.
const CLIENT_PIDS_MIN: u64 = 24;
/// The loopback adapter (two threads, and one for each of its connections), the bridge, and the
/// worker's first process.
const CHANNEL_PIDS_MIN: u64 = 8;
/// Least processes and threads of its worker.
pub(crate) const PIDS_MIN: u64 = CLIENT_PIDS_MIN + CHANNEL_PIDS_MIN;

/// The provider's beta features without which the client's requests are malformed or do less.
/// `beta_headers` of the configuration, where it names any, replaces them.
pub(crate) const BETA_HEADERS: [&str; 7] = [
    "claude-code-20250219",
    "interleaved-thinking-2025-05-14",
    "thinking-token-count-2026-05-13",
    "context-management-2025-06-27",
    "prompt-caching-scope-2026-01-05",
    "mid-conversation-system-2026-04-07",
    "effort-2025-11-24",
];

/// The provider takes no smaller budget for thinking.
const THINKING_TOKENS_MIN: u64 = 1024;
/// How often it repeats a request that its provider could not serve. Each time is charged anew.
const RETRIES_MAX: u64 = 4;
/// For its MCP server to answer, in milliseconds.
const CONNECT_MS_MAX: u64 = 30_000;

/// The terms of one run, as far as the client must know them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) model: &'a str,
    /// Most output tokens of one request.
    pub(crate) max_output_tokens: u64,
    /// Of the whole run.
    pub(crate) lifetime_ms: u64,
}

/// The command line.
pub(crate) fn command(
    program: &str,
    task: &str,
    tools: &[ToolName],
    max_turns: Option<u64>,
    terms: Terms<'_>,
) -> Vec<String> {
    let allowed: Vec<String> = tools
        .iter()
        .map(|tool| format!("mcp__{SERVER_NAME}__{tool}"))
        .collect();
    let mcp_config = McpToolBroker::mcp_config();
    let mut words = vec![program, "-p"];
    words.extend(["--output-format", "stream-json", "--verbose"]);
    words.extend(["--mcp-config", &mcp_config, "--strict-mcp-config"]);
    // No tool of its own, no settings, no skills, no session on its disk.
    words.extend(["--tools", "", "--setting-sources", ""]);
    words.extend(["--disable-slash-commands", "--no-session-persistence"]);
    let allowed = allowed.join(",");
    words.extend(["--permission-mode", "dontAsk", "--allowedTools", &allowed]);
    words.extend(["--model", terms.model]);
    let turns = max_turns.map(|turns| turns.to_string());
    if let Some(turns) = &turns {
        words.extend(["--max-turns", turns]);
    }
    // A task is never an option, and no option's value.
    words.extend(["--", task]);
    words.into_iter().map(str::to_owned).collect()
}

/// What `[agents.NAME] env` may change.
pub(crate) fn default_environment(terms: Terms<'_>) -> BTreeMap<String, String> {
    let thinking = match terms.max_output_tokens / 2 {
        tokens if tokens >= THINKING_TOKENS_MIN => tokens,
        _ => 0,
    };
    [
        ("MAX_THINKING_TOKENS", thinking.to_string()),
        ("CLAUDE_CODE_MAX_RETRIES", RETRIES_MAX.to_string()),
        (
            "API_TIMEOUT_MS",
            PROVIDER_ANSWER_MAX.as_millis().to_string(),
        ),
        ("MCP_CONNECT_TIMEOUT_MS", CONNECT_MS_MAX.to_string()),
        // A call may wait for a person as long as the run lasts.
        ("MCP_TOOL_TIMEOUT", terms.lifetime_ms.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// What nothing changes.
pub(crate) fn fixed_environment(terms: Terms<'_>) -> BTreeMap<String, String> {
    let tokens = terms.max_output_tokens.to_string();
    [
        ("HOME", "/tmp"),
        ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", &tokens),
        // Otherwise a broken stream is asked for again as a whole, and charged again.
        ("CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK", "1"),
        // Otherwise it looks up hosts that are not there.
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        // Otherwise it is told to write notes with a tool that it does not have.
        ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
        // Otherwise a server that is slow to answer is left out, and with it all tools.
        ("MCP_CONNECTION_NONBLOCKING", "0"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// What its worker is going to have.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) agent: &'a str,
    pub(crate) root: &'a WorkerRoot,
    pub(crate) memory_mib: u64,
    pub(crate) pids: u64,
}

/// Refuses a worker in which it could not run, before anything is recorded or sent.
///
/// # Errors
/// Exit code 7, with all that is missing.
pub(crate) fn check(place: &Place<'_>) -> Result<(), Failure> {
    let mut missing = Vec::new();
    if place.memory_mib < MEMORY_MIB_MIN {
        missing.push(format!(
            "memory: it needs at least {MEMORY_MIB_MIN} MiB, `memory_mib` is {}",
            place.memory_mib
        ));
    }
    if place.pids < PIDS_MIN {
        missing.push(format!(
            "processes: it needs at least {PIDS_MIN} with its channel, `pids` is {}",
            place.pids
        ));
    }
    if let Err(error) = ProgramCache::default().resolve("python3", place.root) {
        missing.push(format!(
            "Python 3, which carries its tools and its model: {}",
            crate::exit::chain(&error)
        ));
    }
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "Claude Code cannot run in the worker of the agent `{}`:\n  {}",
        place.agent,
        missing.join("\n  ")
    );
    Err(Failure::new(Exit::Isolation, message).help(format!(
        "set memory_mib and pids of [agents.{}] in symbiont.toml, within those of \
         [sandbox.namespace]; install python3 on this machine",
        place.agent
    )))
}

/// Refuses a script: the package's own start scripts need Node and more files.
///
/// # Errors
/// The reason.
pub(crate) fn check_program(program: &ProgramFile) -> Result<(), String> {
    match &program.interpreter {
        None => Ok(()),
        Some(interpreter) => Err(format!(
            "it is a script for {}; name the native program of the package: \
             @anthropic-ai/claude-code-linux-x64/claude",
            interpreter.path
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms<'_> = Terms {
        model: "m-1",
        max_output_tokens: 8192,
        lifetime_ms: 1_800_000,
    };

    fn tools() -> Vec<ToolName> {
        ["read_file", "grep"]
            .map(|name| ToolName::new(name).unwrap())
            .into()
    }

    fn after<'a>(words: &'a [String], option: &str) -> &'a str {
        let at = words.iter().position(|word| word == option).unwrap();
        &words[at + 1]
    }

    #[test]
    fn exactly_the_allowed_tools_are_named_and_none_of_its_own() {
        let words = command(PROGRAM, "x", &tools(), None, TERMS);
        assert_eq!(words[0], "/agent/claude");
        assert_eq!(
            after(&words, "--allowedTools"),
            "mcp__symbi__read_file,mcp__symbi__grep"
        );
        assert_eq!(after(&words, "--tools"), "");
        assert_eq!(after(&words, "--setting-sources"), "");
        assert_eq!(after(&words, "--permission-mode"), "dontAsk");
        assert!(words.contains(&"--strict-mcp-config".to_owned()));
        assert!(!words.contains(&"--max-turns".to_owned()));
    }

    #[test]
    fn a_task_is_the_last_word_and_never_an_option() {
        let words = command(
            PROGRAM,
            "--dangerously-skip-permissions",
            &tools(),
            Some(7),
            TERMS,
        );
        let end = &words[words.len() - 2..];
        assert_eq!(end, ["--", "--dangerously-skip-permissions"]);
        assert_eq!(after(&words, "--max-turns"), "7");
        assert_eq!(after(&words, "--model"), "m-1");
    }

    #[test]
    fn it_asks_for_no_more_tokens_than_the_terms_allow() {
        let fixed = fixed_environment(TERMS);
        assert_eq!(fixed["CLAUDE_CODE_MAX_OUTPUT_TOKENS"], "8192");
        assert_eq!(default_environment(TERMS)["MAX_THINKING_TOKENS"], "4096");
    }

    #[test]
    fn thinking_is_off_where_the_terms_leave_too_little_for_it() {
        for (max_output_tokens, thinking) in [(2048, "1024"), (2047, "0"), (1, "0")] {
            let terms = Terms {
                max_output_tokens,
                ..TERMS
            };
            assert_eq!(default_environment(terms)["MAX_THINKING_TOKENS"], thinking);
        }
    }

    #[test]
    fn what_is_fixed_is_no_default() {
        let defaults = default_environment(TERMS);
        assert!(
            fixed_environment(TERMS)
                .keys()
                .all(|name| !defaults.contains_key(name))
        );
    }

    fn place(memory_mib: u64, pids: u64) -> Result<(), Failure> {
        check(&Place {
            agent: "reviewer",
            root: &WorkerRoot::System { also: Vec::new() },
            memory_mib,
            pids,
        })
    }

    #[test]
    fn a_worker_at_the_least_is_enough_and_one_below_is_refused_with_7() {
        place(MEMORY_MIB_MIN, PIDS_MIN).unwrap();
        let refused = place(MEMORY_MIB_MIN - 1, PIDS_MIN - 1).unwrap_err();
        assert_eq!(refused.exit, Exit::Isolation);
        assert!(refused.message.contains("192 MiB"), "{refused}");
        assert!(refused.message.contains("at least 32"), "{refused}");
    }

    #[test]
    fn a_root_without_python_is_refused_with_7() {
        let empty = tempfile::tempdir().unwrap();
        let refused = check(&Place {
            agent: "reviewer",
            root: &WorkerRoot::Directory {
                path: empty.path().to_str().unwrap().to_owned(),
            },
            memory_mib: 512,
            pids: 64,
        })
        .unwrap_err();
        assert_eq!(refused.exit, Exit::Isolation);
        assert!(refused.message.contains("Python 3"), "{refused}");
    }
}
