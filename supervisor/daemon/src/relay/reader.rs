//! Takes frames from the plugin's stdout: answers, chunks, progress, log lines, and requests to the host.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plugind_protocol::envelope::{self, Class, Envelope, RpcError, code};
use plugind_protocol::frame::{Decoder, FrameError};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::unix::pipe;
use tracing::Level;

use super::calls::Invocation;
use super::link::Wire;
use super::log::Source;
use super::{Batch, End, read};

/// Lines of junk before the handshake (DESIGN §6): loaders and interpreters print there.
const JUNK_MAX: u32 = 64;

/// Frames that are taken before others get their turn; one that nobody waits for counts as so many.
const BUDGET: u32 = 64;
const NOISE: u32 = 8;

/// Reads until the stdout is closed or breaks the protocol.
pub(super) async fn run(wire: Arc<Wire>, mut stdout: pipe::Receiver) {
    let mut decoder = Decoder::new(wire.bounds().frame_max);
    let mut junk = 0;
    loop {
        let length = read(&mut stdout, &mut decoder, &wire.out).await;
        if length == 0 {
            if let Err(error) = decoder.finish() {
                tracing::warn!(PLUGIND_PLUGIN = wire.pool.plugin(), "{error}");
            }
            return wire.end(End::Closed);
        }
        decoder.filled(length);
        let mut more = true;
        while more {
            let mut batch = Batch::default();
            let mut budget = BUDGET;
            while more && budget > 0 {
                let Some(frame) = decoder.frame() else {
                    more = false;
                    break;
                };
                match frame.and_then(|frame| take(&wire, frame, &mut batch)) {
                    Ok(Worth::Answer) => budget -= 1,
                    Ok(Worth::Noise) => budget = budget.saturating_sub(NOISE),
                    Err(error) if tolerated(&wire, &error, &mut junk) => {
                        tracing::warn!(PLUGIND_PLUGIN = wire.pool.plugin(), "before the handshake: {error}");
                    }
                    Err(error) => return wire.violation(error.into()),
                }
            }
            drop(batch);
            // A plugin that writes without end must not starve the others of this thread.
            if more || decoder.is_pressed() {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// What a frame is good for.
enum Worth {
    /// Somebody waits for it.
    Answer,
    /// Nobody does, or it is a word on the way.
    Noise,
}

/// Whether a line may be overlooked: text, before the handshake, up to a bound.
fn tolerated(wire: &Wire, error: &FrameError, junk: &mut u32) -> bool {
    let text = match error {
        // JSON that is not an object was meant as a frame.
        FrameError::NotAnObject { start } => {
            serde_json::from_str::<serde::de::IgnoredAny>(start).is_err() && !nests(start)
        }
        FrameError::InvalidJson { .. } => true,
        _ => false,
    };
    *junk += 1;
    text && *junk <= JUNK_MAX && !wire.is_attested()
}

/// Brackets upon brackets are no message for people.
fn nests(start: &str) -> bool {
    start.starts_with("[[") || start.starts_with("[{")
}

fn take(wire: &Arc<Wire>, frame: &str, batch: &mut Batch) -> Result<Worth, FrameError> {
    wire.pool.counters().bytes_out.fetch_add(frame.len() as u64 + 1, Ordering::Relaxed);
    if let Some((number, result)) = envelope::plain_result(frame) {
        return Ok(answer(wire, Some(number), &Ok(result), batch));
    }
    let message = envelope::parse(frame)?;
    Ok(match message.class() {
        Class::Response => {
            let number = message.id.as_ref().and_then(envelope::Id::as_u64);
            match (message.result, message.error) {
                (_, Some(error)) => answer(wire, number, &Err(error), batch),
                (Some(result), None) => answer(wire, number, &Ok(result), batch),
                (None, None) => Worth::Noise,
            }
        }
        Class::Request => {
            refuse(wire, &message, batch);
            Worth::Noise
        }
        Class::Notification => notice(wire, &message, batch),
    })
}

fn answer(
    wire: &Arc<Wire>,
    number: Option<u64>,
    outcome: &Result<&RawValue, RpcError>,
    batch: &mut Batch,
) -> Worth {
    let known = number.is_some_and(|number| {
        wire.pool.answer(wire.number, number, outcome, batch) || wire.answer(number, outcome)
    });
    if known {
        return Worth::Answer;
    }
    stray(wire, "an answer");
    Worth::Noise
}

fn stray(wire: &Wire, what: &str) {
    let count = wire.pool.counters().strays.fetch_add(1, Ordering::Relaxed) + 1;
    // Powers of two: a plugin cannot fill the journal with them.
    if count.is_power_of_two() {
        tracing::warn!(PLUGIND_PLUGIN = wire.pool.plugin(), count, "dropped {what} that nobody waits for");
    }
}

/// No host service is offered to plugins: each request is answered so.
fn refuse(wire: &Wire, message: &Envelope<'_>, batch: &mut Batch) {
    let Some(id) = &message.id else { return };
    let error = RpcError::new(code::METHOD_NOT_FOUND, "the host offers no such method");
    let said = wire.say(batch, |frame| {
        // An id and a text serialise always.
        let _ = envelope::error_response(frame, id, &error);
    });
    if let Err(error) = said {
        wire.violation(error);
    }
}

/// `$/progress` and `$/chunk`.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    invocation: Cow<'a, str>,
    #[serde(default)]
    seq: Option<u64>,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Deserialize)]
struct LogLine {
    level: Option<String>,
    message: String,
}

fn notice(wire: &Arc<Wire>, message: &Envelope<'_>, batch: &mut Batch) -> Worth {
    let Some(params) = message.params else { return Worth::Noise };
    let is_chunk = match message.method.as_deref() {
        Some("$/chunk") => true,
        Some("$/progress") => false,
        Some("log") => {
            log(wire, params);
            return Worth::Noise;
        }
        _ => return Worth::Noise,
    };
    let known = serde_json::from_str::<Part<'_>>(params.get()).ok().is_some_and(|part| {
        Invocation::parse(&part.invocation).is_some_and(|number| {
            if is_chunk {
                wire.pool.chunk(wire, number, part.seq, part.data, batch)
            } else {
                wire.pool.progress(wire.number, number, part.data, batch)
            }
        })
    });
    if !known {
        stray(wire, if is_chunk { "a chunk" } else { "progress" });
    }
    if known && is_chunk { Worth::Answer } else { Worth::Noise }
}

fn log(wire: &Wire, params: &RawValue) {
    let Ok(log) = serde_json::from_str::<LogLine>(params.get()) else { return };
    let level = match log.level.as_deref() {
        Some("error") => Level::ERROR,
        Some("warn" | "warning") => Level::WARN,
        Some("debug" | "trace") => Level::DEBUG,
        _ => Level::INFO,
    };
    for line in log.message.lines() {
        wire.log.add(Source::Log, level, line.as_bytes(), false);
    }
}
