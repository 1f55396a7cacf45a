//! The wire between callers and one plugin: calls in any number, answers in any order, all of it bounded.
//!
//! A [`Pool`] owns the calls of a plugin, those that wait and those that it works on; a [`Link`] is the pipes of one of
//! its instances; a [`Sink`] is where a call's answer goes. Nothing here waits for anybody: what was read in one go is
//! handled at once, and each stream that it led to is written to once, at the end of its [`Batch`].
//!
//! Channels are read on a thread of their own: the two directions do not hold each other up.

mod batch;
mod calls;
mod counters;
mod incoming;
mod latency;
mod link;
mod log;
mod outgoing;
mod pool;
mod queue;
mod reader;
mod sink;
mod spread;
mod stderr;
mod stream;

use plugind_protocol::Error;
use plugind_protocol::envelope::RpcError;

pub(crate) use batch::Batch;
pub(crate) use calls::NewCall;
pub(crate) use counters::Counters;
pub(crate) use incoming::read;
pub(crate) use link::Link;
pub(crate) use log::PluginLog;
pub(crate) use outgoing::{Outgoing, Stop, Stream};
pub(crate) use pool::{Pool, Ticket};
pub(crate) use sink::{Once, Outcome, Sink};
pub(crate) use spread::Spread;

/// What a plugin wrote, fit for a message and cut to 1 KiB.
pub(crate) fn shown(text: &str) -> String {
    log::printable(text.as_bytes(), 1024)
}

/// The bounds of one plugin, from its manifest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes of a frame, both ways.
    pub(crate) frame_max: usize,
    /// Calls that each instance works on at once.
    pub(crate) in_flight: usize,
}

/// How a link ends by itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    /// The plugin's stdout is closed.
    Closed,
    /// The plugin wrote something that is not the protocol, or does not read.
    Violation(Box<Error>),
}

/// Why one of our own requests has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The plugin's own answer.
    Plugin(RpcError),
    /// Ours.
    Ours(Box<Error>),
}

/// A plugin's own error as a caller sees it: marked as its words, so that it can forge none of ours.
pub(crate) fn plugin_error(answer: &RpcError) -> Error {
    Error::new(
        plugind_protocol::Kind::PluginError,
        shown(&answer.message),
        "this is the plugin's own answer: see its documentation and its log",
    )
    .with_details(serde_json::json!({
        "code": answer.code, "message": shown(&answer.message), "data": answer.data,
    }))
}

#[cfg(test)]
mod tests;
