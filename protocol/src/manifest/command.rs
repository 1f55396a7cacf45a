//! One command of a plugin, as its manifest describes it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::validate::COMMAND_DESCRIPTION_MAX;
use crate::name::pattern;

/// The longest `timeout_ms`: five minutes.
pub const TIMEOUT_MAX_MS: u32 = 300_000;

/// Something callers can call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// The command's name.
    #[schemars(regex(pattern = pattern::COMMAND))]
    pub name: String,
    /// What the command does, for callers and for the reviewer.
    #[schemars(length(min = 1, max = COMMAND_DESCRIPTION_MAX))]
    pub description: String,
    /// The JSON Schema of its arguments; anything goes without it.
    #[serde(default = "anything")]
    #[schemars(extend("type" = ["object", "boolean"]))]
    pub input_schema: Value,
    /// The JSON Schema of its result; anything goes without it.
    #[serde(default = "anything")]
    #[schemars(extend("type" = ["object", "boolean"]))]
    pub output_schema: Value,
    /// The worst that a call can do.
    pub risk: Risk,
    /// Whether calling it twice does no more than calling it once.
    #[serde(default)]
    pub idempotent: bool,
    /// How long a call may take, milliseconds.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 1, max = TIMEOUT_MAX_MS))]
    pub timeout_ms: u32,
    /// Whether it can show what it would do without doing it.
    #[serde(default)]
    pub dry_run: bool,
}

/// The worst that a call of a command can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Risk {
    /// Changes nothing.
    ReadOnly,
    /// Changes something that can be changed back.
    Mutating,
    /// Removes or overwrites something for good.
    Destructive,
    /// Reads a secret.
    SecretAccess,
    /// Runs code that its caller gives it.
    CodeExecution,
    /// Acts on the machine or for other people.
    Privileged,
}

impl Risk {
    /// The risk as the manifest writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Risk::ReadOnly => "read-only",
            Risk::Mutating => "mutating",
            Risk::Destructive => "destructive",
            Risk::SecretAccess => "secret-access",
            Risk::CodeExecution => "code-execution",
            Risk::Privileged => "privileged",
        }
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn anything() -> Value {
    Value::Object(serde_json::Map::new())
}

fn default_timeout() -> u32 {
    30_000
}
