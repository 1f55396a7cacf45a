//! Removing a folder that a plugin filled: however deep it nests and whatever its modes are.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Removes a folder and everything in it. No step descends more than one level, so that neither the stack nor the number
/// of open files grows with the depth: deeper folders are moved up first.
pub(crate) fn remove(top: &Path) -> io::Result<()> {
    open_up(top)?;
    let mut moved: u64 = 0;
    loop {
        let folders = clear(top)?;
        if folders.is_empty() {
            return fs::remove_dir(top);
        }
        for folder in folders {
            let folder = top.join(folder);
            open_up(&folder)?;
            for deeper in clear(&folder)? {
                let deeper = folder.join(deeper);
                // A folder must be writable to be moved: its `..` changes.
                open_up(&deeper)?;
                loop {
                    moved += 1;
                    match fs::rename(&deeper, top.join(format!(".{moved}"))) {
                        Err(cause) if cause.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                        other => break other?,
                    }
                }
            }
            fs::remove_dir(&folder)?;
        }
    }
}

fn open_up(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}

/// Removes what is no folder; the names of the folders.
fn clear(folder: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.file_name());
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_is_deeper_than_any_path_can_be_removed() {
        use nix::fcntl::{AT_FDCWD, OFlag, openat};
        use nix::sys::stat::{Mode, mkdirat};
        let top = std::env::temp_dir().join(format!("plugind-tree-{}", std::process::id()));
        fs::create_dir(&top).unwrap();
        let open = |at: &dyn Fn() -> nix::Result<std::os::fd::OwnedFd>| at().unwrap();
        let mut inner = open(&|| openat(AT_FDCWD, &top, OFlag::O_DIRECTORY, Mode::empty()));
        for _ in 0..5000 {
            mkdirat(&inner, "deeper", Mode::from_bits_truncate(0o700)).unwrap();
            inner = open(&|| openat(&inner, "deeper", OFlag::O_DIRECTORY, Mode::empty()));
        }
        fs::create_dir(top.join(".1")).unwrap();
        fs::write(top.join(".1/file"), "x").unwrap();
        fs::set_permissions(top.join(".1"), Permissions::from_mode(0o000)).unwrap();
        std::os::unix::fs::symlink("/", top.join("link")).unwrap();
        remove(&top).unwrap();
        assert!(!top.exists());
    }
}
