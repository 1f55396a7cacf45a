//! Walks a bundle's folder. What could change hands, or mean something else elsewhere, is refused by name.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use plugind_protocol::digest::{self, BUNDLE_SIZE_MAX, BundleError, Entry, FILE_SIZE_MAX, FILES_MAX};
use plugind_protocol::{BundleDigest, Error, Kind};
use sha2::{Digest, Sha256};

use super::stream::WriteError;
use super::{Listed, MANIFEST, MANIFEST_READ_MAX, below, changed, quote, refused};
use crate::escape;

/// A bundle's folder, walked once.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) root: PathBuf,
    /// Its files in the order of their paths' bytes.
    pub(super) files: Vec<Listed>,
}

impl Folder {
    /// Walks the folder and checks every entry.
    pub(super) fn read(root: &Path) -> Result<Folder, Error> {
        let mut walk =
            Walk { root, owner: nix::unistd::geteuid().as_raw(), files: Vec::new(), folders: 0, size: 0 };
        let metadata = fs::metadata(root).map_err(|cause| unreadable(root, &cause))?;
        walk.check_rights(root, &metadata)?;
        let mut pending = vec![String::new()];
        while let Some(folder) = pending.pop() {
            walk.folder(&folder, &mut pending)?;
        }
        let Walk { mut files, .. } = walk;
        files.sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
        if !files.iter().any(|file| file.path == MANIFEST) {
            return Err(refused(
                root,
                "holds no plugin.json",
                "name the folder that holds plugin.json itself",
            ));
        }
        Ok(Folder { root: root.to_owned(), files })
    }

    /// The bytes of its `plugin.json`.
    pub(super) fn manifest(&self) -> Result<Vec<u8>, Error> {
        let path = self.root.join(MANIFEST);
        let mut bytes = Vec::new();
        open(&path)
            .and_then(|file| file.take(MANIFEST_READ_MAX as u64).read_to_end(&mut bytes))
            .map_err(|cause| unreadable(&path, &cause))?;
        Ok(bytes)
    }

    /// Writes the folder as a tar archive in which nothing depends on who packs it where and when; gives the digest
    /// of what was written.
    pub(super) fn write(&self, out: impl Write) -> Result<BundleDigest, WriteError> {
        let mut archive = tar::Builder::new(out);
        let mut entries = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let sha256 = self.append(&mut archive, file)?;
            let Listed { path, executable, size } = file.clone();
            entries.push(Entry { path, executable, size, sha256 });
        }
        archive.into_inner().and_then(|mut out| out.flush()).map_err(WriteError::Out)?;
        digest::bundle(&entries).map_err(|error| WriteError::Refused(error.into()))
    }

    fn append(
        &self,
        archive: &mut tar::Builder<impl Write>,
        listed: &Listed,
    ) -> Result<[u8; 32], WriteError> {
        let path = below(&self.root, &listed.path);
        let file = open(&path).map_err(|cause| WriteError::Refused(unreadable(&path, &cause)))?;
        let mut header = tar::Header::new_ustar();
        header.set_path(&listed.path).map_err(|_| {
            WriteError::Refused(refused(
                &path,
                "has a name that a ustar archive cannot hold",
                "shorten the file's name to 100 bytes, or its folders' names to 155",
            ))
        })?;
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(if listed.executable { 0o755 } else { 0o644 });
        header.set_size(listed.size);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();

        let mut content = Content { file, hash: Sha256::new(), left: listed.size, failed: None };
        let appended = archive.append(&header, &mut content);
        if let Some(cause) = content.failed {
            return Err(WriteError::Refused(unreadable(&path, &cause)));
        }
        appended.map_err(WriteError::Out)?;
        if content.left > 0 || content.file.read(&mut [0]).is_ok_and(|more| more > 0) {
            return Err(WriteError::Refused(changed(&path)));
        }
        Ok(content.hash.finalize().into())
    }
}

struct Walk<'a> {
    root: &'a Path,
    owner: u32,
    files: Vec<Listed>,
    folders: usize,
    size: u64,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &str, pending: &mut Vec<String>) -> Result<(), Error> {
        let path = below(self.root, folder);
        for child in fs::read_dir(&path).map_err(|cause| unreadable(&path, &cause))? {
            let child = child.map_err(|cause| unreadable(&path, &cause))?;
            let path = child.path();
            let Some(name) = child.file_name().to_str().map(str::to_owned) else {
                return Err(refused(&path, "has a name that is not UTF-8", "rename it"));
            };
            let relative = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            digest::check_path(&relative)?;
            let metadata = child.metadata().map_err(|cause| unreadable(&path, &cause))?;
            self.entry(relative, &path, &metadata, pending)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        relative: String,
        path: &Path,
        metadata: &Metadata,
        pending: &mut Vec<String>,
    ) -> Result<(), Error> {
        check_type(path, metadata)?;
        self.check_rights(path, metadata)?;
        if metadata.is_dir() {
            self.folders += 1;
            pending.push(relative);
        } else {
            if metadata.len() > FILE_SIZE_MAX {
                return Err(BundleError::FileTooLarge(escape::short(&path.display().to_string(), 200)).into());
            }
            self.size += metadata.len();
            self.files.push(Listed {
                path: relative,
                executable: metadata.mode() & 0o100 != 0,
                size: metadata.len(),
            });
        }
        if self.files.len() > FILES_MAX || self.folders > FILES_MAX {
            return Err(named(self.root, BundleError::TooManyFiles));
        }
        if self.size > BUNDLE_SIZE_MAX {
            return Err(named(self.root, BundleError::BundleTooLarge));
        }
        Ok(())
    }

    /// Nobody but the caller and root may be able to change what was reviewed.
    fn check_rights(&self, path: &Path, metadata: &Metadata) -> Result<(), Error> {
        let mode = metadata.mode();
        if mode & 0o6000 != 0 {
            return Err(refused(path, "is setuid or setgid", format!("chmod u-s,g-s {}", quote(path))));
        }
        if mode & 0o022 != 0 {
            let who = if mode & 0o002 != 0 { "everybody" } else { "its group" };
            return Err(refused(
                path,
                &format!("can be written by {who}"),
                format!(
                    "chmod go-w {}; or for all of the bundle: chmod -R go-w {}",
                    quote(path),
                    quote(self.root)
                ),
            ));
        }
        if metadata.uid() != self.owner && metadata.uid() != 0 {
            return Err(refused(
                path,
                &format!("belongs to another user (uid {})", metadata.uid()),
                format!("copy the bundle, so that it is yours: cp -r {} MY-COPY", quote(self.root)),
            ));
        }
        Ok(())
    }
}

/// Only regular files and folders are hashed, so only they may be there.
fn check_type(path: &Path, metadata: &Metadata) -> Result<(), Error> {
    let kind = metadata.file_type();
    let what = if kind.is_symlink() {
        "is a symbolic link"
    } else if kind.is_fifo() {
        "is a named pipe"
    } else if kind.is_socket() {
        "is a socket"
    } else if kind.is_char_device() || kind.is_block_device() {
        "is a device"
    } else {
        return Ok(());
    };
    let file = quote(path);
    Err(refused(
        path,
        what,
        if kind.is_symlink() {
            format!(
                "put the file itself in its place: cp --remove-destination \"$(readlink -f {file})\" {file}"
            )
        } else {
            format!("a bundle holds regular files only: rm {file}")
        },
    ))
}

/// Opens a file of the bundle, and nothing that took its place since the walk.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file any more"))
    }
}

fn unreadable(path: &Path, cause: &io::Error) -> Error {
    refused(path, &format!("cannot be read: {cause}"), format!("see ls -ld {}", quote(path)))
}

/// A rule that the folder as a whole breaks.
fn named(root: &Path, error: BundleError) -> Error {
    let error = Error::from(error);
    Error::new(Kind::InvalidManifest, format!("{}: {}", root.display(), error.message), error.hint)
}

/// A file's content while it is hashed: at most the announced bytes.
struct Content {
    file: File,
    hash: Sha256,
    left: u64,
    failed: Option<io::Error>,
}

impl Read for &mut Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        match self.file.read(&mut buffer[..room]) {
            Ok(count) => {
                self.hash.update(&buffer[..count]);
                self.left -= count as u64;
                Ok(count)
            }
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => Err(cause),
            Err(cause) => {
                self.failed = Some(io::Error::new(cause.kind(), cause.to_string()));
                Err(cause)
            }
        }
    }
}
