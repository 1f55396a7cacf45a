//! Fuzzes the frame codec and the messages in its frames.
//!
//! An input is text as far as it can be, so that a finding can be read: its first line is the [`Arrival`], what follows
//! is the stream.

#![no_main]

mod arrival;
mod expectation;
mod message;

use libfuzzer_sys::fuzz_target;
use plugind_protocol::{Decoder, Error, FrameError};

use arrival::Arrival;

/// The most that one read brings: what a pipe holds.
const READ_MAX: usize = 64 << 10;

fuzz_target!(|input: &[u8]| {
    let (arrival, stream) = arrival::split(input);
    same_frames_in_bounded_memory(&arrival, &stream);
    for outcome in expectation::of(&stream, arrival.frame_max) {
        match outcome {
            Ok(frame) => message::survives_the_wire(frame),
            Err(error) => explained_within_bounds(error),
        }
    }
});

/// However the stream arrives, it holds the same frames and errors.
fn same_frames_in_bounded_memory(arrival: &Arrival, stream: &[u8]) {
    let mut decoder = Decoder::new(arrival.frame_max);
    let mut expected = expectation::of(stream, arrival.frame_max);
    let mut rest = stream;
    let mut reads = arrival.reads();
    while !rest.is_empty() {
        let size = reads.next().expect("there is no end of reads");
        if size == 0 {
            decoder.rest();
            assert!(!decoder.is_roomy(), "a pause gave nothing back");
            continue;
        }
        let space = decoder.space();
        assert!(!space.is_empty(), "there is no room to read into");
        let length = size.min(space.len()).min(rest.len());
        let (read, others) = rest.split_at(length);
        space[..length].copy_from_slice(read);
        rest = others;
        decoder.filled(length);
        while let Some(outcome) = decoder.frame() {
            assert_eq!(Some(outcome), expected.next(), "what came out, and what had to");
        }
        let held = decoder.held();
        assert!(held <= arrival.frame_max + 2 * READ_MAX, "{held} bytes are held");
    }
    if let Err(error) = decoder.finish() {
        assert_eq!(Some(Err(error)), expected.next(), "what the end brought, and what it had to");
    }
    assert_eq!(expected.next(), None, "what did not come out");
}

/// A line that is no frame may be anything; what is said of it is short, fit to be shown, and helps.
pub(crate) fn explained_within_bounds(error: FrameError) {
    let error = Error::from(error);
    assert!(error.message.len() < 4096, "a message of {} bytes", error.message.len());
    assert!(!error.message.chars().any(char::is_control), "{:?}", error.message);
    assert!(!error.hint.is_empty());
}
