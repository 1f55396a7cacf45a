//! When a plugin runs.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When the plugin runs, and how often it is started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Lifecycle {
    /// What starts it.
    pub activation: Activation,
    /// After how many seconds without a call it is stopped; 0 for never.
    #[schemars(range(max = *Lifecycle::IDLE_TIMEOUT.end()))]
    pub idle_timeout_s: u32,
    /// When it is started again after its end.
    pub restart: Restart,
    /// How many processes serve its calls, each in a scope of its own with all of its limits.
    #[schemars(range(min = *Lifecycle::INSTANCES.start(), max = *Lifecycle::INSTANCES.end()))]
    pub instances: u32,
}

/// What starts a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// The first call.
    OnDemand,
    /// Enabling it; it stays up.
    Always,
}

/// When a plugin is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// Only by the next call or by hand.
    No,
    /// After a crash.
    OnFailure,
    /// After any end that nobody asked for.
    Always,
}

impl Lifecycle {
    /// What `idle_timeout_s` may be.
    pub const IDLE_TIMEOUT: RangeInclusive<u32> = 0..=86_400;
    /// What `instances` may be.
    pub const INSTANCES: RangeInclusive<u32> = 1..=16;
}

impl Default for Lifecycle {
    fn default() -> Lifecycle {
        Lifecycle {
            activation: Activation::OnDemand,
            idle_timeout_s: 300,
            restart: Restart::OnFailure,
            instances: 1,
        }
    }
}
