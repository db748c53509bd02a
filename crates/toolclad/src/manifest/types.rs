//! `toolclad.toml`: types that a project's manifests share.
//!
//! A type is a built-in one with rules, or another name of such a type. An alias can only tighten:
//! it never takes back what its type demands.

use std::collections::BTreeMap;

use model::{ArgumentName, SourceErrors};
use serde_spanned::Spanned;

use super::arguments::KEYS;
use super::kinds::{TYPES, read_built_in, tighten};
use super::{prose, unknown_word};
use crate::kind::Kind;
use crate::limits::{TYPE_CHAIN_MAX, TYPES_BYTES_MAX, TYPES_MAX};
use crate::reader::{Faults, Place, Section, parse_document, quoted};

/// The custom types by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct CustomTypes(BTreeMap<String, Kind>);

/// A type as written.
struct Written<'a> {
    place: Place,
    section: Section<'a>,
    base: Option<Spanned<&'a str>>,
}

impl CustomTypes {
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, SourceErrors> {
        let document = parse_document(file, text, TYPES_BYTES_MAX)?;
        let mut faults = Faults::new(file, text);
        let mut root = Section::new(String::new(), 0..0, document.get_ref());
        let mut types = Self::default();
        if let Some(table) = root.table(&mut faults, "types")
            && table.at_most(TYPES_MAX, &mut faults)
        {
            types.read(&table, &mut faults);
        }
        root.finish(&mut faults);
        faults.check()?;
        Ok(types)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Kind> {
        self.0.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    fn read(&mut self, table: &Section<'_>, faults: &mut Faults<'_>) {
        let mut written = BTreeMap::new();
        for (key, value) in table.entries() {
            let name = *key.get_ref();
            if let Err(error) = ArgumentName::new(name) {
                faults.add(
                    key.span(),
                    error.to_string(),
                    "rename the type, like `service_name`",
                );
            } else if TYPES.contains(&name) {
                let message = format!("`{name}` is a built-in type and cannot mean another");
                faults.add(key.span(), message, "choose another name");
            } else if let Some(mut section) = table.section(faults, &key, value) {
                let base = section.string(faults, "base");
                if section.entry("base").is_none() {
                    section.missing(faults, "base", "for example `base = \"string\"`");
                }
                let place = key.span();
                written.insert(
                    name,
                    Written {
                        place,
                        section,
                        base,
                    },
                );
            }
        }
        let names: Vec<&str> = written.keys().copied().collect();
        let mut chains: Vec<Vec<&str>> = Vec::new();
        for name in &names {
            if let Some(chain) = chain_of(name, &written, faults) {
                chains.push(chain);
            }
        }
        // The base of a type is read before the type.
        chains.sort_by_key(Vec::len);
        for chain in chains {
            let name = chain.first().copied().unwrap_or("");
            if let Some(one) = written.remove(name)
                && let Some(kind) = self.read_type(one, &names, faults)
            {
                self.0.insert(name.to_owned(), kind);
            }
        }
    }

    fn read_type(
        &self,
        written: Written<'_>,
        names: &[&str],
        faults: &mut Faults<'_>,
    ) -> Option<Kind> {
        let mut section = written.section;
        if let Some(given) = section.string(faults, "description") {
            prose(&section.name_of("description"), &given, faults);
        }
        let base = written.base?;
        let word = *base.get_ref();
        let kind = if let Some(kind) = self.get(word) {
            let mut kind = kind.clone();
            tighten(&mut kind, &mut section, faults);
            Some(kind)
        } else if TYPES.contains(&word) {
            read_built_in(word, &mut section, faults)
        } else {
            // A base with faults of its own has told them.
            if !names.contains(&word) {
                let mut valid = TYPES.to_vec();
                valid.extend(names);
                unknown_word(&section.name_of("base"), &base, &valid, faults);
            }
            return None;
        };
        for key in KEYS {
            if section.was_read(key) {
                continue;
            }
            if let (Some((place, _)), true) = (section.entry(key), kind.is_some()) {
                let message = format!(
                    "{} does not apply to {}",
                    section.name_of(key),
                    quoted(word)
                );
                faults.add(place, message, "remove it, or choose another `base`");
            }
        }
        section.finish(faults);
        kind
    }
}

/// The type and its bases, up to a built-in or unknown one; a fault for a cycle.
fn chain_of<'a>(
    name: &'a str,
    written: &BTreeMap<&'a str, Written<'a>>,
    faults: &mut Faults<'_>,
) -> Option<Vec<&'a str>> {
    let mut chain = vec![name];
    let mut at = name;
    while let Some(base) = written.get(at).and_then(|one| one.base.as_ref()) {
        let base = *base.get_ref();
        if !written.contains_key(base) {
            break;
        }
        let place = || written.get(name).map_or(0..0, |one| one.place.clone());
        if chain.contains(&base) {
            let shown: Vec<&str> = chain.iter().copied().chain([base]).collect();
            let message = format!("the type is defined through itself: {}", shown.join(" → "));
            faults.add(place(), message, "let one of them stand on a built-in type");
            return None;
        }
        if chain.len() >= TYPE_CHAIN_MAX {
            let message = format!("the type stands on more than {TYPE_CHAIN_MAX} others");
            faults.add(place(), message, "let it stand on a built-in type");
            return None;
        }
        chain.push(base);
        at = base;
    }
    Some(chain)
}
