//! The D-Bus face of the supervisor: one Manager, one object a plugin (DESIGN §7).

mod caller;
mod error;
mod manager;
mod plugin;

use std::collections::BTreeMap;
use std::sync::Arc;

use plugind_protocol::{Error, Kind, name};
use tokio::task::JoinHandle;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, fdo::ObjectManager};

use crate::channel::Channels;
use crate::plugin::Plugin;
use crate::supervisor::Supervisor;
pub(crate) use caller::Callers;
use manager::Manager;
use plugin::PluginObject;

/// Our name on the bus.
pub(crate) const NAME: &str = "org.plugind1";

/// Where the Manager is; plugins are below.
pub(crate) const PATH: &str = "/org/plugind1";

/// The Manager object, to be served at [`PATH`] before the name is taken.
pub(crate) fn manager(
    supervisor: &Arc<Supervisor>,
    callers: &Arc<Callers>,
    channels: Channels,
) -> (Manager, ObjectManager) {
    let (supervisor, callers) = (Arc::clone(supervisor), Arc::clone(callers));
    (Manager { supervisor, callers, channels }, ObjectManager)
}

/// Keeps the objects of the bus in step with the plugins, for as long as the connection lives.
pub(crate) async fn keep_objects(connection: Connection, supervisor: Arc<Supervisor>) -> Result<(), Error> {
    let mut changed = supervisor.changed.subscribe();
    let mut served: BTreeMap<String, (Arc<Plugin>, JoinHandle<()>)> = BTreeMap::new();
    loop {
        synchronise(&connection, &supervisor, &mut served).await.map_err(|cause| unserved(&cause))?;
        if changed.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Serves the objects of all plugins for the first time.
pub(crate) async fn first_objects(
    connection: &Connection,
    supervisor: &Arc<Supervisor>,
) -> Result<(), Error> {
    for name in supervisor.names() {
        if let Ok(plugin) = supervisor.find(&name) {
            let object = PluginObject::new(plugin);
            connection.object_server().at(path(&name), object).await.map_err(|cause| unserved(&cause))?;
        }
    }
    Ok(())
}

async fn synchronise(
    connection: &Connection,
    supervisor: &Arc<Supervisor>,
    served: &mut BTreeMap<String, (Arc<Plugin>, JoinHandle<()>)>,
) -> zbus::Result<()> {
    let emitter = SignalEmitter::new(connection, PATH)?;
    let names = supervisor.names();
    let current: BTreeMap<String, Arc<Plugin>> = names
        .into_iter()
        .filter_map(|name| supervisor.find(&name).ok().map(|plugin| (name, plugin)))
        .collect();
    let same =
        |name: &String, plugin: &Arc<Plugin>| current.get(name).is_some_and(|now| Arc::ptr_eq(now, plugin));
    let stale: Vec<String> = served
        .iter()
        .filter(|(name, (plugin, _))| !same(name, plugin))
        .map(|(name, _)| name.clone())
        .collect();
    for name in stale {
        if let Some((_, watcher)) = served.remove(&name) {
            watcher.abort();
        }
        connection.object_server().remove::<PluginObject, _>(path(&name)).await?;
        Manager::plugin_changed(&emitter, &name, "removed").await?;
    }
    for (name, plugin) in current {
        if served.contains_key(&name) {
            continue;
        }
        let object = PluginObject::new(Arc::clone(&plugin));
        if connection.object_server().at(path(&name), object).await?.is_none() {
            Manager::plugin_changed(&emitter, &name, "installed").await?;
        }
        let watcher = tokio::spawn(watch(connection.clone(), Arc::clone(&plugin)));
        served.insert(name, (plugin, watcher));
    }
    Ok(())
}

/// Announces a plugin's changes.
async fn watch(connection: Connection, plugin: Arc<Plugin>) {
    let mut snapshot = plugin.snapshot.clone();
    let mut old = snapshot.borrow_and_update().clone();
    while snapshot.changed().await.is_ok() {
        let new = snapshot.borrow_and_update().clone();
        let outcome = async {
            let emitter = SignalEmitter::new(&connection, path(&new.name))?;
            plugin::announce(&emitter, &old, &new).await?;
            if old.state != new.state {
                let manager = SignalEmitter::new(&connection, PATH)?;
                Manager::plugin_changed(&manager, &new.name, new.state.name()).await?;
            }
            Ok::<_, zbus::Error>(())
        };
        if let Err(cause) = outcome.await {
            tracing::debug!("a change was not announced: {cause}");
        }
        old = new;
    }
}

fn path(name: &str) -> String {
    format!("{PATH}/plugin/{}", name::dbus_label(name))
}

fn unserved(cause: &zbus::Error) -> Error {
    Error::new(
        Kind::Unavailable,
        format!("cannot serve an object on the bus: {cause}"),
        "check the session bus",
    )
}

#[cfg(test)]
mod tests;
