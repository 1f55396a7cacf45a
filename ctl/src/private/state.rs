//! The private supervisor's state: a temporary directory that is gone afterwards.

use std::env;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use plugind_protocol::{Error, Kind};

use crate::output;

/// A directory of our own, mode 0700, removed on drop.
#[derive(Debug)]
pub(super) struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Makes one below `$XDG_RUNTIME_DIR`, else below the folder for temporary files.
    pub(super) fn make() -> Result<StateDir, Error> {
        let ours = |path: &PathBuf| {
            fs::metadata(path)
                .is_ok_and(|found| found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw())
        };
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let parent = runtime.filter(ours).unwrap_or_else(env::temp_dir);
        StateDir::make_below(&parent)
    }

    fn make_below(parent: &Path) -> Result<StateDir, Error> {
        let path = nix::unistd::mkdtemp(&parent.join("pluginctl-run.XXXXXX")).map_err(|cause| {
            Error::new(
                Kind::Unavailable,
                format!("cannot make a folder below {}: {cause}", parent.display()),
                "see whether it is writable and has room, or set TMPDIR",
            )
        })?;
        Ok(StateDir { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        if let Err(cause) = remove(&self.path) {
            // The work's own outcome is already decided.
            output::warn(&format!("{} could not be removed: {cause}", self.path.display()));
        }
    }
}

/// Removes a folder with all that is in it, however deep a plugin nested it and whatever modes it set: each folder is
/// moved up to the top before it is emptied, so no path grows and nothing recurses. Links are never followed.
fn remove(top: &Path) -> io::Result<()> {
    let mut pending = vec![top.to_owned()];
    let mut count = 0_u64;
    while let Some(folder) = pending.pop() {
        for child in fs::read_dir(&folder)? {
            let child = child?;
            if !child.file_type()?.is_dir() {
                fs::remove_file(child.path())?;
                continue;
            }
            // A folder without write permission can neither be moved nor emptied.
            fs::set_permissions(child.path(), Permissions::from_mode(0o700))?;
            if folder == top {
                pending.push(child.path());
            } else {
                let moved = unused(top, &mut count);
                fs::rename(child.path(), &moved)?;
                pending.push(moved);
            }
        }
        if folder != top {
            fs::remove_dir(&folder)?;
        }
    }
    fs::remove_dir(top)
}

/// A name at the top that nothing has.
fn unused(top: &Path, count: &mut u64) -> PathBuf {
    loop {
        *count += 1;
        let path = top.join(format!("moved-{count}"));
        if fs::symlink_metadata(&path).is_err() {
            return path;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_is_left_of_it_whatever_a_plugin_did_there() {
        let state = StateDir::make_below(&env::temp_dir()).unwrap();
        let path = state.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);

        let outside = StateDir::make_below(&env::temp_dir()).unwrap();
        fs::write(outside.path().join("keep"), "x").unwrap();
        symlink(outside.path(), path.join("link")).unwrap();
        fs::create_dir_all(path.join("store/sha256-0/bin")).unwrap();
        fs::write(path.join("store/sha256-0/bin/x"), "x").unwrap();
        fs::write(path.join("moved-1"), "x").unwrap();
        for locked in ["store/sha256-0/bin", "store/sha256-0"] {
            fs::set_permissions(path.join(locked), Permissions::from_mode(0o500)).unwrap();
        }
        drop(state);
        assert!(fs::symlink_metadata(&path).is_err());
        assert!(outside.path().join("keep").exists());
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let state = StateDir::make_below(&env::temp_dir()).unwrap();
        let path = state.path().to_owned();
        let name = "d".repeat(200);
        // Built from the inside out, for no path to the bottom would be short enough.
        let mut inner = path.join("x");
        fs::create_dir(&inner).unwrap();
        for _ in 0..100 {
            let outer = path.join("y");
            fs::create_dir(&outer).unwrap();
            fs::rename(&inner, outer.join(&name)).unwrap();
            inner = path.join("x");
            fs::rename(&outer, &inner).unwrap();
        }
        drop(state);
        assert!(fs::symlink_metadata(&path).is_err());
    }
}
