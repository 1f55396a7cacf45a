//! Floods and lines that never end, as modes and commands share them.

use std::io::{self, Write};

use crate::wire::Wire;

/// Lines of 1 KiB, numbered, `bytes` in all (rounded up to whole lines).
fn lines(bytes: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..bytes.div_ceil(1024)).map(|number| {
        let mut line = format!("flood {number} ").into_bytes();
        line.resize(1023, b'x');
        line.push(b'\n');
        line
    })
}

/// Writes `bytes` of text to stderr, or until nobody reads it.
pub(crate) fn flood_stderr(bytes: u64) {
    let mut stderr = io::stderr().lock();
    for line in lines(bytes) {
        if stderr.write_all(&line).is_err() {
            return;
        }
    }
}

/// Writes `bytes` of text that is no frame to stdout.
pub(crate) fn flood_stdout(wire: Wire, bytes: u64) {
    lines(bytes).for_each(|line| wire.raw(&line));
}

/// One line of `bytes` that begins as a frame does and never ends.
pub(crate) fn endless_line(wire: Wire, bytes: u64) {
    wire.raw(br#"{"jsonrpc":"2.0","id":0,"result":""#);
    let block = vec![b'x'; 64 * 1024];
    for _ in 0..bytes.div_ceil(block.len() as u64) {
        wire.raw(&block);
    }
}
