//! The frame codec: lines of a stream, each of them one JSON object.
//!
//! The bytes come from a program that nobody trusts, so the decoder holds a bounded part of any line, looks at bytes
//! only, and tells each way of not being a frame by its own name. Whether a frame is JSON-RPC is for
//! [`envelope`](crate::envelope).

use crate::error::{Error, Kind};

mod decoder;

pub use decoder::Decoder;

/// The default of `frame_max`, bytes without the line's end.
pub const FRAME_MAX_DEFAULT: usize = 1 << 20;
/// The smallest `frame_max` that a manifest may ask for.
pub const FRAME_MAX_FLOOR: usize = 64 << 10;
/// The largest `frame_max`, whatever anybody asks for.
pub const FRAME_MAX_CAP: usize = 16 << 20;
/// How deep the objects and arrays of a frame may nest.
pub const DEPTH_MAX: usize = 64;

/// A line that is no frame. The line itself is gone; the stream goes on with the next one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than `frame_max`.
    #[error("a line is longer than frame_max, {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// Not UTF-8.
    #[error("a line is not UTF-8: byte {at} of it")]
    InvalidUtf8 {
        /// The first byte that is wrong, counted from 0.
        at: usize,
    },
    /// Begins with a byte order mark.
    #[error("a line begins with a byte order mark")]
    ByteOrderMark,
    /// Contains a NUL byte.
    #[error("a line contains a NUL byte")]
    Nul,
    /// Something else than a JSON object.
    #[error("a line is not a JSON object; it begins with `{start}`")]
    NotAnObject {
        /// Its first 80 bytes, escaped.
        start: String,
    },
    /// Nested deeper than [`DEPTH_MAX`].
    #[error("a line nests deeper than {limit} levels")]
    TooDeep {
        /// The limit in levels.
        limit: usize,
    },
    /// The header that the Language Server Protocol puts before each message.
    #[error("a line is a `Content-Length:` header, the framing of the Language Server Protocol")]
    LspFraming,
    /// The stream ended within a line.
    #[error("the stream ended within a line, after {bytes} bytes of it")]
    Truncated {
        /// How much of the line there was.
        bytes: usize,
    },
    /// Begins like an object and is not JSON.
    #[error("a line is not JSON: {cause}")]
    InvalidJson {
        /// What the parser says.
        cause: String,
    },
    /// JSON, and not a message of JSON-RPC 2.0.
    #[error("a line is not a JSON-RPC 2.0 message: {cause}")]
    NotJsonRpc {
        /// The rule it breaks.
        cause: String,
    },
}

impl FrameError {
    /// What the plugin's author can do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            FrameError::TooLarge { .. } => {
                "send less in one message, or ask for a larger resources.frame_max (at most 16M)"
            }
            FrameError::InvalidUtf8 { .. } => "encode as UTF-8 what the plugin writes to its standard output",
            FrameError::ByteOrderMark => "write UTF-8 without a byte order mark (not `utf-8-sig`)",
            FrameError::Nul => "write UTF-8, not UTF-16 or binary data, to the standard output",
            FrameError::NotAnObject { .. } => {
                "write nothing but JSON-RPC objects to the standard output; logs belong on the standard error"
            }
            FrameError::TooDeep { .. } => "nest arguments and results less",
            FrameError::LspFraming => {
                "write each message as one line that ends in a newline, with no headers: not the LSP's framing, but \
                 that of MCP's stdio transport"
            }
            FrameError::Truncated { .. } => "end each message with a newline and flush it before exiting",
            FrameError::InvalidJson { .. } => "write each message with a JSON encoder, on one line",
            FrameError::NotJsonRpc { .. } => {
                "a message has `\"jsonrpc\":\"2.0\"` and either a `method`, or an `id` with a `result` or an `error`"
            }
        }
    }
}

impl From<FrameError> for Error {
    fn from(error: FrameError) -> Error {
        let kind = match error {
            FrameError::TooLarge { .. } => Kind::FrameTooLarge,
            _ => Kind::ProtocolViolation,
        };
        Error::new(kind, error.to_string(), error.hint())
    }
}

/// Whether one line, without its end, may be a frame; its text. Its length is not looked at.
pub fn check(line: &[u8]) -> Result<&str, FrameError> {
    const HEADER: &[u8] = b"content-length:";
    if line.starts_with(b"\xef\xbb\xbf") {
        return Err(FrameError::ByteOrderMark);
    }
    if line.get(..HEADER.len()).is_some_and(|start| start.eq_ignore_ascii_case(HEADER)) {
        return Err(FrameError::LspFraming);
    }
    let Glance { nul, openings } = glance(line);
    if nul {
        return Err(FrameError::Nul);
    }
    let text =
        std::str::from_utf8(line).map_err(|error| FrameError::InvalidUtf8 { at: error.valid_up_to() })?;
    if line.trim_ascii_start().first() != Some(&b'{') {
        let start = line[..line.len().min(80)].escape_ascii().to_string();
        return Err(FrameError::NotAnObject { start });
    }
    if openings > DEPTH_MAX && deeper_than(line, DEPTH_MAX) {
        return Err(FrameError::TooDeep { limit: DEPTH_MAX });
    }
    Ok(text)
}

/// What one quick pass over a line finds.
struct Glance {
    nul: bool,
    /// Brackets that open something, those in strings included: few of them cannot nest deep.
    openings: usize,
}

/// Without branches and in counters of one byte, so that the compiler makes vector code of it.
fn glance(line: &[u8]) -> Glance {
    let (mut nul, mut openings) = (false, 0);
    for piece in line.chunks(128) {
        let (mut zeros, mut opening) = (0_u8, 0_u8);
        for byte in piece {
            zeros |= u8::from(*byte == 0);
            opening += u8::from(matches!(byte, b'{' | b'['));
        }
        nul |= zeros != 0;
        openings += usize::from(opening);
    }
    Glance { nul, openings }
}

/// Whether brackets outside strings nest deeper than `limit`; the line need not be JSON.
#[must_use]
pub fn deeper_than(line: &[u8], limit: usize) -> bool {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = line.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => at = string_end(line, at),
            _ => {}
        }
    }
    false
}

/// The index behind the string whose content begins at `at`.
fn string_end(line: &[u8], mut at: usize) -> usize {
    while let Some(offset) = line.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += offset;
        if line[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    line.len()
}

#[cfg(test)]
mod tests;
