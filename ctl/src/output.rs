//! Where answers go: standard output in the asked format, notes and errors to standard error.

use std::cell::Cell;
use std::io::{self, Write};
use std::time::Duration;

use plugind_protocol::{Error, Kind};
use serde::Serialize;

use crate::cli::{Format, Shared};
use crate::colour::Style;
use crate::json::{self, Layout};
use crate::{private, report};

/// How long a verb may take where neither `--timeout` nor the command says otherwise.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// What all verbs share.
#[derive(Debug)]
pub(crate) struct Context {
    /// Text for people or JSON for programs.
    pub(crate) format: Format,
    /// What standard output can show.
    pub(crate) style: Style,
    /// Headings and counts around tables.
    pub(crate) legend: bool,
    /// Results and errors only.
    pub(crate) quiet: bool,
    /// `--timeout`, where given.
    pub(crate) timeout: Option<Duration>,
    reader_gone: Cell<bool>,
}

impl Context {
    /// The context that the shared options ask for.
    pub(crate) fn new(shared: &Shared) -> Context {
        Context {
            format: shared.output,
            style: Style::of_stdout(),
            legend: !shared.no_legend && !shared.quiet,
            quiet: shared.quiet,
            timeout: shared.timeout,
            reader_gone: Cell::new(false),
        }
    }

    /// How long one request to the supervisor may take.
    pub(crate) fn deadline(&self) -> Duration {
        self.timeout.unwrap_or(DEADLINE)
    }

    /// Whether JSON was asked for.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether the reader of standard output went away, as `head` does: then going on is of no use.
    pub(crate) fn reader_gone(&self) -> bool {
        self.reader_gone.get()
    }

    /// Prints text as it is. A reader that went away is no error.
    pub(crate) fn print(&self, text: &str) -> Result<(), Error> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => {
                self.reader_gone.set(true);
                Ok(())
            }
            Err(cause) => Err(Error::new(
                Kind::Unavailable,
                format!("cannot write to standard output: {cause}"),
                "see where the output is sent to: the disk may be full",
            )),
        }
    }

    /// Prints a value as JSON, on one line in a pipe.
    pub(crate) fn json<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), Error> {
        let text = serde_json::to_string(value)
            .map_err(|cause| Error::internal(format!("cannot write the answer as JSON: {cause}")))?;
        self.raw_json(&text)
    }

    /// Prints JSON text without rebuilding it.
    pub(crate) fn raw_json(&self, text: &str) -> Result<(), Error> {
        let layout = if self.style.terminal { Layout::Pretty } else { Layout::Compact };
        self.print(&format!("{}\n", json::lay_out(text, layout)))
    }

    /// Tells the person something on standard error, unless `--quiet`.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            to_stderr(&format!("{text}\n"));
        }
    }

    /// Reports an error on standard error and gives its exit code.
    pub(crate) fn fail(&self, error: &Error) -> u8 {
        to_stderr(&match self.format {
            Format::Json => report::json(error),
            Format::Text => report::text(error, Style::of_stderr()),
        });
        private::interrupted_code(error).unwrap_or_else(|| error.exit_code())
    }
}

/// Says on standard error that something is amiss beside the verb's own outcome.
pub(crate) fn warn(text: &str) {
    to_stderr(&format!("pluginctl: {text}\n"));
}

/// Nobody can be told that standard error is gone.
fn to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
