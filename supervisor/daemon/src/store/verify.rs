//! Hashing a bundle of the store again, before each start.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use plugind_protocol::digest::{Entry, FILES_MAX, bundle, hex};
use plugind_protocol::launch::{BundleFile, IN_MEMORY_FILES_MAX, IN_MEMORY_SIZE_MAX};
use plugind_protocol::{BundleDigest, Error, Kind};
use sha2::{Digest as _, Sha256};

use super::at;

/// A bundle that was found to be what its name says.
#[derive(Debug, Clone)]
pub(crate) struct Verified {
    /// Device and inode of its folder: the helper inside the sandbox checks that it sees this very folder.
    pub(crate) folder: (u64, u64),
    /// Kept open: some file systems (overlayfs) number a folder anew once nobody has it open.
    _open: Arc<File>,
    entries: Vec<Entry>,
}

impl Verified {
    /// All files, if they are few and small enough to be shown from memory; else none.
    pub(crate) fn small(&self) -> Vec<BundleFile> {
        let size: u64 = self.entries.iter().map(|entry| entry.size).sum();
        if self.entries.len() > IN_MEMORY_FILES_MAX || size > IN_MEMORY_SIZE_MAX {
            return Vec::new();
        }
        self.entries
            .iter()
            .map(|entry| BundleFile {
                path: entry.path.clone(),
                sha256: hex(&entry.sha256),
                executable: entry.executable,
            })
            .collect()
    }

    /// SHA-256 of one of its files, in hexadecimal.
    pub(crate) fn sha256(&self, path: &str) -> Option<String> {
        self.entries.iter().find(|entry| entry.path == path).map(|entry| hex(&entry.sha256))
    }
}

/// Hashes the folder and compares it with the digest.
pub(super) fn folder(folder: &Path, expected: &BundleDigest) -> Result<Verified, Error> {
    let gone = |cause| changed(expected, &at(folder, &cause).message);
    let open = File::options()
        .read(true)
        .custom_flags(nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW)
        .open(folder)
        .map_err(gone)?;
    let meta = open.metadata().map_err(gone)?;
    let mut entries = Vec::new();
    list(folder, "", &mut entries).map_err(|cause| changed(expected, &cause.to_string()))?;
    let found = bundle(&entries).map_err(|error| changed(expected, &error.to_string()))?;
    if found != *expected {
        return Err(changed(expected, &format!("its files hash to {found}")));
    }
    Ok(Verified { folder: (meta.dev(), meta.ino()), _open: Arc::new(open), entries })
}

fn changed(digest: &BundleDigest, how: &str) -> Error {
    Error::new(
        Kind::DigestMismatch,
        format!("the stored bundle {digest} is not what was installed: {how}"),
        "remove the plugin and install it again; find out what changed the state directory",
    )
}

fn list(folder: &Path, prefix: &str, entries: &mut Vec<Entry>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name =
            entry.file_name().into_string().map_err(|_| io::Error::other("a file name is not UTF-8"))?;
        let path = format!("{prefix}{name}");
        if entries.len() >= FILES_MAX {
            return Err(io::Error::other("there are more files than a bundle may have"));
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list(&entry.path(), &format!("{path}/"), entries)?;
        } else if kind.is_file() {
            entries.push(hash(&entry.path(), path)?);
        } else {
            return Err(io::Error::other(format!("{path} is neither a file nor a folder")));
        }
    }
    Ok(())
}

fn hash(place: &Path, path: String) -> io::Result<Entry> {
    let mut file: File =
        File::options().read(true).custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK).open(place)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other(format!("{path} is not a regular file")));
    }
    let mut hash = Sha256::new();
    let mut size = 0;
    let mut buffer = vec![0; 128 * 1024];
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        hash.update(&buffer[..length]);
        size += length as u64;
    }
    let executable = meta.permissions().mode() & 0o100 != 0;
    Ok(Entry { path, executable, size, sha256: hash.finalize().into() })
}
