//! What the supervisor and the launcher say to each other over their `SOCK_SEQPACKET` socket.
//!
//! One JSON object a packet, at most [`PACKET_MAX`] bytes. A launch holds names and numbers only: the launcher
//! derives every path, the bubblewrap arguments and the unit name itself, so that a supervisor that was taken over
//! can start nothing but what the store holds, with nothing but what a plugin may have.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The largest packet in bytes: far above any launch, far below the socket's buffer.
pub const PACKET_MAX: usize = 128 * 1024;

/// What the supervisor asks for; each request is answered by one [`Reply`] with its serial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Chosen by the supervisor, given back in the reply.
    pub serial: u64,
    /// What to do.
    pub action: Action,
}

/// The verbs of the launcher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Action {
    /// Start a plugin; the reply brings its stdin, stdout, stderr and pidfd, in that order.
    Launch(Box<Launch>),
    /// Close the launcher's copy of the plugin's stdin, so that the supervisor's closing is seen as end of file.
    CloseStdin {
        /// The instance.
        instance: String,
    },
    /// Send a signal to the plugin's own process.
    Signal {
        /// The instance.
        instance: String,
        /// The signal's number.
        signal: i32,
    },
    /// Kill everything in the instance's cgroup; answered when the cgroup is empty.
    Kill {
        /// The instance.
        instance: String,
    },
}

/// What to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// The plugin's name.
    pub name: String,
    /// The instance: eight hexadecimal digits, the last part of the scope's name.
    pub instance: String,
    /// The bundle's digest, `sha256:<hex>`: names its folder in the store.
    pub digest: String,
    /// Device and inode of the folder whose content was verified.
    pub bundle: (u64, u64),
    /// The manifest's `exec`.
    pub exec: Vec<String>,
    /// SHA-256 of `exec[0]` where it is a file of the bundle.
    pub entry_sha256: Option<String>,
    /// The bundle's files, where it is a small one of scripts: they are shown from memory, because an interpreter opens
    /// them by name. Empty where `/plugin` is the store's folder.
    pub in_memory: Vec<BundleFile>,
    /// Whether `/usr` is there.
    pub usr: bool,
    /// Whether the plugin uses the host's network.
    pub network: bool,
    /// The operator's roots that the plugin sees below `/workspace`.
    pub mounts: Vec<RootMount>,
    /// The secrets that it sees below `/run/credentials`.
    pub secrets: Vec<String>,
    /// Environment beyond the fixed part: granted names and their values.
    pub env: Vec<(String, String)>,
    /// What its scope and its tmpfs are bound to.
    pub limits: Limits,
}

/// One file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundleFile {
    /// Its path in the bundle.
    pub path: String,
    /// Its SHA-256, hexadecimal.
    pub sha256: String,
    /// Whether it is executable.
    pub executable: bool,
}

/// A bundle of scripts with more files than this is not shown from memory: one descriptor each, one packet for all.
pub const IN_MEMORY_FILES_MAX: usize = 128;

/// Nor is one that is larger than this, in bytes: it is charged to the plugin's scope.
pub const IN_MEMORY_SIZE_MAX: u64 = 8 << 20;

/// A named root of the operator's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootMount {
    /// The root's name.
    pub root: String,
    /// Whether the plugin may write there.
    pub write: bool,
}

/// Limits of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// `MemoryMax`, bytes; swap is always 0.
    pub memory_max: u64,
    /// `CPUQuota` in per cent of one CPU.
    pub cpu_percent: u32,
    /// `TasksMax`.
    pub tasks_max: u32,
    /// The size of `/tmp`, bytes; charged to the scope.
    pub tmp_size: u64,
}

/// What the launcher says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reply {
    /// The plugin's program was executed with every layer in force.
    Launched {
        /// The request's serial.
        serial: u64,
        /// What was started.
        launched: Box<Launched>,
    },
    /// Done.
    Done {
        /// The request's serial.
        serial: u64,
    },
    /// Refused or failed; nothing of it is left behind.
    Failed {
        /// The request's serial.
        serial: u64,
        /// Why.
        error: Box<Error>,
    },
    /// An instance is gone and its cgroup is empty. Sent once for each instance, unasked.
    Exited {
        /// The instance.
        instance: String,
        /// How its program ended.
        status: ExitStatus,
    },
}

/// A started instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launched {
    /// The plugin's process, as this machine numbers it.
    pub pid: u32,
    /// The scope unit.
    pub unit: String,
    /// The scope's cgroup, below the cgroup mount.
    pub cgroup: String,
    /// Each limit, and whether it was read back as in force.
    pub limits: Vec<LimitState>,
    /// Each sandbox layer, and how it stands.
    pub layers: Vec<(String, String)>,
}

/// One limit as it was read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitState {
    /// The unit property, e.g. `MemoryMax`.
    pub name: String,
    /// What was asked for, as the cgroup file writes it.
    pub wanted: String,
    /// Whether the kernel enforces it.
    pub in_force: bool,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// Its parent vanished, so nobody knows.
    Unknown,
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitStatus::Code(code) => write!(f, "exit code {code}"),
            ExitStatus::Signal(signal) => write!(f, "signal {signal}"),
            ExitStatus::Unknown => f.write_str("unknown exit status"),
        }
    }
}

/// The scope's unit name, `plugind-<name>-<instance>.scope`.
#[must_use]
pub fn unit_name(name: &str, instance: &str) -> String {
    format!("plugind-{name}-{instance}.scope")
}

/// Whether a unit's name is one that [`unit_name`] gives.
#[must_use]
pub fn is_unit_name(unit: &str) -> bool {
    unit.starts_with("plugind-") && unit.strip_suffix(".scope").is_some()
}
