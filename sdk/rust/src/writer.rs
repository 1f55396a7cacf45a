//! The way to the supervisor: whole frames, one at a time, from any thread.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use plugind_protocol::envelope::{self, Id, RpcError};
use plugind_protocol::frame;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::failure::{Failure, code};

/// What is answered to a request.
pub(crate) type Outcome = Result<Box<RawValue>, Failure>;

pub(crate) struct Writer {
    output: Mutex<Output>,
    frame_max: AtomicUsize,
}

struct Output {
    stream: Box<dyn Write + Send>,
    /// The first error; nothing is written after it.
    failed: Option<io::Error>,
}

impl Writer {
    pub(crate) fn new(stream: Box<dyn Write + Send>, frame_max: usize) -> Writer {
        let output = Mutex::new(Output { stream, failed: None });
        Writer { output, frame_max: AtomicUsize::new(frame_max) }
    }

    /// The longest frame, in bytes without its newline.
    pub(crate) fn frame_max(&self) -> usize {
        self.frame_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_frame_max(&self, frame_max: usize) {
        self.frame_max.store(frame_max, Ordering::Relaxed);
    }

    /// Answers a request. What does not fit a frame is answered by an error that says so.
    pub(crate) fn respond(&self, id: &Id, outcome: Outcome) {
        let line = response_line(id, outcome);
        match self.misfit("the answer", &line) {
            None => self.write(&line),
            Some(cause) => self.write(&response_line(id, Err(Failure::of(code::INTERNAL_ERROR, cause)))),
        }
    }

    /// Why the line is no frame that the supervisor would take.
    fn misfit(&self, what: &str, line: &[u8]) -> Option<String> {
        let (frame, limit) = (line.strip_suffix(b"\n").unwrap_or(line), self.frame_max());
        if frame.len() > limit {
            return Some(format!(
                "{what} is a frame of {} bytes, and frame_max is {limit}: answer in smaller parts, or ask for more in \
                 the manifest's resources.frame_max",
                frame.len()
            ));
        }
        frame::check(frame).err().map(|cause| format!("{what} is no frame: {cause}"))
    }

    /// Answers a request with an empty object.
    pub(crate) fn respond_empty(&self, id: &Id) {
        self.respond(id, Ok(empty_object()));
    }

    /// Sends a notification, if it fits a frame.
    pub(crate) fn notify(&self, method: &str, params: &impl Serialize) {
        let mut line = Vec::new();
        if envelope::notification(&mut line, method, params).is_ok() && line.len() <= self.frame_max() + 1 {
            self.write(&line);
        }
    }

    /// The line of a notification, or why it is none that the supervisor would take.
    pub(crate) fn notification(
        &self,
        what: &str,
        method: &str,
        params: &impl Serialize,
    ) -> Result<Vec<u8>, Failure> {
        let mut line = Vec::new();
        envelope::notification(&mut line, method, params)
            .map_err(|cause| Failure::of(code::INTERNAL_ERROR, format!("{what}: {cause}")))?;
        match self.misfit(what, &line) {
            None => Ok(line),
            Some(cause) => Err(Failure::of(code::INTERNAL_ERROR, cause)),
        }
    }

    /// The first error of writing, if there was one.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.lock().failed.take() {
            Some(cause) => Err(cause),
            None => Ok(()),
        }
    }

    /// Writes a line that fits.
    pub(crate) fn write(&self, line: &[u8]) {
        let mut output = self.lock();
        if output.failed.is_none() {
            let written = output.stream.write_all(line).and_then(|()| output.stream.flush());
            output.failed = written.err();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn response_line(id: &Id, outcome: Outcome) -> Vec<u8> {
    let mut line = Vec::new();
    let written = match outcome {
        Ok(result) => envelope::response(&mut line, id, &result),
        Err(Failure { code, message, data }) => {
            let data = data.and_then(|data| to_raw_value(&data).ok());
            envelope::error_response(&mut line, id, &RpcError { code, message, data })
        }
    };
    // Raw JSON, numbers and strings serialise always; and without a line, the misfit is told.
    debug_assert!(written.is_ok(), "{written:?}");
    line
}

fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}
