//! Colours and dots, only where a person looks: never in a pipe, no colour under `NO_COLOR`.

use std::env;
use std::io::{self, IsTerminal};

/// What a word means, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Works as it should.
    Good,
    /// Not in force, not granted.
    Warn,
    /// Failed.
    Bad,
    /// Headings.
    Strong,
    /// Beside the point.
    Faint,
}

/// What the output can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    /// A person looks at it.
    pub(crate) terminal: bool,
    colour: bool,
    symbols: bool,
}

impl Style {
    /// Nothing but text.
    #[cfg(test)]
    pub(crate) const PLAIN: Style = Style { terminal: false, colour: false, symbols: false };

    /// A terminal without colours or symbols.
    #[cfg(test)]
    pub(crate) const TERMINAL: Style = Style { terminal: true, colour: false, symbols: false };

    /// The style of standard output.
    pub(crate) fn of_stdout() -> Style {
        Style::choose(io::stdout().is_terminal(), |name| env::var(name).ok())
    }

    /// The style of standard error.
    pub(crate) fn of_stderr() -> Style {
        Style::choose(io::stderr().is_terminal(), |name| env::var(name).ok())
    }

    fn choose(terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Style {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let locale =
            ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default().to_lowercase();
        Style {
            terminal,
            colour: terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb"),
            symbols: terminal && (locale.contains("utf-8") || locale.contains("utf8")),
        }
    }

    /// The text in its tone's colour.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "0;1;32",
            Tone::Warn => "0;1;33",
            Tone::Bad => "0;1;31",
            Tone::Strong => "0;1",
            Tone::Faint => "0;90",
        };
        if self.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// The dot before a plugin's name and a space; empty in a pipe.
    pub(crate) fn dot(self, state: &str) -> String {
        if !self.terminal {
            return String::new();
        }
        let symbol = match state {
            _ if !self.symbols => "*",
            "failed" | "broken" => "×",
            "inactive" | "disabled" => "○",
            _ => "●",
        };
        format!("{} ", self.paint(tone_of_state(state), symbol))
    }

    /// A mark before something that is, or is not; empty in a pipe.
    pub(crate) fn mark(self, is: bool) -> String {
        if !self.terminal {
            return String::new();
        }
        let (tone, symbol) = match (is, self.symbols) {
            (true, true) => (Tone::Good, "✓"),
            (true, false) => (Tone::Good, "+"),
            (false, true) => (Tone::Warn, "✗"),
            (false, false) => (Tone::Warn, "-"),
        };
        format!("{} ", self.paint(tone, symbol))
    }
}

/// The tone of a plugin's state.
pub(crate) fn tone_of_state(state: &str) -> Tone {
    match state {
        "active" => Tone::Good,
        "failed" | "broken" => Tone::Bad,
        "activating" | "deactivating" => Tone::Warn,
        _ => Tone::Faint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(terminal: bool, variables: &[(&str, &str)]) -> Style {
        Style::choose(terminal, |name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_pipe_gets_neither_colours_nor_dots() {
        let pipe = style(false, &[("LANG", "C.UTF-8"), ("TERM", "xterm")]);
        assert_eq!(pipe, Style::PLAIN);
        assert_eq!(pipe.paint(Tone::Bad, "failed"), "failed");
        assert_eq!(pipe.dot("active"), "");
        assert_eq!(pipe.mark(true), "");
    }

    #[test]
    fn a_terminal_gets_both() {
        let terminal = style(true, &[("LANG", "de_DE.UTF-8")]);
        assert_eq!(terminal.dot("active"), "\x1b[0;1;32m●\x1b[0m ");
        assert_eq!(terminal.dot("failed"), "\x1b[0;1;31m×\x1b[0m ");
        assert_eq!(terminal.dot("inactive"), "\x1b[0;90m○\x1b[0m ");
        assert_eq!(terminal.paint(Tone::Good, ""), "");
    }

    #[test]
    fn no_color_keeps_the_dots_and_a_dumb_or_ascii_terminal_its_letters() {
        assert_eq!(style(true, &[("LANG", "C.UTF-8"), ("NO_COLOR", "1")]).dot("active"), "● ");
        assert_eq!(
            style(true, &[("LANG", "C.UTF-8"), ("NO_COLOR", "")]).paint(Tone::Strong, "x"),
            "\x1b[0;1mx\x1b[0m"
        );
        assert_eq!(
            style(true, &[("LC_ALL", "C"), ("LANG", "C.UTF-8"), ("TERM", "dumb")]).dot("failed"),
            "* "
        );
    }
}
