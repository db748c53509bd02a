//! The characters that no argument may bring, whatever its type: refused before anything is parsed,
//! and nothing is trimmed.

use crate::value::ValueFault;

/// What a type or a manifest allows beyond the safe characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Allowance {
    /// `allow_leading_dash`: the value may begin with `-`.
    pub(crate) leading_dash: bool,
    /// `allow_whitespace`: U+0020 may stand in the value.
    pub(crate) space: bool,
    /// Metacharacters that the type's own syntax needs; its parser bounds them.
    pub(crate) syntax: &'static str,
}

/// Why a character is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CharacterClass {
    Control,
    Quote,
    Backslash,
    Whitespace,
    Metacharacter,
    /// It reorders, hides or joins the text around it.
    Invisible,
}

/// Shell metacharacters besides quotes, backslash and whitespace.
const METACHARACTERS: &str = ";|&$(){}[]<>!*?#~^";

/// Checks `text` against the rules for every string-derived type.
pub(crate) fn check(text: &str, allowance: Allowance) -> Result<(), ValueFault> {
    if let Some(first @ ('-' | '+')) = text.chars().next()
        && !(first == '-' && allowance.leading_dash)
    {
        return Err(ValueFault::LeadingSign { sign: first });
    }
    for (index, character) in text.chars().enumerate() {
        let Some(class) = refused(character) else {
            continue;
        };
        let allowed = match class {
            CharacterClass::Whitespace => character == ' ' && allowance.space,
            CharacterClass::Metacharacter => allowance.syntax.contains(character),
            _ => false,
        };
        if !allowed {
            return Err(ValueFault::Character {
                character,
                class,
                position: index + 1,
            });
        }
    }
    Ok(())
}

fn refused(character: char) -> Option<CharacterClass> {
    match character {
        '\'' | '"' | '`' => Some(CharacterClass::Quote),
        '\\' => Some(CharacterClass::Backslash),
        _ if METACHARACTERS.contains(character) => Some(CharacterClass::Metacharacter),
        '!'..='~' => None,
        // Before the controls: a tab and a line feed are both.
        _ if character.is_whitespace() => Some(CharacterClass::Whitespace),
        _ if character.is_control() => Some(CharacterClass::Control),
        _ if is_invisible(character) => Some(CharacterClass::Invisible),
        _ => None,
    }
}

/// Format characters, fillers, variation selectors, tags and noncharacters: what Unicode calls
/// default-ignorable, and the bidirectional controls.
pub(crate) fn is_invisible(character: char) -> bool {
    let code = u32::from(character);
    matches!(code,
        0x00ad | 0x034f | 0x061c | 0x070f | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180f
        | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0x2800 | 0x3164
        | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfffb | 0xfdd0..=0xfdef
        | 0x110bd | 0x110cd | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
        || code & 0xfffe == 0xfffe
}

/// Whether text that a person or a model reads shows all that it contains: line feeds and tabs are
/// fine, other controls and invisible characters are not.
pub(crate) fn hidden_in_prose(text: &str) -> Option<(usize, char)> {
    text.char_indices().find(|(_, character)| {
        (character.is_control() && !matches!(character, '\n' | '\t')) || is_invisible(*character)
    })
}

/// A character's name for a message; never the character itself, unless it is a plain one.
pub(crate) fn name(character: char) -> String {
    let code = u32::from(character);
    let known = match character {
        '\0' => "NUL",
        '\u{7}' => "bell",
        '\u{8}' => "backspace",
        '\t' => "tab",
        '\n' => "line feed",
        '\r' => "carriage return",
        '\u{1b}' => "escape",
        ' ' => "space",
        '\u{7f}' => "delete",
        '\u{85}' => "next line",
        '\u{a0}' => "no-break space",
        '\u{ad}' => "soft hyphen",
        '\u{61c}' => "Arabic letter mark",
        '\u{200b}' => "zero width space",
        '\u{200c}' => "zero width non-joiner",
        '\u{200d}' => "zero width joiner",
        '\u{200e}' => "left-to-right mark",
        '\u{200f}' => "right-to-left mark",
        '\u{2028}' => "line separator",
        '\u{2029}' => "paragraph separator",
        '\u{202a}' => "left-to-right embedding",
        '\u{202b}' => "right-to-left embedding",
        '\u{202c}' => "pop directional formatting",
        '\u{202d}' => "left-to-right override",
        '\u{202e}' => "right-to-left override",
        '\u{2060}' => "word joiner",
        '\u{2066}' => "left-to-right isolate",
        '\u{2067}' => "right-to-left isolate",
        '\u{2068}' => "first strong isolate",
        '\u{2069}' => "pop directional isolate",
        '\u{3000}' => "ideographic space",
        '\u{feff}' => "byte order mark",
        '!'..='~' => return format!("`{character}`"),
        _ if character.is_control() => "control character",
        _ if character.is_whitespace() => "whitespace character",
        _ => "character",
    };
    format!("{known} (U+{code:04X})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(text: &str) -> Option<usize> {
        match check(text, Allowance::default()) {
            Err(ValueFault::Character { position, .. }) => Some(position),
            _ => None,
        }
    }

    #[test]
    fn controls_quotes_whitespace_metacharacters_and_invisibles_are_refused_at_their_position() {
        for bad in "\0\u{1}\u{1b}\u{7f}\u{80}\u{85}\u{9f}'\"`\\ \t\n\r\u{a0}\u{2003}\u{3000};|&$(){}[]<>!*?#~^\
             \u{ad}\u{200b}\u{200d}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{fe0f}\u{e0041}\u{3164}\u{2800}\u{ffff}"
            .chars()
        {
            assert_eq!(position(&format!("aä{bad}b")), Some(3), "{}", name(bad));
        }
        assert_eq!(position("a-b+c=d%e@f,g:h/i_j.kä漢"), None);
    }

    #[test]
    fn a_leading_sign_is_refused_and_a_dash_can_be_allowed() {
        let dash = Allowance {
            leading_dash: true,
            ..Allowance::default()
        };
        assert!(check("-x", Allowance::default()).is_err());
        assert!(check("+x", Allowance::default()).is_err());
        assert!(check("-x", dash).is_ok());
        assert!(check("+x", dash).is_err());
    }

    #[test]
    fn allowed_whitespace_is_the_space_alone() {
        let space = Allowance {
            space: true,
            ..Allowance::default()
        };
        assert!(check("two words", space).is_ok());
        for bad in ["a\tb", "a\nb", "a\u{a0}b", "a\u{2003}b"] {
            assert!(check(bad, space).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_name_never_contains_the_control_character_itself() {
        for code in 0..=0x2_ffff_u32 {
            if let Some(character) = char::from_u32(code) {
                let name = name(character);
                assert!(
                    name.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
                    "{name}"
                );
            }
        }
    }
}
