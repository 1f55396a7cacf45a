//! `org.plugind1.Manager`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use plugind_protocol::{BundleDigest, Error, Kind, Permission};
use zbus::message::Header;
use zbus::object_server::SignalEmitter;
use zbus::wire::OwnedFd;
use zbus::{Connection, OwnedVariant};

use super::caller::{Authorised, Callers};
use super::error::BusError;
use crate::channel::Channels;
use crate::doctor;
use crate::plugin::Command;
use crate::supervisor::{Request, Supervisor};

/// `Logs` answers with at most this many lines.
const LOG_LINES_MAX: u32 = 1000;

/// The Manager object.
pub(crate) struct Manager {
    pub(super) supervisor: Arc<Supervisor>,
    pub(super) callers: Arc<Callers>,
    pub(super) channels: Channels,
}

/// The options of a method, `a{sv}`; unknown ones are refused, never overlooked.
struct Options(HashMap<String, OwnedVariant>);

impl Options {
    fn take<T: TryFrom<OwnedVariant>>(&mut self, name: &str) -> Result<Option<T>, Error> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        T::try_from(value).map(Some).map_err(|_| {
            Error::new(
                Kind::InvalidArguments,
                format!("the option {name:?} has another type"),
                "see the interface: busctl --user introspect org.plugind1 /org/plugind1",
            )
        })
    }

    fn done(self) -> Result<(), Error> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(Error::new(
                Kind::InvalidArguments,
                format!("there is no option {name:?}"),
                "client and daemon may be of different versions: restart plugind after an upgrade",
            )),
        }
    }
}

fn permissions(texts: &[String]) -> Result<BTreeSet<Permission>, Error> {
    texts
        .iter()
        .map(|text| {
            text.parse().map_err(|cause: plugind_protocol::permission::PermissionError| {
                Error::new(
                    Kind::InvalidArguments,
                    cause.to_string(),
                    "see what a plugin asks for: pluginctl permissions",
                )
            })
        })
        .collect()
}

impl Manager {
    async fn authorise(
        &self,
        connection: &Connection,
        header: &Header<'_>,
        action: &str,
    ) -> Result<Authorised, BusError> {
        let authorised = self.callers.authorise(connection, header).await?;
        tracing::debug!(caller = %authorised.caller.who, action, "authorised");
        Ok(authorised)
    }

    async fn ask(
        &self,
        plugin: &str,
        command: impl FnOnce(crate::plugin::Reply<()>) -> Command,
    ) -> Result<(), BusError> {
        Ok(self.supervisor.find(plugin)?.ask(command).await?)
    }
}

/// Installs, controls and calls plugins.
#[zbus::interface(name = "org.plugind1.Manager")]
impl Manager {
    /// Installs a bundle from a tar stream. Options: `expect_digest` (s). Nothing is granted, and it stays disabled.
    #[zbus(out_args("name", "digest"))]
    async fn install(
        &self,
        bundle: OwnedFd,
        options: HashMap<String, OwnedVariant>,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(String, String), BusError> {
        self.authorise(connection, &header, "install").await?;
        let mut options = Options(options);
        let expected = options.take::<String>("expect_digest")?;
        options.done()?;
        let expected = expected.map(|text| text.parse::<BundleDigest>()).transpose().map_err(|cause| {
            Error::new(Kind::InvalidArguments, cause.to_string(), "see the digest: pluginctl verify DIR")
        })?;
        let (name, digest) = self.supervisor.install(bundle.into(), expected).await?;
        Ok((name, digest.to_string()))
    }

    /// Stops and removes a plugin. Options: `keep_data` (b).
    async fn remove(
        &self,
        name: String,
        options: HashMap<String, OwnedVariant>,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), BusError> {
        self.authorise(connection, &header, "remove").await?;
        let mut options = Options(options);
        let keep_data = options.take::<bool>("keep_data")?.unwrap_or(false);
        options.done()?;
        Ok(self.supervisor.remove(&name, keep_data).await?)
    }

    /// Lets the plugin run: at the next call, or by `Start`.
    async fn enable(
        &self,
        name: String,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), BusError> {
        self.authorise(connection, &header, "enable").await?;
        self.ask(&name, |reply| Command::Enable(true, reply)).await
    }

    /// Stops the plugin and lets it run no more.
    async fn disable(
        &self,
        name: String,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), BusError> {
        self.authorise(connection, &header, "disable").await?;
        self.ask(&name, |reply| Command::Enable(false, reply)).await
    }

    /// Starts the plugin; returns when its handshake is done.
    async fn start(
        &self,
        name: String,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), BusError> {
        self.authorise(connection, &header, "start").await?;
        self.ask(&name, Command::Start).await
    }

    /// Stops the plugin; returns when its cgroup is empty.
    async fn stop(
        &self,
        name: String,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), BusError> {
        self.authorise(connection, &header, "stop").await?;
        self.ask(&name, Command::Stop).await
    }

    /// `Stop`, then `Start`.
    async fn restart(
        &self,
        name: String,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), BusError> {
        self.authorise(connection, &header, "restart").await?;
        self.ask(&name, Command::Stop).await?;
        self.ask(&name, Command::Start).await
    }

    /// Sends a signal to the plugin's own process.
    async fn kill(
        &self,
        name: String,
        signal: i32,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), BusError> {
        self.authorise(connection, &header, "kill").await?;
        if !(1..=64).contains(&signal) {
            return Err(Error::new(
                Kind::InvalidArguments,
                format!("{signal} is not a signal"),
                "see kill -l",
            )
            .into());
        }
        self.ask(&name, |reply| Command::Kill(signal, reply)).await
    }

    /// Calls a command with JSON arguments. Options: `timeout_ms` (t), `dry_run` (b).
    #[zbus(out_args("result"))]
    async fn call(
        &self,
        plugin: String,
        command: String,
        arguments: String,
        options: HashMap<String, OwnedVariant>,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<String, BusError> {
        let mut authorised = self.authorise(connection, &header, "call").await?;
        let caller = authorised.caller.clone();
        let mut options = Options(options);
        let timeout = options.take::<u64>("timeout_ms")?.map(Duration::from_millis);
        let dry_run = options.take::<bool>("dry_run")?.unwrap_or(false);
        options.done()?;
        let request = Request { plugin, command, arguments, caller, timeout, dry_run };
        let result = tokio::select! {
            result = self.supervisor.call(request) => result?,
            () = authorised.gone() => {
                return Err(Error::new(Kind::Cancelled, "the caller has left the bus", "call again").into());
            }
        };
        Ok(Box::<str>::from(result).into())
    }

    /// Opens a channel to up to 64 plugins: a connected stream socket that speaks plugind-protocol's frames, for many
    /// calls, streams and speed. `frame_max` is the longest line either way, in bytes. No options yet.
    #[zbus(out_args("channel", "frame_max"))]
    async fn open_channel(
        &self,
        plugins: Vec<String>,
        options: HashMap<String, OwnedVariant>,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(OwnedFd, u32), BusError> {
        let authorised = self.authorise(connection, &header, "call").await?;
        Options(options).done()?;
        let (socket, frame_max) = self.channels.open(&self.supervisor, &plugins, &authorised.caller)?;
        Ok((socket.into(), u32::try_from(frame_max).unwrap_or(u32::MAX)))
    }

    /// The manifest and the digests, as JSON.
    #[zbus(out_args("description"))]
    async fn describe(
        &self,
        name: String,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<String, BusError> {
        self.authorise(connection, &header, "describe").await?;
        let plugin = self.supervisor.find(&name)?;
        let contract = plugin.contract()?;
        let raw = self.supervisor.surroundings.store.manifest(&contract.digest, &contract.manifest_sha256)?;
        let manifest: serde_json::Value =
            serde_json::from_slice(&raw).map_err(|cause| Error::internal(cause.to_string()))?;
        Ok(serde_json::json!({
            "manifest": manifest,
            "digest": contract.digest.to_string(),
            "commands_digest": contract.manifest.commands_digest,
        })
        .to_string())
    }

    /// Hashes the stored bundle again.
    #[zbus(out_args("digest"))]
    async fn verify(
        &self,
        name: String,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<String, BusError> {
        self.authorise(connection, &header, "verify").await?;
        let digest = self.supervisor.find(&name)?.contract()?.digest;
        let store = self.supervisor.surroundings.store.clone();
        tokio::task::spawn_blocking(move || store.verify(&digest))
            .await
            .map_err(|cause| Error::internal(cause.to_string()))??;
        Ok(digest.to_string())
    }

    /// Grants permissions to the installed bundle; a running plugin is stopped, to start with them.
    async fn grant(
        &self,
        name: String,
        permissions: Vec<String>,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), BusError> {
        let caller = self.authorise(connection, &header, "grant").await?.caller.who;
        let set = self::permissions(&permissions)?;
        self.ask(&name, |reply| Command::Grant(set, reply)).await?;
        tracing::info!(PLUGIND_PLUGIN = name, %caller, "granted to {name}: {}", permissions.join(" "));
        Ok(())
    }

    /// Takes permissions back; a running plugin is stopped, to start without them.
    async fn revoke(
        &self,
        name: String,
        permissions: Vec<String>,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), BusError> {
        let caller = self.authorise(connection, &header, "revoke").await?.caller.who;
        let set = self::permissions(&permissions)?;
        self.ask(&name, |reply| Command::Revoke(set, reply)).await?;
        tracing::info!(PLUGIND_PLUGIN = name, %caller, "revoked from {name}: {}", permissions.join(" "));
        Ok(())
    }

    /// The newest lines of the plugin's stderr, oldest first; 1000 at most.
    #[zbus(out_args("lines"))]
    async fn logs(
        &self,
        name: String,
        lines: u32,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<Vec<String>, BusError> {
        self.authorise(connection, &header, "logs").await?;
        Ok(self.supervisor.find(&name)?.log.tail(lines.min(LOG_LINES_MAX) as usize))
    }

    /// The names of all plugins.
    #[zbus(out_args("names"))]
    async fn list(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<Vec<String>, BusError> {
        self.authorise(connection, &header, "list").await?;
        Ok(self.supervisor.names())
    }

    /// Runs a canary plugin through every step; a JSON list of `{"step","ok","detail","fix"}`.
    #[zbus(out_args("report"))]
    async fn doctor(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<String, BusError> {
        self.authorise(connection, &header, "doctor").await?;
        let report = doctor::run(&self.supervisor.surroundings).await;
        Ok(serde_json::to_string(&report).map_err(|cause| Error::internal(cause.to_string()))?)
    }

    /// The version of the supervisor.
    #[zbus(property(emits_changed_signal = "const"))]
    #[expect(clippy::unused_self, reason = "a property is a method")]
    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// What is done about a limit that the kernel does not enforce: `required` or `best-effort`.
    #[zbus(property(emits_changed_signal = "const"))]
    fn enforcement(&self) -> String {
        self.supervisor.surroundings.settings.enforcement.to_string()
    }

    /// A plugin was `installed` or `removed`, or its state changed (then the reason is the new state).
    #[zbus(signal)]
    pub(super) async fn plugin_changed(
        emitter: &SignalEmitter<'_>,
        name: &str,
        reason: &str,
    ) -> zbus::Result<()>;
}
