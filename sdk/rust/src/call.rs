//! What a command is told about the call that it answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;
use crate::pending::State;
use crate::writer::Writer;

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something failed.
    Error,
    /// Something may fail.
    Warn,
    /// What an operator wants to know.
    Info,
    /// What the plugin's author wants to know.
    Debug,
}

/// The longest log message in bytes: six times as long when every byte is escaped, it fits any `frame_max`.
const MESSAGE_MAX: usize = 8 << 10;

/// The `params` of `$/progress`.
#[derive(Serialize)]
struct Progress<'a, T: ?Sized> {
    invocation: &'a str,
    data: &'a T,
}

/// The `params` of `$/chunk`.
#[derive(Serialize)]
struct Chunk<'a, T: ?Sized> {
    invocation: &'a str,
    seq: u64,
    data: &'a T,
}

/// One call of a command.
pub struct Call {
    pub(crate) state: Arc<State>,
    pub(crate) writer: Arc<Writer>,
}

impl Call {
    /// The call's identity in logs and audit.
    #[must_use]
    pub fn invocation(&self) -> &str {
        &self.state.invocation
    }

    /// Who calls, as the supervisor found out; empty where it does not tell.
    #[must_use]
    pub fn caller(&self) -> &str {
        &self.state.caller
    }

    /// Whether to say what would be done instead of doing it. Only commands whose descriptor says `dry_run` are
    /// called so.
    #[must_use]
    pub fn dry_run(&self) -> bool {
        self.state.dry_run
    }

    /// When the caller stops waiting.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.state.deadline
    }

    /// The time that is left until [`Call::deadline`].
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.state.deadline.saturating_duration_since(Instant::now())
    }

    /// Whether the answer is of no use any more: a long command looks now and then, and stops with
    /// [`Failure::cancelled`](crate::Failure::cancelled).
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.state.is_cancelled()
    }

    /// Tells the caller how far the work is: anything that is JSON. It is passed on where the caller looks at it, and
    /// may be left out when too much of it comes; one that fits no frame is not sent.
    pub fn progress(&self, data: &(impl Serialize + ?Sized)) {
        let params = Progress { invocation: self.invocation(), data };
        if let Ok(line) = self.writer.notification("the progress", "$/progress", &params) {
            self.writer.write(&line);
        }
    }

    /// Whether the caller takes chunks. Where it does not, [`Call::chunk`] fails, and the result is all that it gets.
    #[must_use]
    pub fn takes_chunks(&self) -> bool {
        self.state.stream.is_wanted()
    }

    /// Sends the caller one part of the answer, and waits first until the caller has room for it.
    ///
    /// It fails when the call is cancelled, at its deadline, when the caller takes no chunks, and when the part fits no
    /// frame: a command stops then, usually by `?`.
    pub fn chunk(&self, data: &(impl Serialize + ?Sized)) -> Result<(), Failure> {
        self.state.stream.send(
            self.state.deadline,
            |seq| {
                let params = Chunk { invocation: self.invocation(), seq, data };
                self.writer.notification("the chunk", "$/chunk", &params)
            },
            |line| self.writer.write(&line),
        )
    }

    /// Writes a line to the plugin's log, marked with this call. Only the first 8 KiB are kept.
    pub fn log(&self, level: Level, message: impl AsRef<str>) {
        let message = message.as_ref();
        let end = (0..=message.len().min(MESSAGE_MAX)).rfind(|&end| message.is_char_boundary(end));
        let message = &message[..end.unwrap_or(0)];
        let fields = json!({"invocation": self.invocation()});
        self.writer.notify("log", &json!({"level": level, "message": message, "fields": fields}));
    }
}
