//! A text's lines, one by one.

use plugind_sdk::{Call, Failure};
use serde_json::json;

use crate::stats::Stats;

/// How often progress is told at most: more is of no use to whoever watches.
const STEPS: usize = 100;

/// Counts each line for the caller that takes chunks, and all of them for everyone.
pub(crate) fn count(call: &Call, text: &str) -> Result<Stats, Failure> {
    let lines = || text.split_inclusive('\n');
    let of = lines().count();
    let mut total = Stats::default();
    for (line, done) in lines().zip(1..) {
        if call.is_cancelled() {
            return Err(Failure::cancelled());
        }
        // A line ends in its newline, so that the lines add up to the text.
        let stats = Stats::of(line);
        if call.takes_chunks() {
            call.chunk(&stats)?;
        }
        total += stats;
        if done * STEPS / of > (done - 1) * STEPS / of {
            call.progress(&json!({"done": done, "of": of}));
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use std::io::{self, BufRead, BufReader, Write};
    use std::thread;

    use serde_json::Value;

    use super::*;

    const MANIFEST: &[u8] = include_bytes!("../plugin.json");

    /// Calls `lines`, gives one credit back for each chunk, and returns what was answered.
    fn lines(text: &str, credit: u64) -> (Vec<Value>, Vec<Value>, Value) {
        let (input, mut requests) = io::pipe().unwrap();
        let (answers, output) = io::pipe().unwrap();
        let plugin = thread::spawn(move || crate::plugin().unwrap().serve_on(input, output));
        let digest = plugind_protocol::digest::commands(MANIFEST).unwrap();
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocol": "plugind/1", "name": "textstats", "version": "1.0.0", "commands_digest": digest}});
        let invoke = json!({"jsonrpc": "2.0", "id": 1, "method": "command/invoke", "params": {
            "command": "lines", "arguments": {"text": text}, "meta": {"invocation": "i1", "credit": credit}}});
        writeln!(requests, "{initialize}\n{invoke}").unwrap();
        let (mut chunks, mut progress) = (Vec::new(), Vec::new());
        for line in BufReader::new(answers).lines() {
            let frame: Value = serde_json::from_str(&line.unwrap()).unwrap();
            match (frame["method"].as_str(), frame["id"].as_u64()) {
                (Some("$/chunk"), _) => {
                    assert_eq!(frame["params"]["seq"], chunks.len());
                    chunks.push(frame["params"]["data"].clone());
                    let more = json!({"jsonrpc": "2.0", "method": "$/credit", "params": {"invocation": "i1", "n": 1}});
                    writeln!(requests, "{more}").unwrap();
                }
                (Some("$/progress"), _) => progress.push(frame["params"]["data"].clone()),
                (_, Some(1)) => {
                    drop(requests);
                    plugin.join().unwrap().unwrap();
                    return (chunks, progress, frame["result"].clone());
                }
                _ => assert!(frame["error"].is_null(), "{frame}"),
            }
        }
        panic!("no result");
    }

    fn sizes(lines: &[Value]) -> Vec<u64> {
        lines.iter().map(|line| line["bytes"].as_u64().unwrap()).collect()
    }

    #[test]
    fn each_line_is_a_chunk_and_they_add_up_to_the_result() {
        let text = "Grüße\r\n\n👩‍👩‍👧 end";
        let (chunks, progress, result) = lines(text, 1);
        assert_eq!(sizes(&chunks), [9, 1, 22]);
        assert_eq!(chunks[1], json!({"bytes": 1, "code_points": 1, "graphemes": 1, "words": 0, "lines": 1}));
        assert_eq!(progress.last(), Some(&json!({"done": 3, "of": 3})));
        assert_eq!(result, serde_json::to_value(Stats::of(text)).unwrap());
    }

    #[test]
    fn without_a_stream_only_the_totals_are_told() {
        let (chunks, _, result) = lines("a b\nc\n", 0);
        assert!(chunks.is_empty());
        assert_eq!(result, json!({"bytes": 6, "code_points": 6, "graphemes": 6, "words": 3, "lines": 2}));
    }

    #[test]
    fn no_text_has_no_lines() {
        let (chunks, progress, result) = lines("", 5);
        assert!(chunks.is_empty() && progress.is_empty());
        assert_eq!(result["bytes"], 0);
    }

    #[test]
    fn progress_of_many_lines_is_told_a_hundred_times() {
        let (chunks, progress, result) = lines(&"x\n".repeat(2500), 1000);
        assert_eq!((chunks.len(), progress.len()), (2500, STEPS));
        assert_eq!(progress[0], json!({"done": 25, "of": 2500}));
        assert_eq!(result["lines"], 2500);
    }
}
