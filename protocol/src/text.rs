//! Foreign text made fit for our messages: one line, bounded, nothing a terminal would obey.

/// The first `max` characters of `text` with control characters escaped; `…` stands for what was cut.
pub(crate) fn clip(text: &str, max: usize) -> String {
    let mut clipped = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == max {
            clipped.push('…');
            break;
        }
        if unfit(character) {
            clipped.extend(character.escape_unicode());
        } else {
            clipped.push(character);
        }
    }
    clipped
}

/// Control characters, and those that reorder or hide the text around them.
pub(crate) fn unfit(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clip_bounds_and_escapes() {
        assert_eq!(clip("Grüße", 10), "Grüße");
        assert_eq!(clip("Grüße", 3), "Grü…");
        assert_eq!(clip("a\u{1b}[2Jb\u{202e}", 20), "a\\u{1b}[2Jb\\u{202e}");
    }
}
