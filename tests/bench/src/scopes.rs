//! Scopes of the user manager, started as the launcher starts them.

use futures_util::StreamExt as _;
use tokio::runtime::Runtime;
use zbus::proxy::CacheProperties;
use zbus::{Connection, OwnedObjectPath, Variant};

use crate::Error;

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
trait Systemd {
    fn subscribe(&self) -> zbus::Result<()>;
    fn start_transient_unit(
        &self,
        name: &str,
        mode: &str,
        properties: &[(&str, Variant<'_>)],
        aux: &[(&str, &[(&str, Variant<'_>)])],
    ) -> zbus::Result<OwnedObjectPath>;
    #[zbus(signal)]
    fn job_removed(&self, id: u32, job: OwnedObjectPath, unit: String, result: String) -> zbus::Result<()>;
}

/// A connection of its own: signals that nobody takes in hold up the answers behind them.
pub struct Scopes {
    runtime: Runtime,
    systemd: SystemdProxy<'static>,
    jobs: JobRemovedStream,
}

impl Scopes {
    /// Connects to the user manager.
    pub fn connect() -> Result<Scopes, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("cannot start an event loop"))?;
        let connected = runtime.block_on(async {
            let connection = Connection::session().await?;
            let systemd =
                SystemdProxy::builder(&connection).cache_properties(CacheProperties::No).build().await?;
            let jobs = systemd.receive_job_removed().await?;
            systemd.subscribe().await?;
            Ok((systemd, jobs))
        });
        let (systemd, jobs) = connected.map_err(Error::bus("cannot use the user manager"))?;
        Ok(Scopes { runtime, systemd, jobs })
    }

    /// Moves a process into a new scope, as the launcher does it; done when the job is.
    pub fn start(&mut self, unit: &str, pid: u32) -> Result<(), Error> {
        let properties: [(&str, Variant<'_>); 11] = [
            ("Description", Variant::from("the floor of a cold start")),
            ("Slice", Variant::from("plugind.slice")),
            ("PIDs", Variant::from([pid].as_slice())),
            ("CollectMode", Variant::from("inactive-or-failed")),
            ("MemoryMax", Variant::from(64_u64 << 20)),
            ("MemorySwapMax", Variant::from(0_u64)),
            ("CPUQuotaPerSecUSec", Variant::from(1_000_000_u64)),
            ("TasksMax", Variant::from(16_u64)),
            ("MemoryHigh", Variant::from(64_u64 << 20)),
            ("TimeoutStopUSec", Variant::from(5_000_000_u64)),
            ("SendSIGHUP", Variant::from(false)),
        ];
        let Scopes { runtime, systemd, jobs } = self;
        let done = runtime.block_on(async {
            let job = systemd.start_transient_unit(unit, "fail", &properties, &[]).await?;
            while let Some(signal) = jobs.next().await {
                let removed = signal.args()?;
                if removed.job == job {
                    return Ok(removed.result.clone());
                }
            }
            Ok("lost".to_owned())
        });
        match done.map_err(Error::bus("StartTransientUnit"))?.as_str() {
            "done" => Ok(()),
            other => Err(Error::Answer(format!("the job of {unit} ended with {other}"))),
        }
    }
}
