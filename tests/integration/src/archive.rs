//! Tar streams by hand, so that they can hold what no packer would write.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::bundle::Bundle;

const BLOCK: usize = 512;

/// Types of entries (POSIX ustar).
pub mod kind {
    /// A regular file.
    pub const FILE: u8 = b'0';
    /// A second name of another entry.
    pub const HARD_LINK: u8 = b'1';
    /// A symbolic link.
    pub const SYMLINK: u8 = b'2';
    /// A character device.
    pub const CHARACTER_DEVICE: u8 = b'3';
    /// A block device.
    pub const BLOCK_DEVICE: u8 = b'4';
    /// A folder.
    pub const FOLDER: u8 = b'5';
    /// A named pipe.
    pub const FIFO: u8 = b'6';
    /// GNU: a sparse file.
    pub const SPARSE: u8 = b'S';
    /// GNU: the next entry's long name.
    pub const LONG_NAME: u8 = b'L';
    /// PAX: records about the next entry.
    pub const EXTENDED: u8 = b'x';
}

/// A stream that is being made.
#[derive(Debug, Clone, Default)]
pub struct Archive(Vec<u8>);

impl Archive {
    /// The files of a bundle, as `pluginctl pack` would write them.
    #[must_use]
    pub fn of(bundle: &Bundle) -> Archive {
        let mut archive = Archive::default();
        archive.folder(Path::new(bundle.path()), "");
        archive
    }

    fn folder(&mut self, folder: &Path, prefix: &str) {
        for entry in fs::read_dir(folder).expect("a bundle").flatten() {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let meta = entry.metadata().expect("its mode");
            if meta.is_dir() {
                self.folder(&entry.path(), &format!("{name}/"));
            } else {
                let content = fs::read(entry.path()).expect("its content");
                let mode = meta.permissions().mode() & 0o755;
                *self = std::mem::take(self).file(&name, mode, &content);
            }
        }
    }

    /// A regular file.
    #[must_use]
    pub fn file(self, path: &str, mode: u32, content: &[u8]) -> Archive {
        self.entry(kind::FILE, path, mode, content.len() as u64, "").content(content)
    }

    /// Any header, with the size that it claims.
    #[must_use]
    pub fn entry(mut self, kind: u8, path: &str, mode: u32, size: u64, target: &str) -> Archive {
        let mut header = [0; BLOCK];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, &path.as_bytes()[..path.len().min(100)]);
        put(100, format!("{mode:07o}").as_bytes());
        put(108, b"0000000\x000000000\0");
        put(124, format!("{size:011o}").as_bytes());
        put(136, b"00000000000\0        ");
        put(156, &[kind]);
        put(157, &target.as_bytes()[..target.len().min(100)]);
        put(257, b"ustar\x0000");
        put(329, b"0000001\x000000003\0");
        let sum: u32 = header.iter().copied().map(u32::from).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend(header);
        self
    }

    /// Content, filled up to a whole block.
    #[must_use]
    pub fn content(mut self, content: &[u8]) -> Archive {
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
        self
    }

    /// The stream as it is, without its end.
    #[must_use]
    pub fn unfinished(self) -> Vec<u8> {
        self.0
    }

    /// The stream with the two empty blocks at its end.
    #[must_use]
    pub fn bytes(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }
}
