//! The store: verified bundles, each in a read-only folder named by its digest.

mod elf;
mod unpack;
mod verify;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plugind_config::Directories;
use plugind_protocol::digest::hex;
use plugind_protocol::{BundleDigest, Error, Kind, Manifest};
use sha2::{Digest as _, Sha256};

pub(crate) use verify::Verified;

use crate::tree;

/// How long a removal is waited for.
const DISCARD_WAIT: Duration = Duration::from_secs(10);

/// The manifest's name in a bundle.
pub(crate) const MANIFEST: &str = "plugin.json";

/// The store and its staging folder.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    root: PathBuf,
    staging: PathBuf,
}

/// What an install brought into the store.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) digest: BundleDigest,
    pub(crate) manifest: Manifest,
    /// SHA-256 of `plugin.json`.
    pub(crate) manifest_sha256: String,
}

impl Store {
    /// Opens the store, and sweeps what an install that was cut off left in staging.
    pub(crate) fn open(directories: &Directories) -> Result<Store, Error> {
        let store = Store { root: directories.store(), staging: directories.staging() };
        private_folder(&store.root)?;
        private_folder(&store.staging)?;
        let left: Vec<_> = fs::read_dir(&store.staging)
            .map_err(|cause| at(&store.staging, &cause))?
            .flatten()
            .map(|entry| entry.path())
            .collect();
        // It may be a lot, and the start does not wait for it.
        std::thread::spawn(move || left.iter().for_each(|folder| remove_folder(folder)));
        Ok(store)
    }

    /// Reads and checks a tar stream. What is refused leaves nothing behind.
    ///
    /// Blocking; at most [`unpack::DEADLINE`] long.
    pub(crate) fn unpack(&self, stream: OwnedFd, expected: Option<BundleDigest>) -> Result<Unpacked, Error> {
        let staged = Staged::new(&self.staging)?;
        let entries = unpack::unpack(stream, &staged.path)?;
        let digest = plugind_protocol::digest::bundle(&entries)?;
        if let Some(expected) = expected.filter(|expected| *expected != digest) {
            return Err(Error::new(
                Kind::DigestMismatch,
                format!("the bundle's digest is {digest}, and {expected} was expected"),
                "get the bundle again from where the digest came from; do not install this one",
            ));
        }
        let manifest = read_manifest(&staged.path)?;
        let manifest_sha256 = entries
            .iter()
            .find(|entry| entry.path == MANIFEST)
            .map(|entry| hex(&entry.sha256))
            .unwrap_or_default();
        check_entry(&staged.path, &manifest)?;
        Ok(Unpacked { staged, installed: Installed { digest, manifest, manifest_sha256 } })
    }

    /// Gives an unpacked bundle its place in the store. Blocking.
    pub(crate) fn publish(&self, unpacked: Unpacked) -> Result<Installed, Error> {
        let Unpacked { staged, installed } = unpacked;
        let place = self.folder(&installed.digest);
        if place.exists() {
            // The same content is there already, if it still is what it was.
            if verify::folder(&place, &installed.digest).is_ok() {
                return Ok(installed);
            }
            remove_folder(&place);
        }
        staged.publish(&place)?;
        Ok(installed)
    }

    /// Hashes a bundle of the store again, file by file.
    pub(crate) fn verify(&self, digest: &BundleDigest) -> Result<Verified, Error> {
        verify::folder(&self.folder(digest), digest)
    }

    /// The manifest of a bundle of the store, as bytes; refused where it is not the one that was installed.
    pub(crate) fn manifest(&self, digest: &BundleDigest, sha256: &str) -> Result<Vec<u8>, Error> {
        let path = self.folder(digest).join(MANIFEST);
        let changed = |how: String| {
            Error::new(
                Kind::DigestMismatch,
                format!("the stored manifest {} is not what was installed: {how}", path.display()),
                "remove the plugin and install it again; find out what changed the state directory",
            )
        };
        let bytes = fs::read(&path).map_err(|cause| changed(cause.to_string()))?;
        if hex(&Sha256::digest(&bytes)) == sha256 {
            Ok(bytes)
        } else {
            Err(changed("its SHA-256 differs".to_owned()))
        }
    }

    /// Removes every bundle that `used` does not name: what a cut-off install or removal left.
    pub(crate) fn sweep(&self, used: &BTreeSet<String>) {
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let digest = entry.file_name().to_str().and_then(BundleDigest::from_store_name);
            if digest.is_none_or(|digest| !used.contains(&digest.to_string())) {
                remove_folder(&entry.path());
            }
        }
    }

    /// Removes a bundle.
    pub(crate) async fn remove(&self, digest: &BundleDigest) -> Result<(), Error> {
        self.discard(&self.folder(digest)).await
    }

    /// Removes a folder of the state directory: out of sight at once, and then for good. What a plugin filled may take
    /// long; after a while that goes on by itself.
    pub(crate) async fn discard(&self, folder: &Path) -> Result<(), Error> {
        let place = self.staging.join(crate::identifier()?);
        let moved = fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
            .and_then(|()| fs::rename(folder, &place));
        match moved {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|cause| at(folder, &cause))?,
        }
        let removal = tokio::task::spawn_blocking(move || remove_folder(&place));
        let _ = tokio::time::timeout(DISCARD_WAIT, removal).await;
        Ok(())
    }

    fn folder(&self, digest: &BundleDigest) -> PathBuf {
        self.root.join(digest.store_name())
    }
}

/// A bundle that was checked and has no place in the store yet.
pub(crate) struct Unpacked {
    staged: Staged,
    installed: Installed,
}

/// A folder of staging that vanishes unless it is published.
struct Staged {
    path: PathBuf,
}

impl Staged {
    fn new(staging: &Path) -> Result<Staged, Error> {
        let path = staging.join(crate::identifier()?);
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|cause| at(&path, &cause))?;
        Ok(Staged { path })
    }

    /// Makes everything read-only and durable, and gives it its place in one step.
    fn publish(self, place: &Path) -> Result<(), Error> {
        seal(&self.path).map_err(|cause| at(&self.path, &cause))?;
        // rename() of a folder needs it writable: its `..` changes.
        let renamed = fs::set_permissions(&self.path, fs::Permissions::from_mode(0o700))
            .and_then(|()| fs::rename(&self.path, place))
            .and_then(|()| fs::set_permissions(place, fs::Permissions::from_mode(0o555)))
            .and_then(|()| sync_folder(place.parent().unwrap_or(place)));
        renamed.map_err(|cause| at(place, &cause))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        remove_folder(&self.path);
    }
}

/// Files 0444 or 0555, folders 0555, all on disk.
fn seal(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_dir() {
            seal(&path)?;
        } else {
            let mode = if meta.permissions().mode() & 0o100 == 0 { 0o444 } else { 0o555 };
            fs::File::open(&path)?.sync_all()?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        }
    }
    sync_folder(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o555))
}

/// Makes a rename within that folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

/// Removes a folder of ours. Best effort: what stays in staging is swept at the next start.
fn remove_folder(folder: &Path) {
    if folder.symlink_metadata().is_ok()
        && let Err(cause) = tree::remove(folder)
    {
        tracing::warn!("cannot remove {}: {cause}", folder.display());
    }
}

/// Creates a folder of ours with mode 0700, and its parents.
pub(crate) fn private_folder(path: &Path) -> Result<(), Error> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|cause| at(path, &cause))
}

/// An error of the file system, with its path.
pub(crate) fn at(path: &Path, cause: &io::Error) -> Error {
    let hint = match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room there, then try again",
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "the state directory must belong to plugind's user and be writable"
        }
        _ => "check the file system that holds it",
    };
    Error::new(Kind::Unavailable, format!("{}: {cause}", path.display()), hint)
}

fn read_manifest(folder: &Path) -> Result<Manifest, Error> {
    let path = folder.join(MANIFEST);
    match fs::read(&path) {
        Ok(bytes) => Ok(Manifest::parse(&bytes)?),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Err(Error::new(
            Kind::InvalidManifest,
            "the bundle has no plugin.json",
            "a bundle is a folder with plugin.json and the files it runs",
        )),
        Err(cause) => Err(at(&path, &cause)),
    }
}

/// The program that `exec` names must be there and be able to run here.
fn check_entry(folder: &Path, manifest: &Manifest) -> Result<(), Error> {
    let Some(program) = manifest.exec.first() else { return Ok(()) };
    if program.starts_with('/') {
        let script = manifest.exec.get(1).map(|script| folder.join(script));
        return match script {
            Some(script) if script.is_file() => Ok(()),
            _ => Err(Error::new(
                Kind::InvalidManifest,
                format!("exec: {program} needs a script of the bundle as its first argument"),
                "name a file of the bundle there, e.g. [\"/usr/bin/python3\", \"main.py\"]",
            )),
        };
    }
    elf::check(&folder.join(program), program, manifest.runtime)
}
