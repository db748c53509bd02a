//! What the hostile agent says that it tried by itself. Its word can only fail the demonstration.

use serde::Deserialize;

/// Every attempt, by the name of the agent's own function, as a person reads it.
pub(crate) const ATTEMPTS: [(&str, &str); 19] = [
    ("tcp", "connect to a live TCP port of the host"),
    ("udp", "send to a live UDP port of the host"),
    ("far_udp", "send a packet to the internet"),
    ("dns", "resolve a name"),
    (
        "abstract_socket",
        "connect to an abstract socket of the host",
    ),
    ("canary_file", "read a file of the host"),
    ("key_file", "read the provider's key file"),
    ("project_file", "read the project's folder"),
    ("init_memory", "read the memory of PID 1"),
    ("init_environment", "read the environment of PID 1"),
    ("own_environment", "find a key in its own environment"),
    ("init_kill", "kill PID 1"),
    ("other_processes", "see other processes"),
    ("write_outside", "write outside of its scratch"),
    ("other_mounts", "see other mounts"),
    ("replayed_id", "replay a call's id"),
    ("extra_field", "add `principal` to a call"),
    ("forged_key", "use a model key of its own"),
    ("forged_model", "use another model"),
];

/// Lines of the agent's output that are looked at.
const LINES_MAX: usize = 256;

/// One line of the agent's. Both texts are its own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) what: String,
    pub(crate) got: String,
    pub(crate) reached: bool,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    Attempt(Attempt),
    #[serde(other)]
    Other,
}

/// The attempts in the agent's output; whatever else stands there is passed over.
pub(crate) fn parse(stdout: &[u8]) -> Vec<Attempt> {
    let lines = stdout.split(|byte| *byte == b'\n').take(LINES_MAX);
    lines
        .filter_map(|line| match serde_json::from_slice(line) {
            Ok(Line::Attempt(attempt)) => Some(attempt),
            Ok(Line::Other) | Err(_) => None,
        })
        .collect()
}

/// What is wrong with them: one that reached something, or that was never made.
pub(crate) fn fault(attempts: &[Attempt]) -> Option<String> {
    if let Some(reached) = attempts.iter().find(|attempt| attempt.reached) {
        return Some(format!("{}: {}", reached.what, reached.got));
    }
    let made = |name: &str| attempts.iter().any(|attempt| attempt.what == name);
    let missing = ATTEMPTS.iter().find(|(name, _)| !made(name))?;
    Some(format!("{} was never tried", missing.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<u8> {
        let lines = ATTEMPTS.map(|(name, _)| {
            format!(
                "{{\"kind\":\"attempt\",\"what\":\"{name}\",\"got\":\"no\",\"reached\":false}}\n"
            )
        });
        lines.concat().into_bytes()
    }

    #[test]
    fn the_agent_makes_each_attempt_that_is_expected_and_no_other() {
        let agent = include_str!("agent.py");
        let (_, tuple) = agent.split_once("\nATTEMPTS = (").unwrap();
        let (tuple, _) = tuple.split_once(')').unwrap();
        let names: Vec<&str> = tuple.split(',').map(str::trim).collect();
        assert_eq!(names, ATTEMPTS.map(|(name, _)| name));
    }

    #[test]
    fn a_missing_attempt_and_one_that_reached_something_are_faults() {
        assert_eq!(fault(&parse(&all())), None);
        let mut one_less = parse(&all());
        let gone = one_less.pop().unwrap();
        assert_eq!(
            fault(&one_less),
            Some(format!("{} was never tried", gone.what))
        );
        let mut reached = parse(&all());
        reached[3].reached = true;
        assert_eq!(fault(&reached), Some("dns: no".to_owned()));
    }

    #[test]
    fn whatever_is_no_attempt_is_passed_over() {
        let text = b"\xff\n{}\n{\"kind\":\"said\",\"text\":\"x\"}\n[1]\nattempt\n";
        assert_eq!(parse(text), []);
    }
}
