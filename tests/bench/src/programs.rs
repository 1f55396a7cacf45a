//! The programs of the bench: they lie beside each other.

use std::path::PathBuf;

use crate::Error;

/// Where they are.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The plugin, linked statically.
    pub echo_plugin: PathBuf,
    /// The byte relay, and the gate of a bare start.
    pub floor: PathBuf,
    /// The D-Bus service that does nothing.
    pub echo_service: PathBuf,
    /// The manifest of the plugin.
    pub manifest: PathBuf,
}

impl Programs {
    /// Beside this one.
    pub fn find() -> Result<Programs, Error> {
        let own = std::env::current_exe().map_err(Error::io("where is this program"))?;
        let find = |name: &str| {
            let path = own.with_file_name(name);
            if path.exists() {
                return Ok(path);
            }
            Err(Error::Missing { what: format!("there is no {}", path.display()), hint: "run `make bench`" })
        };
        Ok(Programs {
            echo_plugin: find("echo-plugin")?,
            floor: find("floor")?,
            echo_service: find("echo-service")?,
            manifest: find("plugin.json")?,
        })
    }
}
