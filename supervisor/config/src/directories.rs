//! Where things lie, in user mode: the XDG base directories.

use std::env;
use std::path::{Path, PathBuf};

use plugind_protocol::{Error, Kind};

/// The state directory and what is below it. Everything there belongs to plugind alone, mode 0700.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    state: PathBuf,
}

impl Directories {
    /// Directories below a given state directory.
    #[must_use]
    pub fn at(state: impl Into<PathBuf>) -> Directories {
        Directories { state: state.into() }
    }

    /// `$STATE_DIRECTORY` of the unit, else `$XDG_STATE_HOME/plugind`, else `~/.local/state/plugind`.
    ///
    /// # Errors
    /// `Unavailable` where none of the variables holds an absolute path.
    pub fn of_user() -> Result<Directories, Error> {
        absolute("STATE_DIRECTORY")
            .or_else(|| absolute("XDG_STATE_HOME").map(|dir| dir.join("plugind")))
            .or_else(|| absolute("HOME").map(|dir| dir.join(".local/state/plugind")))
            .map(Directories::at)
            .ok_or_else(|| {
                Error::new(
                    Kind::Unavailable,
                    "no place for state: neither XDG_STATE_HOME nor HOME is an absolute path",
                    "set HOME, as a login session does",
                )
            })
    }

    /// The state directory itself.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Verified bundles, one folder `sha256-<hex>` each.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.state.join("store")
    }

    /// Where installs are unpacked before they enter the store.
    #[must_use]
    pub fn staging(&self) -> PathBuf {
        self.state.join("staging")
    }

    /// One record a plugin: what is installed, enabled and granted.
    #[must_use]
    pub fn registry(&self) -> PathBuf {
        self.state.join("registry")
    }

    /// A plugin's private `/data`.
    #[must_use]
    pub fn data(&self, name: &str) -> PathBuf {
        self.state.join("data").join(name)
    }

    /// A secret's file, put there by the operator with mode 0600.
    #[must_use]
    pub fn secret(&self, name: &str) -> PathBuf {
        self.state.join("secrets").join(name)
    }
}

/// `$XDG_RUNTIME_DIR/plugind/launcher.sock`.
///
/// # Errors
/// `Unavailable` without `XDG_RUNTIME_DIR`.
pub fn launcher_socket() -> Result<PathBuf, Error> {
    runtime().map(|dir| dir.join("plugind/launcher.sock"))
}

/// `$XDG_RUNTIME_DIR`.
///
/// # Errors
/// `Unavailable` without it: then there is no user manager to make scopes either.
pub fn runtime() -> Result<PathBuf, Error> {
    absolute("XDG_RUNTIME_DIR").ok_or_else(|| {
        Error::new(
            Kind::Unavailable,
            "XDG_RUNTIME_DIR is not set, so there is no systemd user manager to ask for a scope",
            "log in through a session that starts one (ssh, a console, `machinectl shell`), or run \
             `loginctl enable-linger` and set XDG_RUNTIME_DIR=/run/user/$(id -u)",
        )
    })
}

fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}
