//! Reads a `.plugin` file without unpacking it.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::Path;

use plugind_protocol::digest::{self, BUNDLE_SIZE_MAX, BundleError, Entry, FILE_SIZE_MAX, FILES_MAX};
use plugind_protocol::{BundleDigest, Error};
use sha2::{Digest, Sha256};
use tar::EntryType;

use super::{Listed, MANIFEST, MANIFEST_READ_MAX, refused};
use crate::escape;

const HINT: &str = "make it from the bundle's folder with `pluginctl pack`";

/// What a `.plugin` file holds.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) manifest: Vec<u8>,
    pub(super) files: Vec<Listed>,
    pub(super) digest: BundleDigest,
}

/// Reads all of the file, which stands at its beginning afterwards.
pub(super) fn inspect(file: &mut File, path: &Path) -> Result<Content, Error> {
    let mut reader = Reader { path, manifest: None, entries: Vec::new(), count: 0, size: 0 };
    let mut archive = tar::Archive::new(BufReader::new(&*file));
    // Raw: names come from plain headers only, so that no extension can hold an unbounded one.
    for entry in archive.entries().map_err(|cause| reader.not_tar(&cause))?.raw(true) {
        let entry = entry.map_err(|cause| reader.not_tar(&cause))?;
        reader.entry(entry)?;
    }
    file.rewind().map_err(|cause| reader.not_tar(&cause))?;
    let Reader { manifest, entries, .. } = reader;
    let digest = digest::bundle(&entries)?;
    let files =
        entries.into_iter().map(|Entry { path, executable, size, .. }| Listed { path, executable, size });
    let Some(manifest) = manifest else { return Err(refused(path, "holds no plugin.json at its top", HINT)) };
    Ok(Content { manifest, files: files.collect(), digest })
}

struct Reader<'a> {
    path: &'a Path,
    manifest: Option<Vec<u8>>,
    entries: Vec<Entry>,
    count: usize,
    size: u64,
}

impl Reader<'_> {
    fn entry(&mut self, mut entry: tar::Entry<'_, BufReader<&File>>) -> Result<(), Error> {
        let bytes = entry.path_bytes().into_owned();
        let shown = escape::short(&String::from_utf8_lossy(&bytes), 200);
        self.count += 1;
        if self.count > 2 * FILES_MAX {
            return Err(BundleError::TooManyFiles.into());
        }
        let folder = match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => false,
            EntryType::Directory => true,
            kind => return Err(self.bad(&shown, name_of(kind))),
        };
        let Ok(path) = String::from_utf8(bytes) else {
            return Err(self.bad(&shown, "has a name that is not UTF-8"));
        };
        digest::check_path(if folder { path.trim_end_matches('/') } else { &path })?;
        let mode = entry.header().mode().map_err(|cause| self.not_tar(&cause))?;
        if mode & 0o6000 != 0 {
            return Err(self.bad(&shown, "is setuid or setgid"));
        }
        if mode & 0o022 != 0 {
            return Err(self.bad(&shown, "can be written by its group or everybody"));
        }
        if folder {
            return Ok(());
        }
        let size = entry.size();
        self.size = self.size.saturating_add(size);
        if size > FILE_SIZE_MAX {
            return Err(BundleError::FileTooLarge(shown).into());
        }
        if self.size > BUNDLE_SIZE_MAX {
            return Err(BundleError::BundleTooLarge.into());
        }
        let sha256 = self.content(&mut entry, &path, size)?;
        self.entries.push(Entry { path, executable: mode & 0o100 != 0, size, sha256 });
        Ok(())
    }

    fn content(&mut self, entry: &mut impl Read, path: &str, size: u64) -> Result<[u8; 32], Error> {
        let mut sink = Hashed { hash: Sha256::new(), keep: (path == MANIFEST).then(Vec::new) };
        let copied = io::copy(entry, &mut sink).map_err(|cause| self.not_tar(&cause))?;
        if copied != size {
            return Err(refused(self.path, "ends in the middle of a file", HINT));
        }
        self.manifest = sink.keep.or(self.manifest.take());
        Ok(sink.hash.finalize().into())
    }

    fn bad(&self, entry: &str, what: &str) -> Error {
        refused(self.path, &format!("holds `{entry}`, which {what}"), HINT)
    }

    fn not_tar(&self, cause: &io::Error) -> Error {
        refused(self.path, &format!("is not a bundle: {}", escape::line(&cause.to_string())), HINT)
    }
}

fn name_of(kind: EntryType) -> &'static str {
    match kind {
        EntryType::Symlink => "is a symbolic link",
        EntryType::Link => "is a hard link",
        EntryType::Char | EntryType::Block => "is a device",
        EntryType::Fifo => "is a named pipe",
        _ => "is an extension of the tar format",
    }
}

/// Hashes what is written to it and keeps the manifest, as far as one is read at all.
struct Hashed {
    hash: Sha256,
    keep: Option<Vec<u8>>,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hash.update(bytes);
        if let Some(kept) = &mut self.keep {
            let room = MANIFEST_READ_MAX - kept.len();
            kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
