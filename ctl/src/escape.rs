//! What a plugin wrote must not move the reader's cursor, hide or reorder text, or forge a line of ours.

use std::borrow::Cow;

/// The text on one line: control characters, line breaks and invisible direction marks become escapes.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            c if is_unsafe(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// As [`line`], of at most `max` characters; what is cut off is shown as `…`.
pub(crate) fn short(text: &str, max: usize) -> String {
    let safe = line(text);
    if safe.chars().count() <= max {
        return safe.into_owned();
    }
    safe.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// Control characters, and the format characters that reorder or hide what is around them. The zero-width joiner
/// stays: emoji are made with it.
pub(crate) fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' // marks and invisible spaces
            | '\u{2028}' | '\u{2029}'                                     // line and paragraph separators
            | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}'           // embeddings, overrides, isolates
            | '\u{2060}'..='\u{2064}' | '\u{feff}'                        // joiners that show nothing
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}') // annotations, tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_is_untouched() {
        for text in ["", "Grüße 👩‍👩‍👧", "a\u{301}", "日本語"] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn cursor_movement_direction_marks_and_line_breaks_become_visible() {
        assert_eq!(line("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(line("one\ntwo\r\tthree"), "one\\ntwo\\r\\tthree");
        assert_eq!(line("\u{202e}gpj.exe"), "\\u{202e}gpj.exe");
        assert_eq!(line("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(line("x\u{2028}  hint: y"), "x\\u{2028}  hint: y");
        assert_eq!(line("\u{e0041}"), "\\u{e0041}");
    }

    #[test]
    fn shortening_counts_characters_after_escaping() {
        assert_eq!(short("abcdef", 6), "abcdef");
        assert_eq!(short("abcdefg", 6), "abcde…");
        assert_eq!(short("üüüüüüü", 3), "üü…");
    }
}
