//! All plugins by name: installing, removing, finding them, and calling them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plugind_protocol::frame;
use plugind_protocol::manifest::Protocol;
use plugind_protocol::{BundleDigest, Error, Kind, Manifest};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::contract::Contract;
use crate::plugin::{self, Command, Plugin, Surroundings};
use crate::registry::{BrokenRecord, Record, Registry};

/// `doctor` runs its canary under such a name.
const RESERVED: &str = "plugind";

/// Bundles that are received at the same time; further ones are `Busy`.
const STREAMS_MAX: usize = 8;

/// The supervisor's state.
pub(crate) struct Supervisor {
    pub(crate) surroundings: Surroundings,
    registry: Registry,
    plugins: Mutex<BTreeMap<String, Arc<Plugin>>>,
    /// One install or removal at a time: both change which bundles of the store are in use.
    changing: tokio::sync::Mutex<()>,
    /// Bundles that are being received: each takes room in staging and a thread.
    streams: Arc<tokio::sync::Semaphore>,
    /// Counts installs and removals, for whoever lists plugins.
    pub(crate) changed: watch::Sender<u64>,
}

/// Who calls: known by its bus, never by its own words.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Who takes turns with others.
    pub(crate) key: u64,
    /// In words.
    pub(crate) who: Arc<str>,
    /// The same as a JSON text, for `meta.caller`.
    pub(crate) json: Arc<str>,
}

impl Caller {
    /// Somebody who was not seen before.
    pub(crate) fn new(who: String) -> Caller {
        static KEYS: AtomicU64 = AtomicU64::new(1);
        let json = serde_json::Value::from(who.as_str()).to_string().into();
        Caller { key: KEYS.fetch_add(1, Ordering::Relaxed), who: who.into(), json }
    }
}

/// A call as a caller makes it.
pub(crate) struct Request {
    pub(crate) plugin: String,
    pub(crate) command: String,
    pub(crate) arguments: String,
    pub(crate) caller: Caller,
    pub(crate) timeout: Option<Duration>,
    pub(crate) dry_run: bool,
}

impl Supervisor {
    /// Loads what is installed.
    pub(crate) fn load(surroundings: Surroundings) -> Result<Arc<Supervisor>, Error> {
        let registry = Registry::open(surroundings.directories.registry())?;
        let (records, broken) = registry.load()?;
        let mut plugins = BTreeMap::new();
        for record in records {
            let name = record.name.clone();
            let plugin = match contract(&surroundings, &record) {
                Ok(contract) => Plugin::new(surroundings.clone(), registry.clone(), record, contract),
                Err(error) => Plugin::broken(BrokenRecord { name: name.clone(), error }),
            };
            plugins.insert(name, Arc::new(plugin));
        }
        for record in broken {
            tracing::error!(hint = %record.error.hint, "{}", record.error);
            plugins.insert(record.name.clone(), Arc::new(Plugin::broken(record)));
        }
        let supervisor = Arc::new(Supervisor {
            surroundings,
            registry,
            plugins: Mutex::new(plugins),
            changing: tokio::sync::Mutex::default(),
            streams: Arc::new(tokio::sync::Semaphore::new(STREAMS_MAX)),
            changed: watch::channel(0).0,
        });
        if let Some(used) = supervisor.used() {
            supervisor.surroundings.store.sweep(&used);
        }
        Ok(supervisor)
    }

    /// The names of all plugins, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// The plugin of that name.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<Plugin>, Error> {
        self.lock().get(name).cloned().ok_or_else(|| {
            Error::new(
                Kind::NoSuchPlugin,
                format!("no plugin {name:?} is installed"),
                "see what is installed: pluginctl list",
            )
        })
    }

    /// Installs a bundle from a tar stream. Nothing is granted, and it stays disabled.
    pub(crate) async fn install(
        &self,
        stream: OwnedFd,
        expected: Option<BundleDigest>,
    ) -> Result<(String, BundleDigest), Error> {
        let cut_off = |cause| Error::internal(format!("the install was cut off: {cause}"));
        let permit = Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            Error::new(
                Kind::Busy,
                format!("{STREAMS_MAX} bundles are being received already"),
                "try again when one of them has been installed",
            )
        })?;
        let store = self.surroundings.store.clone();
        let unpacked = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            store.unpack(stream, expected)
        });
        // A stream may pause; others are not held up by it.
        let unpacked = unpacked.await.map_err(cut_off)??;
        let _changing = self.changing.lock().await;
        let store = self.surroundings.store.clone();
        let installed =
            tokio::task::spawn_blocking(move || store.publish(unpacked)).await.map_err(cut_off)??;
        let (name, digest) = (installed.manifest.name.clone(), installed.digest);
        let outcome = self.admit(installed.manifest, digest, installed.manifest_sha256);
        if outcome.is_err() && !self.in_use(&digest) {
            self.surroundings.store.remove(&digest).await?;
        }
        outcome?;
        tracing::info!(PLUGIND_PLUGIN = name, %digest, "installed {name}");
        Ok((name, digest))
    }

    /// Stops and removes a plugin, its bundle, and its data unless that is kept.
    pub(crate) async fn remove(&self, name: &str, keep_data: bool) -> Result<(), Error> {
        let _changing = self.changing.lock().await;
        let plugin = self.find(name)?;
        match plugin.contract() {
            Ok(_) => plugin.ask(Command::Remove).await?,
            Err(_) => self.registry.remove(name)?,
        }
        let digest = plugin.snapshot.borrow().digest.clone();
        self.lock().remove(name);
        match BundleDigest::from_str(&digest) {
            Ok(digest) if !self.in_use(&digest) => self.surroundings.store.remove(&digest).await?,
            Ok(_) => {}
            Err(_) => self.sweep().await,
        }
        if !keep_data {
            self.surroundings.store.discard(&self.surroundings.directories.data(name)).await?;
        }
        self.changed.send_modify(|count| *count += 1);
        tracing::info!(PLUGIND_PLUGIN = name, "removed {name}");
        Ok(())
    }

    /// Calls a command of a plugin for somebody on D-Bus.
    pub(crate) async fn call(&self, request: Request) -> Result<Box<RawValue>, Error> {
        let plugin = self.find(&request.plugin)?;
        let arguments = match arguments(&plugin, &request.plugin, request.arguments) {
            Ok(arguments) => arguments,
            Err(error) => {
                let now = Instant::now();
                plugin.counters.answered(Some(error.kind), now, now);
                return Err(error);
            }
        };
        let call = plugin::Request {
            command: &request.command,
            arguments: Cow::Owned(arguments),
            caller: request.caller.key,
            who: &request.caller.json,
            timeout: request.timeout,
            dry_run: request.dry_run,
            credit: 0,
        };
        plugin.call(call).await
    }

    /// Stops every plugin, all at once.
    pub(crate) async fn stop_all(&self) {
        let plugins: Vec<_> = self.lock().values().cloned().collect();
        let stops = plugins.iter().map(|plugin| plugin.ask(Command::Stop));
        futures_util::future::join_all(stops).await;
    }

    fn admit(&self, manifest: Manifest, digest: BundleDigest, manifest_sha256: String) -> Result<(), Error> {
        let name = manifest.name.clone();
        if name.starts_with(RESERVED) {
            return Err(Error::new(
                Kind::InvalidManifest,
                format!("{name}: names that begin with {RESERVED:?} are plugind's own"),
                "give the plugin another name",
            ));
        }
        if manifest.protocol != Protocol::Plugind1 {
            return Err(Error::new(
                Kind::InvalidManifest,
                format!("{name} speaks MCP, and this plugind only speaks plugind/1 to plugins"),
                "set \"protocol\": \"plugind/1\" and write to that protocol",
            ));
        }
        if let Some(interpreter) = manifest.interpreter()
            && !self
                .surroundings
                .settings
                .interpreters
                .iter()
                .any(|allowed| allowed.as_os_str() == interpreter)
        {
            return Err(Error::new(
                Kind::PermissionDenied,
                format!("{name} runs {interpreter}, which the operator does not allow as an interpreter"),
                format!("add \"{interpreter}\" to `interpreters` in plugind.toml, then restart plugind"),
            ));
        }
        if let Ok(present) = self.find(&name) {
            if let Err(broken) = present.contract() {
                return Err(Error::new(
                    Kind::Conflict,
                    format!("{name} is installed already, and broken: {}", broken.message),
                    broken.hint,
                ));
            }
            return if present.snapshot.borrow().digest == digest.to_string() {
                Ok(())
            } else {
                Err(Error::new(
                    Kind::Conflict,
                    format!("{name} is installed already, with digest {}", present.snapshot.borrow().digest),
                    format!("remove that one first: pluginctl remove --keep-data {name}"),
                ))
            };
        }
        let contract = Contract::new(digest, manifest_sha256.clone(), manifest)?;
        let record = Record::new(name.clone(), digest, manifest_sha256);
        self.registry.save(&record)?;
        let plugin = Plugin::new(self.surroundings.clone(), self.registry.clone(), record, contract);
        self.lock().insert(name, Arc::new(plugin));
        self.changed.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Which bundles are in use; unknown while there is a broken record, whose bundle nobody knows.
    fn used(&self) -> Option<BTreeSet<String>> {
        let plugins = self.lock();
        let whole = plugins.values().all(|plugin| plugin.contract().is_ok());
        whole.then(|| plugins.values().map(|plugin| plugin.snapshot.borrow().digest.clone()).collect())
    }

    fn in_use(&self, digest: &BundleDigest) -> bool {
        self.used().is_none_or(|used| used.contains(&digest.to_string()))
    }

    /// Removes bundles that nobody uses, where that is known.
    async fn sweep(&self) {
        if let Some(used) = self.used() {
            let store = self.surroundings.store.clone();
            let _ = tokio::task::spawn_blocking(move || store.sweep(&used)).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Plugin>>> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The arguments as one line of JSON that fits a frame.
fn arguments(plugin: &Plugin, name: &str, text: String) -> Result<Box<RawValue>, Error> {
    let frame_max = plugin.frame_max()?;
    if text.len() > frame_max {
        return Err(Error::new(
            Kind::FrameTooLarge,
            format!("the arguments are longer than the {frame_max} bytes that {name} takes"),
            "send less at once, or raise resources.frame_max in the manifest (16M at most)",
        ));
    }
    // The frame adds two levels around them.
    if frame::deeper_than(text.as_bytes(), frame::DEPTH_MAX - 2) {
        return Err(Error::new(
            Kind::InvalidArguments,
            format!("the arguments nest deeper than {} levels", frame::DEPTH_MAX - 2),
            "nest them less",
        ));
    }
    let arguments = RawValue::from_string(text).map_err(|cause| {
        Error::new(
            Kind::InvalidArguments,
            format!("the arguments are not JSON: {cause}"),
            "pass one JSON value, an object as a rule",
        )
    })?;
    // The line protocol has no room for line ends between tokens.
    one_line(arguments)
}

fn contract(surroundings: &Surroundings, record: &Record) -> Result<Contract, Error> {
    let manifest = Manifest::parse(&surroundings.store.manifest(&record.digest, &record.manifest_sha256)?)?;
    if manifest.name != record.name {
        return Err(Error::new(
            Kind::DigestMismatch,
            format!("the bundle of {} is one of {}", record.name, manifest.name),
            "remove the plugin and install it again",
        ));
    }
    Contract::new(record.digest, record.manifest_sha256.clone(), manifest)
}

/// The same JSON without line ends; rebuilt only where there are some.
fn one_line(value: Box<RawValue>) -> Result<Box<RawValue>, Error> {
    if !value.get().contains(['\n', '\r']) {
        return Ok(value);
    }
    // Within strings JSON has no raw line ends, so all of them are between tokens.
    let text: String = value.get().chars().map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }).collect();
    RawValue::from_string(text).map_err(|cause| Error::internal(cause.to_string()))
}
