//! What no text of the tree says: places of one machine, package registries, promises of later
//! work. The forbidden words are put together from parts, so that this file does not hold them.

use crate::fault::Fault;
use crate::tree::TextFile;

/// Top folders that exist where this was written and nowhere else.
const MACHINE_FOLDERS: [&str; 3] = ["work", "root", "farm"];

/// Hosts that packages and images come from, in parts: this file must not name them either.
const REGISTRIES: [(&str, &str); 12] = [
    ("crates", ".io"),
    ("docker", ".io"),
    ("ghcr", ".io"),
    ("quay", ".io"),
    ("gcr", ".io"),
    ("mcr.microsoft", ".com"),
    ("npmjs", ".com"),
    ("npmjs", ".org"),
    ("pypi", ".org"),
    ("python", "hosted.org"),
    ("rubygems", ".org"),
    ("proxy.golang", ".org"),
];

/// Checks one file, line by line. The lock file names its registry, as it must.
pub(crate) fn check(file: &TextFile) -> Vec<Fault> {
    let words = Forbidden::new();
    let is_lock = file.name() == "Cargo.lock";
    let mut faults = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for (what, remedy) in words.found(line, is_lock) {
            faults.push(Fault::new(&file.path, index + 1, what, remedy));
        }
    }
    faults
}

struct Forbidden {
    folders: Vec<String>,
    shared: String,
    registries: Vec<String>,
    promises: [String; 2],
}

impl Forbidden {
    fn new() -> Self {
        let host = |(start, end): &(&str, &str)| format!("{start}{end}");
        Self {
            folders: MACHINE_FOLDERS.map(|name| format!("/{name}/")).to_vec(),
            shared: format!("..{}", "/shared"),
            registries: REGISTRIES.iter().map(host).collect(),
            promises: [format!("TO{}", "DO"), format!("FIX{}", "ME")],
        }
    }

    fn found(&self, line: &str, is_lock: bool) -> Vec<(String, &'static str)> {
        let mut found = Vec::new();
        for folder in self
            .folders
            .iter()
            .filter(|folder| has_absolute(line, folder))
        {
            found.push((
                format!("a path of one machine (`{folder}…`)"),
                "use a path below the project or a temporary folder",
            ));
        }
        if line.contains(&self.shared) {
            let what = format!("`{}` is outside of the repository", self.shared);
            found.push((what, "say it here or leave it out"));
        }
        for host in self
            .registries
            .iter()
            .filter(|host| !is_lock && has_host(line, host))
        {
            found.push((
                format!("the package registry `{host}`"),
                "name the package, not where it comes from",
            ));
        }
        for promise in self
            .promises
            .iter()
            .filter(|promise| has_word(line, promise))
        {
            found.push((format!("`{promise}`"), "do it now, or file an issue"));
        }
        found
    }
}

/// Whether `folder` stands in `line` where an absolute path would start.
fn has_absolute(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        !before.is_some_and(|last| last.is_alphanumeric() || "_-./}*".contains(last))
    })
}

/// Whether `host` or a host below it stands in `line`.
fn has_host(line: &str, host: &str) -> bool {
    line.match_indices(host).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        let after = line
            .get(at + host.len()..)
            .and_then(|after| after.chars().next());
        let goes_on = |next: Option<char>| next.is_some_and(|next| next.is_alphanumeric());
        !goes_on(before) && !goes_on(after)
    })
}

fn has_word(line: &str, word: &str) -> bool {
    let is_word = |next: Option<char>| next.is_some_and(crate::rust::is_word);
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        let after = line
            .get(at + word.len()..)
            .and_then(|after| after.chars().next());
        !is_word(before) && !is_word(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust::text_file;

    fn faults(line: &str) -> usize {
        check(&text_file("docs/a.md", line)).len()
    }

    #[test]
    fn a_path_of_one_machine_is_found_and_its_look_alikes_are_not() {
        for folder in MACHINE_FOLDERS {
            assert_eq!(faults(&format!("see /{folder}/x")), 1, "{folder}");
            assert_eq!(faults(&format!("see \"/{folder}/x\"")), 1, "{folder}");
            assert_eq!(
                faults(&format!("see a/{folder}/x ./{folder}/x")),
                0,
                "{folder}"
            );
            assert_eq!(faults(&format!("see /{folder}space/x")), 0, "{folder}");
        }
    }

    #[test]
    fn a_registry_is_found_everywhere_but_in_the_lock_file() {
        let host = ["crates", ".io"].concat();
        assert_eq!(faults(&format!("https://{host}/x")), 1);
        assert_eq!(faults(&format!("static.{host}")), 1);
        assert_eq!(faults(&format!("my{host}")), 0);
        let lock = text_file("Cargo.lock", &format!("source = \"{host}-index\""));
        assert_eq!(check(&lock), []);
    }

    #[test]
    fn promises_are_found_as_words() {
        assert_eq!(faults(&["// TO", "DO: later"].concat()), 1);
        assert_eq!(faults(&["FIX", "ME"].concat()), 1);
        assert_eq!(faults(&["MAS", "TO", "DON"].concat()), 0);
    }

    #[test]
    fn a_fault_has_its_line_and_reads_well() {
        let text = format!("ok\nsee ..{}/a\n", "/shared");
        let faults = check(&text_file("README.md", &text));
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let outside = format!("..{}", "/shared");
        let expected = format!(
            "README.md:2: `{outside}` is outside of the repository: say it here or leave it out"
        );
        assert_eq!(lines, [expected]);
    }
}
