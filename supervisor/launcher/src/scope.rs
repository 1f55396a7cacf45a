//! Putting a stub into its own transient scope, and making sure that it is there.
//!
//! The service manager is reached through [`ServiceManager`], so that these rules are tested against managers that
//! refuse properties, lose jobs or lie.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::Duration;

use plugind_protocol::launch::Limits;
use plugind_protocol::{Error, Kind};
use tokio::sync::broadcast;
use tokio::time::timeout;

/// How long a start job of ours may take: far above the 5 ms that it takes, below the start timeout of 15 s.
pub(crate) const JOB_DEADLINE: Duration = Duration::from_secs(5);

/// How long systemd waits between SIGTERM and SIGKILL when it stops a scope (DESIGN §9: stop 5+5 s).
const STOP_USEC: u64 = 5_000_000;

/// A unit property's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    U64(u64),
    Bool(bool),
    /// `PIDs`
    Pids(Vec<u32>),
    /// `PIDFDs`: the pidfd that is passed beside the properties.
    PidFd,
}

/// One unit property of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Property {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    /// Whether the scope may be started without it, on a manager that does not know it.
    pub(crate) optional: bool,
}

/// A finished job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobRemoved {
    pub(crate) job: String,
    pub(crate) result: String,
}

/// What the manager answered instead of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ManagerError {
    /// A property is unknown or refused; the text is the manager's.
    Property(String),
    /// A unit of that name is loaded already.
    Exists,
    /// Anything else; the text is the manager's.
    Other(String),
}

/// A scope that the manager has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScopeUnit {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) cgroup: String,
}

/// The few things that are asked of systemd.
pub(crate) trait ServiceManager: Send + Sync + 'static {
    /// Finished jobs from now on.
    fn jobs(&self) -> broadcast::Receiver<JobRemoved>;
    /// `StartTransientUnit(name, "fail", properties, [])`; the job's path.
    fn start_transient_unit(
        &self,
        unit: &str,
        properties: &[Property],
        pidfd: BorrowedFd<'_>,
    ) -> impl Future<Output = Result<String, ManagerError>> + Send;
    /// `StopUnit(name, "replace")`.
    fn stop_unit(&self, unit: &str) -> impl Future<Output = Result<(), ManagerError>> + Send;
    /// All `plugind-*.scope` units, failed ones included.
    fn scopes(&self) -> impl Future<Output = Result<Vec<ScopeUnit>, ManagerError>> + Send;
    /// `ResetFailedUnit(name)`.
    fn reset_failed_unit(&self, unit: &str) -> impl Future<Output = Result<(), ManagerError>> + Send;
}

/// Starts scopes, and remembers which optional properties this manager does not know.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    unknown: Mutex<BTreeSet<&'static str>>,
}

impl Scopes {
    /// Moves `pid` into a new scope named `unit`; done when *its* job is done.
    pub(crate) async fn start<M: ServiceManager>(
        &self,
        manager: &M,
        unit: &str,
        description: &str,
        pid: u32,
        pidfd: BorrowedFd<'_>,
        limits: &Limits,
    ) -> Result<(), Error> {
        let all = properties(description, pid, limits);
        let mut jobs = manager.jobs();
        let mut cleared = false;
        let job = loop {
            let properties = self.known(&all);
            match bounded(manager.start_transient_unit(unit, &properties, pidfd)).await? {
                Ok(job) => break job,
                Err(ManagerError::Property(text)) => self.give_up_one(&properties, &text)?,
                // A failed unit of our name can only be a leftover: instances are never named twice.
                Err(ManagerError::Exists) if !cleared => {
                    cleared = true;
                    let _ = bounded(manager.reset_failed_unit(unit)).await?;
                }
                Err(ManagerError::Exists) => {
                    return Err(Error::new(
                        Kind::Conflict,
                        format!("systemd already has a unit {unit}"),
                        format!("see what it is: systemctl --user status {unit}"),
                    ));
                }
                Err(ManagerError::Other(text)) => return Err(refused(unit, &text)),
            }
        };
        match wait(&mut jobs, &job).await?.as_str() {
            "done" => Ok(()),
            result => Err(Error::new(
                Kind::SandboxDenied,
                format!("systemd's job to start {unit} ended with \"{result}\""),
                format!("see journalctl --user -u {unit}"),
            )),
        }
    }

    /// The properties without those that this manager is known to refuse. `PIDs` stands in for `PIDFDs`.
    fn known(&self, all: &[Property]) -> Vec<Property> {
        let unknown = self.unknown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let by_fd = !unknown.contains("PIDFDs");
        all.iter()
            .filter(|property| !unknown.contains(property.name) && (property.name != "PIDs" || !by_fd))
            .cloned()
            .collect()
    }

    /// Remembers the optional property that the manager's text names.
    fn give_up_one(&self, sent: &[Property], text: &str) -> Result<(), Error> {
        let named = sent.iter().find(|property| names(text, property.name));
        match named {
            Some(property) if property.optional => {
                tracing::info!(property = property.name, "this systemd does not know the property: {text}");
                self.unknown.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(property.name);
                Ok(())
            }
            Some(property) => Err(Error::new(
                Kind::LimitsUnavailable,
                format!("systemd refuses {} for a scope: {text}", property.name),
                "this limit is not optional; plugind needs systemd 252 or later with a user manager",
            )),
            None => Err(refused("the scope", text)),
        }
    }
}

fn refused(unit: &str, text: &str) -> Error {
    Error::new(
        Kind::SandboxDenied,
        format!("systemd refused to start {unit}: {text}"),
        "check that the user manager is well: systemctl --user is-system-running",
    )
}

/// Whether an error text of systemd's is about that property: the name as a whole word.
fn names(text: &str, property: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == property)
}

fn properties(description: &str, pid: u32, limits: &Limits) -> Vec<Property> {
    let must = |name, value| Property { name, value, optional: false };
    let may = |name, value| Property { name, value, optional: true };
    vec![
        must("Description", Value::Text(description.to_owned())),
        must("Slice", Value::Text("plugind.slice".to_owned())),
        may("PIDFDs", Value::PidFd),
        must("PIDs", Value::Pids(vec![pid])),
        must("CollectMode", Value::Text("inactive-or-failed".to_owned())),
        must("MemoryMax", Value::U64(limits.memory_max)),
        must("MemorySwapMax", Value::U64(0)),
        must("CPUQuotaPerSecUSec", Value::U64(u64::from(limits.cpu_percent) * 10_000)),
        must("TasksMax", Value::U64(u64::from(limits.tasks_max))),
        may("MemoryHigh", Value::U64(limits.memory_max)),
        may("IOWeight", Value::U64(100)),
        may("OOMPolicy", Value::Text("kill".to_owned())),
        must("TimeoutStopUSec", Value::U64(STOP_USEC)),
        must("SendSIGHUP", Value::Bool(false)),
    ]
}

async fn wait(jobs: &mut broadcast::Receiver<JobRemoved>, job: &str) -> Result<String, Error> {
    let ours = async {
        loop {
            match jobs.recv().await {
                Ok(removed) if removed.job == job => return Some(removed.result),
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    };
    match timeout(JOB_DEADLINE, ours).await {
        Ok(Some(result)) => Ok(result),
        Ok(None) => Err(gone()),
        Err(_) => Err(Error::new(
            Kind::SandboxDenied,
            format!("systemd did not finish the scope's start job within {} s", JOB_DEADLINE.as_secs()),
            "check that the user manager is well: systemctl --user list-jobs",
        )),
    }
}

async fn bounded<T>(call: impl Future<Output = T>) -> Result<T, Error> {
    timeout(JOB_DEADLINE, call).await.map_err(|_| {
        Error::new(
            Kind::Unavailable,
            format!("the user manager did not answer within {} s", JOB_DEADLINE.as_secs()),
            "check that it is well: systemctl --user is-system-running",
        )
    })
}

fn gone() -> Error {
    Error::new(
        Kind::Unavailable,
        "the user manager's bus went away",
        "systemd starts plugind again once the bus is back",
    )
}

#[cfg(test)]
mod tests;
