//! The plugin's actor: the only owner of its record, its state and its session.

use std::collections::BTreeSet;
use std::sync::Arc;

use plugind_protocol::launch::ExitStatus;
use plugind_protocol::{Error, Kind, Permission};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::preparation::{Surroundings, check_root};
use super::session::Session;
use super::snapshot::{Snapshot, State, now};
use super::{Call, Command, Reply};
use crate::contract::Contract;
use crate::registry::{Record, Registry};
use crate::relay::PluginLog;

/// Calls that wait for a start; more are `Busy`.
const WAITING_MAX: usize = 1024;

pub(super) struct Actor {
    surroundings: Surroundings,
    registry: Registry,
    record: Record,
    contract: Arc<Contract>,
    log: Arc<PluginLog>,
    snapshot: watch::Sender<Snapshot>,
    phase: Phase,
    waiting: Vec<Waiter>,
}

enum Phase {
    Inactive,
    Starting(JoinHandle<Result<Session, Error>>),
    Active(Box<Session>),
    Stopping(JoinHandle<ExitStatus>),
    Failed,
}

/// Who waits for the phase to change.
enum Waiter {
    Call(Call, Reply<Box<RawValue>>),
    Start(Reply<()>),
    Stop(Reply<()>),
}

/// What happened by itself.
enum Event {
    Started(Result<Session, Error>),
    Stopped(ExitStatus),
    Ended(Error),
}

impl Actor {
    pub(super) fn new(
        surroundings: Surroundings,
        registry: Registry,
        record: Record,
        contract: Arc<Contract>,
        log: Arc<PluginLog>,
        snapshot: watch::Sender<Snapshot>,
    ) -> Actor {
        Actor {
            surroundings,
            registry,
            record,
            contract,
            log,
            snapshot,
            phase: Phase::Inactive,
            waiting: Vec::new(),
        }
    }

    /// Runs until the plugin is removed, or until nobody can send commands any more; then nothing of it runs.
    pub(super) async fn run(mut self, mut mailbox: mpsc::Receiver<Command>) {
        loop {
            tokio::select! {
                command = mailbox.recv() => match command {
                    Some(Command::Remove(reply)) => {
                        self.settle().await;
                        let removed = self.registry.remove(&self.record.name);
                        let done = removed.is_ok();
                        let _ = reply.send(removed);
                        if done {
                            return;
                        }
                    }
                    Some(command) => self.handle(command).await,
                    None => return self.settle().await,
                },
                event = next(&mut self.phase) => self.react(event),
            }
        }
    }

    async fn handle(&mut self, command: Command) {
        match command {
            Command::Call(call, reply) => self.call(call, reply),
            Command::Start(reply) => match self.may_run() {
                Err(error) => drop(reply.send(Err(error))),
                Ok(()) if matches!(self.phase, Phase::Active(_)) => drop(reply.send(Ok(()))),
                Ok(()) => self.wait(Waiter::Start(reply)),
            },
            Command::Stop(reply) => self.stop(reply),
            Command::Kill(signal, reply) => {
                let outcome = match &self.phase {
                    Phase::Active(session) => {
                        Session::signal(&self.surroundings.launcher, &session.instance, signal).await
                    }
                    _ => Err(Error::new(
                        Kind::Conflict,
                        format!("{} is not running", self.record.name),
                        format!("see its state: pluginctl status {}", self.record.name),
                    )),
                };
                let _ = reply.send(outcome);
            }
            Command::Enable(enabled, reply) => {
                let change = |record: &mut Record| record.enabled = enabled;
                let outcome = if enabled { self.save(change) } else { self.withhold(change) };
                if outcome.is_ok() && matches!(self.phase, Phase::Inactive | Phase::Failed) {
                    self.phase = Phase::Inactive;
                    self.rest(if enabled { State::Inactive } else { State::Disabled });
                }
                if enabled {
                    let _ = reply.send(outcome);
                } else {
                    self.stop(told(outcome, reply));
                }
            }
            Command::Grant(permissions, reply) => {
                let outcome = self.grant(permissions);
                self.apply_grants(outcome, reply);
            }
            Command::Revoke(permissions, reply) => {
                let outcome = self.withhold(|record| {
                    let mut granted = record.granted();
                    granted.retain(|have| {
                        !permissions.iter().any(|revoked| revoked.covers(have) || have.covers(revoked))
                    });
                    record.set_granted(granted);
                });
                self.apply_grants(outcome, reply);
            }
            Command::Remove(reply) => drop(reply.send(Err(Error::internal("removal went the wrong way")))),
        }
    }

    fn call(&mut self, call: Call, reply: Reply<Box<RawValue>>) {
        if let Err(error) = self.may_run() {
            let _ = reply.send(Err(error));
            return;
        }
        match &self.phase {
            Phase::Active(session) => spawn_call(session, call, reply),
            _ => self.wait(Waiter::Call(call, reply)),
        }
    }

    /// Queues somebody until the plugin runs, and starts it where nothing else is under way.
    fn wait(&mut self, waiter: Waiter) {
        if self.waiting.len() >= WAITING_MAX {
            let error = Error::new(
                Kind::Busy,
                format!("{WAITING_MAX} callers wait for {} to start already", self.record.name),
                "try again when it is running",
            );
            return waiter.fail(&error);
        }
        self.waiting.push(waiter);
        if matches!(self.phase, Phase::Inactive | Phase::Failed) {
            self.start();
        }
    }

    fn start(&mut self) {
        let (surroundings, record) = (self.surroundings.clone(), self.record.clone());
        let (contract, log) = (Arc::clone(&self.contract), Arc::clone(&self.log));
        self.phase = Phase::Starting(tokio::spawn(async move {
            Session::start(&surroundings, &record, &contract, log).await
        }));
        self.show(State::Activating, "start", |_| {});
    }

    fn stop(&mut self, reply: Reply<()>) {
        match std::mem::replace(&mut self.phase, Phase::Inactive) {
            Phase::Active(session) => {
                self.waiting.push(Waiter::Stop(reply));
                self.phase = Phase::Stopping(tokio::spawn(session.stop()));
                self.show(State::Deactivating, "stop", |_| {});
            }
            // A start cannot be cut off half-way without leaving something behind; it is short, and ended at once.
            phase @ (Phase::Starting(_) | Phase::Stopping(_)) => {
                self.phase = phase;
                self.waiting.push(Waiter::Stop(reply));
            }
            Phase::Inactive | Phase::Failed => {
                self.rest(if self.record.enabled { State::Inactive } else { State::Disabled });
                let _ = reply.send(Ok(()));
            }
        }
    }

    fn react(&mut self, event: Event) {
        match event {
            Event::Started(Ok(session)) => self.started(session),
            Event::Started(Err(error)) => {
                tracing::error!(PLUGIND_PLUGIN = self.record.name, hint = %error.hint, "{error}");
                self.phase = Phase::Failed;
                self.show(State::Failed, "failed", |snapshot| {
                    snapshot.clear();
                    snapshot.last_exit = error.to_string();
                });
                for waiter in std::mem::take(&mut self.waiting) {
                    match waiter {
                        Waiter::Stop(reply) => drop(reply.send(Ok(()))),
                        other => other.fail(&error),
                    }
                }
            }
            Event::Stopped(status) => {
                self.phase = Phase::Inactive;
                self.snapshot.send_modify(|snapshot| snapshot.last_exit = format!("stopped ({status})"));
                self.rest(if self.record.enabled { State::Inactive } else { State::Disabled });
                self.after_stop();
            }
            Event::Ended(error) => {
                tracing::warn!(PLUGIND_PLUGIN = self.record.name, "{error}");
                self.phase = Phase::Failed;
                self.show(State::Failed, "failed", |snapshot| {
                    snapshot.clear();
                    snapshot.last_exit.clone_from(&error.message);
                    snapshot.restarts += 1;
                });
                self.after_stop();
            }
        }
    }

    fn started(&mut self, session: Session) {
        let launched = session.launched.clone();
        let instance = session.instance.clone();
        self.phase = Phase::Active(Box::new(session));
        self.show(State::Active, "running", |snapshot| {
            snapshot.unit = launched.unit;
            snapshot.instance = instance;
            snapshot.main_pid = launched.pid;
            snapshot.cgroup = launched.cgroup;
            snapshot.limits = launched.limits;
            snapshot.layers = launched.layers;
        });
        let stop_wanted = self.waiting.iter().any(|waiter| matches!(waiter, Waiter::Stop(_)));
        let mut stops = Vec::new();
        for waiter in std::mem::take(&mut self.waiting) {
            match (waiter, &self.phase) {
                (Waiter::Stop(reply), _) => stops.push(reply),
                (waiter, _) if stop_wanted => waiter.fail(&Error::new(
                    Kind::Cancelled,
                    format!("{} was stopped while it started", self.record.name),
                    "call it again to start it",
                )),
                (Waiter::Call(call, reply), Phase::Active(session)) => spawn_call(session, call, reply),
                (Waiter::Start(reply), _) => drop(reply.send(Ok(()))),
                (waiter, _) => waiter.fail(&Error::internal("a started plugin has no session")),
            }
        }
        for reply in stops {
            self.stop(reply);
        }
    }

    /// Answers who waited for the stop, and starts again for who came meanwhile.
    fn after_stop(&mut self) {
        let (stops, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiter| matches!(waiter, Waiter::Stop(_)));
        for waiter in stops {
            if let Waiter::Stop(reply) = waiter {
                let _ = reply.send(Ok(()));
            }
        }
        match self.may_run() {
            Ok(()) => others.into_iter().for_each(|waiter| self.wait(waiter)),
            Err(error) => others.into_iter().for_each(|waiter| waiter.fail(&error)),
        }
    }

    fn may_run(&self) -> Result<(), Error> {
        if !self.record.enabled {
            return Err(Error::new(
                Kind::Disabled,
                format!("{} is installed and not enabled", self.record.name),
                format!(
                    "review it with `pluginctl permissions {0}`, then `pluginctl enable {0}`",
                    self.record.name
                ),
            ));
        }
        if self.contract.manifest.is_declarative() {
            return Err(Error::new(
                Kind::Conflict,
                format!("{} only declares contributions and has no program", self.record.name),
                "there is nothing to start",
            ));
        }
        Ok(())
    }

    fn grant(&mut self, permissions: BTreeSet<Permission>) -> Result<(), Error> {
        let requested = self.contract.manifest.requested();
        for permission in &permissions {
            if !requested.iter().any(|asked| asked.covers(permission)) {
                return Err(Error::new(
                    Kind::InvalidArguments,
                    format!("{} does not ask for {permission}", self.record.name),
                    format!("see what it asks for: pluginctl permissions {}", self.record.name),
                ));
            }
            match permission {
                Permission::Mount { root, access } => {
                    let write = *access == plugind_protocol::permission::Access::Write;
                    check_root(&self.surroundings.settings, root, write)?;
                }
                Permission::Network(_) | Permission::Host(_) => {
                    return Err(Error::new(
                        Kind::Unavailable,
                        format!(
                            "{permission} cannot be granted: this plugind has no service that provides it"
                        ),
                        "the plugin runs without it",
                    ));
                }
                Permission::NetworkHost | Permission::Secret(_) | Permission::Env(_) => {}
            }
        }
        self.save(|record| {
            let mut granted = record.granted();
            granted.extend(permissions);
            record.set_granted(granted);
        })
    }

    /// A sandbox cannot change while its plugin runs: it is stopped, and the next call starts it with the new grants.
    fn apply_grants(&mut self, outcome: Result<(), Error>, reply: Reply<()>) {
        let granted: Vec<_> = self.record.granted().into_iter().collect();
        let changed = self.snapshot.borrow().granted != granted;
        self.snapshot.send_modify(|snapshot| snapshot.granted = granted);
        if changed { self.stop(told(outcome, reply)) } else { drop(reply.send(outcome)) }
    }

    /// Takes something away, here in any case: a disk that is full, which may be the plugin's doing, must not keep it.
    fn withhold(&mut self, change: impl Fn(&mut Record)) -> Result<(), Error> {
        self.save(&change).map_err(|mut error| {
            change(&mut self.record);
            let enabled = self.record.enabled;
            self.snapshot.send_modify(|snapshot| snapshot.enabled = enabled);
            error.message =
                format!("it is taken away until plugind ends, and could not be saved: {}", error.message);
            error
        })
    }

    /// Changes the record on disk first, then here.
    fn save(&mut self, change: impl FnOnce(&mut Record)) -> Result<(), Error> {
        let mut record = self.record.clone();
        change(&mut record);
        if record != self.record {
            self.registry.save(&record)?;
            self.record = record;
        }
        let enabled = self.record.enabled;
        self.snapshot.send_modify(|snapshot| snapshot.enabled = enabled);
        Ok(())
    }

    /// Waits until nothing of the plugin runs.
    async fn settle(&mut self) {
        if let Phase::Starting(_) = self.phase {
            let event = next(&mut self.phase).await;
            self.react(event);
        }
        match std::mem::replace(&mut self.phase, Phase::Inactive) {
            Phase::Active(session) => drop(session.stop().await),
            Phase::Stopping(task) => drop(task.await),
            Phase::Inactive | Phase::Failed | Phase::Starting(_) => {}
        }
        self.rest(State::Inactive);
        let gone = Error::new(
            Kind::Cancelled,
            format!("{} was stopped", self.record.name),
            "call it again to start it",
        );
        for waiter in std::mem::take(&mut self.waiting) {
            match waiter {
                Waiter::Stop(reply) => drop(reply.send(Ok(()))),
                other => other.fail(&gone),
            }
        }
    }

    fn rest(&self, state: State) {
        self.show(state, "dead", Snapshot::clear);
    }

    fn show(&self, state: State, sub_state: &'static str, change: impl FnOnce(&mut Snapshot)) {
        self.snapshot.send_modify(|snapshot| {
            if snapshot.state != state {
                snapshot.state_changed = now();
            }
            snapshot.state = state;
            snapshot.sub_state = sub_state;
            change(snapshot);
        });
    }
}

/// A reply that gives this outcome once what it waits for is done.
fn told(outcome: Result<(), Error>, reply: Reply<()>) -> Reply<()> {
    let Err(error) = outcome else { return reply };
    let (sender, done) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let _ = done.await;
        let _ = reply.send(Err(error));
    });
    sender
}

impl Waiter {
    fn fail(self, error: &Error) {
        match self {
            Waiter::Call(_, reply) => drop(reply.send(Err(error.clone()))),
            Waiter::Start(reply) | Waiter::Stop(reply) => drop(reply.send(Err(error.clone()))),
        }
    }
}

/// The call goes on beside the actor, and is cancelled when its caller goes away.
fn spawn_call(session: &Session, call: Call, mut reply: Reply<Box<RawValue>>) {
    let link = Arc::clone(&session.link);
    tokio::spawn(async move {
        let outcome = tokio::select! {
            outcome = Session::invoke(&link, &call) => outcome,
            () = reply.closed() => return,
        };
        let _ = reply.send(outcome);
    });
}

/// The next thing that happens by itself.
async fn next(phase: &mut Phase) -> Event {
    match phase {
        Phase::Starting(task) => Event::Started(
            task.await
                .unwrap_or_else(|cause| Err(Error::internal(format!("the start was cut off: {cause}")))),
        ),
        Phase::Active(session) => Event::Ended(session.ended().await),
        Phase::Stopping(task) => Event::Stopped(task.await.unwrap_or(ExitStatus::Unknown)),
        Phase::Inactive | Phase::Failed => std::future::pending().await,
    }
}
