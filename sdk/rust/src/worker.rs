//! The threads that run commands.

use std::any::Any;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use plugind_protocol::Id;

use crate::call::Call;
use crate::failure::{Failure, code};
use crate::pending::Pending;
use crate::writer::Outcome;

/// A command with its types taken off: arguments and result are JSON texts.
pub(crate) type Handler = Arc<dyn Fn(&Call, &str) -> Outcome + Send + Sync>;

/// One call on its way to a worker.
pub(crate) struct Job {
    pub(crate) id: Id,
    pub(crate) handler: Handler,
    pub(crate) arguments: String,
    pub(crate) call: Call,
}

/// Starts `count` threads. They end when the sender is gone and every job before was done.
pub(crate) fn start(count: usize, pending: &Arc<Pending>) -> io::Result<Sender<Job>> {
    let (sender, receiver) = mpsc::channel();
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..count {
        let (receiver, pending) = (Arc::clone(&receiver), Arc::clone(pending));
        thread::Builder::new().name("command".to_owned()).spawn(move || work(&receiver, &pending))?;
    }
    Ok(sender)
}

fn work(receiver: &Mutex<Receiver<Job>>, pending: &Pending) {
    // The lock is held while one thread waits, and given up before it runs what it got.
    let next = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok(job) = next() {
        let outcome = run(&job);
        job.call.writer.respond(&job.id, outcome);
        pending.done(&job.call.state);
    }
}

fn run(job: &Job) -> Outcome {
    if job.call.is_cancelled() {
        return Err(Failure::cancelled());
    }
    if job.call.deadline() <= Instant::now() {
        return Err(Failure::of(code::CANCELLED, "the deadline passed before the command began"));
    }
    // What a panicking command leaves half changed is its own state, and behind its own locks, which are poisoned.
    panic::catch_unwind(AssertUnwindSafe(|| (job.handler)(&job.call, &job.arguments)))
        .unwrap_or_else(|payload| Err(Failure::of(code::INTERNAL_ERROR, panic_message(payload.as_ref()))))
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("the command panicked: {}", text.unwrap_or("(no message)"))
}
