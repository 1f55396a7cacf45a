//! Lays out JSON text without rebuilding it: numbers, key order and escapes stay as they were written.

use std::fmt::Write as _;

use crate::escape;

/// How JSON is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One line, for programs.
    Compact,
    /// Indented by two, for people.
    Pretty,
}

/// The same JSON in another layout. The text must be valid JSON. Characters that could drive a terminal are written
/// as `\u` escapes, which mean the same.
pub(crate) fn lay_out(text: &str, layout: Layout) -> String {
    let mut writer = Writer { out: String::with_capacity(text.len()), layout, depth: 0 };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => writer.string(&mut chars),
            '{' | '[' => {
                let close = if c == '{' { '}' } else { ']' };
                while chars.next_if(|next| is_space(*next)).is_some() {}
                if chars.next_if_eq(&close).is_some() {
                    writer.out.extend([c, close]);
                } else {
                    writer.open(c);
                }
            }
            '}' | ']' => writer.close(c),
            ',' => {
                writer.out.push(',');
                writer.line();
            }
            ':' => writer.out.push_str(if layout == Layout::Pretty { ": " } else { ":" }),
            c if is_space(c) => {}
            c => writer.out.push(c),
        }
    }
    writer.out
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

struct Writer {
    out: String,
    layout: Layout,
    depth: usize,
}

impl Writer {
    fn string(&mut self, chars: &mut impl Iterator<Item = char>) {
        self.out.push('"');
        while let Some(c) = chars.next() {
            match c {
                '\\' => {
                    self.out.push(c);
                    self.out.extend(chars.next());
                }
                '"' => break,
                c if escape::is_unsafe(c) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a String cannot fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn open(&mut self, c: char) {
        self.out.push(c);
        self.depth += 1;
        self.line();
    }

    fn close(&mut self, c: char) {
        self.depth = self.depth.saturating_sub(1);
        self.line();
        self.out.push(c);
    }

    fn line(&mut self) {
        if self.layout == Layout::Pretty {
            self.out.push('\n');
            for _ in 0..self.depth {
                self.out.push_str("  ");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_order_and_escapes_stay_as_written() {
        let text = "{ \"z\" : 12345678901234567890123.50, \"a\":\"\\u00fc \\\" , [ \" , \"e\":[ ] , \"o\":{ }, \"l\":[1 , {\"n\":null}] }";
        assert_eq!(
            lay_out(text, Layout::Compact),
            "{\"z\":12345678901234567890123.50,\"a\":\"\\u00fc \\\" , [ \",\"e\":[],\"o\":{},\"l\":[1,{\"n\":null}]}"
        );
        assert_eq!(
            lay_out("{\"a\":[1,{\"b\":[]}],\"c\":\"x, y\"}", Layout::Pretty),
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": []\n    }\n  ],\n  \"c\": \"x, y\"\n}"
        );
    }

    #[test]
    fn scalars_are_documents_too() {
        for text in ["7", "null", "\"a b\"", "[]", "{}"] {
            assert_eq!(lay_out(text, Layout::Pretty), text);
        }
    }

    #[test]
    fn terminal_drivers_become_escapes_of_the_same_meaning() {
        let text = "\"\u{9b}31m \u{202e} \u{e0041} ü\"";
        let safe = lay_out(text, Layout::Compact);
        assert_eq!(safe, "\"\\u009b31m \\u202e \\udb40\\udc41 ü\"");
        assert_eq!(
            serde_json::from_str::<String>(&safe).unwrap(),
            serde_json::from_str::<String>(text).unwrap()
        );
    }
}
