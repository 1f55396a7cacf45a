//! The plugin's main loop: one thread reads, and every invocation has a thread of its own.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

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
    heard: Mutex<Heard>,
    news: Condvar,
    replies: Mutex<HashMap<String, Sender<Value>>>,
    turns: AtomicU64,
}

/// What the commands that run wait to hear.
#[derive(Debug, Default)]
struct Heard {
    /// The parameters of every `$/cancel`.
    cancels: Vec<Value>,
    /// Chunks that each invocation may still send.
    credit: HashMap<String, u64>,
    released: HashSet<String>,
}

impl Heard {
    fn cancel_of(&self, invocation: &str) -> Option<&Value> {
        self.cancels.iter().find(|cancel| cancel["invocation"] == invocation)
    }
}

impl Shared {
    /// The parameters of every `$/cancel` so far.
    #[must_use]
    pub fn cancels(&self) -> Vec<Value> {
        lock(&self.heard).cancels.clone()
    }

    /// Waits for the `$/cancel` of an invocation, at most for `limit`.
    #[must_use]
    pub fn wait_for_cancel(&self, invocation: &str, limit: Duration) -> Option<Value> {
        self.wait(limit, |heard| heard.cancel_of(invocation).cloned())
    }

    /// Waits until somebody releases `key`; `false` if the invocation is cancelled before.
    #[must_use]
    pub fn wait_for_release(&self, key: &str, invocation: &str, limit: Duration) -> bool {
        let released = |heard: &mut Heard| {
            if heard.released.contains(key) { Some(true) } else { heard.cancel_of(invocation).map(|_| false) }
        };
        self.wait(limit, released).unwrap_or(false)
    }

    /// Lets whoever waits for `key` go on.
    pub fn release(&self, key: &str) {
        lock(&self.heard).released.insert(key.to_owned());
        self.news.notify_all();
    }

    /// Takes one credit of an invocation as soon as there is one; `false` if it is cancelled before.
    #[must_use]
    pub fn take_credit(&self, invocation: &str, limit: Duration) -> bool {
        let credit = |heard: &mut Heard| {
            if heard.cancel_of(invocation).is_some() {
                return Some(false);
            }
            let left = heard.credit.get_mut(invocation).filter(|left| **left > 0)?;
            *left -= 1;
            Some(true)
        };
        self.wait(limit, credit).unwrap_or(false)
    }

    /// The number of this turn, from 0 on.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    fn wait<T>(&self, limit: Duration, mut find: impl FnMut(&mut Heard) -> Option<T>) -> Option<T> {
        let end = Instant::now() + limit;
        let mut heard = lock(&self.heard);
        loop {
            let found = find(&mut heard);
            let left = end.saturating_duration_since(Instant::now());
            if found.is_some() || left.is_zero() {
                return found;
            }
            heard = self.news.wait_timeout(heard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
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
        lock(&self.heard).cancels.push(params);
        self.news.notify_all();
    }

    fn note_credit(&self, invocation: &Value, more: &Value) {
        let (Some(invocation), Some(more)) = (invocation.as_str(), more.as_u64()) else { return };
        *lock(&self.heard).credit.entry(invocation.to_owned()).or_default() += more;
        self.news.notify_all();
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
        heard: Mutex::default(),
        news: Condvar::new(),
        replies: Mutex::default(),
        turns: AtomicU64::new(0),
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
        Some("command/invoke") => {
            shared.note_credit(&params["meta"]["invocation"], &params["meta"]["credit"]);
            invoke(Invocation::new(shared, id, params));
        }
        Some("ping") => shared.wire.result(&id, &json!({})),
        Some("shutdown") if mode == Mode::Stubborn => {}
        Some("shutdown") => {
            shared.wire.result(&id, &json!({}));
            process::exit(0);
        }
        Some("$/cancel") => shared.note_cancel(params),
        Some("$/credit") => shared.note_credit(&params["invocation"], &params["n"]),
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
