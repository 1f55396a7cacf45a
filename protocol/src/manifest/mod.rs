//! `plugin.json`: what a plugin is, offers and asks for.
//!
//! The structs here are the authority; the published JSON Schema is made from them (see [`crate::schema`]), and the
//! rules that a schema cannot say are in `validate`.

mod command;
pub mod command_schema;
mod lifecycle;
mod permissions;
mod read;
mod resources;
mod validate;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind};
use crate::name::pattern;
use crate::permission::Permission;

pub use command::{Command, Risk, TIMEOUT_MAX_MS};
pub use lifecycle::{Activation, Lifecycle, Restart};
pub use permissions::{Mount, Network, Permissions};
pub(crate) use read::read_document;
pub use resources::{Resources, format_size, parse_size};

/// The largest `plugin.json`, bytes.
pub const MANIFEST_MAX: usize = 256 << 10;
/// The most commands of a plugin.
pub const COMMANDS_MAX: usize = 64;
/// The most mounts of a plugin.
pub const MOUNTS_MAX: usize = 16;

/// The manifest of a plugin, `plugin.json` in its bundle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "plugin.json")]
pub struct Manifest {
    /// The version of this format: 1.
    #[schemars(range(min = 1, max = 1))]
    pub manifest: u32,
    /// The plugin's name.
    #[schemars(regex(pattern = pattern::PLUGIN))]
    pub name: String,
    /// The plugin's version, as SemVer 2.0 writes it.
    #[schemars(length(max = validate::VERSION_LENGTH_MAX), regex(pattern = validate::SEMVER))]
    pub version: String,
    /// What the plugin does, in one line.
    #[schemars(length(min = 1, max = validate::DESCRIPTION_MAX))]
    pub description: String,
    /// What the plugin speaks on its standard input and output.
    pub protocol: Protocol,
    /// The program and its arguments: a file of the bundle, or an interpreter below /usr followed by a script of the
    /// bundle. A plugin without it only contributes and never gets a process.
    #[serde(default)]
    #[schemars(length(max = validate::ARGUMENTS_MAX), inner(length(max = validate::ARGUMENT_LENGTH_MAX)))]
    pub exec: Vec<String>,
    /// What the program needs of the machine.
    #[serde(default)]
    pub runtime: Runtime,
    /// What callers can call.
    #[serde(default)]
    #[schemars(length(max = COMMANDS_MAX))]
    pub commands: Vec<Command>,
    /// Descriptors for applications, by kind.
    #[serde(default)]
    #[schemars(schema_with = "contributions")]
    pub contributes: BTreeMap<String, Vec<serde_json::Value>>,
    /// What the plugin asks for; nothing of it is granted by installing.
    #[serde(default)]
    pub permissions: Permissions,
    /// The bounds of its scope and of its frames.
    #[serde(default)]
    pub resources: Resources,
    /// When it runs.
    #[serde(default)]
    pub lifecycle: Lifecycle,
    /// The digest of `commands` as they were written; see [`crate::digest::commands`].
    #[serde(skip)]
    #[schemars(skip)]
    pub commands_digest: String,
}

/// What a plugin speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// plugind's own protocol, version 1.
    #[serde(rename = "plugind/1")]
    Plugind1,
    /// The Model Context Protocol over stdio.
    #[serde(rename = "mcp")]
    Mcp,
}

/// What a plugin's program needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// The machine's `/usr`, read-only: interpreters and shared libraries.
    System,
    /// Nothing: its files bring all that they need.
    #[default]
    Static,
}

impl Manifest {
    /// Reads and checks a `plugin.json`.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let mut manifest = read::typed(bytes)?;
        validate::check(&manifest)?;
        manifest.commands_digest = crate::digest::commands(bytes)?;
        Ok(manifest)
    }

    /// Everything the plugin asks for.
    #[must_use]
    pub fn requested(&self) -> BTreeSet<Permission> {
        self.permissions.requested()
    }

    /// The command of that name.
    #[must_use]
    pub fn command(&self, name: &str) -> Option<&Command> {
        self.commands.iter().find(|command| command.name == name)
    }

    /// Whether the plugin only contributes and never gets a process.
    #[must_use]
    pub fn is_declarative(&self) -> bool {
        self.exec.is_empty()
    }

    /// The absolute interpreter that runs the plugin, where there is one.
    #[must_use]
    pub fn interpreter(&self) -> Option<&str> {
        self.exec.first().map(String::as_str).filter(|program| program.starts_with('/'))
    }

    /// The bundle's file that is run: the program, or the interpreter's script.
    #[must_use]
    pub fn entry(&self) -> Option<&str> {
        self.exec.get(usize::from(self.interpreter().is_some())).map(String::as_str)
    }
}

fn contributions(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let descriptors = generator.subschema_for::<Vec<serde_json::Map<String, serde_json::Value>>>();
    schemars::json_schema!({
        "type": "object",
        "propertyNames": { "pattern": pattern::COMMAND },
        "maxProperties": validate::KINDS_MAX,
        "additionalProperties": descriptors,
    })
}

/// A `plugin.json` that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    /// The field, e.g. `commands[0].risk`; empty for the document as a whole.
    pub path: String,
    /// What is wrong with it.
    pub cause: String,
    /// What to do about it.
    pub hint: String,
}

impl ManifestError {
    /// An error at a field.
    pub fn new(path: impl Into<String>, cause: impl Into<String>, hint: impl Into<String>) -> ManifestError {
        ManifestError { path: path.into(), cause: cause.into(), hint: hint.into() }
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "plugin.json {}", self.cause),
            path => write!(f, "plugin.json: {path} {}", self.cause),
        }
    }
}

impl std::error::Error for ManifestError {}

impl From<ManifestError> for Error {
    fn from(error: ManifestError) -> Error {
        let details = serde_json::json!({ "path": error.path });
        Error::new(Kind::InvalidManifest, error.to_string(), error.hint).with_details(details)
    }
}

#[cfg(test)]
pub(crate) mod tests;
