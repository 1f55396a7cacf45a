//! The session bus: the supervisor, and the service that it is compared with.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use zbus::proxy::CacheProperties;
use zbus::wire::OwnedFd;
use zbus::{Connection, Variant};

use crate::Error;
use crate::client::Client;
use crate::sample::Samples;

/// The name of the service that does nothing.
pub const ECHO_SERVICE: &str = "org.plugind1.BenchEcho";
/// Both services have their object here.
pub const PATH: &str = "/org/plugind1";
const SUPERVISOR: &str = "org.plugind1";

/// Longer than any command of the bench may take.
const PATIENCE: Duration = Duration::from_secs(150);

type Options<'a> = HashMap<&'a str, Variant<'a>>;

#[zbus::proxy(interface = "org.plugind1.Manager", default_path = "/org/plugind1")]
trait Manager {
    async fn call(
        &self,
        plugin: &str,
        command: &str,
        arguments: &str,
        options: &Options<'_>,
    ) -> zbus::Result<String>;
    async fn start(&self, name: &str) -> zbus::Result<()>;
    async fn stop(&self, name: &str) -> zbus::Result<()>;
    async fn open_channel(&self, plugins: &[&str], options: &Options<'_>) -> zbus::Result<(OwnedFd, u32)>;
}

/// A connection, used by one thread that waits for each answer.
pub struct Bus {
    runtime: Runtime,
    supervisor: ManagerProxy<'static>,
    echo: ManagerProxy<'static>,
}

/// Who answers a `Call`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// plugind.
    Supervisor,
    /// The service that does nothing.
    Echo,
}

impl Bus {
    /// Connects to the session bus.
    pub fn connect() -> Result<Bus, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("cannot start an event loop"))?;
        let connected = runtime.block_on(async {
            let connection = zbus::connection::Builder::session().method_timeout(PATIENCE).build().await?;
            let supervisor = manager(&connection, SUPERVISOR).await?;
            let echo = manager(&connection, ECHO_SERVICE).await?;
            Ok((supervisor, echo))
        });
        let (supervisor, echo) = connected.map_err(Error::bus("cannot use the session bus"))?;
        Ok(Bus { runtime, supervisor, echo })
    }

    /// One `Call`.
    pub fn call(&self, to: Service, plugin: &str, command: &str, arguments: &str) -> Result<String, Error> {
        let proxy = match to {
            Service::Supervisor => &self.supervisor,
            Service::Echo => &self.echo,
        };
        let none = Options::new();
        let call = proxy.call(plugin, command, arguments, &none);
        self.runtime.block_on(call).map_err(Error::bus(format!("Call of {plugin}.{command}")))
    }

    /// So many calls of `echo`, one at a time.
    pub fn calls(&self, to: Service, plugin: &str, arguments: &str, calls: usize) -> Result<Samples, Error> {
        let mut samples = Samples::default();
        for _ in 0..calls {
            let start = Instant::now();
            let answer = self.call(to, plugin, "echo", arguments)?;
            samples.push(start.elapsed());
            if answer != arguments {
                return Err(Error::Answer(answer));
            }
        }
        Ok(samples)
    }

    /// `Start`.
    pub fn start(&self, plugin: &str) -> Result<(), Error> {
        self.runtime.block_on(self.supervisor.start(plugin)).map_err(Error::bus(format!("Start of {plugin}")))
    }

    /// `Stop`.
    pub fn stop(&self, plugin: &str) -> Result<(), Error> {
        self.runtime.block_on(self.supervisor.stop(plugin)).map_err(Error::bus(format!("Stop of {plugin}")))
    }

    /// A channel to these plugins.
    pub fn channel(&self, plugins: &[&str]) -> Result<Client, Error> {
        Client::new(self.channel_stream(plugins)?)
    }

    /// The same, as it comes.
    pub fn channel_stream(&self, plugins: &[&str]) -> Result<UnixStream, Error> {
        let none = Options::new();
        let open = self.supervisor.open_channel(plugins, &none);
        let (fd, _) = self.runtime.block_on(open).map_err(Error::bus("OpenChannel"))?;
        Ok(UnixStream::from(std::os::fd::OwnedFd::from(fd)))
    }
}

async fn manager(connection: &Connection, destination: &'static str) -> zbus::Result<ManagerProxy<'static>> {
    ManagerProxy::builder(connection)
        .destination(destination)
        .cache_properties(CacheProperties::No)
        .build()
        .await
}
