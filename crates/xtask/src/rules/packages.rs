//! Which packages of others we take: their licences, and those that never come in. `deny.toml`
//! says the same to cargo-deny; a test keeps the two together.

use crate::fault::Fault;
use crate::metadata::Metadata;
use crate::tree::TextFile;

/// Licences that a package may be under.
const LICENSES: [&str; 10] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// Packages that never come in, with what to use instead.
const BANNED: [(&str, &str); 6] = [
    ("aws-lc-rs", "use ring"),
    ("aws-lc-sys", "use ring"),
    ("native-tls", "use rustls"),
    ("openssl", "use rustls and ring"),
    ("openssl-sys", "use rustls and ring"),
    ("openssl-src", "use rustls and ring"),
];

/// Checks the lock file, which knows the packages of all platforms, and the licences of this one's.
pub(crate) fn check(metadata: &Metadata, files: &[TextFile]) -> Vec<Fault> {
    let lock = files.iter().filter(|file| file.path == "Cargo.lock");
    let mut faults: Vec<Fault> = lock.flat_map(banned).collect();
    for package in &metadata.packages {
        let license = package.license.as_deref().unwrap_or_default();
        if !is_allowed(license) {
            let what = format!(
                "`{} {}` has the licence `{license}`",
                package.name, package.version
            );
            let remedy = "use another package, or allow it in crates/xtask/src/rules/packages.rs";
            faults.push(Fault::new("Cargo.lock", 1, what, remedy));
        }
    }
    faults
}

fn banned(lock: &TextFile) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, line) in lock.text.lines().enumerate() {
        let name = line
            .strip_prefix("name = \"")
            .and_then(|rest| rest.strip_suffix('"'));
        let ban = BANNED.iter().find(|(banned, _)| name == Some(banned));
        if let Some((name, remedy)) = ban {
            let what = format!("the banned package `{name}`");
            faults.push(Fault::new(&lock.path, index + 1, what, *remedy));
        }
    }
    faults
}

/// Whether the SPDX expression `license` can be satisfied; `/` is an old spelling of `OR`.
fn is_allowed(license: &str) -> bool {
    let spaced = license
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut expression = Expression { words: &words };
    expression.any() == Some(true) && expression.words.is_empty()
}

/// The rest of an expression; `None` is one that is ill-formed.
struct Expression<'a> {
    words: &'a [&'a str],
}

impl<'a> Expression<'a> {
    fn any(&mut self) -> Option<bool> {
        let mut holds = self.all()?;
        while self.take("OR") {
            holds |= self.all()?;
        }
        Some(holds)
    }

    fn all(&mut self) -> Option<bool> {
        let mut holds = self.one()?;
        while self.take("AND") {
            holds &= self.one()?;
        }
        Some(holds)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let holds = self.any()?;
            return self.take(")").then_some(holds);
        }
        let license = self.next()?;
        if self.take("WITH") {
            let exception = self.next()?;
            return Some(LICENSES.contains(&format!("{license} WITH {exception}").as_str()));
        }
        Some(LICENSES.contains(&license))
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        if is_next {
            let _ = self.next();
        }
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust::text_file;

    #[test]
    fn a_licence_expression_is_allowed_if_one_choice_is() {
        let good = [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/GPL-3.0",
            "GPL-3.0 OR (MIT AND ISC)",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
        ];
        for license in good {
            assert!(is_allowed(license), "{license}");
        }
        let bad = [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT WITH Classpath-exception-2.0",
            "(MIT",
            "MIT)",
            "MIT OR",
            "MIT ISC",
        ];
        for license in bad {
            assert!(!is_allowed(license), "{license}");
        }
    }

    #[test]
    fn a_banned_package_is_found_in_the_lock_file() {
        let lock = text_file(
            "Cargo.lock",
            "[[package]]\nname = \"openssl-sys\"\nversion = \"1.0.0\"\n\
             dependencies = [\n \"openssl-probe\",\n]\n",
        );
        let faults: Vec<usize> = banned(&lock).iter().map(|fault| fault.line).collect();
        assert_eq!(faults, [2]);
    }

    #[test]
    fn cargo_deny_is_told_the_same() {
        let deny = include_str!("../../../../deny.toml");
        let quoted = |name: &str| format!("\"{name}\"");
        for license in LICENSES {
            assert!(deny.contains(&quoted(license)), "{license}");
        }
        for (name, _) in BANNED {
            assert!(deny.contains(&quoted(name)), "{name}");
        }
        let entries = deny.lines().filter(|line| line.starts_with("    "));
        assert_eq!(entries.count(), LICENSES.len() + BANNED.len());
    }
}
