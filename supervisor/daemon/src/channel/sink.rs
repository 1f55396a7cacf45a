//! Back to the caller of a channel: its own id on everything.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use plugind_protocol::Id;
use serde_json::value::RawValue;

use super::{Channel, wire};
use crate::relay::{Batch, Outcome, Sink};

/// One call of a channel.
pub(super) struct ChannelSink {
    pub(super) channel: Arc<Channel>,
    pub(super) id: Id,
}

impl Sink for ChannelSink {
    fn done(&self, outcome: Outcome<'_>, batch: &mut Batch) {
        self.channel.lock().remove(&self.id);
        self.channel.write(batch, |frame| match outcome {
            Ok(result) => wire::result(frame, &self.id, result),
            Err(error) => wire::error(frame, &self.id, &error),
        });
    }

    fn progress(&self, data: &RawValue, batch: &mut Batch) -> bool {
        let room = !self.channel.is_slow();
        if room {
            self.channel.write(batch, |frame| wire::progress(frame, &self.id, data));
        }
        room
    }

    fn chunk(&self, seq: u64, data: &RawValue, batch: &mut Batch) {
        self.channel.write(batch, |frame| wire::chunk(frame, &self.id, seq, data));
    }

    fn has_room(&self) -> bool {
        let room = !self.channel.is_slow();
        if !room {
            self.channel.withheld.store(true, Ordering::Relaxed);
            // It may drain before anybody has to wait for it.
            self.channel.out.nudge();
        }
        room
    }
}
