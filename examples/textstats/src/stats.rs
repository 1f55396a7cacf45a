//! The counting itself.

use std::ops::AddAssign;

use serde::Serialize;
use unicode_segmentation::UnicodeSegmentation;

/// The size of a text, in five units.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Stats {
    /// Length in UTF-8.
    bytes: usize,
    /// Unicode scalar values.
    code_points: usize,
    /// Extended grapheme clusters: what a reader takes for one character.
    graphemes: usize,
    /// Runs of characters between white space.
    words: usize,
    /// Newline characters: a last line without one does not count, as with `wc -l`.
    lines: usize,
}

impl Stats {
    /// Measures `text`.
    pub(crate) fn of(text: &str) -> Stats {
        Stats {
            bytes: text.len(),
            code_points: text.chars().count(),
            graphemes: text.graphemes(true).count(),
            words: text.split(separates_words).filter(|word| !word.is_empty()).count(),
            lines: text.bytes().filter(|&byte| byte == b'\n').count(),
        }
    }
}

/// The sizes of two texts of which the first ends in a newline are those of both together.
impl AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        self.bytes += other.bytes;
        self.code_points += other.code_points;
        self.graphemes += other.graphemes;
        self.words += other.words;
        self.lines += other.lines;
    }
}

/// White space as GNU `wc -w` has it in C.UTF-8: the no-break spaces and the word joiner separate, and NEXT LINE
/// (U+0085), which Rust counts as white space, does not.
fn separates_words(character: char) -> bool {
    match character {
        '\u{85}' => false,
        '\u{2060}' => true,
        other => other.is_whitespace(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn counts_units_apart() {
        let family = Stats::of("Grüße 👩‍👩‍👧");
        assert_eq!(family, Stats { bytes: 26, code_points: 11, graphemes: 7, words: 2, lines: 0 });
        assert_eq!(Stats::of(""), Stats { bytes: 0, code_points: 0, graphemes: 0, words: 0, lines: 0 });
        assert_eq!(Stats::of("a\r\n"), Stats { bytes: 3, code_points: 3, graphemes: 2, words: 1, lines: 1 });
    }

    /// `wc` is the authority for the three counts that it has too.
    #[test]
    fn agrees_with_wc() {
        let mut text = String::new();
        for separator in
            "\t\n\u{b}\u{c}\r \u{a0}\u{1680}\u{2000}\u{2007}\u{200a}\u{202f}\u{205f}\u{2060}\u{3000}".chars()
        {
            text.extend(['a', separator, 'ß', separator, separator, '。']);
        }
        // Characters that look like separators and are none.
        text.push_str("x\u{85}y x\u{200b}y x\u{feff}y x\u{180e}y\nlast line without newline");
        let ours = Stats::of(&text);
        assert_eq!(wc(&text), [ours.lines, ours.words, ours.code_points, ours.bytes]);
    }

    fn wc(text: &str) -> [usize; 4] {
        let mut child = Command::new("wc")
            .args(["-l", "-w", "-m", "-c"])
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let counts: Vec<usize> = text.split_whitespace().map(|count| count.parse().unwrap()).collect();
        counts.try_into().unwrap()
    }
}
