//! The user manager over D-Bus: the real [`ServiceManager`].

use std::os::fd::BorrowedFd;
use std::time::Duration;

use futures_util::StreamExt as _;
use plugind_protocol::{Error, Kind};
use tokio::sync::broadcast;
use tokio::time::timeout;
use zbus::wire::Fd;
use zbus::{OwnedObjectPath, Variant};

use crate::scope::{JobRemoved as Job, ManagerError, Property, ScopeUnit, ServiceManager, Value};

const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// Finished jobs of the whole user manager pass through this queue; a start that lags sees its own deadline.
const JOB_QUEUE: usize = 1024;

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
trait Manager {
    fn subscribe(&self) -> zbus::Result<()>;
    fn start_transient_unit(
        &self,
        name: &str,
        mode: &str,
        properties: &[(&str, Variant<'_>)],
        aux: &[(&str, &[(&str, Variant<'_>)])],
    ) -> zbus::Result<OwnedObjectPath>;
    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn reset_failed_unit(&self, name: &str) -> zbus::Result<()>;
    fn list_units_by_patterns(
        &self,
        states: &[&str],
        patterns: &[&str],
    ) -> zbus::Result<
        Vec<(String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath)>,
    >;
    #[zbus(signal)]
    fn job_removed(&self, id: u32, job: OwnedObjectPath, unit: String, result: String) -> zbus::Result<()>;
}

#[zbus::proxy(interface = "org.freedesktop.systemd1.Scope", default_service = "org.freedesktop.systemd1")]
trait Scope {
    #[zbus(property(emits_changed_signal = "false"))]
    fn control_group(&self) -> zbus::Result<String>;
}

/// A connection to the user manager.
pub(crate) struct Systemd {
    manager: ManagerProxy<'static>,
    jobs: broadcast::Sender<Job>,
}

impl Systemd {
    /// Connects to the session bus and subscribes to the user manager's jobs.
    pub(crate) async fn connect() -> Result<Systemd, Error> {
        plugind_config::directories::runtime()?;
        let connect = async {
            let connection = zbus::Connection::session().await?;
            let manager = ManagerProxy::builder(&connection)
                .cache_properties(zbus::proxy::CacheProperties::No)
                .build()
                .await?;
            let removed = manager.receive_job_removed().await?;
            manager.subscribe().await?;
            Ok::<_, zbus::Error>((manager, removed))
        };
        let (manager, mut removed) = timeout(CONNECT_DEADLINE, connect)
            .await
            .map_err(|_| unreachable("it did not answer within 5 s"))?
            .map_err(|cause| unreachable(&cause.to_string()))?;
        let jobs = broadcast::channel(JOB_QUEUE).0;
        let sender = jobs.clone();
        tokio::spawn(async move {
            while let Some(signal) = removed.next().await {
                if let Ok(removed) = signal.args() {
                    // Nobody waits for most jobs: an error only says so.
                    let _ = sender.send(Job { job: removed.job.to_string(), result: removed.result.clone() });
                }
            }
        });
        Ok(Systemd { manager, jobs })
    }

    /// Resolves when the bus is gone.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let connection = self.manager.inner().connection().clone();
        async move { connection.closed().await }
    }
}

impl ServiceManager for Systemd {
    fn jobs(&self) -> broadcast::Receiver<Job> {
        self.jobs.subscribe()
    }

    async fn start_transient_unit(
        &self,
        unit: &str,
        properties: &[Property],
        pidfd: BorrowedFd<'_>,
    ) -> Result<String, ManagerError> {
        let properties: Vec<(&str, Variant<'_>)> =
            properties.iter().map(|property| (property.name, variant(&property.value, pidfd))).collect();
        self.manager
            .start_transient_unit(unit, "fail", &properties, &[])
            .await
            .map(|job| job.to_string())
            .map_err(manager_error)
    }

    async fn stop_unit(&self, unit: &str) -> Result<(), ManagerError> {
        self.manager.stop_unit(unit, "replace").await.map(drop).map_err(manager_error)
    }

    async fn scopes(&self) -> Result<Vec<ScopeUnit>, ManagerError> {
        let units =
            self.manager.list_units_by_patterns(&[], &["plugind-*.scope"]).await.map_err(manager_error)?;
        let mut scopes = Vec::new();
        for (name, description, _, _, _, _, path, ..) in units {
            let scope = ScopeProxy::builder(self.manager.inner().connection()).path(path).build().await;
            let cgroup = match scope {
                Ok(scope) => scope.control_group().await.unwrap_or_default(),
                Err(_) => continue,
            };
            scopes.push(ScopeUnit { name, description, cgroup });
        }
        Ok(scopes)
    }

    async fn reset_failed_unit(&self, unit: &str) -> Result<(), ManagerError> {
        self.manager.reset_failed_unit(unit).await.map_err(manager_error)
    }
}

fn variant<'a>(value: &'a Value, pidfd: BorrowedFd<'a>) -> Variant<'a> {
    match value {
        Value::Text(text) => Variant::from(text.as_str()),
        Value::U64(number) => Variant::from(*number),
        Value::Bool(flag) => Variant::from(*flag),
        Value::Pids(pids) => Variant::from(pids.as_slice()),
        Value::PidFd => Variant::from(vec![Fd::Borrowed(pidfd)]),
    }
}

fn manager_error(error: zbus::Error) -> ManagerError {
    use zbus::fdo::Error as Standard;
    match error {
        zbus::Error::FDO(standard) => match *standard {
            Standard::PropertyReadOnly(text)
            | Standard::UnknownProperty(text)
            | Standard::InvalidArgs(text) => ManagerError::Property(text),
            other => ManagerError::Other(other.to_string()),
        },
        zbus::Error::MethodError(name, text, _) => match name.as_str() {
            "org.freedesktop.systemd1.UnitExists" => ManagerError::Exists,
            _ => ManagerError::Other(text.unwrap_or_else(|| name.to_string())),
        },
        other => ManagerError::Other(other.to_string()),
    }
}

fn unreachable(cause: &str) -> Error {
    Error::new(
        Kind::Unavailable,
        format!("cannot reach the systemd user manager: {cause}"),
        "check `systemctl --user status`; without a login session, `loginctl enable-linger` starts one at boot",
    )
}
