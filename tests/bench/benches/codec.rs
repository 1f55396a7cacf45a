//! What the codec costs by itself: `cargo bench -p plugind-bench --bench codec`.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::BytesCount;
use plugind_protocol::envelope::{request, response};
use plugind_protocol::{Decoder, Envelope, Id};
use serde_json::value::RawValue;

const FRAME_MAX: usize = 2 << 20;
const SMALL: usize = 200;
const BIG: usize = 1 << 20;

fn main() {
    divan::main();
}

/// A result of so many bytes, as a plugin sends it.
fn answer(length: usize) -> Vec<u8> {
    let around = r#"{"jsonrpc":"2.0","id":1000000000,"result":{"text":""}}"#.len() + 1;
    let text = "x".repeat(length.saturating_sub(around));
    let mut line =
        format!(r#"{{"jsonrpc":"2.0","id":1000000000,"result":{{"text":"{text}"}}}}"#).into_bytes();
    line.push(b'\n');
    line
}

fn arguments(length: usize) -> Box<RawValue> {
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(length));
    RawValue::from_string(text).expect("JSON")
}

/// In pieces as large as a pipe holds.
fn decode_all(decoder: &mut Decoder, bytes: &[u8]) -> usize {
    let (mut rest, mut frames) = (bytes, 0);
    while !rest.is_empty() {
        let space = decoder.space();
        let length = space.len().min(rest.len()).min(64 << 10);
        space[..length].copy_from_slice(&rest[..length]);
        decoder.filled(length);
        rest = &rest[length..];
        while let Some(frame) = decoder.frame() {
            black_box(frame.expect("a frame"));
            frames += 1;
        }
    }
    frames
}

#[divan::bench(args = [SMALL, BIG])]
fn decode(bencher: Bencher<'_, '_>, length: usize) {
    let line = answer(length);
    let mut decoder = Decoder::new(FRAME_MAX);
    bencher.counter(BytesCount::new(line.len())).bench_local(|| decode_all(&mut decoder, black_box(&line)));
}

#[divan::bench]
fn decode_64_at_once(bencher: Bencher<'_, '_>) {
    let lines = answer(SMALL).repeat(64);
    let mut decoder = Decoder::new(FRAME_MAX);
    bencher.counter(BytesCount::new(lines.len())).bench_local(|| decode_all(&mut decoder, black_box(&lines)));
}

#[divan::bench(args = [SMALL, BIG])]
fn parse_envelope(bencher: Bencher<'_, '_>, length: usize) {
    let line = String::from_utf8(answer(length)).expect("UTF-8");
    let line = line.trim_end();
    bencher
        .counter(BytesCount::new(line.len()))
        .bench(|| black_box(Envelope::parse(black_box(line)).expect("an envelope").result.is_some()));
}

#[divan::bench(args = [SMALL, BIG])]
fn encode_request(bencher: Bencher<'_, '_>, length: usize) {
    let arguments = arguments(length);
    let mut line = Vec::new();
    bencher.counter(BytesCount::new(length)).bench_local(|| {
        line.clear();
        request(&mut line, 1_000_000_000, "command/invoke", black_box(&arguments)).expect("a line");
        line.len()
    });
}

#[divan::bench(args = [SMALL, BIG])]
fn encode_response(bencher: Bencher<'_, '_>, length: usize) {
    let (id, result) = (Id::from(1_000_000_000), arguments(length));
    let mut line = Vec::new();
    bencher.counter(BytesCount::new(length)).bench_local(|| {
        line.clear();
        response(&mut line, &id, black_box(&result)).expect("a line");
        line.len()
    });
}
