//! Reads a bundle's tar stream. Bytes are hashed as they are written: what was hashed is what the store holds.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use plugind_protocol::digest::{BUNDLE_SIZE_MAX, Entry, FILE_SIZE_MAX, FILES_MAX, check_path};
use plugind_protocol::{Error, Kind};
use sha2::{Digest as _, Sha256};
use tar::EntryType;

use super::at;

/// How long the whole stream may take.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// Headers, padding and folders beside the files' bytes: half a KiB twice for each entry, and room.
const OVERHEAD_MAX: u64 = FILES_MAX as u64 * 4096;

/// Unpacks `stream` into the empty folder `into`.
pub(super) fn unpack(stream: OwnedFd, into: &Path) -> Result<Vec<Entry>, Error> {
    let reader = Bounded {
        file: File::from(stream),
        deadline: Instant::now() + DEADLINE,
        left: BUNDLE_SIZE_MAX + OVERHEAD_MAX,
    };
    let mut archive = tar::Archive::new(reader);
    let mut entries = Vec::new();
    let mut seen = BTreeSet::new();
    let mut total = 0;
    let mut folders = 0;
    // Raw: an extension header of any size would be read into memory before it is seen here.
    for entry in archive.entries().map_err(|cause| malformed(&cause))?.raw(true) {
        let mut entry = entry.map_err(|cause| malformed(&cause))?;
        let Some(path) = accept(&entry)? else {
            folders += 1;
            if folders > FILES_MAX {
                return Err(invalid("the bundle holds too many folders"));
            }
            continue;
        };
        total += entry.size();
        if entries.len() >= FILES_MAX || entry.size() > FILE_SIZE_MAX || total > BUNDLE_SIZE_MAX {
            return Err(invalid(&format!(
                "the bundle is too large: at most {FILES_MAX} files, {} MiB each, {} MiB together",
                FILE_SIZE_MAX >> 20,
                BUNDLE_SIZE_MAX >> 20
            )));
        }
        if !seen.insert(path.clone()) {
            return Err(invalid(&format!("the bundle holds {path:?} twice")));
        }
        let executable = entry.header().mode().map_err(|cause| malformed(&cause))? & 0o111 != 0;
        entries.push(write(&mut entry, into, path, executable)?);
    }
    Ok(entries)
}

/// A regular file's path; `None` for a folder. Anything else is refused by its name.
fn accept<R: Read>(entry: &tar::Entry<'_, R>) -> Result<Option<String>, Error> {
    let path = entry.path_bytes();
    let text =
        std::str::from_utf8(&path).map_err(|_| invalid("the bundle holds a file name that is not UTF-8"))?;
    let refuse = |what: &str| Err(invalid(&format!("the bundle's entry {text:?} is {what}")));
    let kind = entry.header().entry_type();
    let mode = entry.header().mode().map_err(|cause| malformed(&cause))?;
    match kind {
        EntryType::Regular | EntryType::Directory => {}
        EntryType::Symlink => return refuse("a symbolic link"),
        EntryType::Link => return refuse("a hard link"),
        EntryType::Char | EntryType::Block => return refuse("a device"),
        EntryType::Fifo => return refuse("a named pipe"),
        _ => return refuse("of a kind that bundles do not have"),
    }
    if mode & 0o7000 != 0 {
        return refuse("setuid, setgid or sticky");
    }
    if mode & 0o022 != 0 {
        return refuse(&format!("writable by others than its owner (mode {mode:o})"));
    }
    if kind == EntryType::Directory {
        let folder = text.trim_end_matches('/').trim_start_matches("./");
        if !folder.is_empty() && folder != "." {
            check_path(folder)?;
        }
        return Ok(None);
    }
    let file = text.strip_prefix("./").unwrap_or(text);
    check_path(file)?;
    Ok(Some(file.to_owned()))
}

fn write<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    into: &Path,
    path: String,
    executable: bool,
) -> Result<Entry, Error> {
    let target = into.join(&path);
    if let Some(parent) = target.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(|cause| unfit(&path, &target, &cause))?;
    }
    let mode = if executable { 0o700 } else { 0o600 };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(&target)
        .map_err(|cause| unfit(&path, &target, &cause))?;
    let mut hash = Sha256::new();
    let mut size = 0;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = entry.read(&mut buffer).map_err(|cause| malformed(&cause))?;
        if length == 0 {
            break;
        }
        hash.update(&buffer[..length]);
        file.write_all(&buffer[..length]).map_err(|cause| at(&target, &cause))?;
        size += length as u64;
    }
    if size != entry.size() {
        return Err(invalid(&format!("the stream ends within {path:?}")));
    }
    Ok(Entry { path, executable, size, sha256: hash.finalize().into() })
}

/// A path that cannot be made beside those that were.
fn unfit(path: &str, target: &Path, cause: &io::Error) -> Error {
    use io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory};
    match cause.kind() {
        AlreadyExists | IsADirectory | NotADirectory => {
            invalid(&format!("the bundle holds {path:?}, or a part of it, as a file and as a folder"))
        }
        _ => at(target, cause),
    }
}

fn invalid(what: &str) -> Error {
    Error::new(
        Kind::InvalidManifest,
        what,
        "make the bundle with `pluginctl pack`, which says what to change",
    )
}

fn malformed(cause: &io::Error) -> Error {
    if cause.kind() == io::ErrorKind::TimedOut {
        return Error::new(
            Kind::TimedOut,
            format!("the bundle's stream was not complete within {} s", DEADLINE.as_secs()),
            "send the bundle without pauses",
        );
    }
    invalid(&format!("the bundle is not a tar stream that can be read: {cause}"))
}

/// A stream with a deadline and an end, whatever its other side does.
struct Bounded {
    file: File,
    deadline: Instant,
    left: u64,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the stream is longer than a bundle may be",
            ));
        }
        let wait = self.deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
        let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, timeout)? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let length = self.file.read(&mut buffer[..room])?;
        self.left -= length as u64;
        Ok(length)
    }
}
