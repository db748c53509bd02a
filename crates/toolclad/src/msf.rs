//! `msf_options`: one `set KEY VALUE` for a console that reads commands from its arguments.

use crate::hygiene::{self, Allowance};
use crate::network::{Target, check_target};
use crate::value::ValueFault;

const EXPECTED: &str = "one option like `set RPORT 445`";
const KEY_BYTES_MAX: usize = 64;
/// Options whose value is what the console attacks.
const TARGET_KEYS: [&str; 2] = ["RHOST", "RHOSTS"];

/// Checks the text; a key that names a target has its target.
pub(crate) fn check(text: &str) -> Result<Option<Target>, ValueFault> {
    let syntax = || ValueFault::Syntax { expected: EXPECTED };
    hygiene::check(
        text,
        Allowance {
            space: true,
            ..Allowance::default()
        },
    )?;
    let (key, value) = text
        .strip_prefix("set ")
        .and_then(|rest| rest.split_once(' '))
        .ok_or_else(syntax)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = key.starts_with(|c: char| c.is_ascii_alphabetic());
    if !begins || !key.chars().all(plain) || key.len() > KEY_BYTES_MAX || value.is_empty() {
        return Err(syntax());
    }
    hygiene::check(value, Allowance::default())?;
    if TARGET_KEYS.iter().any(|it| it.eq_ignore_ascii_case(key)) {
        return check_target(value, false)
            .map(Some)
            .map_err(ValueFault::Target);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_option_is_accepted_and_nothing_else() {
        assert!(matches!(check("set RPORT 445"), Ok(None)));
        assert!(matches!(
            check("set rhosts 10.0.1.1"),
            Ok(Some(Target::Network(_)))
        ));
        for bad in [
            "",
            "RPORT 445",
            "set RPORT",
            "set RPORT ",
            "set  RPORT 445",
            "set RPORT 445 446",
            "set RPORT 445;run",
            "set 1A 2",
            "set R-P 2",
            "setg RPORT 445",
            "SET RPORT 445",
            "set RHOSTS 10.0.0.1' -x",
            "set RHOSTS 127.1",
            "set RHOSTS file:/etc/hosts",
            "set LHOST -x",
            "set A \u{a0}b",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
