//! A channel by hand: every line that is sent or received is seen, and nothing is put right.

use std::io::{BufRead as _, BufReader, ErrorKind, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use plugind_protocol::{Error, Kind, RpcError};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde_json::{Value, json};

use crate::ctl::Outcome;
use crate::plugind::Plugind;

/// How long a line may take. No test waits for this to pass.
const PATIENCE: Duration = Duration::from_secs(30);

/// A channel of the test user's to plugins of a test's own plugind.
#[derive(Debug)]
pub struct Wire {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    /// The longest line that it carries.
    pub frame_max: usize,
}

/// Opens a channel by `raw-call`, which runs as the test user, with these arguments.
pub fn open(plugind: &Plugind, program: &str, arguments: &[&str]) -> (Outcome, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let mut command = plugind.command(program);
    command.arg("channel").args(arguments).stdin(OwnedFd::from(theirs));
    (Outcome::of(&mut command), ours)
}

impl Wire {
    /// Opens one to these plugins.
    pub fn open(plugind: &Plugind, program: &str, plugins: &[&str]) -> Wire {
        let (stream, frame_max) = Wire::socket(plugind, program, plugins);
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time");
        let lines = BufReader::new(stream.try_clone().expect("another descriptor"));
        Wire { stream, lines, frame_max }
    }

    /// The socket of one, for another client.
    pub fn socket(plugind: &Plugind, program: &str, plugins: &[&str]) -> (UnixStream, usize) {
        let (outcome, parent) = open(plugind, program, plugins);
        outcome.success();
        let stream = UnixStream::from(receive(&parent).expect("the channel"));
        (stream, outcome.stdout.trim().parse().expect("frame_max"))
    }

    /// Writes bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("it is read within the time");
    }

    /// Writes one line.
    pub fn send(&mut self, message: &Value) {
        self.raw(format!("{message}\n").as_bytes());
    }

    /// Asks for a call.
    pub fn invoke(&mut self, id: &Value, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "command/invoke", "params": params}));
    }

    /// Says something that has no answer.
    pub fn notify(&mut self, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Calls a command of the only plugin and waits for its answer, which must come next.
    #[track_caller]
    pub fn call(&mut self, id: &Value, command: &str, arguments: &Value) -> Result<Value, Error> {
        self.invoke(id, &json!({"command": command, "arguments": arguments}));
        self.answer(id)
    }

    /// The next line as it was written; `None` at the end.
    #[track_caller]
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.strip_suffix('\n').expect("a whole line").to_owned()),
            // What was on its way when the other side left.
            Err(cause) if cause.kind() == ErrorKind::ConnectionReset => None,
            Err(cause) => panic!("nothing came: {cause}"),
        }
    }

    /// Reads up to the end, which must come; what comes before may be cut off.
    #[track_caller]
    pub fn ended(&mut self) {
        let mut rest = Vec::new();
        match self.lines.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(cause) if cause.kind() == ErrorKind::ConnectionReset => {}
            Err(cause) => panic!("it does not end: {cause}"),
        }
    }

    /// The next message.
    #[track_caller]
    pub fn message(&mut self) -> Value {
        let line = self.line().expect("the channel goes on");
        let message: Value =
            serde_json::from_str(&line).unwrap_or_else(|cause| panic!("{cause}: {line:.200}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line:.200}");
        message
    }

    /// The next message, which must be the answer to this request.
    #[track_caller]
    pub fn answer(&mut self, id: &Value) -> Result<Value, Error> {
        let message = self.message();
        assert_eq!(&message["id"], id, "{message}");
        outcome(&message)
    }

    /// The next message, which must be an error with this id; its code, and the error in full.
    #[track_caller]
    pub fn refusal(&mut self, id: &Value) -> (i64, Error) {
        let message = self.message();
        assert_eq!((&message["id"], &message["result"]), (id, &Value::Null), "{message}");
        (message["error"]["code"].as_i64().expect("a code"), outcome(&message).expect_err("an error"))
    }

    /// The next message, which must be this notification; its params.
    #[track_caller]
    pub fn notice(&mut self, method: &str) -> Value {
        let mut message = self.message();
        assert_eq!(message["method"], method, "{message}");
        message["params"].take()
    }

    /// Asserts that it still works.
    #[track_caller]
    pub fn goes_on(&mut self) {
        self.send(&json!({"jsonrpc": "2.0", "id": "alive", "method": "ping", "params": {}}));
        assert_eq!(self.answer(&json!("alive")), Ok(json!({})));
    }

    /// Writes as much as there is room for at once; how much that was.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        self.stream.set_nonblocking(true).expect("a flag");
        let mut written = 0;
        while written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Ok(length) => written += length,
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => break,
                Err(cause) => panic!("it cannot be written to: {cause}"),
            }
        }
        self.stream.set_nonblocking(false).expect("a flag");
        written
    }

    /// A second hold on it, to write while this one reads.
    pub fn writer(&self) -> UnixStream {
        self.stream.try_clone().expect("another descriptor")
    }
}

/// What an answer says.
#[track_caller]
pub fn outcome(message: &Value) -> Result<Value, Error> {
    if message["error"].is_null() {
        assert!(message.get("result").is_some(), "{message}");
        return Ok(message["result"].clone());
    }
    let error: RpcError = serde_json::from_value(message["error"].clone()).expect("an error of JSON-RPC");
    let error = Error::from_rpc(&error);
    assert_eq!(message["error"]["message"], error.message.as_str(), "{message}");
    assert!(!error.hint.is_empty(), "no hint: {error}");
    Err(error)
}

/// Asserts that a call failed in this way; the error.
#[track_caller]
pub fn fails(outcome: Result<Value, Error>, kind: Kind) -> Error {
    let error = outcome.expect_err("an error");
    assert_eq!(error.kind, kind, "{error:?}");
    error
}

/// Sends a descriptor over the socket that is the standard input.
pub fn hand_over(channel: &impl AsFd) {
    let descriptors = [channel.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "room for one");
    sendmsg(std::io::stdin(), &[IoSlice::new(b"c")], &mut control, SendFlags::empty())
        .expect("a parent that waits for it");
}

fn receive(parent: &UnixStream) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(parent, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}
