//! The plugin's main loop: one thread reads, and every invocation has a thread of its own.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::process;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::commands::{self, Answer, Invocation};
use crate::mode::{self, Mode};
use crate::own::Own;
use crate::wire::Wire;

/// What the loop and the commands share.
#[derive(Debug)]
pub struct Shared {
    /// The way out.
    pub wire: Wire,
    cancelled: Mutex<Vec<Value>>,
    cancel_arrived: Condvar,
    replies: Mutex<HashMap<String, Sender<Value>>>,
}

impl Shared {
    /// The parameters of every `$/cancel` so far.
    #[must_use]
    pub fn cancels(&self) -> Vec<Value> {
        lock(&self.cancelled).clone()
    }

    /// Waits for the `$/cancel` of an invocation, at most for `limit`.
    #[must_use]
    pub fn wait_for_cancel(&self, invocation: &str, limit: Duration) -> Option<Value> {
        let find = |all: &[Value]| all.iter().find(|cancel| cancel["invocation"] == invocation).cloned();
        let guard = lock(&self.cancelled);
        let (guard, _) = self
            .cancel_arrived
            .wait_timeout_while(guard, limit, |all| find(all).is_none())
            .unwrap_or_else(PoisonError::into_inner);
        find(&guard)
    }

    /// Sends a request to the host; its answer arrives on the receiver.
    #[must_use]
    pub fn request(&self, id: &Value, method: &str, params: &Value) -> Receiver<Value> {
        let (sender, receiver) = mpsc::channel();
        lock(&self.replies).insert(id.to_string(), sender);
        self.wire.frame(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        receiver
    }

    fn note_cancel(&self, params: Value) {
        lock(&self.cancelled).push(params);
        self.cancel_arrived.notify_all();
    }

    fn note_reply(&self, reply: Value) {
        if let Some(sender) = lock(&self.replies).remove(&reply["id"].to_string()) {
            // The command may have given up waiting.
            let _ = sender.send(reply);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads `plugin.json` and `mode` and serves until EOF or `shutdown`.
pub fn run() -> Result<(), String> {
    let own = Own::read()?;
    let mode = Mode::read()?;
    let wire = Wire::new(mode == Mode::Crlf);
    let shared = Arc::new(Shared {
        wire,
        cancelled: Mutex::default(),
        cancel_arrived: Condvar::new(),
        replies: Mutex::default(),
    });
    mode.before_reading(wire);
    for line in io::stdin().lock().split(b'\n') {
        let line = line.map_err(|cause| format!("stdin: {cause}"))?;
        let frame = serde_json::from_slice(&line).map_err(|cause| format!("stdin: {cause}"))?;
        handle(mode, &own, &shared, frame);
    }
    if mode == Mode::Stubborn {
        mode::wait_for_ever();
    }
    Ok(())
}

fn handle(mode: Mode, own: &Own, shared: &Arc<Shared>, mut frame: Value) {
    let id = frame["id"].take();
    let params = frame["params"].take();
    match frame["method"].as_str() {
        _ if mode == Mode::Nothing => {}
        None => {
            frame["id"] = id;
            shared.note_reply(frame);
        }
        Some("initialize") => mode.initialize(shared.wire, &id, own),
        Some("command/invoke") => invoke(Invocation::new(shared, id, params)),
        Some("ping") => shared.wire.result(&id, &json!({})),
        Some("shutdown") if mode == Mode::Stubborn => {}
        Some("shutdown") => {
            shared.wire.result(&id, &json!({}));
            process::exit(0);
        }
        Some("$/cancel") => shared.note_cancel(params),
        Some(_) if id.is_null() => {}
        Some(other) => shared.wire.error(&id, -32601, &format!("no method `{other}`")),
    }
}

fn invoke(invocation: Invocation) {
    let wire = invocation.shared.wire;
    let id = invocation.id.clone();
    let work = move || match commands::run(&invocation) {
        Ok(Answer::Result(result)) => wire.result(&invocation.id, &result),
        Ok(Answer::Given) => {}
        Err(cause) => wire.error(&invocation.id, -32602, &cause),
    };
    if let Err(cause) = thread::Builder::new().spawn(work) {
        wire.error(&id, -32603, &format!("no thread: {cause}"));
    }
}
