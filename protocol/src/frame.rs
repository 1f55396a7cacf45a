//! The frame codec: lines of a stream, each of them one JSON object.
//!
//! The bytes come from a program that nobody trusts, so the decoder holds a bounded part of any line, looks at bytes
//! only, and tells each way of not being a frame by its own name. Whether a frame is JSON-RPC is for
//! [`envelope`](crate::envelope).

use crate::error::{Error, Kind};

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

/// Turns pushed bytes into frames; take them by iterating until `None` after each push.
///
/// Of one line it never holds more than `frame_max` and its end, however long the line is. More pushed bytes may
/// bring more frames after a `None`.
#[derive(Debug)]
pub struct Decoder {
    frame_max: usize,
    buffer: Vec<u8>,
    /// Where the first line that was not yet taken begins.
    start: usize,
    /// Up to where the buffer is known to hold no further line end.
    scanned: usize,
    /// How much of the buffer's end is a line whose end has not come yet.
    open: usize,
    /// Whether the open line was reported as too large: the rest of it is thrown away.
    skipping: bool,
}

impl Decoder {
    /// A decoder of frames of up to `frame_max` bytes, [`FRAME_MAX_CAP`] at most.
    #[must_use]
    pub fn new(frame_max: usize) -> Decoder {
        Decoder {
            frame_max: frame_max.min(FRAME_MAX_CAP),
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            open: 0,
            skipping: false,
        }
    }

    /// Takes in what was read.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.drop_taken();
        while !bytes.is_empty() {
            let end = line_end(bytes);
            let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if !self.skipping {
                let room = self.open_max().saturating_sub(self.open);
                self.append(&line[..line.len().min(room)]);
                self.open += line.len().min(room);
            }
            bytes = rest;
            if end.is_some() {
                if !std::mem::take(&mut self.skipping) {
                    self.append(b"\n");
                }
                self.open = 0;
                bytes = &bytes[1..];
            }
        }
    }

    /// Ends the stream; to be called once every frame was taken. An open line is an error, once.
    pub fn finish(&mut self) -> Result<(), FrameError> {
        let open = &self.buffer[self.buffer.len() - self.open..];
        let bytes = if is_blank(open) { 0 } else { open.len() };
        self.buffer.truncate(self.buffer.len() - self.open);
        self.open = 0;
        self.skipping = false;
        if bytes == 0 { Ok(()) } else { Err(FrameError::Truncated { bytes }) }
    }

    /// How many bytes of memory the decoder holds now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.buffer.capacity()
    }

    /// One byte more than a frame and its carriage return: enough to know that an open line is too large.
    fn open_max(&self) -> usize {
        self.frame_max + 2
    }

    /// Like `extend_from_slice`, without doubling beyond what one line can need.
    fn append(&mut self, bytes: &[u8]) {
        let needed = self.buffer.len() + bytes.len();
        if needed > self.buffer.capacity() {
            let roomy = (self.buffer.capacity() * 2).min(self.open_max() + 1).max(needed);
            self.buffer.reserve_exact(roomy - self.buffer.len());
        }
        self.buffer.extend_from_slice(bytes);
    }

    fn drop_taken(&mut self) {
        self.buffer.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        // What a rare large frame needed is not kept for the small ones that follow.
        if self.buffer.is_empty() && self.buffer.capacity() > KEPT {
            self.buffer.shrink_to(KEPT);
        }
    }
}

/// The memory that an empty decoder keeps.
const KEPT: usize = 64 << 10;

impl Iterator for Decoder {
    type Item = Result<Vec<u8>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(offset) = line_end(&self.buffer[self.scanned..]) {
            let line = self.start..self.scanned + offset;
            self.start = line.end + 1;
            self.scanned = self.start;
            let line = &self.buffer[line];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.len() > self.frame_max {
                return Some(Err(FrameError::TooLarge { limit: self.frame_max }));
            }
            if !is_blank(line) {
                return Some(check(line).map(|()| line.to_vec()));
            }
        }
        self.scanned = self.buffer.len();
        if self.open >= self.open_max() {
            self.buffer.truncate(self.start);
            self.scanned = self.start;
            self.open = 0;
            self.skipping = true;
            self.drop_taken();
            return Some(Err(FrameError::TooLarge { limit: self.frame_max }));
        }
        self.drop_taken();
        None
    }
}

/// Whether one line, without its end, may be a frame. Its length is not looked at.
pub fn check(line: &[u8]) -> Result<(), FrameError> {
    const HEADER: &[u8] = b"content-length:";
    if line.starts_with(b"\xef\xbb\xbf") {
        return Err(FrameError::ByteOrderMark);
    }
    if line.get(..HEADER.len()).is_some_and(|start| start.eq_ignore_ascii_case(HEADER)) {
        return Err(FrameError::LspFraming);
    }
    if memchr::memchr(0, line).is_some() {
        return Err(FrameError::Nul);
    }
    if let Err(error) = std::str::from_utf8(line) {
        return Err(FrameError::InvalidUtf8 { at: error.valid_up_to() });
    }
    if line.trim_ascii_start().first() != Some(&b'{') {
        let start = line[..line.len().min(80)].escape_ascii().to_string();
        return Err(FrameError::NotAnObject { start });
    }
    if deeper_than(line, DEPTH_MAX) {
        return Err(FrameError::TooDeep { limit: DEPTH_MAX });
    }
    Ok(())
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr(b'\n', bytes)
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
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
