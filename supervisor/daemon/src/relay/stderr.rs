//! A plugin's stderr: always drained, and cut into lines of its log.

use std::sync::Arc;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tracing::Level;

use super::link::Wire;
use super::log::{LINE_MAX, PluginLog, Source};

/// Drains stderr until it is closed.
pub(super) async fn run(wire: Arc<Wire>, mut stderr: pipe::Receiver) {
    let mut line = Line::default();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = stderr.read(&mut buffer).await.unwrap_or(0);
        if length == 0 {
            break;
        }
        for part in buffer[..length].split_inclusive(|&byte| byte == b'\n') {
            line.push(part);
            if part.ends_with(b"\n") {
                line.end(&wire.log);
            }
        }
        // A plugin that writes without end must not starve the others of this thread.
        tokio::task::yield_now().await;
    }
    if !line.bytes.is_empty() {
        line.end(&wire.log);
    }
    wire.log_drained.send_replace(true);
}

#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    cut: bool,
}

impl Line {
    fn push(&mut self, part: &[u8]) {
        let part = part.strip_suffix(b"\n").unwrap_or(part);
        let room = LINE_MAX - self.bytes.len();
        self.cut |= part.len() > room;
        self.bytes.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn end(&mut self, log: &PluginLog) {
        log.add(
            Source::Stderr,
            Level::INFO,
            self.bytes.strip_suffix(b"\r").unwrap_or(&self.bytes),
            std::mem::take(&mut self.cut),
        );
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_endless_line_is_cut_and_the_next_one_is_whole() {
        let mut line = Line::default();
        for _ in 0..1000 {
            line.push(&[b'x'; 4096]);
        }
        assert!(line.bytes.capacity() <= 2 * LINE_MAX);
        let log = PluginLog::new("p");
        line.end(&log);
        line.push(b"next\n");
        line.end(&log);
        let lines = log.tail(9);
        assert!(lines[0].ends_with('…') && lines[1] == "next");
    }
}
