//! The supervisor's end of a channel, played by a test.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::client::Channel;

/// How long anything may take before a test fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Peer {
    input: Lines<BufReader<OwnedReadHalf>>,
    output: OwnedWriteHalf,
}

/// A channel and the other end of its socket.
pub(super) fn channel(frame_max: usize) -> (Channel, Peer) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Channel::from_stream(ours, frame_max).unwrap(), Peer::over(theirs))
}

impl Peer {
    pub(super) fn over(stream: UnixStream) -> Peer {
        stream.set_nonblocking(true).unwrap();
        let (input, output) = tokio::net::UnixStream::from_std(stream).unwrap().into_split();
        Peer { input: BufReader::new(input).lines(), output }
    }

    /// The next frame of the channel; `None` at its end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        let line = timeout(PATIENCE, self.input.next_line()).await.expect("no frame came");
        line.unwrap().map(|line| serde_json::from_str(&line).unwrap())
    }

    /// The next frame, which is a request; its id.
    pub(super) async fn request(&mut self) -> Value {
        let frame = self.next().await.expect("the channel ended");
        assert_eq!(frame["method"], "command/invoke", "{frame}");
        frame["id"].clone()
    }

    /// The next frame, which is a notification of that method; its params.
    pub(super) async fn notification(&mut self, method: &str) -> Value {
        let frame = self.next().await.expect("the channel ended");
        assert_eq!(frame["method"], method, "{frame}");
        frame["params"].clone()
    }

    pub(super) async fn send(&mut self, frame: &Value) {
        self.send_raw(format!("{frame}\n").as_bytes()).await;
    }

    pub(super) async fn send_raw(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.output.write_all(bytes)).await.expect("nobody reads").unwrap();
    }

    pub(super) async fn answer(&mut self, id: &Value, result: impl Into<Value>) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result.into()})).await;
    }

    pub(super) async fn chunk(&mut self, id: &Value, seq: u64, data: impl Into<Value>) {
        let params = json!({"invocation": id, "seq": seq, "data": data.into()});
        self.send(&json!({"jsonrpc": "2.0", "method": "$/chunk", "params": params})).await;
    }

    pub(super) async fn progress(&mut self, id: &Value, data: impl Into<Value>) {
        let params = json!({"invocation": id, "data": data.into()});
        self.send(&json!({"jsonrpc": "2.0", "method": "$/progress", "params": params})).await;
    }
}
