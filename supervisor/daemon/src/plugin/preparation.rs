//! Before a start: the bundle is verified again, and what is granted becomes what is mounted.

use std::sync::Arc;

use plugind_config::{Access, Settings};
use plugind_protocol::launch::{Launch, Limits, RootMount};
use plugind_protocol::manifest::Runtime;
use plugind_protocol::{Error, Kind, Permission, permission};
use tokio::runtime::Handle;

use crate::contract::Contract;
use crate::launcher::Launcher;
use crate::registry::Record;
use crate::store::{Store, Verified};

/// What a start needs beside the plugin's own record.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) store: Store,
    pub(crate) launcher: Arc<Launcher>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) directories: plugind_config::Directories,
    /// The event loop that drains what plugins write to their stderr.
    pub(crate) stderr: Handle,
}

/// Verifies the bundle and works out what is granted.
pub(super) async fn prepare(
    surroundings: &Surroundings,
    record: &Record,
    contract: &Contract,
    instance: &str,
) -> Result<(Launch, Verified), Error> {
    let manifest = &contract.manifest;
    let (store, digest) = (surroundings.store.clone(), record.digest);
    let verified = tokio::task::spawn_blocking(move || store.verify(&digest))
        .await
        .map_err(|cause| Error::internal(format!("verifying was cut off: {cause}")))??;
    let data = surroundings.directories.data(&record.name);
    crate::store::private_folder(&data)?;
    let mut launch = Launch {
        name: record.name.clone(),
        instance: instance.to_owned(),
        digest: record.digest.to_string(),
        bundle: verified.folder,
        entry_sha256: manifest
            .entry()
            .filter(|_| manifest.interpreter().is_none())
            .and_then(|entry| verified.sha256(entry)),
        in_memory: if manifest.interpreter().is_some() { verified.small() } else { Vec::new() },
        exec: manifest.exec.clone(),
        usr: manifest.runtime == Runtime::System,
        network: false,
        mounts: Vec::new(),
        secrets: Vec::new(),
        env: Vec::new(),
        limits: Limits {
            memory_max: manifest.resources.memory_max,
            cpu_percent: manifest.resources.cpu_quota,
            tasks_max: manifest.resources.tasks_max,
            tmp_size: manifest.resources.tmp_size,
        },
    };
    for permission in permission::effective(&manifest.requested(), &record.granted()) {
        match permission {
            Permission::NetworkHost => launch.network = true,
            Permission::Mount { root, access } => {
                let write = access == permission::Access::Write;
                check_root(&surroundings.settings, &root, write)?;
                launch.mounts.push(RootMount { root, write });
            }
            Permission::Secret(name) => {
                check_secret(&surroundings.directories.secret(&name), &name)?;
                launch.secrets.push(name);
            }
            Permission::Env(name) => {
                if let Ok(value) = std::env::var(&name) {
                    launch.env.push((name, value));
                }
            }
            // Neither can be granted: see `Actor::grant`.
            Permission::Network(_) | Permission::Host(_) => {}
        }
    }
    Ok((launch, verified))
}

/// A root must be in the configuration, as far as it was granted.
pub(super) fn check_root(settings: &Settings, root: &str, write: bool) -> Result<(), Error> {
    match settings.roots.get(root) {
        None => Err(Error::new(
            Kind::PermissionDenied,
            format!("plugind.toml has no root {root:?}"),
            format!("add it: [roots.{root}] with path = \"/…\", then restart plugind"),
        )),
        Some(found) if write && found.access < Access::Write => Err(Error::new(
            Kind::PermissionDenied,
            format!("the root {root:?} may be granted for reading only"),
            format!("set access = \"write\" below [roots.{root}] in plugind.toml, then restart plugind"),
        )),
        Some(_) => Ok(()),
    }
}

/// A secret must be a file that only we can read.
fn check_secret(path: &std::path::Path, name: &str) -> Result<(), Error> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let put = format!("put it there: install -D -m 600 FILE {}", path.display());
    let refuse = |what: String| Err(Error::new(Kind::PermissionDenied, what, put.clone()));
    match std::fs::symlink_metadata(path) {
        Err(cause) => refuse(format!("the granted secret {name:?} is not there: {cause}")),
        Ok(meta) if !meta.is_file() || meta.permissions().mode() & 0o077 != 0 || meta.nlink() != 1 => {
            refuse(format!("the secret {name:?} must be a regular file with mode 0600 and no second name"))
        }
        Ok(_) => Ok(()),
    }
}
