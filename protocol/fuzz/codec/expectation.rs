//! What a stream holds, told from the whole of it.

use plugind_protocol::FrameError;
use plugind_protocol::frame::check;

type Outcome<'a> = Result<&'a str, FrameError>;

/// The frames and errors of a stream, by its line ends alone.
pub(crate) fn of(stream: &[u8], frame_max: usize) -> impl Iterator<Item = Outcome<'_>> {
    stream.split_inclusive(|byte| *byte == b'\n').filter_map(move |line| match line.strip_suffix(b"\n") {
        Some(line) => closed(line.strip_suffix(b"\r").unwrap_or(line), frame_max),
        None => open(line, frame_max),
    })
}

/// The length comes before all else: whoever has not seen a line's end can tell nothing but that.
fn closed(line: &[u8], frame_max: usize) -> Option<Outcome<'_>> {
    if line.len() > frame_max {
        Some(Err(FrameError::TooLarge { limit: frame_max }))
    } else if is_blank(line) {
        None
    } else {
        Some(check(line))
    }
}

/// The line in which the stream ended. One byte more than a frame may be its carriage return.
fn open(line: &[u8], frame_max: usize) -> Option<Outcome<'_>> {
    if line.len() > frame_max + 1 {
        Some(Err(FrameError::TooLarge { limit: frame_max }))
    } else if is_blank(line) {
        None
    } else {
        Some(Err(FrameError::Truncated { bytes: line.len() }))
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}
