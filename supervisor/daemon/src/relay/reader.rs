//! Takes frames from the plugin's stdout and gives each answer to the request that waits for it.

use std::sync::Arc;

use plugind_protocol::envelope::{self, Class, Envelope, RpcError, code};
use plugind_protocol::frame::{Decoder, FrameError};
use plugind_protocol::{Error, Kind};
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tracing::Level;

use super::log::Source;
use super::{End, Failure, Queued, Shared};

/// Lines of junk before the handshake (DESIGN §6): loaders and interpreters print there.
const JUNK_MAX: u32 = 64;

/// How much is read at once.
const READ: usize = 64 * 1024;

/// Reads until the stdout is closed or breaks the protocol.
pub(super) async fn run(shared: Arc<Shared>, mut stdout: pipe::Receiver) {
    let mut decoder = Decoder::new(shared.bounds.frame_max);
    let mut buffer = vec![0; READ];
    let mut junk = 0;
    loop {
        let length = stdout.read(&mut buffer).await.unwrap_or(0);
        if length == 0 {
            if let Err(error) = decoder.finish() {
                tracing::warn!(PLUGIND_PLUGIN = shared.plugin, "{error}");
            }
            return shared.end(End::Closed);
        }
        decoder.push(&buffer[..length]);
        for frame in decoder.by_ref() {
            if let Err(error) = frame.and_then(|frame| take(&shared, &frame)) {
                if tolerated(&shared, &error, &mut junk) {
                    tracing::warn!(PLUGIND_PLUGIN = shared.plugin, "before the handshake: {error}");
                } else {
                    return shared.violation(error.into());
                }
            }
        }
    }
}

/// Whether a line may be overlooked: text, before the handshake, up to a bound.
fn tolerated(shared: &Shared, error: &FrameError, junk: &mut u32) -> bool {
    let text = match error {
        // JSON that is not an object was meant as a frame.
        FrameError::NotAnObject { start } => {
            serde_json::from_str::<serde::de::IgnoredAny>(start).is_err() && !nests(start)
        }
        FrameError::InvalidJson { .. } => true,
        _ => false,
    };
    *junk += 1;
    text && *junk <= JUNK_MAX && !shared.lock().attested
}

/// Brackets upon brackets are no message for people.
fn nests(start: &str) -> bool {
    start.starts_with("[[") || start.starts_with("[{")
}

fn take(shared: &Shared, frame: &[u8]) -> Result<(), FrameError> {
    let message = envelope::parse(frame)?;
    match message.class() {
        Class::Response => answer(shared, message),
        Class::Request => refuse(shared, message),
        Class::Notification => notice(shared, &message),
    }
    Ok(())
}

fn answer(shared: &Shared, message: Envelope<'_>) {
    let mut state = shared.lock();
    let waiting = message.id.as_ref().and_then(envelope::Id::as_u64).and_then(|id| state.pending.remove(&id));
    let Some(waiting) = waiting else {
        state.stray_answers += 1;
        let count = state.stray_answers;
        drop(state);
        // Powers of two: a plugin cannot fill the journal with them.
        if count.is_power_of_two() {
            tracing::warn!(PLUGIND_PLUGIN = shared.plugin, count, "dropped an answer that nobody waits for");
        }
        return;
    };
    drop(state);
    let outcome = match (message.result, message.error) {
        (_, Some(error)) => Err(Failure::Plugin(error)),
        (Some(result), None) => Ok(result.to_owned()),
        (None, None) => return,
    };
    let _ = waiting.send(outcome);
}

/// No host service is offered to plugins: each request is answered so.
fn refuse(shared: &Shared, message: Envelope<'_>) {
    let Some(id) = message.id else { return };
    let error = RpcError::new(code::METHOD_NOT_FOUND, "the host offers no such method");
    let mut frame = Vec::new();
    if envelope::error_response(&mut frame, &id, &error).is_err() {
        return;
    }
    let mut state = shared.lock();
    if state.queued_bytes + frame.len() > super::QUEUE_FRAMES * shared.bounds.frame_max {
        drop(state);
        return shared.violation(Error::new(
            Kind::ProtocolViolation,
            format!("{} asks without reading the answers", shared.plugin),
            "a plugin must go on reading while it works",
        ));
    }
    state.push(Queued { id: None, frame });
    drop(state);
    shared.queued.notify_one();
}

fn notice(shared: &Shared, message: &Envelope<'_>) {
    #[derive(Deserialize)]
    struct Log {
        level: Option<String>,
        message: String,
    }
    if message.method.as_deref() != Some("log") {
        return;
    }
    let Some(log) = message.params.and_then(|params| serde_json::from_str::<Log>(params.get()).ok()) else {
        return;
    };
    let level = match log.level.as_deref() {
        Some("error") => Level::ERROR,
        Some("warn" | "warning") => Level::WARN,
        Some("debug" | "trace") => Level::DEBUG,
        _ => Level::INFO,
    };
    for line in log.message.lines() {
        shared.log.add(Source::Log, level, line.as_bytes(), false);
    }
}
