//! One plugin: an actor owns its record, its state and its running instance; everybody else sends it commands.

mod actor;
mod attestation;
mod call;
mod preparation;
mod session;
mod snapshot;

use std::collections::BTreeSet;
use std::sync::Arc;

use plugind_protocol::{Error, Kind, Permission};
use tokio::sync::{mpsc, oneshot, watch};

use crate::contract::Contract;
use crate::registry::{BrokenRecord, Record, Registry};
use crate::relay::{Bounds, Counters, PluginLog, Pool};

pub(crate) use call::{Request, call_once};
pub(crate) use preparation::Surroundings;
pub(crate) use session::Session;
pub(crate) use snapshot::{Instance, Snapshot};

/// The protocol's name and version on the wire.
pub(crate) const PROTOCOL: &str = "plugind/1";

/// Commands that wait for the actor; more are `Busy`.
const MAILBOX: usize = 256;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What can be asked of a plugin's actor.
pub(crate) enum Command {
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
    pub(crate) counters: Arc<Counters>,
    pool: Arc<Pool>,
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
        let counters = Arc::<Counters>::default();
        let pool = Pool::new(&record.name, bounds(&contract), Arc::clone(&counters));
        let (commands, mailbox) = mpsc::channel(MAILBOX);
        let (of_contract, of_pool, of_log) = (Arc::clone(&contract), Arc::clone(&pool), Arc::clone(&log));
        let actor = actor::Actor::new(surroundings, registry, record, of_contract, of_pool, of_log, sender);
        tokio::spawn(actor.run(mailbox));
        Plugin { snapshot, log, counters, pool, body: Body::Whole { contract, commands } }
    }

    /// A plugin that can only be looked at.
    pub(crate) fn broken(record: BrokenRecord) -> Plugin {
        let snapshot = Snapshot::broken(record.name, &record.error);
        let counters = Arc::<Counters>::default();
        Plugin {
            snapshot: watch::channel(snapshot).1,
            log: Arc::new(PluginLog::new("")),
            pool: Pool::new("", Bounds { frame_max: 0, in_flight: 0 }, Arc::clone(&counters)),
            counters,
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

    /// Calls that the plugin works on, and calls that wait for it.
    pub(crate) fn load(&self) -> (usize, usize) {
        self.pool.load()
    }

    /// Bytes of a frame, both ways; an error for a broken plugin.
    pub(crate) fn frame_max(&self) -> Result<usize, Error> {
        Ok(bounds(self.contract()?).frame_max)
    }
}

/// What the manifest bounds the relay to.
pub(crate) fn bounds(contract: &Contract) -> Bounds {
    let resources = &contract.manifest.resources;
    Bounds { frame_max: resources.frame_limit(), in_flight: resources.in_flight as usize }
}

fn removed() -> Error {
    Error::new(
        Kind::NoSuchPlugin,
        "the plugin was removed meanwhile",
        "see what is installed: pluginctl list",
    )
}
