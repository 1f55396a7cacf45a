//! The frames of a channel: what a caller may say, and what it is told.

use std::borrow::Cow;

use plugind_protocol::envelope::{self, RpcError};
use plugind_protocol::{Error, Id};
use serde::Deserialize;
use serde_json::value::RawValue;

/// What is called, and how.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Params<'a> {
    /// May be left out where the channel is for one plugin.
    #[serde(borrow, default)]
    pub(super) plugin: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) command: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) meta: Meta,
}

/// Serde borrows a `Cow<str>` only where it stands alone, not within an `Option`.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl<'a> Params<'a> {
    /// Params that are written as most callers write them, `{"plugin":"…","command":"…","arguments":…}`; `None` for all
    /// others, good or bad.
    pub(super) fn plain(text: &'a str) -> Option<Params<'a>> {
        let rest = text.strip_prefix("{\"plugin\":\"")?;
        let (plugin, rest) = name(rest)?;
        let (command, rest) = name(rest.strip_prefix(",\"command\":\"")?)?;
        let arguments = rest.strip_prefix(",\"arguments\":")?.strip_suffix('}')?;
        Some(Params {
            plugin: Some(Text(Cow::Borrowed(plugin))),
            command: Cow::Borrowed(command),
            arguments: Some(serde_json::from_str(arguments).ok()?),
            meta: Meta::default(),
        })
    }
}

/// Letters up to a quotation mark, and what follows it.
fn name(text: &str) -> Option<(&str, &str)> {
    let end =
        text.bytes().position(|byte| !matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.'))?;
    let (name, rest) = text.split_at(end);
    Some((name, rest.strip_prefix('"')?))
}

/// How a command is called.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Meta {
    pub(super) deadline_ms: Option<u64>,
    pub(super) dry_run: bool,
    /// Chunks that the caller takes for now.
    pub(super) credit: u64,
}

/// `$/cancel`.
#[derive(Deserialize)]
pub(super) struct Cancel {
    pub(super) invocation: Id,
    #[serde(default)]
    pub(super) reason: Option<String>,
}

/// `$/credit`.
#[derive(Deserialize)]
pub(super) struct Credit {
    pub(super) invocation: Id,
    pub(super) n: u64,
}

/// The result of a request. It comes from a frame, so it has no line end.
pub(super) fn result(frame: &mut Vec<u8>, id: &Id, result: &RawValue) {
    extend(frame, &["{\"jsonrpc\":\"2.0\",\"id\":", id.as_json(), ",\"result\":", result.get(), "}\n"]);
}

/// The error of a request.
pub(super) fn error(frame: &mut Vec<u8>, id: &Id, error: &Error) {
    // Numbers and texts serialise always.
    let _ = envelope::error_response(frame, id, &RpcError::from(error));
}

/// A word on how a call goes.
pub(super) fn progress(frame: &mut Vec<u8>, id: &Id, data: &RawValue) {
    const START: &str = "{\"jsonrpc\":\"2.0\",\"method\":\"$/progress\",\"params\":{\"invocation\":";
    extend(frame, &[START, id.as_json(), ",\"data\":", data.get(), "}}\n"]);
}

/// A part of an answer.
pub(super) fn chunk(frame: &mut Vec<u8>, id: &Id, seq: u64, data: &RawValue) {
    const START: &str = "{\"jsonrpc\":\"2.0\",\"method\":\"$/chunk\",\"params\":{\"invocation\":";
    let seq = seq.to_string();
    extend(frame, &[START, id.as_json(), ",\"seq\":", &seq, ",\"data\":", data.get(), "}}\n"]);
}

fn extend(frame: &mut Vec<u8>, parts: &[&str]) {
    frame.reserve(parts.iter().map(|part| part.len()).sum());
    for part in parts {
        frame.extend_from_slice(part.as_bytes());
    }
}
