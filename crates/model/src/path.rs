//! Relative paths below a worker's working directory: what `[filesystem]` may name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::{PATH_BYTES_MAX, PATH_COMPONENT_BYTES_MAX};

/// A relative path of ordinary components, `/` between them, byte for byte as written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelativePath(String);

/// Why a text is not such a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathError {
    Empty,
    TooLong { bytes: usize, max: usize },
    Rooted,
    EmptyComponent,
    DotComponent,
    ComponentTooLong { bytes: usize, max: usize },
    Character { character: char, at: usize },
}

impl PathError {
    /// What is wrong, without what to do: that depends on where the path stands.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::Empty => "the path is empty".to_owned(),
            Self::TooLong { bytes, max } => {
                format!("the path has {bytes} bytes, more than the {max} allowed")
            }
            Self::Rooted => "the path starts with `/`".to_owned(),
            Self::EmptyComponent => {
                "the path has an empty component (`//` or a final `/`)".to_owned()
            }
            Self::DotComponent => "the path has a `.` or `..` component".to_owned(),
            Self::ComponentTooLong { bytes, max } => {
                format!("a path component has {bytes} bytes, more than the {max} allowed")
            }
            Self::Character { character, at } => format!(
                "the path has `{}` (U+{:04X}) at byte {at}, which no path may have",
                character.escape_default(),
                u32::from(*character)
            ),
        }
    }
}

impl fmt::Display for PathError {
    /// What is wrong, and what to do where the path names a file of a call.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = match self {
            Self::Empty => "name a file",
            Self::TooLong { .. } => "use a shorter one",
            Self::Rooted | Self::DotComponent => {
                "write it downwards from the worker's working directory, like `data/a.csv`"
            }
            Self::EmptyComponent => "name a file, with single `/`",
            Self::ComponentTooLong { .. } => "use a shorter name",
            Self::Character { .. } => "rename the file",
        };
        write!(f, "{}; {remedy}", self.what())
    }
}

impl std::error::Error for PathError {}

impl RelativePath {
    /// Checks `text` and keeps it.
    ///
    /// # Errors
    /// [`PathError`] names the first thing that is wrong.
    pub fn new(text: impl Into<String>) -> Result<Self, PathError> {
        let text = text.into();
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong {
                bytes: text.len(),
                max: PATH_BYTES_MAX,
            });
        }
        if text.starts_with('/') {
            return Err(PathError::Rooted);
        }
        if let Some((at, character)) = text.char_indices().find(|(_, c)| is_refused(*c)) {
            return Err(PathError::Character { character, at });
        }
        for component in text.split('/') {
            match component {
                "" => return Err(PathError::EmptyComponent),
                "." | ".." => return Err(PathError::DotComponent),
                long if long.len() > PATH_COMPONENT_BYTES_MAX => {
                    return Err(PathError::ComponentTooLong {
                        bytes: long.len(),
                        max: PATH_COMPONENT_BYTES_MAX,
                    });
                }
                _ => {}
            }
        }
        Ok(Self(text))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The components, first to last.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// Everything before the last component; empty for a single one.
    #[must_use]
    pub fn parent(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(parent, _)| parent)
    }

    /// The last component.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// What follows the last dot of the name, if a dot stands inside it.
    #[must_use]
    pub fn extension(&self) -> Option<&str> {
        match self.name().rsplit_once('.') {
            Some((stem, extension)) if !stem.is_empty() && !extension.is_empty() => Some(extension),
            _ => None,
        }
    }
}

/// Braces, mount delimiters, backslash, controls, and characters that reorder or hide text.
fn is_refused(character: char) -> bool {
    matches!(character, '{' | '}' | '\\' | ':' | ',')
        || character.is_control()
        || matches!(character,
            '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RelativePath {
    type Err = PathError;
    fn from_str(text: &str) -> Result<Self, PathError> {
        Self::new(text)
    }
}

impl Serialize for RelativePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RelativePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_keeps_its_bytes_and_parts() {
        let path = RelativePath::new("data/in put/a.tar.gz").unwrap();
        assert_eq!(path.parent(), "data/in put");
        assert_eq!(path.name(), "a.tar.gz");
        assert_eq!(path.extension(), Some("gz"));
        assert_eq!(RelativePath::new(".hidden").unwrap().extension(), None);
        assert_eq!(RelativePath::new("x").unwrap().parent(), "");
    }

    #[test]
    fn composed_and_decomposed_names_stay_different() {
        assert_ne!(
            RelativePath::new("\u{e9}").unwrap(),
            RelativePath::new("e\u{301}").unwrap()
        );
    }

    #[test]
    fn traversal_roots_empty_parts_and_delimiters_are_refused() {
        for bad in [
            "",
            "/a",
            "..",
            "a/..",
            "a/../b",
            "./a",
            "a/./b",
            "a//b",
            "a/",
            "a\\b",
            "a:b",
            "a,b",
            "{a}",
            "a\0b",
            "a\nb",
            "a\u{202e}b",
            "a\u{200b}b",
            "a\u{85}b",
        ] {
            assert!(RelativePath::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_refusal_of_a_path_says_what_to_do() {
        let long = "a/".repeat(PATH_BYTES_MAX);
        let component = "a".repeat(PATH_COMPONENT_BYTES_MAX + 1);
        for bad in ["", "/a", "..", "a//b", "a:b", &long, &component] {
            let said = RelativePath::new(bad).unwrap_err().to_string();
            assert!(said.contains("; "), "{said}");
        }
    }

    #[test]
    fn length_limits_hold_at_and_past_the_bound() {
        let component = "a".repeat(PATH_COMPONENT_BYTES_MAX);
        assert!(RelativePath::new(component.clone()).is_ok());
        assert!(RelativePath::new(format!("{component}a")).is_err());
        let whole = format!("{}/", "a".repeat(15)).repeat(PATH_BYTES_MAX / 16);
        let whole = format!("{}a", &whole[..PATH_BYTES_MAX - 1]);
        assert_eq!(whole.len(), PATH_BYTES_MAX);
        assert!(RelativePath::new(whole.clone()).is_ok());
        assert!(RelativePath::new(format!("{whole}a")).is_err());
    }
}
