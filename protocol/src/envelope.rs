//! JSON-RPC 2.0 messages, read and written without rebuilding what they carry.
//!
//! `params` and `result` stay the raw text that was sent, so that arguments and results pass through the supervisor
//! byte for byte.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::frame::FrameError;

/// JSON-RPC's error codes, and ours.
pub mod code {
    /// The message was not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The message was not a request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The method does not take these params.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The method failed by a fault of its program.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// The plugin's own values differ from those of `initialize`.
    pub const ATTESTATION_FAILED: i64 = -32001;
}

/// The longest id in bytes of JSON; ids are kept as long as their call.
pub const ID_MAX: usize = 256;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A method with an id: it wants one response.
    Request,
    /// A method without one.
    Notification,
    /// A result or an error for an id.
    Response,
}

/// One message, borrowing from the frame it was read from.
#[derive(Debug, Clone)]
pub struct Envelope<'a> {
    /// The id; always there in requests and responses.
    pub id: Option<Id>,
    /// The method; always there in requests and notifications.
    pub method: Option<Cow<'a, str>>,
    /// The params: an object or an array.
    pub params: Option<&'a RawValue>,
    /// The result, `null` included.
    pub result: Option<&'a RawValue>,
    /// The error.
    pub error: Option<RpcError>,
}

impl<'a> Envelope<'a> {
    /// Reads a frame; whatever it accepts is a whole message of one [`Class`].
    pub fn parse(frame: &'a str) -> Result<Envelope<'a>, FrameError> {
        let wire: Wire<'a> = serde_json::from_str(frame).map_err(|error| {
            let cause = crate::text::clip(&error.to_string(), 200);
            if error.is_data() { FrameError::NotJsonRpc { cause } } else { FrameError::InvalidJson { cause } }
        })?;
        wire.into_envelope().map_err(|cause| FrameError::NotJsonRpc { cause: cause.to_owned() })
    }

    /// What the message is.
    #[must_use]
    pub fn class(&self) -> Class {
        match (&self.method, &self.id) {
            (Some(_), Some(_)) => Class::Request,
            (Some(_), None) => Class::Notification,
            (None, _) => Class::Response,
        }
    }
}

/// The number and the result of a response, where the frame is written in the way that most encoders write it. For
/// every other frame, good or bad, `None`: then [`Envelope::parse`] tells what it is.
#[must_use]
pub fn plain_result(frame: &str) -> Option<(u64, &RawValue)> {
    let rest = frame.strip_prefix("{\"jsonrpc\":\"2.0\",\"id\":")?;
    let end = rest.bytes().take(20).position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = rest.split_at(end);
    let result = rest.strip_prefix(",\"result\":")?.strip_suffix('}')?;
    Some((number(digits)?, serde_json::from_str(result).ok()?))
}

/// The id and the params of a request of that method, in the same way.
#[must_use]
pub fn plain_request<'a>(frame: &'a str, method: &str) -> Option<(Id, &'a str)> {
    let rest = frame.strip_prefix("{\"jsonrpc\":\"2.0\",\"id\":")?;
    let end = rest.bytes().take(20).position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = rest.split_at(end);
    number(digits)?;
    let rest = rest.strip_prefix(",\"method\":\"")?.strip_prefix(method)?;
    let params = rest.strip_prefix("\",\"params\":")?.strip_suffix('}')?;
    Some((Id::of(digits), params))
}

/// [`Envelope::parse`].
pub fn parse(frame: &str) -> Result<Envelope<'_>, FrameError> {
    Envelope::parse(frame)
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Text<'a>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    error: Option<RpcError>,
}

/// Serde borrows a `Cow<str>` only where it stands alone, not within an `Option`.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Tells a `null` that is there from a member that is not.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Wire<'a> {
    fn into_envelope(self) -> Result<Envelope<'a>, &'static str> {
        if self.jsonrpc.is_none_or(|Text(version)| version != "2.0") {
            return Err("`jsonrpc` is not \"2.0\"");
        }
        let id = self.id.map(Id::from_raw).transpose()?;
        let method = self.method.map(|Text(method)| method);
        if method.is_some() {
            if self.result.is_some() || self.error.is_some() {
                return Err("it has a `method` and a `result` or `error`");
            }
            if id == Some(Id::null()) {
                return Err("the `id` of a request is null");
            }
            if self.params.is_some_and(|params| !params.get().starts_with(['{', '['])) {
                return Err("`params` is neither an object nor an array");
            }
        } else {
            match (&id, self.result, &self.error) {
                (None, ..) => return Err("it has neither a `method` nor an `id`"),
                (_, None, None) => return Err("it has no `method`, `result` or `error`"),
                (_, Some(_), Some(_)) => return Err("it has a `result` and an `error`"),
                (Some(id), Some(_), None) if *id == Id::null() => return Err("the `id` of a result is null"),
                _ if self.params.is_some() => return Err("a response has `params`"),
                _ => {}
            }
        }
        Ok(Envelope { id, method, params: self.params, result: self.result, error: self.error })
    }
}

/// An id exactly as it was written, so that it can be given back exactly: a number, a string, or `null`.
#[derive(Clone, PartialEq, Eq)]
pub struct Id(Written);

/// Most ids are short, and a busy channel has many: those take no memory of their own.
#[derive(Clone, PartialEq, Eq)]
enum Written {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<str>),
}

/// The digits of any 64-bit number fit.
const SHORT: usize = 22;

impl Id {
    /// The id of a response to a message whose own id could not be read.
    #[must_use]
    pub fn null() -> Id {
        Id::of("null")
    }

    /// The id's JSON text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        match &self.0 {
            Written::Short { length, bytes } => {
                std::str::from_utf8(&bytes[..usize::from(*length)]).unwrap_or_default()
            }
            Written::Long(text) => text,
        }
    }

    /// The number, when it is written as one of ours.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        number(self.as_json())
    }

    fn of(text: &str) -> Id {
        let mut bytes = [0; SHORT];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(text.as_bytes());
                Id(Written::Short { length, bytes })
            }
            _ => Id(Written::Long(text.into())),
        }
    }

    fn from_raw(raw: &RawValue) -> Result<Id, &'static str> {
        let text = raw.get();
        if text.len() > ID_MAX {
            return Err("the `id` is longer than 256 bytes");
        }
        match text.as_bytes().first() {
            Some(b'"' | b'-' | b'0'..=b'9' | b'n') => Ok(Id::of(text)),
            _ => Err("the `id` is neither a number nor a string"),
        }
    }
}

/// The number that the text is, when it is written as we write ours.
fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (!text.starts_with('0') || text == "0");
    text.parse().ok().filter(|_| plain)
}

impl std::hash::Hash for Id {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write(match &self.0 {
            Written::Short { length, bytes } => &bytes[..usize::from(*length)],
            Written::Long(text) => text.as_bytes(),
        });
    }
}

impl From<u64> for Id {
    fn from(number: u64) -> Id {
        Id::of(&number.to_string())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.as_json()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        Id::from_raw(&Box::<RawValue>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// An error answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RpcError {
    /// See [`code`].
    pub code: i64,
    /// What went wrong, in a sentence.
    pub message: String,
    /// Anything more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

impl RpcError {
    /// An error with no data.
    pub fn new(code: i64, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into(), data: None }
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

impl std::error::Error for RpcError {}

/// Appends a request as one line. `params` is anything that is an object or an array in JSON, a [`RawValue`] included.
pub fn request<P>(line: &mut Vec<u8>, id: u64, method: &str, params: &P) -> serde_json::Result<()>
where
    P: Serialize + ?Sized,
{
    write_line(line, &Request { jsonrpc: VERSION, id, method, params })
}

/// Appends a notification as one line.
pub fn notification<P>(line: &mut Vec<u8>, method: &str, params: &P) -> serde_json::Result<()>
where
    P: Serialize + ?Sized,
{
    write_line(line, &Notification { jsonrpc: VERSION, method, params })
}

/// Appends the response that carries a result as one line.
pub fn response<R>(line: &mut Vec<u8>, id: &Id, result: &R) -> serde_json::Result<()>
where
    R: Serialize + ?Sized,
{
    write_line(line, &Response { jsonrpc: VERSION, id, result })
}

/// Appends the response that carries an error as one line.
pub fn error_response(line: &mut Vec<u8>, id: &Id, error: &RpcError) -> serde_json::Result<()> {
    write_line(line, &ErrorResponse { jsonrpc: VERSION, id, error })
}

const VERSION: &str = "2.0";

#[derive(Serialize)]
struct Request<'a, P: ?Sized> {
    jsonrpc: &'static str,
    id: u64,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct Notification<'a, P: ?Sized> {
    jsonrpc: &'static str,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct Response<'a, R: ?Sized> {
    jsonrpc: &'static str,
    id: &'a Id,
    result: &'a R,
}

#[derive(Serialize)]
struct ErrorResponse<'a> {
    jsonrpc: &'static str,
    id: &'a Id,
    error: &'a RpcError,
}

/// Raw JSON may hold line ends between its tokens, and each would split the frame in two. Within strings JSON has
/// them escaped, so every one that stands there is white space.
fn write_line(line: &mut Vec<u8>, message: &impl Serialize) -> serde_json::Result<()> {
    let start = line.len();
    if let Err(error) = serde_json::to_writer(&mut *line, message) {
        line.truncate(start);
        return Err(error);
    }
    let mut from = start;
    while let Some(offset) = memchr::memchr2(b'\n', b'\r', &line[from..]) {
        line[from + offset] = b' ';
        from += offset + 1;
    }
    line.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests;
