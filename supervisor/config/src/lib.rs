//! What plugind's daemons start with: settings, directories, the log, and being a service.

pub mod directories;
pub mod log;
pub mod service;
pub mod settings;

pub use directories::Directories;
pub use settings::{Access, Enforcement, Root, Settings, SettingsError};

use std::path::PathBuf;

use plugind_protocol::{Error, Kind};

/// The error of a daemon that is started as root.
#[must_use]
pub fn refuse_root() -> Error {
    Error::new(
        Kind::PermissionDenied,
        "plugind does not run as root",
        "run it as a user: its units do, and `pluginctl run` must be called by one",
    )
}

/// The path of one of our programs that stands beside the running one, or in `$PLUGIND_LIBEXEC`.
///
/// # Errors
/// `Unavailable` where it is missing.
pub fn libexec(program: &str) -> Result<PathBuf, Error> {
    let beside = || std::env::current_exe().ok().and_then(|exe| exe.parent().map(PathBuf::from));
    let found = std::env::var_os("PLUGIND_LIBEXEC")
        .map(PathBuf::from)
        .or_else(beside)
        .map(|dir| dir.join(program))
        .filter(|path| path.is_absolute() && path.is_file());
    found.ok_or_else(|| {
        Error::new(
            Kind::Unavailable,
            format!("{program} does not stand beside this program"),
            "reinstall plugind, or set PLUGIND_LIBEXEC to the folder of its programs",
        )
    })
}
