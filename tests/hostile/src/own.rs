//! What this plugin says about itself: the values of the `plugin.json` beside it.

use std::fs;

use plugind_protocol::digest;
use serde_json::Value;

/// The four values of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// `plugind/1`.
    pub protocol: String,
    /// The plugin's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its canonical descriptors.
    pub commands_digest: String,
}

impl Own {
    /// Reads `plugin.json` in the working directory, which is `/plugin` in the sandbox.
    pub fn read() -> Result<Own, String> {
        let bytes = fs::read("plugin.json").map_err(|cause| format!("plugin.json: {cause}"))?;
        Own::of(&bytes)
    }

    /// The values of a manifest.
    pub fn of(manifest: &[u8]) -> Result<Own, String> {
        let commands_digest = digest::commands(manifest).map_err(|cause| cause.to_string())?;
        let manifest: Value = serde_json::from_slice(manifest).map_err(|cause| cause.to_string())?;
        let text = |key: &str| manifest[key].as_str().map(str::to_owned).ok_or_else(|| format!("no `{key}`"));
        Ok(Own {
            protocol: text("protocol")?,
            name: text("name")?,
            version: text("version")?,
            commands_digest,
        })
    }
}
