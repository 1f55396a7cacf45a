//! The plugin of the bench: one thread, one write for all that one read brought, no work of its own.
//!
//! The same program stands behind plugind and behind the floor, so that what it costs is in both.

use std::borrow::Cow;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plugind_protocol::envelope::{RpcError, code, error_response, notification, response};
use plugind_protocol::frame::FRAME_MAX_CAP;
use plugind_protocol::{Decoder, Envelope, Id, digest};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Replies are written when this much of them has piled up, and whenever there is nothing more to read.
const BATCH: usize = 64 << 10;

/// What the floods write at a time.
const PIECE: usize = 64 << 10;

fn main() -> Outcome<()> {
    let folder = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("/plugin"), PathBuf::from);
    // Not `std::io::stdout`, which looks for line ends in all that passes.
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut plugin = Plugin {
        folder,
        output: File::from(io::stdout().as_fd().try_clone_to_owned()?),
        replies: Vec::with_capacity(BATCH),
        ends: false,
    };
    let mut decoder = Decoder::new(FRAME_MAX_CAP);
    while !plugin.ends {
        let length = input.read(decoder.space())?;
        if length == 0 {
            break;
        }
        decoder.filled(length);
        while let Some(frame) = decoder.frame() {
            plugin.answer(frame?)?;
        }
        plugin.flush()?;
    }
    Ok(())
}

struct Plugin {
    folder: PathBuf,
    output: File,
    replies: Vec<u8>,
    ends: bool,
}

/// What the plugin says of itself.
#[derive(Serialize)]
struct Own {
    protocol: &'static str,
    name: String,
    version: String,
    commands_digest: String,
}

#[derive(Deserialize)]
struct Identity {
    name: String,
    version: String,
}

#[derive(Deserialize)]
struct Invoke<'a> {
    #[serde(borrow)]
    command: Cow<'a, str>,
    #[serde(borrow)]
    arguments: &'a RawValue,
    #[serde(default)]
    meta: Meta,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(default)]
    invocation: String,
}

#[derive(Deserialize)]
struct Amount {
    #[serde(default)]
    bytes: usize,
    #[serde(default)]
    ms: u64,
}

impl Plugin {
    fn answer(&mut self, frame: &str) -> Outcome<()> {
        let message = Envelope::parse(frame)?;
        let (Some(method), Some(id)) = (message.method.as_deref(), &message.id) else { return Ok(()) };
        match method {
            "command/invoke" => {
                let invoke: Invoke = serde_json::from_str(message.params.map_or("{}", RawValue::get))?;
                self.invoke(id, &invoke)?;
            }
            "initialize" => response(&mut self.replies, id, &own(&self.folder)?)?,
            "ping" => response(&mut self.replies, id, &serde_json::Map::new())?,
            "shutdown" => {
                response(&mut self.replies, id, &serde_json::Map::new())?;
                self.ends = true;
            }
            _ => {
                let error = RpcError::new(code::METHOD_NOT_FOUND, "no such method");
                error_response(&mut self.replies, id, &error)?;
            }
        }
        if self.replies.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn invoke(&mut self, id: &Id, invoke: &Invoke) -> Outcome<()> {
        if invoke.command == "echo" {
            return Ok(response(&mut self.replies, id, invoke.arguments)?);
        }
        let amount: Amount = serde_json::from_str(invoke.arguments.get())?;
        // What was asked before is answered before the noise.
        self.flush()?;
        match &*invoke.command {
            "flood-stderr" => {
                let errors = File::from(io::stderr().as_fd().try_clone_to_owned()?);
                repeat(errors, b"a line of the log that nobody asked for, and more of it\n", amount.bytes)?;
            }
            "flood-progress" => {
                let mut line = Vec::new();
                let params = serde_json::json!({"invocation": invoke.meta.invocation, "data": "on its way"});
                notification(&mut line, "$/progress", &params)?;
                repeat(&self.output, &line, amount.bytes)?;
            }
            "flood-stdout-junk" => repeat(&self.output, b"this line is not a frame\n", amount.bytes)?,
            "endless-line" => {
                repeat(&self.output, b"x", amount.bytes)?;
                self.output.write_all(b"\n")?;
            }
            "big-reply" => {
                write!(self.output, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":\"")?;
                repeat(&self.output, b"x", amount.bytes)?;
                return Ok(self.output.write_all(b"\"}\n")?);
            }
            "spin" => spin(Duration::from_millis(amount.ms)),
            _ => {
                let error = RpcError::new(code::METHOD_NOT_FOUND, "no such command");
                return Ok(error_response(&mut self.replies, id, &error)?);
            }
        }
        Ok(response(&mut self.replies, id, &true)?)
    }

    fn flush(&mut self) -> Outcome<()> {
        self.output.write_all(&self.replies)?;
        self.replies.clear();
        // As the codec does it: what a rare large reply needed is not kept.
        self.replies.shrink_to(4 << 20);
        Ok(())
    }
}

fn own(folder: &Path) -> Outcome<Own> {
    let manifest = std::fs::read(folder.join("plugin.json"))?;
    let Identity { name, version } = serde_json::from_slice(&manifest)?;
    Ok(Own { protocol: "plugind/1", name, version, commands_digest: digest::commands(&manifest)? })
}

/// Writes at least so many bytes of repeated lines.
fn repeat(mut to: impl Write, line: &[u8], bytes: usize) -> io::Result<()> {
    let piece = line.repeat(PIECE / line.len());
    let mut written = 0;
    while written < bytes {
        to.write_all(&piece)?;
        written += piece.len();
    }
    Ok(())
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
