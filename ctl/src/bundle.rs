//! A bundle on this side of the bus: a folder or a `.plugin` file, checked, hashed and handed over as a tar stream.
//!
//! The supervisor checks everything again; what is refused here is refused early and with the path as the author
//! knows it.

mod archive;
mod stream;
mod walk;

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use plugind_protocol::manifest::MANIFEST_MAX;
use plugind_protocol::{BundleDigest, Error, Kind, Manifest};

pub(crate) use stream::Sender;

/// The manifest's path in every bundle.
const MANIFEST: &str = "plugin.json";
/// No more of a manifest is read than the parser needs to refuse it.
const MANIFEST_READ_MAX: usize = MANIFEST_MAX + 1;

/// A bundle whose files and manifest obey the rules.
#[derive(Debug)]
pub(crate) struct Bundle {
    /// Its `plugin.json`.
    pub(crate) manifest: Manifest,
    /// What its files hash to.
    pub(crate) digest: BundleDigest,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Folder(walk::Folder),
    Archive(File),
}

impl Bundle {
    /// Opens and checks a folder or a `.plugin` file.
    pub(crate) fn open(path: &Path) -> Result<Bundle, Error> {
        let metadata = fs::metadata(path).map_err(|cause| no_bundle(path, &cause))?;
        if metadata.is_dir() {
            return Bundle::of_folder(path);
        }
        if !metadata.is_file() {
            return Err(refused(
                path,
                "is neither a folder nor a file",
                "name a folder with plugin.json, or a .plugin file",
            ));
        }
        let mut file = File::open(path).map_err(|cause| no_bundle(path, &cause))?;
        let content = archive::inspect(&mut file, path)?;
        let manifest = checked(&content.manifest, &content.files)?;
        Ok(Bundle { manifest, digest: content.digest, source: Source::Archive(file) })
    }

    /// Opens and checks a folder.
    pub(crate) fn of_folder(path: &Path) -> Result<Bundle, Error> {
        let folder = walk::Folder::read(path)?;
        let manifest = checked(&folder.manifest()?, &folder.files)?;
        let digest = folder.write(io::sink()).map_err(stream::WriteError::into_error)?;
        Ok(Bundle { manifest, digest, source: Source::Folder(folder) })
    }

    /// Writes the bundle as a `.plugin` file; the same files give the same bytes.
    pub(crate) fn pack(&self, out: impl io::Write) -> Result<(), Error> {
        let Source::Folder(folder) = &self.source else {
            return Err(Error::internal("only a folder is packed"));
        };
        let digest = folder.write(out).map_err(stream::WriteError::into_error)?;
        if digest == self.digest { Ok(()) } else { Err(changed(&folder.root)) }
    }

    /// The bundle as a file descriptor that yields its tar stream, and what keeps the stream going.
    pub(crate) fn send(self) -> Result<(OwnedFd, Sender), Error> {
        match self.source {
            Source::Archive(file) => Ok((file.into(), Sender::idle())),
            Source::Folder(folder) => stream::send(folder),
        }
    }
}

/// One regular file of a bundle, as far as the manifest's check needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listed {
    path: String,
    executable: bool,
    size: u64,
}

/// The manifest, after a check that the bundle holds what it executes.
fn checked(manifest: &[u8], files: &[Listed]) -> Result<Manifest, Error> {
    let manifest = Manifest::parse(manifest)?;
    let Some(entry) = manifest.entry() else { return Ok(manifest) };
    match files.iter().find(|file| file.path == entry) {
        None => Err(Error::new(
            Kind::InvalidManifest,
            format!("plugin.json executes `{entry}`, which the bundle does not hold"),
            "build the program into the bundle's folder first, or mend `exec`",
        )),
        Some(file) if !file.executable && manifest.interpreter().is_none() => Err(Error::new(
            Kind::InvalidManifest,
            format!("plugin.json executes `{entry}`, which is not executable"),
            format!("chmod +x {}", quote(entry)),
        )),
        Some(_) => Ok(manifest),
    }
}

fn no_bundle(path: &Path, cause: &io::Error) -> Error {
    Error::new(
        Kind::InvalidArguments,
        format!("cannot open {}: {cause}", path.display()),
        "name a folder that holds plugin.json, or a .plugin file made by `pluginctl pack`",
    )
}

/// A rule that one path breaks, with its mending.
fn refused(path: &Path, what: &str, hint: impl Into<String>) -> Error {
    Error::new(Kind::InvalidManifest, format!("{} {what}", path.display()), hint)
}

fn changed(path: &Path) -> Error {
    refused(
        path,
        "changed while it was read",
        "let nothing write into the bundle's folder meanwhile, and try again",
    )
}

/// A path as a POSIX shell takes it, so that a hint can be pasted.
fn quote(path: impl AsRef<Path>) -> String {
    let text = path.as_ref().display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// A path in the bundle below the bundle's folder.
fn below(root: &Path, path: &str) -> PathBuf {
    if path.is_empty() { root.to_owned() } else { root.join(path) }
}

#[cfg(test)]
mod tests;
