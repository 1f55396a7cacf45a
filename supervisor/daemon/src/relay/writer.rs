//! Feeds the plugin's stdin from the queue.

use std::sync::Arc;
use std::time::Duration;

use plugind_protocol::{Error, Kind};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::Shared;

/// A plugin that takes in nothing for this long is wedged: the longest a default call may take.
const STALL: Duration = Duration::from_secs(30);

/// Writes frames until the link is closed or the plugin stops reading.
pub(super) async fn run(shared: Arc<Shared>, mut stdin: pipe::Sender) {
    loop {
        let frame = {
            let mut state = shared.lock();
            match state.pop() {
                Some(queued) => Some(queued.frame),
                None if state.finish || state.closed.is_some() => return,
                None => None,
            }
        };
        let Some(frame) = frame else {
            shared.queued.notified().await;
            continue;
        };
        let mut rest = frame.as_slice();
        while !rest.is_empty() {
            match timeout(STALL, stdin.write(rest)).await {
                Ok(Ok(written)) => rest = &rest[written..],
                // The plugin closed its stdin or is gone: its stdout tells which.
                Ok(Err(_)) => return,
                Err(_) => {
                    return shared.violation(Error::new(
                        Kind::ProtocolViolation,
                        format!("{} has not read its stdin for {} s", shared.plugin, STALL.as_secs()),
                        "a plugin must go on reading while it works",
                    ));
                }
            }
        }
    }
}
