//! One plugin: an actor owns its record, its state and its running instance; everybody else sends it commands.

mod actor;
mod attestation;
mod preparation;
mod session;
mod snapshot;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plugind_protocol::{Error, Kind, Permission};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};

use crate::contract::Contract;
use crate::registry::{BrokenRecord, Record, Registry};
use crate::relay::PluginLog;

pub(crate) use preparation::Surroundings;
pub(crate) use session::Session;
pub(crate) use snapshot::Snapshot;

/// The protocol's name and version on the wire.
pub(crate) const PROTOCOL: &str = "plugind/1";

/// Commands that wait for the actor; more are `Busy`.
const MAILBOX: usize = 256;

/// One call of a command.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) command: String,
    pub(crate) arguments: Box<RawValue>,
    pub(crate) invocation: String,
    pub(crate) caller: String,
    pub(crate) timeout: Duration,
    pub(crate) dry_run: bool,
}

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What can be asked of a plugin's actor.
pub(crate) enum Command {
    Call(Call, Reply<Box<RawValue>>),
    Start(Reply<()>),
    Stop(Reply<()>),
    Kill(i32, Reply<()>),
    Enable(bool, Reply<()>),
    Grant(BTreeSet<Permission>, Reply<()>),
    Revoke(BTreeSet<Permission>, Reply<()>),
    /// Stops the plugin and removes its record; the actor ends.
    Remove(Reply<()>),
}

/// How others reach a plugin.
pub(crate) struct Plugin {
    pub(crate) snapshot: watch::Receiver<Snapshot>,
    pub(crate) log: Arc<PluginLog>,
    pub(crate) calls: Counters,
    body: Body,
}

enum Body {
    Whole {
        contract: Arc<Contract>,
        commands: mpsc::Sender<Command>,
    },
    /// Its record or its bundle cannot be used.
    Broken(Error),
}

/// Calls since the supervisor started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) calls: AtomicU64,
    pub(crate) errors: AtomicU64,
}

impl Plugin {
    /// Starts the actor of a plugin.
    pub(crate) fn new(
        surroundings: Surroundings,
        registry: Registry,
        record: Record,
        contract: Contract,
    ) -> Plugin {
        let log = Arc::new(PluginLog::new(&record.name));
        let contract = Arc::new(contract);
        let (sender, snapshot) = watch::channel(Snapshot::of(&record, &contract));
        let (commands, mailbox) = mpsc::channel(MAILBOX);
        let actor = actor::Actor::new(
            surroundings,
            registry,
            record,
            Arc::clone(&contract),
            Arc::clone(&log),
            sender,
        );
        tokio::spawn(actor.run(mailbox));
        Plugin { snapshot, log, calls: Counters::default(), body: Body::Whole { contract, commands } }
    }

    /// A plugin that can only be looked at.
    pub(crate) fn broken(record: BrokenRecord) -> Plugin {
        let snapshot = Snapshot::broken(record.name, &record.error);
        Plugin {
            snapshot: watch::channel(snapshot).1,
            log: Arc::new(PluginLog::new("")),
            calls: Counters::default(),
            body: Body::Broken(record.error),
        }
    }

    /// What the plugin promised; an error for a broken one.
    pub(crate) fn contract(&self) -> Result<&Arc<Contract>, Error> {
        match &self.body {
            Body::Whole { contract, .. } => Ok(contract),
            Body::Broken(error) => Err(error.clone()),
        }
    }

    /// Sends a command to the actor and waits for its reply; every command has its own deadlines inside.
    pub(crate) async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Error> {
        let Body::Whole { commands, .. } = &self.body else {
            return Err(self.contract().err().unwrap_or_else(removed));
        };
        let (reply, answer) = oneshot::channel();
        commands.try_send(command(reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::new(
                Kind::Busy,
                format!("{MAILBOX} commands wait for this plugin already"),
                "try again when some have ended",
            ),
            mpsc::error::TrySendError::Closed(_) => removed(),
        })?;
        answer.await.map_err(|_| removed())?
    }

    /// Counts a call's outcome.
    pub(crate) fn count<T>(&self, outcome: &Result<T, Error>) {
        self.calls.calls.fetch_add(1, Ordering::Relaxed);
        if outcome.is_err() {
            self.calls.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn removed() -> Error {
    Error::new(
        Kind::NoSuchPlugin,
        "the plugin was removed meanwhile",
        "see what is installed: pluginctl list",
    )
}
