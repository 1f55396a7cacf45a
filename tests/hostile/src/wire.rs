//! Frames by hand, well formed or not.

use std::io::{self, Write};
use std::process;

use serde_json::{Value, json};

/// The way out: this program's stdout.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    line_end: &'static str,
}

impl Wire {
    /// Frames end in `\n`, or in `\r\n`.
    #[must_use]
    pub fn new(crlf: bool) -> Wire {
        Wire { line_end: if crlf { "\r\n" } else { "\n" } }
    }

    /// Writes bytes as they are, in one piece. Whoever reads them being gone ends the program.
    pub fn raw(self, bytes: &[u8]) {
        let mut stdout = io::stdout().lock();
        if stdout.write_all(bytes).and_then(|()| stdout.flush()).is_err() {
            process::exit(3);
        }
    }

    /// Writes one frame.
    pub fn frame(self, frame: &Value) {
        self.raw(format!("{frame}{}", self.line_end).as_bytes());
    }

    /// Answers a request.
    pub fn result(self, id: &Value, result: &Value) {
        self.frame(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// Answers a request with an error.
    pub fn error(self, id: &Value, code: i64, message: &str) {
        self.frame(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}));
    }
}
