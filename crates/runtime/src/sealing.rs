//! Sensitive arguments: what of a bound call may be written down, and what only its worker gets.
//!
//! The descriptor, and with it the record, the person who is asked and the policies, has the names
//! of sensitive arguments, a mask in argv, and salted hashes of both. The salt is random for each
//! call and ends with it, so that no guess can be tried against a record.

use std::collections::BTreeMap;

use model::{ArgumentName, ArgumentValue, Redacted};
use toolclad::{BoundCall, salted_digest};
use worker::{SealedArgv, SealedValues, sealed_entry_digest};

/// Shorter values would be found everywhere: they are not looked for in outputs.
const SECRET_BYTES_MIN: usize = 4;

/// A bound call in its two parts.
#[derive(Debug, Default)]
pub(crate) struct Sealed {
    /// Without the sensitive ones.
    pub(crate) arguments: BTreeMap<ArgumentName, ArgumentValue>,
    /// With a mask in place of each sensitive value.
    pub(crate) argv: Vec<String>,
    pub(crate) values: SealedValues,
    pub(crate) held: Option<SealedArgv>,
    /// What no output may repeat to whoever reads it.
    pub(crate) secrets: Vec<Redacted<String>>,
}

/// Takes the sensitive values of a call apart from the rest.
///
/// # Errors
/// The operating system's, where it has no randomness to give.
pub(crate) fn seal(bound: &BoundCall) -> Result<Sealed, getrandom::Error> {
    let mut sealed = Sealed {
        arguments: bound.arguments.clone(),
        argv: bound.shown_argv.clone(),
        ..Sealed::default()
    };
    if bound.sensitive.is_empty() {
        return Ok(sealed);
    }
    let mut salt = [0; 32];
    getrandom::fill(&mut salt)?;
    for name in &bound.sensitive {
        if let Some(value) = sealed.arguments.remove(name) {
            let digest = salted_digest(&salt, name, &value);
            sealed.values.arguments.insert(name.clone(), digest);
            let printed = value.to_string();
            if printed.len() >= SECRET_BYTES_MIN {
                sealed.secrets.push(Redacted::new(printed));
            }
        }
    }
    let mut entries = BTreeMap::new();
    let both = bound.argv.iter().zip(&bound.shown_argv).enumerate();
    for (index, (entry, shown)) in both {
        if entry != shown {
            let digest = sealed_entry_digest(&salt, index, entry);
            sealed.values.argv.insert(index, digest);
            entries.insert(index, Redacted::new(entry.clone()));
        }
    }
    sealed.held = (!entries.is_empty()).then_some(SealedArgv { salt, entries });
    Ok(sealed)
}
