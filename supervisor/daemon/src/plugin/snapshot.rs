//! What everybody may see of a plugin: published by its actor, read by D-Bus.

use plugind_protocol::launch::LimitState;
use plugind_protocol::{Error, Permission};

use crate::contract::Contract;
use crate::registry::Record;

/// The lifecycle states of DESIGN §9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Disabled,
    Inactive,
    Activating,
    Active,
    Deactivating,
    Failed,
    Broken,
}

impl State {
    /// The name on D-Bus and in `pluginctl`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Disabled => "disabled",
            State::Inactive => "inactive",
            State::Activating => "activating",
            State::Active => "active",
            State::Deactivating => "deactivating",
            State::Failed => "failed",
            State::Broken => "broken",
        }
    }
}

/// One running process of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) unit: String,
    pub(crate) cgroup: String,
    pub(crate) main_pid: u32,
}

/// A plugin at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) description: String,
    pub(crate) digest: String,
    pub(crate) enabled: bool,
    pub(crate) state: State,
    pub(crate) sub_state: &'static str,
    /// Microseconds since the epoch.
    pub(crate) state_changed: u64,
    /// Those that run, the oldest first.
    pub(crate) instances: Vec<Instance>,
    pub(crate) restarts: u32,
    /// How the last instance ended, in words.
    pub(crate) last_exit: String,
    pub(crate) requested: Vec<Permission>,
    pub(crate) granted: Vec<Permission>,
    pub(crate) limits: Vec<LimitState>,
    pub(crate) layers: Vec<(String, String)>,
}

impl Snapshot {
    /// A plugin that has not run yet.
    pub(super) fn of(record: &Record, contract: &Contract) -> Snapshot {
        let manifest = &contract.manifest;
        Snapshot {
            version: manifest.version.clone(),
            description: manifest.description.clone(),
            digest: record.digest.to_string(),
            enabled: record.enabled,
            requested: manifest.requested().into_iter().collect(),
            granted: record.granted().into_iter().collect(),
            ..Snapshot::resting(
                record.name.clone(),
                if record.enabled { State::Inactive } else { State::Disabled },
            )
        }
    }

    /// A plugin whose record or bundle cannot be used.
    pub(super) fn broken(name: String, error: &Error) -> Snapshot {
        Snapshot {
            sub_state: "broken",
            last_exit: error.message.clone(),
            ..Snapshot::resting(name, State::Broken)
        }
    }

    fn resting(name: String, state: State) -> Snapshot {
        Snapshot {
            name,
            version: String::new(),
            description: String::new(),
            digest: String::new(),
            enabled: false,
            state,
            sub_state: "dead",
            state_changed: now(),
            instances: Vec::new(),
            restarts: 0,
            last_exit: String::new(),
            requested: Vec::new(),
            granted: Vec::new(),
            limits: Vec::new(),
            layers: Vec::new(),
        }
    }

    /// The instance that stands for the plugin where only one can be shown.
    pub(crate) fn first(&self) -> Option<&Instance> {
        self.instances.first()
    }

    /// Takes out what only a running instance has.
    pub(super) fn clear(&mut self) {
        self.instances.clear();
        self.limits.clear();
        self.layers.clear();
    }
}

/// Now, in microseconds since the epoch.
pub(crate) fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|since| u64::try_from(since.as_micros()).ok())
        .unwrap_or(0)
}
