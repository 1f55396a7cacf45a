//! How a stream arrives.

use std::iter;

/// The largest `frame_max` here; beyond it nothing new happens.
const FRAME_MAX: usize = 128 << 10;
/// The longest stream: enough to fill the decoder's largest buffer.
const STREAM_MAX: usize = 256 << 10;
/// How many bytes a `~` of the input stands for, so that short inputs make long lines.
const RUN: usize = 1024;
/// The most reads that are bounded; many small reads of a long stream would take long and show nothing new.
const BOUNDED_READS: usize = 4096;

/// The first line of an input, decimal numbers: `frame_max`, 80 where it is left out, then the sizes of the reads, over
/// and over. A read of 0 is a pause; where there are none, each brings as much as there is room for.
pub(crate) struct Arrival {
    pub(crate) frame_max: usize,
    reads: Vec<usize>,
}

impl Arrival {
    /// The size of each read; there is no end of them.
    pub(crate) fn reads(&self) -> impl Iterator<Item = usize> {
        self.reads.iter().copied().cycle().take(BOUNDED_READS).chain(iter::repeat(usize::MAX))
    }
}

/// An input's arrival and its stream.
pub(crate) fn split(input: &[u8]) -> (Arrival, Vec<u8>) {
    let line = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let stream = input.get(line.len() + 1..).unwrap_or_default();
    (arrival(line), expand(stream))
}

fn arrival(line: &[u8]) -> Arrival {
    let mut numbers = line
        .split(|byte| *byte == b' ')
        .filter_map(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
    let frame_max = numbers.next().unwrap_or(80).min(FRAME_MAX);
    Arrival { frame_max, reads: numbers.collect() }
}

fn expand(stream: &[u8]) -> Vec<u8> {
    let mut expanded = Vec::new();
    for byte in stream {
        let (byte, times) = if *byte == b'~' { (b'x', RUN) } else { (*byte, 1) };
        expanded.resize((expanded.len() + times).min(STREAM_MAX), byte);
    }
    expanded
}
