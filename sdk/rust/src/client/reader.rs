//! The way from the supervisor: one task that hands every answer to its call.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use plugind_protocol::envelope::Class;
use plugind_protocol::{Decoder, Envelope, Error, Id};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;

use super::calls::Calls;
use super::channel::cancel_line;
use super::fault;
use super::writer::Writer;

/// After how long a silence the memory of large answers is given back.
const REST: Duration = Duration::from_secs(1);

pub(super) struct Reader {
    calls: Arc<Calls>,
    writer: Arc<Writer>,
}

/// The `params` of `$/progress` and `$/chunk`.
#[derive(Deserialize)]
struct News<'a> {
    /// The id of our own request, and so a number.
    invocation: u64,
    seq: Option<u64>,
    #[serde(borrow)]
    data: &'a RawValue,
}

impl Reader {
    pub(super) fn new(calls: Arc<Calls>, writer: Arc<Writer>) -> Reader {
        Reader { calls, writer }
    }

    /// Reads to the end of the stream, then ends every call.
    pub(super) async fn run(self, input: OwnedReadHalf, frame_max: usize) {
        let cause = match self.read(input, frame_max).await {
            Ok(()) => fault::ended("plugind closed it"),
            Err(cause) => cause,
        };
        self.calls.end(&cause);
    }

    async fn read(&self, mut input: OwnedReadHalf, frame_max: usize) -> Result<(), Error> {
        let mut decoder = Decoder::new(frame_max);
        loop {
            let length = fill(&mut input, &mut decoder).await.map_err(fault::ended)?;
            if length == 0 {
                return Ok(());
            }
            decoder.filled(length);
            while let Some(frame) = decoder.frame() {
                // An answer may be lost with the line, and its call would wait for ever.
                let frame = frame.map_err(|cause| fault::broken_stream(&cause.to_string()))?;
                self.frame(frame)?;
            }
        }
    }

    fn frame(&self, frame: &str) -> Result<(), Error> {
        let message = Envelope::parse(frame).map_err(|cause| fault::broken_stream(&cause.to_string()))?;
        match message.class() {
            Class::Response => self.response(&message),
            Class::Notification => {
                if let (Some(method), Some(params)) = (&message.method, message.params) {
                    self.notification(method, params);
                }
            }
            // Nothing is asked of a caller.
            Class::Request => {}
        }
        Ok(())
    }

    fn response(&self, message: &Envelope<'_>) {
        let Some(id) = message.id.as_ref().and_then(own_id) else { return };
        let result = match (&message.error, message.result) {
            (Some(error), _) => Err(Error::from_rpc(error)),
            (None, Some(result)) => Ok(result.to_owned()),
            // The envelope has one of them.
            (None, None) => return,
        };
        self.calls.done(id, result);
    }

    fn notification(&self, method: &str, params: &RawValue) {
        // Notifications of later versions may look otherwise.
        let Ok(News { invocation, seq, data }) = serde_json::from_str(params.get()) else { return };
        match (method, seq) {
            ("$/progress", _) => self.calls.progress(invocation, data),
            ("$/chunk", Some(seq)) if !self.calls.chunk(invocation, seq, data) => {
                self.writer.notification(cancel_line(invocation));
            }
            _ => {}
        }
    }
}

/// However it ended, with its runtime for one: nobody would answer any more.
impl Drop for Reader {
    fn drop(&mut self) {
        // The calls first: whoever is refused by the writer finds the cause.
        self.calls.end(&fault::ended("nobody reads it any more"));
        self.writer.close();
    }
}

/// Reads once; in a silence the room of large answers is given back.
async fn fill(input: &mut OwnedReadHalf, decoder: &mut Decoder) -> io::Result<usize> {
    if decoder.is_roomy() {
        match tokio::time::timeout(REST, input.read(decoder.space())).await {
            Ok(read) => return read,
            Err(_) => decoder.rest(),
        }
    }
    input.read(decoder.space()).await
}

/// JSON has one way only to write a natural number.
fn own_id(id: &Id) -> Option<u64> {
    id.as_json().parse().ok()
}
