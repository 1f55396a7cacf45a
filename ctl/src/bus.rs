//! The supervisor as it is reached over D-Bus: on the session bus, or over a private connection.

mod fault;

use std::collections::HashMap;
use std::env;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::time::Duration;

use plugind_protocol::name::{self, Name};
use plugind_protocol::{Error, Kind};
use plugind_sdk::client::Channel;
use zbus::fdo::{ObjectManagerProxy, PropertiesProxy};
use zbus::proxy::CacheProperties;
use zbus::{Connection, Fd, OwnedVariant, Variant, connection};

use crate::model::{Described, Plugin, Step};

use fault::from_zbus;

const SERVICE: &str = "org.plugind1";
const ROOT: &str = "/org/plugind1";
const PLUGIN_INTERFACE: &str = "org.plugind1.Plugin";

/// How long reaching the bus itself may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

type Options<'a> = HashMap<&'a str, Variant<'a>>;

#[zbus::proxy(
    interface = "org.plugind1.Manager",
    default_service = "org.plugind1",
    default_path = "/org/plugind1"
)]
trait Manager {
    async fn install(&self, bundle: Fd<'_>, options: &Options<'_>) -> zbus::Result<(String, String)>;
    async fn remove(&self, name: &str, options: &Options<'_>) -> zbus::Result<()>;
    async fn enable(&self, name: &str) -> zbus::Result<()>;
    async fn disable(&self, name: &str) -> zbus::Result<()>;
    async fn start(&self, name: &str) -> zbus::Result<()>;
    async fn stop(&self, name: &str) -> zbus::Result<()>;
    async fn restart(&self, name: &str) -> zbus::Result<()>;
    async fn kill(&self, name: &str, signal: i32) -> zbus::Result<()>;
    async fn call(
        &self,
        plugin: &str,
        command: &str,
        arguments: &str,
        options: &Options<'_>,
    ) -> zbus::Result<String>;
    async fn describe(&self, name: &str) -> zbus::Result<String>;
    async fn verify(&self, name: &str) -> zbus::Result<String>;
    async fn grant(&self, name: &str, permissions: &[String]) -> zbus::Result<()>;
    async fn revoke(&self, name: &str, permissions: &[String]) -> zbus::Result<()>;
    async fn logs(&self, name: &str, lines: u32) -> zbus::Result<Vec<String>>;
    async fn doctor(&self) -> zbus::Result<String>;
}

/// What is done to a plugin by its name alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    Enable,
    Disable,
    Start,
    Stop,
    Restart,
    Kill(i32),
    Remove { keep_data: bool },
}

/// How a command is called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallOptions {
    /// What the plugin is given to answer; the command's own time without it.
    pub(crate) timeout: Option<Duration>,
    pub(crate) dry_run: bool,
    /// How long to wait for the supervisor's answer.
    pub(crate) deadline: Duration,
}

/// The supervisor, with a deadline on every request.
#[derive(Debug)]
pub(crate) struct Client {
    connection: Connection,
    manager: ManagerProxy<'static>,
    deadline: Duration,
}

impl Client {
    /// The supervisor on the session bus, which starts it on the first request.
    pub(crate) async fn session(deadline: Duration) -> Result<Client, Error> {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connection::Builder::session().build()).await;
        let connection = match connected {
            Ok(Ok(connection)) => connection,
            Ok(Err(cause)) => return Err(no_session_bus(&cause.to_string())),
            Err(_) => return Err(no_session_bus("it does not answer within 5 s")),
        };
        Client::over(connection, deadline).await
    }

    /// The supervisor at the other end of this connection.
    pub(crate) async fn over(connection: Connection, deadline: Duration) -> Result<Client, Error> {
        let manager = ManagerProxy::builder(&connection).cache_properties(CacheProperties::No).build().await;
        Ok(Client { manager: manager.map_err(from_zbus)?, connection, deadline })
    }

    /// Closes the connection, which a private supervisor takes as its end.
    pub(crate) async fn close(self) {
        // It may be closed from the other side already.
        let _ = self.connection.close().await;
    }

    /// Installs the bundle of this digest that the descriptor yields as a tar stream; gives its name.
    pub(crate) async fn install(&self, bundle: OwnedFd, digest: &str) -> Result<String, Error> {
        let options = Options::from([("expect_digest", digest.into())]);
        let (name, _) = self.ask("installing", self.manager.install(Fd::from(bundle), &options)).await?;
        Ok(name)
    }

    /// Does something to a plugin.
    pub(crate) async fn lifecycle(&self, name: &str, what: Lifecycle) -> Result<(), Error> {
        check_name(name)?;
        let to = &self.manager;
        match what {
            Lifecycle::Enable => self.ask("enabling", to.enable(name)).await,
            Lifecycle::Disable => self.ask("disabling", to.disable(name)).await,
            Lifecycle::Start => self.ask("starting", to.start(name)).await,
            Lifecycle::Stop => self.ask("stopping", to.stop(name)).await,
            Lifecycle::Restart => self.ask("restarting", to.restart(name)).await,
            Lifecycle::Kill(signal) => self.ask("sending a signal", to.kill(name, signal)).await,
            Lifecycle::Remove { keep_data } => {
                let options = Options::from([("keep_data", keep_data.into())]);
                self.ask("removing", to.remove(name, &options)).await
            }
        }
    }

    /// Calls a command; arguments and result are JSON text.
    pub(crate) async fn call(
        &self,
        plugin: &str,
        command: &str,
        arguments: &str,
        how: CallOptions,
    ) -> Result<String, Error> {
        check_name(plugin)?;
        let mut options = Options::from([("dry_run", how.dry_run.into())]);
        if let Some(timeout) = how.timeout {
            options.insert("timeout_ms", u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).into());
        }
        within(how.deadline, "calling the command", self.manager.call(plugin, command, arguments, &options))
            .await
    }

    /// A channel of one's own to these plugins.
    pub(crate) async fn channel(&self, plugins: &[&str]) -> Result<Channel, Error> {
        plugins.iter().try_for_each(|plugin| check_name(plugin))?;
        in_time(self.deadline, "opening a channel", Channel::open_on(&self.connection, plugins)).await
    }

    /// The supervisor's description of a plugin, as JSON text.
    pub(crate) async fn describe_raw(&self, name: &str) -> Result<String, Error> {
        check_name(name)?;
        self.ask("describing", self.manager.describe(name)).await
    }

    /// The supervisor's description of a plugin.
    pub(crate) async fn describe(&self, name: &str) -> Result<Described, Error> {
        let text = self.describe_raw(name).await?;
        serde_json::from_str(&text)
            .map_err(|cause| other_version(&format!("its description of {name}: {cause}")))
    }

    /// Has the store's copy hashed again; gives the digest.
    pub(crate) async fn verify(&self, name: &str) -> Result<String, Error> {
        check_name(name)?;
        self.ask("verifying", self.manager.verify(name)).await
    }

    /// Grants permissions.
    pub(crate) async fn grant(&self, name: &str, permissions: &[String]) -> Result<(), Error> {
        check_name(name)?;
        self.ask("granting", self.manager.grant(name, permissions)).await
    }

    /// Takes permissions back.
    pub(crate) async fn revoke(&self, name: &str, permissions: &[String]) -> Result<(), Error> {
        check_name(name)?;
        self.ask("revoking", self.manager.revoke(name, permissions)).await
    }

    /// The last lines of a plugin's log.
    pub(crate) async fn logs(&self, name: &str, lines: u32) -> Result<Vec<String>, Error> {
        check_name(name)?;
        self.ask("reading the log", self.manager.logs(name, lines)).await
    }

    /// Runs the canary through every step.
    pub(crate) async fn doctor(&self) -> Result<Vec<Step>, Error> {
        let text = self.ask("running the canary", self.manager.doctor()).await?;
        serde_json::from_str(&text).map_err(|cause| other_version(&format!("its report: {cause}")))
    }

    /// One plugin's properties.
    pub(crate) async fn plugin(&self, name: &str) -> Result<Plugin, Error> {
        check_name(name)?;
        let asked = async {
            let properties = PropertiesProxy::builder(&self.connection)
                .destination(SERVICE)
                .path(format!("{ROOT}/plugin/{}", name::dbus_label(name)))
                .cache_properties(CacheProperties::No)
                .build()
                .await?;
            let interface = zbus::names::InterfaceName::try_from(PLUGIN_INTERFACE)?;
            properties.get_all(interface).await.map_err(zbus::Error::from)
        };
        match within_raw(self.deadline, "reading its state", asked).await? {
            Ok(found) => Ok(Plugin::from_properties(found)),
            Err(cause) if fault::is_no_object(&cause) => Err(no_such_plugin(name)),
            Err(cause) => Err(from_zbus(cause)),
        }
    }

    /// All plugins, in the order of their names.
    pub(crate) async fn plugins(&self) -> Result<Vec<Plugin>, Error> {
        let asked = async {
            let manager = ObjectManagerProxy::builder(&self.connection)
                .destination(SERVICE)
                .path(ROOT)
                .cache_properties(CacheProperties::No)
                .build()
                .await?;
            manager.get_managed_objects().await.map_err(zbus::Error::from)
        };
        let objects = self.ask("listing plugins", asked).await?;
        let mut plugins: Vec<Plugin> = objects
            .into_values()
            .filter_map(|interfaces| {
                let found =
                    interfaces.into_iter().find(|(interface, _)| interface.as_str() == PLUGIN_INTERFACE);
                found.map(|(_, properties): (_, HashMap<String, OwnedVariant>)| {
                    Plugin::from_properties(properties)
                })
            })
            .collect();
        plugins.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(plugins)
    }

    async fn ask<T>(&self, doing: &str, answer: impl Future<Output = zbus::Result<T>>) -> Result<T, Error> {
        within(self.deadline, doing, answer).await
    }
}

/// The answer, or an error that says what took too long.
async fn within<T>(
    deadline: Duration,
    doing: &str,
    answer: impl Future<Output = zbus::Result<T>>,
) -> Result<T, Error> {
    within_raw(deadline, doing, answer).await?.map_err(from_zbus)
}

async fn within_raw<T>(
    deadline: Duration,
    doing: &str,
    answer: impl Future<Output = zbus::Result<T>>,
) -> Result<zbus::Result<T>, Error> {
    in_time(deadline, doing, async { Ok(answer.await) }).await
}

/// The outcome, or an error that says what took too long.
pub(crate) async fn in_time<T>(
    deadline: Duration,
    doing: &str,
    outcome: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(deadline, outcome).await.unwrap_or_else(|_| {
        Err(Error::new(
            Kind::TimedOut,
            format!("no answer from plugind within {} while {doing}", crate::human::span(deadline)),
            "see what it does with `systemctl --user status plugind`, or give it more time with --timeout",
        )
        .outcome_unknown())
    })
}

/// A name that can be no plugin's has no object path either.
fn check_name(name: &str) -> Result<(), Error> {
    Name::Plugin.check(name).map_err(|cause| {
        Error::new(Kind::NoSuchPlugin, cause.to_string(), "`pluginctl list` shows what is installed")
    })
}

fn no_such_plugin(name: &str) -> Error {
    Error::new(
        Kind::NoSuchPlugin,
        format!("no plugin `{name}` is installed"),
        "`pluginctl list` shows what is installed; `pluginctl install` installs",
    )
}

fn other_version(what: &str) -> Error {
    Error::new(
        Kind::Unavailable,
        format!("plugind answered what this pluginctl does not understand, {what}"),
        "they are of different versions: systemctl --user restart plugind",
    )
}

/// Why there is no session bus: the environment tells a missing login session from a bus that is down.
fn no_session_bus(cause: &str) -> Error {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    if !set("DBUS_SESSION_BUS_ADDRESS") && !set("XDG_RUNTIME_DIR") {
        return Error::new(
            Kind::Unavailable,
            format!("there is no session bus: XDG_RUNTIME_DIR is not set ({cause})"),
            "log in as the user (ssh, a console, `machinectl shell USER@`), or run `loginctl enable-linger USER` and set \
             XDG_RUNTIME_DIR=/run/user/$(id -u)",
        );
    }
    Error::new(
        Kind::Unavailable,
        format!("cannot reach the session bus: {cause}"),
        "start it with `systemctl --user start dbus.socket`, or mend DBUS_SESSION_BUS_ADDRESS",
    )
}
