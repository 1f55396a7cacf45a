//! The plugin's actor: the only owner of its record, its state and its session.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use plugind_protocol::launch::ExitStatus;
use plugind_protocol::{Error, Kind, Permission};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::preparation::{Surroundings, check_root};
use super::session::Session;
use super::snapshot::{Instance, Snapshot, State, now};
use super::{Command, Reply, removed};
use crate::contract::Contract;
use crate::registry::{Record, Registry};
use crate::relay::{PluginLog, Pool};

pub(super) struct Actor {
    surroundings: Surroundings,
    registry: Registry,
    record: Record,
    contract: Arc<Contract>,
    pool: Arc<Pool>,
    log: Arc<PluginLog>,
    snapshot: watch::Sender<Snapshot>,
    phase: Phase,
    waiting: Vec<Waiter>,
}

enum Phase {
    Inactive,
    Starting(JoinHandle<Result<Vec<Session>, Error>>),
    Active(Running),
    Stopping(JoinHandle<ExitStatus>),
    Failed,
}

/// The instances of an active plugin; never none.
struct Running {
    sessions: Vec<Session>,
    /// One more that is being started in the place of one that ended.
    next: Option<Next>,
    /// Starts of such ones that failed, one after the other.
    failures: u32,
}

/// A start that may wait for a while first.
struct Next {
    started: JoinHandle<Result<Session, Error>>,
    /// `true`: it is to start now. Dropped: not at all, if it has not begun.
    hurry: oneshot::Sender<bool>,
}

/// The wait before an instance is started in the place of another: after a failure this, doubled by each further one up
/// to the second.
const REPLACE_AFTER: Duration = Duration::from_secs(1);
const REPLACE_AFTER_MOST: Duration = Duration::from_secs(30);

/// Who waits for the phase to change; calls wait in the pool.
enum Waiter {
    Start(Reply<()>),
    Stop(Reply<()>),
}

/// What happened by itself.
enum Event {
    Started(Result<Vec<Session>, Error>),
    Stopped(ExitStatus),
    /// One instance ended: its place, and why.
    Ended(usize, Error),
    Replaced(Result<Session, Error>),
}

impl Actor {
    pub(super) fn new(
        surroundings: Surroundings,
        registry: Registry,
        record: Record,
        contract: Arc<Contract>,
        pool: Arc<Pool>,
        log: Arc<PluginLog>,
        snapshot: watch::Sender<Snapshot>,
    ) -> Actor {
        let phase = Phase::Inactive;
        let waiting = Vec::new();
        let actor = Actor { surroundings, registry, record, contract, pool, log, snapshot, phase, waiting };
        actor.gate();
        actor
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
                            return self.pool.refuse(Some(super::removed()));
                        }
                    }
                    Some(command) => self.handle(command).await,
                    None => {
                        self.pool.refuse(Some(removed()));
                        return self.settle().await;
                    }
                },
                event = next(&mut self.phase) => self.react(event),
                () = self.pool.wanted() => self.serve_waiting(),
            }
        }
    }

    async fn handle(&mut self, command: Command) {
        match command {
            Command::Start(reply) => match self.may_run() {
                Err(error) => drop(reply.send(Err(error))),
                Ok(()) if matches!(self.phase, Phase::Active(_)) => drop(reply.send(Ok(()))),
                Ok(()) => self.wait(Waiter::Start(reply)),
            },
            Command::Stop(reply) => self.stop(reply),
            Command::Kill(signal, reply) => {
                let outcome = match &self.phase {
                    Phase::Active(running) => self.signal(running, signal).await,
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

    /// Sends a signal to the plugin's own processes.
    async fn signal(&self, running: &Running, signal: i32) -> Result<(), Error> {
        let mut outcome = Ok(());
        for session in &running.sessions {
            let sent = Session::signal(&self.surroundings.launcher, &session.instance, signal).await;
            outcome = outcome.and(sent);
        }
        outcome
    }

    /// Calls wait and nothing runs: starts it where nothing else is under way.
    fn serve_waiting(&mut self) {
        if matches!(self.phase, Phase::Inactive | Phase::Failed) && self.pool.has_waiting() {
            match self.may_run() {
                Ok(()) => self.start(),
                Err(error) => self.pool.fail_waiting(&error),
            }
        }
    }

    /// Queues somebody until the plugin runs, and starts it where nothing else is under way.
    fn wait(&mut self, waiter: Waiter) {
        self.waiting.push(waiter);
        if matches!(self.phase, Phase::Inactive | Phase::Failed) {
            self.start();
        }
    }

    /// Starts all instances at once; all of them run, or none.
    fn start(&mut self) {
        let starts = (0..self.contract.manifest.lifecycle.instances).map(|_| tokio::spawn(self.start_one()));
        let starts: Vec<_> = starts.collect();
        self.phase = Phase::Starting(tokio::spawn(async move {
            let (mut sessions, mut failure) = (Vec::new(), None);
            for start in starts {
                match joined(start.await) {
                    Ok(session) => sessions.push(session),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            let Some(error) = failure else { return Ok(sessions) };
            futures_util::future::join_all(sessions.into_iter().map(Session::stop)).await;
            Err(error)
        }));
        self.show(State::Activating, "start", |_| {});
    }

    fn start_one(&self) -> impl Future<Output = Result<Session, Error>> + Send + use<> {
        let (surroundings, record) = (self.surroundings.clone(), self.record.clone());
        let (contract, pool, log) =
            (Arc::clone(&self.contract), Arc::clone(&self.pool), Arc::clone(&self.log));
        async move { Session::start(&surroundings, &record, &contract, &pool, log).await }
    }

    fn stop(&mut self, reply: Reply<()>) {
        match std::mem::replace(&mut self.phase, Phase::Inactive) {
            Phase::Active(running) => {
                self.waiting.push(Waiter::Stop(reply));
                self.phase = Phase::Stopping(tokio::spawn(running.stop()));
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
            Event::Started(Ok(sessions)) => self.started(sessions),
            Event::Started(Err(error)) => {
                tracing::error!(PLUGIND_PLUGIN = self.record.name, hint = %error.hint, "{error}");
                self.phase = Phase::Failed;
                self.show(State::Failed, "failed", |snapshot| {
                    snapshot.clear();
                    snapshot.last_exit = error.to_string();
                });
                self.pool.fail_waiting(&error);
                for waiter in std::mem::take(&mut self.waiting) {
                    match waiter {
                        Waiter::Stop(reply) => drop(reply.send(Ok(()))),
                        Waiter::Start(_) => waiter.fail(&error),
                    }
                }
            }
            Event::Stopped(status) => {
                self.phase = Phase::Inactive;
                self.snapshot.send_modify(|snapshot| snapshot.last_exit = format!("stopped ({status})"));
                self.rest(if self.record.enabled { State::Inactive } else { State::Disabled });
                self.after_stop();
            }
            Event::Ended(at, error) => self.ended(at, &error),
            Event::Replaced(started) => {
                let Phase::Active(running) = &mut self.phase else { return };
                running.next = None;
                match started {
                    Ok(session) => {
                        session.link.open();
                        running.sessions.push(session);
                        running.failures = 0;
                        self.show_instances();
                    }
                    // The others go on, and another start comes later.
                    Err(error) => {
                        tracing::error!(PLUGIND_PLUGIN = self.record.name, hint = %error.hint, "{error}");
                        running.failures += 1;
                    }
                }
                self.replace();
            }
        }
    }

    /// An instance ended by itself.
    fn ended(&mut self, at: usize, error: &Error) {
        tracing::warn!(PLUGIND_PLUGIN = self.record.name, "{error}");
        let Phase::Active(running) = &mut self.phase else { return };
        running.sessions.remove(at);
        if !running.sessions.is_empty() {
            self.snapshot.send_modify(|snapshot| {
                snapshot.last_exit.clone_from(&error.message);
                snapshot.restarts += 1;
            });
            self.show_instances();
            return self.replace();
        }
        let Phase::Active(running) = std::mem::replace(&mut self.phase, Phase::Failed) else { return };
        if let Some(next) = running.next {
            // It is the plugin's only instance now.
            let _ = next.hurry.send(true);
            self.phase = Phase::Starting(tokio::spawn(async move {
                joined(next.started.await).map(|session| vec![session])
            }));
            return self.show(State::Activating, "start", |snapshot| {
                snapshot.clear();
                snapshot.last_exit.clone_from(&error.message);
                snapshot.restarts += 1;
            });
        }
        self.show(State::Failed, "failed", |snapshot| {
            snapshot.clear();
            snapshot.last_exit.clone_from(&error.message);
            snapshot.restarts += 1;
        });
        self.after_stop();
    }

    /// Starts an instance where there are fewer than there should be.
    fn replace(&mut self) {
        let wanted = self.contract.manifest.lifecycle.instances as usize;
        let Phase::Active(Running { sessions, next, failures }) = &self.phase else { return };
        if next.is_some() || sessions.len() >= wanted {
            return;
        }
        let wait = match failures {
            0 => Duration::ZERO,
            count => (REPLACE_AFTER * 2_u32.pow((count - 1).min(5))).min(REPLACE_AFTER_MOST),
        };
        let (hurry, hurried) = oneshot::channel();
        let start = self.start_one();
        let started = tokio::spawn(async move {
            match timeout(wait, hurried).await {
                Ok(Err(_)) => Err(Error::new(Kind::Cancelled, "the plugin was stopped", "start it again")),
                // The time is over, or somebody is in a hurry.
                Err(_) | Ok(Ok(_)) => start.await,
            }
        });
        if let Phase::Active(running) = &mut self.phase {
            running.next = Some(Next { started, hurry });
        }
    }

    fn started(&mut self, sessions: Vec<Session>) {
        let Some(launched) = sessions.first().map(|session| session.launched.clone()) else { return };
        for session in &sessions {
            session.link.open();
        }
        self.phase = Phase::Active(Running { sessions, next: None, failures: 0 });
        self.show(State::Active, "running", |snapshot| {
            snapshot.limits = launched.limits;
            snapshot.layers = launched.layers;
        });
        self.show_instances();
        let (stops, starts): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiter| matches!(waiter, Waiter::Stop(_)));
        let stopped = Error::new(
            Kind::Cancelled,
            format!("{} was stopped while it started", self.record.name),
            "call it again to start it",
        );
        for waiter in starts {
            match waiter {
                waiter if !stops.is_empty() => waiter.fail(&stopped),
                Waiter::Start(reply) | Waiter::Stop(reply) => drop(reply.send(Ok(()))),
            }
        }
        for waiter in stops {
            if let Waiter::Stop(reply) = waiter {
                self.stop(reply);
            }
        }
        self.replace();
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
        self.serve_waiting();
    }

    /// Lets calls in as far as the plugin may run.
    fn gate(&self) {
        self.pool.refuse(self.may_run().err());
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
            self.gate();
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
            self.gate();
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
            Phase::Active(running) => drop(running.stop().await),
            Phase::Stopping(task) => drop(task.await),
            Phase::Inactive | Phase::Failed | Phase::Starting(_) => {}
        }
        self.rest(State::Inactive);
        let gone = Error::new(
            Kind::Cancelled,
            format!("{} was stopped", self.record.name),
            "call it again to start it",
        );
        self.pool.fail_waiting(&gone);
        for waiter in std::mem::take(&mut self.waiting) {
            match waiter {
                Waiter::Stop(reply) => drop(reply.send(Ok(()))),
                Waiter::Start(_) => waiter.fail(&gone),
            }
        }
    }

    fn show_instances(&self) {
        let Phase::Active(running) = &self.phase else { return };
        let instances: Vec<Instance> = running
            .sessions
            .iter()
            .map(|session| Instance {
                id: session.instance.clone(),
                unit: session.launched.unit.clone(),
                cgroup: session.launched.cgroup.clone(),
                main_pid: session.launched.pid,
            })
            .collect();
        self.snapshot.send_modify(|snapshot| snapshot.instances = instances);
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
    let (sender, done) = oneshot::channel();
    tokio::spawn(async move {
        let _ = done.await;
        let _ = reply.send(Err(error));
    });
    sender
}

impl Waiter {
    fn fail(self, error: &Error) {
        match self {
            Waiter::Start(reply) | Waiter::Stop(reply) => drop(reply.send(Err(error.clone()))),
        }
    }
}

impl Running {
    /// Stops all of them, at once; how the first ended.
    async fn stop(self) -> ExitStatus {
        let mut sessions = self.sessions;
        for session in &sessions {
            session.link.retire();
        }
        // A start cannot be cut off half-way without leaving something behind.
        if let Some(next) = self.next {
            drop(next.hurry);
            sessions.extend(joined(next.started.await));
        }
        let statuses = futures_util::future::join_all(sessions.into_iter().map(Session::stop)).await;
        statuses.first().copied().unwrap_or(ExitStatus::Unknown)
    }

    async fn event(&mut self) -> Event {
        let ends = self.sessions.iter_mut().map(|session| Box::pin(session.ended()));
        let next = async {
            match &mut self.next {
                Some(next) => joined((&mut next.started).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            (error, at, _) = futures_util::future::select_all(ends) => Event::Ended(at, error),
            started = next => Event::Replaced(started),
        }
    }
}

fn joined<T>(outcome: Result<Result<T, Error>, tokio::task::JoinError>) -> Result<T, Error> {
    outcome.unwrap_or_else(|cause| Err(Error::internal(format!("the start was cut off: {cause}"))))
}

/// The next thing that happens by itself.
async fn next(phase: &mut Phase) -> Event {
    match phase {
        Phase::Starting(task) => Event::Started(joined(task.await)),
        Phase::Active(running) => running.event().await,
        Phase::Stopping(task) => Event::Stopped(task.await.unwrap_or(ExitStatus::Unknown)),
        Phase::Inactive | Phase::Failed => std::future::pending().await,
    }
}
