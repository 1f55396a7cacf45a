//! The other end of a channel: one thread that answers line by line.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use plugind_protocol::envelope::RpcError;
use plugind_protocol::{Error, Kind};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Answers until the caller is gone; `note` writes the journal.
pub(crate) fn serve(stream: UnixStream, note: impl Fn(&str)) {
    let writer = stream.try_clone().unwrap();
    let mut end = End { writer, calls: 0, streams: HashMap::new() };
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let message: Value = serde_json::from_str(&line).unwrap();
        let (id, params) = (message["id"].clone(), &message["params"]);
        match message["method"].as_str().unwrap() {
            "command/invoke" if params["command"] == "echo" => {
                note(&format!("invoke echo\nmeta {}", params["meta"]));
                end.echo(&id, &line);
            }
            "command/invoke" => {
                note(&format!("invoke {}", params["command"].as_str().unwrap()));
                end.invoke(id, params);
            }
            "$/credit" => end.credit(&params["invocation"], params["n"].as_u64().unwrap()),
            "$/cancel" => note("cancel"),
            other => panic!("no method {other}"),
        }
    }
    note("channel closed");
}

struct End {
    writer: UnixStream,
    calls: u64,
    streams: HashMap<String, Stream>,
}

/// A call of `lines`, which gives `of` chunks.
struct Stream {
    id: Value,
    next: u64,
    of: u64,
    credit: u64,
}

impl End {
    /// The arguments come back as they were written.
    fn echo(&mut self, id: &Value, line: &str) {
        let part = |json: &str, name: &str| {
            serde_json::from_str::<HashMap<String, Box<RawValue>>>(json).unwrap().remove(name).unwrap()
        };
        let arguments = part(part(line, "params").get(), "arguments");
        // The caller may be gone already.
        let _ = writeln!(self.writer, r#"{{"jsonrpc":"2.0","id":{id},"result":{arguments}}}"#);
    }

    fn invoke(&mut self, id: Value, params: &Value) {
        self.calls += 1;
        let credit = params["meta"]["credit"].as_u64().unwrap_or(0);
        match params["command"].as_str().unwrap() {
            "lines" => {
                let of = params["arguments"]["of"].as_u64().unwrap();
                self.streams.insert(id.to_string(), Stream { id: id.clone(), next: 0, of, credit: 0 });
                self.credit(&id, credit);
            }
            "flaky" if self.calls.is_multiple_of(2) => {
                self.fail(&id, &Error::new(Kind::Busy, "the queue is full", "wait"));
            }
            "flaky" => self.send(&json!({"jsonrpc": "2.0", "id": id, "result": null})),
            "hang" => {}
            _ => self.fail(&id, &Error::new(Kind::PluginError, "it failed", "see its log")),
        }
    }

    fn credit(&mut self, id: &Value, n: u64) {
        let Some(mut stream) = self.streams.remove(&id.to_string()) else { return };
        stream.credit += n;
        while stream.credit > 0 && stream.next < stream.of {
            let (id, seq) = (&stream.id, stream.next);
            stream.next += 1;
            stream.credit -= 1;
            let data = json!({"done": stream.next, "of": stream.of});
            self.send(&json!({"jsonrpc": "2.0", "method": "$/progress", "params": {"invocation": id, "data": data}}));
            let data = json!({"line": seq, "text": "\u{9b}2J"});
            let params = json!({"invocation": id, "seq": seq, "data": data});
            self.send(&json!({"jsonrpc": "2.0", "method": "$/chunk", "params": params}));
        }
        if stream.next == stream.of {
            self.send(&json!({"jsonrpc": "2.0", "id": stream.id, "result": {"lines": stream.of}}));
        } else {
            self.streams.insert(id.to_string(), stream);
        }
    }

    fn fail(&mut self, id: &Value, error: &Error) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "error": RpcError::from(error)}));
    }

    fn send(&mut self, message: &Value) {
        // The caller may be gone already.
        let _ = writeln!(self.writer, "{message}");
    }
}
