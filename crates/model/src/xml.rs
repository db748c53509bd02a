//! A small XML reader for tool output: elements, attributes, text. No DOCTYPE, so no entity but the
//! five of the language; no external thing is ever named, let alone read.
//!
//! Source: Extensible Markup Language 1.0 (fifth edition), without section 2.8's declarations.

use serde_json::{Map, Value};

use crate::limits::{OUTPUT_NAME_BYTES_MAX, OUTPUT_NODES_MAX, XML_DEPTH_MAX};
use crate::output::OutputError;

/// The document as `{"root": {…}}`.
pub(crate) fn parse(text: &str) -> Result<Value, OutputError> {
    let mut reader = Reader {
        text,
        rest: text.strip_prefix('\u{feff}').unwrap_or(text),
        nodes: 0,
    };
    if reader.rest.starts_with("<?xml") {
        reader.until("?>", "the XML declaration does not end")?;
    }
    reader.misc()?;
    let mut open: Vec<Element> = Vec::new();
    loop {
        if let Some(root) = reader.step(&mut open)? {
            reader.misc()?;
            if !reader.rest.is_empty() {
                return reader.refuse("text follows the root element");
            }
            return Ok(Value::Object(Map::from_iter([root])));
        }
    }
}

/// An element whose end has not come yet.
struct Element {
    name: String,
    /// Attributes as `@name`, then children by name.
    content: Map<String, Value>,
    text: String,
}

impl Element {
    /// Repeated children become an array.
    fn adopt(&mut self, name: String, child: Value) {
        match self.content.get_mut(&name) {
            None => {
                self.content.insert(name, child);
            }
            Some(Value::Array(children)) => children.push(child),
            Some(first) => {
                let first = std::mem::take(first);
                self.content.insert(name, Value::Array(vec![first, child]));
            }
        }
    }

    fn close(self) -> (String, Value) {
        let mut content = self.content;
        let text = self.text.trim();
        if !text.is_empty() {
            content.insert("#text".to_owned(), Value::String(text.to_owned()));
        }
        (self.name, Value::Object(content))
    }
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn refuse<T>(&self, reason: &'static str) -> Result<T, OutputError> {
        let read = self.text.len() - self.rest.len();
        let before = self.text.as_bytes().get(..read).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Err(OutputError::Xml { line, reason })
    }

    fn until(&mut self, end: &str, reason: &'static str) -> Result<&'a str, OutputError> {
        let Some((inside, rest)) = self.rest.split_once(end) else {
            return self.refuse(reason);
        };
        self.rest = rest;
        Ok(inside)
    }

    fn skip_space(&mut self) -> bool {
        let rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let skipped = rest.len() < self.rest.len();
        self.rest = rest;
        skipped
    }

    /// Comments, processing instructions and whitespace outside the root.
    fn misc(&mut self) -> Result<(), OutputError> {
        loop {
            self.skip_space();
            if !self.comment_or_instruction()? {
                return Ok(());
            }
        }
    }

    fn comment_or_instruction(&mut self) -> Result<bool, OutputError> {
        if let Some(rest) = self.rest.strip_prefix("<!--") {
            self.rest = rest;
            self.until("-->", "a comment does not end")?;
        } else if let Some(rest) = self.rest.strip_prefix("<?") {
            self.rest = rest;
            self.until("?>", "a processing instruction does not end")?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// One tag or piece of text; the root, once it is closed.
    fn step(&mut self, open: &mut Vec<Element>) -> Result<Option<(String, Value)>, OutputError> {
        if self.comment_or_instruction()? {
            return Ok(None);
        }
        if let Some(rest) = self.rest.strip_prefix("<![CDATA[") {
            self.rest = rest;
            let data = self.until("]]>", "a CDATA section does not end")?;
            match open.last_mut() {
                Some(element) => element.text.push_str(data),
                None => return self.refuse("text stands outside the root element"),
            }
        } else if self.rest.starts_with("<!") {
            return self.refuse("a DOCTYPE or another declaration is not accepted");
        } else if let Some(rest) = self.rest.strip_prefix("</") {
            self.rest = rest;
            let name = self.name()?;
            self.skip_space();
            let Some(rest) = self.rest.strip_prefix('>') else {
                return self.refuse("a closing tag does not end");
            };
            self.rest = rest;
            match open.pop() {
                Some(element) if element.name == name => return Ok(finish(element, open)),
                _ => return self.refuse("a closing tag does not match its opening tag"),
            }
        } else if let Some(rest) = self.rest.strip_prefix('<') {
            self.rest = rest;
            return self.open_tag(open);
        } else {
            let end = self.rest.find('<').unwrap_or(self.rest.len());
            let (text, rest) = self.rest.split_at(end);
            if open.is_empty() || rest.is_empty() {
                return self.refuse("the root element is missing or does not end");
            }
            let text = self.unescaped(text)?;
            if let Some(element) = open.last_mut() {
                element.text.push_str(&text);
            }
            self.rest = rest;
        }
        Ok(None)
    }

    fn open_tag(
        &mut self,
        open: &mut Vec<Element>,
    ) -> Result<Option<(String, Value)>, OutputError> {
        if open.len() >= XML_DEPTH_MAX {
            return self.refuse("elements are nested deeper than 32 levels");
        }
        let mut element = Element {
            name: self.name()?.to_owned(),
            content: Map::new(),
            text: String::new(),
        };
        loop {
            let spaced = self.skip_space();
            if let Some(rest) = self.rest.strip_prefix('>') {
                self.rest = rest;
                open.push(element);
                return Ok(None);
            }
            if let Some(rest) = self.rest.strip_prefix("/>") {
                self.rest = rest;
                return Ok(finish(element, open));
            }
            if !spaced {
                return self.refuse("a tag does not end");
            }
            let (name, value) = self.attribute()?;
            if element.content.insert(name, Value::String(value)).is_some() {
                return self.refuse("an attribute stands twice");
            }
        }
    }

    fn attribute(&mut self) -> Result<(String, String), OutputError> {
        let name = format!("@{}", self.name()?);
        self.skip_space();
        let Some(rest) = self.rest.strip_prefix('=') else {
            return self.refuse("an attribute has no value");
        };
        self.rest = rest;
        self.skip_space();
        let quote = match self.rest.chars().next() {
            Some('"') => "\"",
            Some('\'') => "'",
            _ => return self.refuse("an attribute's value is quoted"),
        };
        self.rest = self.rest.get(1..).unwrap_or("");
        let raw = self.until(quote, "an attribute's value does not end")?;
        if raw.contains('<') {
            return self.refuse("an attribute's value has a `<`");
        }
        Ok((name, self.unescaped(raw)?))
    }

    /// A name; each counts as a node.
    fn name(&mut self) -> Result<&'a str, OutputError> {
        self.nodes += 1;
        if self.nodes > OUTPUT_NODES_MAX {
            return Err(OutputError::TooMany {
                what: "elements and attributes",
                max: OUTPUT_NODES_MAX,
            });
        }
        let starts = |c: char| c.is_alphabetic() || matches!(c, '_' | ':');
        let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '-' | '.' | '\u{b7}');
        let end = self.rest.find(|c| !part(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if !name.starts_with(starts) || name.len() > OUTPUT_NAME_BYTES_MAX {
            return self.refuse("a name has 1 to 256 bytes and begins with a letter");
        }
        self.rest = rest;
        Ok(name)
    }

    /// Text with its references resolved.
    fn unescaped(&self, raw: &str) -> Result<String, OutputError> {
        let mut text = String::with_capacity(raw.len());
        let mut rest = raw;
        while let Some((before, after)) = rest.split_once('&') {
            text.push_str(before);
            let Some((reference, after)) = after.split_once(';') else {
                return self.refuse("a `&` begins no reference");
            };
            match resolved(reference) {
                Some(character) => text.push(character),
                None => return self.refuse("a reference names no character"),
            }
            rest = after;
        }
        text.push_str(rest);
        if text
            .chars()
            .any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r'))
        {
            return self.refuse("the text has a control character");
        }
        Ok(text)
    }
}

/// A closed element goes to its parent; the root goes out.
fn finish(element: Element, open: &mut [Element]) -> Option<(String, Value)> {
    let (name, value) = element.close();
    match open.last_mut() {
        Some(parent) => {
            parent.adopt(name, value);
            None
        }
        None => Some((name, value)),
    }
}

fn resolved(reference: &str) -> Option<char> {
    match reference {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = reference.strip_prefix('#')?;
            let (digits, radix) = match number.strip_prefix('x') {
                Some(digits) => (digits, 16),
                None => (number, 10),
            };
            let plain = digits.chars().all(|c| c.is_digit(radix));
            char::from_u32(u32::from_str_radix(digits, radix).ok().filter(|_| plain)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_becomes_objects_of_attributes_text_and_children() {
        let text = "<?xml version=\"1.0\"?>\n<!-- c -->\n<run scanner='n&amp;p'>\n <host><port id=\"22\"/></host>\n \
                    <host> up &#x41;<![CDATA[<&>]]> </host></run>\n";
        assert_eq!(
            parse(text).unwrap(),
            json!({"run": {"@scanner": "n&p", "host": [{"port": {"@id": "22"}}, {"#text": "up A<&>"}]}})
        );
    }

    #[test]
    fn declarations_entities_and_broken_documents_are_refused() {
        for text in [
            "",
            "x",
            "<a>",
            "<a></b>",
            "</a>",
            "<a/><b/>",
            "<a/>x",
            "<a x=1/>",
            "<a x=\"1\" x=\"2\"/>",
            "<a x=\"1\"y=\"2\"/>",
            "<a x=\"<\"/>",
            "<1/>",
            "<a>&nope;</a>",
            "<a>&</a>",
            "<a>&#0;</a>",
            "<a>&#xd800;</a>",
            "<a>&#x+41;</a>",
            "<a>\u{1b}</a>",
            "<!DOCTYPE a><a/>",
            "<!DOCTYPE a [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><a>&x;</a>",
            "<a><!ENTITY x \"y\"></a>",
            "<!-- <a/>",
            "<?xml <a/>",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let error = parse("<a>\n<b>\n</a>").unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid XML at line 3: a closing tag does not match its opening tag"
        );
    }

    #[test]
    fn depth_nodes_and_names_hold_at_their_limits_and_not_past_them() {
        let deep = |levels: usize| {
            parse(&format!(
                "{}{}",
                "<a>".repeat(levels),
                "</a>".repeat(levels)
            ))
        };
        assert!(deep(XML_DEPTH_MAX).is_ok());
        assert!(deep(XML_DEPTH_MAX + 1).is_err());
        let wide = |count: usize| parse(&format!("<r>{}</r>", "<a/>".repeat(count)));
        assert!(wide(OUTPUT_NODES_MAX - 2).is_ok());
        assert!(wide(OUTPUT_NODES_MAX - 1).is_err());
        let named = |bytes: usize| parse(&format!("<{}/>", "n".repeat(bytes)));
        assert!(named(OUTPUT_NAME_BYTES_MAX).is_ok());
        assert!(named(OUTPUT_NAME_BYTES_MAX + 1).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[<>/a-c=\"'&;#x0-9!?\\[\\] \\n-]{0,60}|\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
