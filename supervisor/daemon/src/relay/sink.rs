//! Where a call's answer goes: back to a D-Bus caller, or into a channel.

use std::sync::{Mutex, PoisonError};

use plugind_protocol::Error;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::Batch;

/// What a call comes to; the result is still in the plugin's frame.
pub(crate) type Outcome<'a> = Result<&'a RawValue, Error>;

/// The caller's end of one call. None of it may wait, or call back into the relay.
pub(crate) trait Sink: Send + Sync {
    /// The answer; the last that the sink gets.
    fn done(&self, outcome: Outcome<'_>, batch: &mut Batch);

    /// A word on how it goes; `false` if the caller has no room for it.
    fn progress(&self, _data: &RawValue, _batch: &mut Batch) -> bool {
        false
    }

    /// A part of the answer.
    fn chunk(&self, _seq: u64, _data: &RawValue, _batch: &mut Batch) {}

    /// Whether the caller has room for more chunks.
    fn has_room(&self) -> bool {
        false
    }
}

/// An answer that stands alone.
type Answer = Result<Box<RawValue>, Error>;

/// Somebody who waits for the answer alone.
pub(crate) struct Once(Mutex<Option<oneshot::Sender<Answer>>>);

impl Once {
    pub(crate) fn new() -> (Once, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        (Once(Mutex::new(Some(sender))), receiver)
    }
}

impl Sink for Once {
    fn done(&self, outcome: Outcome<'_>, _batch: &mut Batch) {
        if let Some(sender) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = sender.send(outcome.map(ToOwned::to_owned));
        }
    }
}
