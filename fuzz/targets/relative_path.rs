//! Any text as a path of a grant: what is accepted is plain, and prints as it was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use model::RelativePath;

fuzz_target!(|text: &str| {
    let Ok(path) = RelativePath::new(text) else {
        return;
    };
    assert_eq!(path.as_str(), text);
    assert!(!text.is_empty() && text.len() <= 4096);
    assert!(!text.contains(['\0', '\\', ':', ',', '{', '}', '\n']));
    for part in path.components() {
        assert!(!matches!(part, "" | "." | "..") && !part.contains('/'));
    }
    let joined = path.components().collect::<Vec<_>>().join("/");
    assert_eq!(joined, text);
    let parent = path.parent();
    let name = path.name();
    let again = if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}/{name}")
    };
    assert_eq!(again, text);
    assert_eq!(RelativePath::new(again).as_ref(), Ok(&path));
});
