//! From bytes as they arrive to frames, without copying them once more.

use super::{FRAME_MAX_CAP, FrameError, check};

/// What an idle decoder keeps.
const IDLE: usize = 4 << 10;

/// As much as a pipe holds: a read can bring no more at once.
const READ_MAX: usize = 64 << 10;

/// Turns what was read into frames: read into [`Decoder::space`], say how much with [`Decoder::filled`], then take
/// frames until there is none.
///
/// Of one line it never holds more than `frame_max` and a read, however long the line is.
#[derive(Debug)]
pub struct Decoder {
    frame_max: usize,
    /// `start..end` was read and not taken; what follows is room.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// `start..scanned` holds no line end.
    scanned: usize,
    /// The open line was reported as too large: the rest of it is thrown away.
    skipping: bool,
    /// The last read filled its room, so that there is likely more.
    pressed: bool,
}

impl Decoder {
    /// A decoder of frames of up to `frame_max` bytes, [`FRAME_MAX_CAP`] at most.
    #[must_use]
    pub fn new(frame_max: usize) -> Decoder {
        Decoder {
            frame_max: frame_max.min(FRAME_MAX_CAP),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            scanned: 0,
            skipping: false,
            pressed: false,
        }
    }

    /// Room to read into; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.clear();
        }
        let enough = self.buffer.len() / 2;
        if self.buffer.len() - self.end <= enough && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.scanned -= self.start;
            self.start = 0;
        }
        let crowded = self.buffer.len() - self.end <= enough;
        if crowded || (self.pressed && self.buffer.len() < READ_MAX) {
            let most = self.frame_max + 2 + READ_MAX;
            let size = (self.buffer.len() * 2).clamp(IDLE, most).max(self.end + 1);
            self.buffer.reserve_exact(size - self.buffer.len());
            self.buffer.resize(size, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// The first `length` bytes of the room were read.
    ///
    /// # Panics
    /// If the room is smaller.
    pub fn filled(&mut self, length: usize) {
        let room = self.buffer.len() - self.end;
        assert!(length <= room, "{length} bytes were read into a room of {room}");
        self.pressed = length == room;
        self.end += length;
    }

    /// Whether the last read filled its room, so that there is likely more to read at once.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.pressed
    }

    /// Takes in bytes that were read elsewhere, and hands out each frame that they complete.
    pub fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(Result<&str, FrameError>)) {
        while !bytes.is_empty() {
            let space = self.space();
            let length = space.len().min(bytes.len());
            space[..length].copy_from_slice(&bytes[..length]);
            self.filled(length);
            bytes = &bytes[length..];
            while let Some(frame) = self.frame() {
                take(frame);
            }
        }
    }

    /// The next frame; `None` when more must be read first.
    pub fn frame(&mut self) -> Option<Result<&str, FrameError>> {
        let line = loop {
            let Some(offset) = memchr::memchr(b'\n', &self.buffer[self.scanned..self.end]) else {
                return self.open_line().map(Err);
            };
            let (start, end) = (self.start, self.scanned + offset);
            self.start = end + 1;
            self.scanned = self.start;
            let line = &self.buffer[start..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            // A line that is too long is no blank one, however it arrives.
            if !std::mem::take(&mut self.skipping) && (line.len() > self.frame_max || !is_blank(line)) {
                break start..start + line.len();
            }
        };
        if line.len() > self.frame_max {
            return Some(Err(FrameError::TooLarge { limit: self.frame_max }));
        }
        Some(check(&self.buffer[line]))
    }

    /// Ends the stream; to be called once every frame was taken. An open line is an error, once.
    pub fn finish(&mut self) -> Result<(), FrameError> {
        let open = &self.buffer[self.start..self.end];
        let bytes = if is_blank(open) { 0 } else { open.len() };
        self.clear();
        self.skipping = false;
        if bytes == 0 { Ok(()) } else { Err(FrameError::Truncated { bytes }) }
    }

    /// How many bytes of memory the decoder holds now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.buffer.capacity()
    }

    /// Whether [`Decoder::rest`] would give memory back.
    #[must_use]
    pub fn is_roomy(&self) -> bool {
        self.start == self.end && self.buffer.capacity() > IDLE
    }

    /// Gives back what a large frame or a burst needed; to be called when nothing was read for a while.
    pub fn rest(&mut self) {
        if self.is_roomy() {
            self.buffer = Vec::new();
            self.clear();
        }
    }

    /// No line end is left: a line that is too long already is not waited for.
    fn open_line(&mut self) -> Option<FrameError> {
        self.scanned = self.end;
        // One byte more than a frame may be its carriage return.
        let too_large = self.end - self.start > self.frame_max + 1;
        if self.skipping || too_large {
            self.clear();
        }
        let news = too_large && !self.skipping;
        self.skipping |= too_large;
        news.then_some(FrameError::TooLarge { limit: self.frame_max })
    }

    fn clear(&mut self) {
        (self.start, self.end, self.scanned) = (0, 0, 0);
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}
