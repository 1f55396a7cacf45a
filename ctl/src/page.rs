//! Text built line by line.

use std::fmt::{Display, Write as _};

/// Lines of text.
#[derive(Debug, Default)]
pub(crate) struct Page(String);

impl Page {
    /// Adds a line, without blanks at its end.
    pub(crate) fn line(&mut self, line: impl Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{line}");
        self.0.truncate(self.0.trim_end_matches(' ').len());
        self.0.push('\n');
    }

    /// The whole text.
    pub(crate) fn into_text(self) -> String {
        self.0
    }
}
