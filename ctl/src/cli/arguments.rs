//! What each verb takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};

use crate::human;

/// One plugin.
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// The plugin's name
    pub(crate) name: String,
}

/// One plugin or all.
#[derive(Debug, Args)]
pub(crate) struct OptionalNameArgs {
    /// The plugin's name; all without it
    pub(crate) name: Option<String>,
}

/// Some plugins.
#[derive(Debug, Args)]
pub(crate) struct NamesArgs {
    /// The plugins' names
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

/// `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The plugins' names; all without one
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Show so many log lines
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    pub(crate) lines: u32,
}

/// `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// The plugins' names; all without one
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// What the table is sorted by
    #[arg(long, value_enum, value_name = "KEY", default_value = "calls")]
    pub(crate) sort: SortKey,
    /// The time between two rounds
    #[arg(short, long, value_name = "SPAN", default_value = "1s", value_parser = human::parse_span)]
    pub(crate) delay: Duration,
    /// End after so many rounds [default: none on a terminal, else 1]
    #[arg(short = 'n', long, value_parser = value_parser!(u64).range(1..))]
    pub(crate) rounds: Option<u64>,
}

/// What `top` sorts by: a name upwards, numbers downwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    Name,
    Calls,
    Errors,
    Latency,
    InFlight,
    Queued,
    Bytes,
    Cpu,
    Memory,
}

/// `logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The plugin's name
    pub(crate) name: String,
    /// Show the last N lines
    #[arg(short = 'n', long, default_value_t = 100, value_name = "N")]
    pub(crate) lines: u32,
    /// Go on showing new lines
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// `call`.
#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// The plugin and its command in one word, or the plugin alone
    #[arg(value_name = "PLUGIN.COMMAND")]
    pub(crate) target: String,
    /// The command, where the first word is the plugin alone
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    #[command(flatten)]
    pub(crate) call: Call,
    /// Take chunks and progress as they come
    #[arg(long)]
    pub(crate) stream: bool,
}

/// How a command is called.
#[derive(Debug, Args)]
pub(crate) struct Call {
    /// The arguments: JSON, @FILE, or - for standard input
    #[arg(
        long,
        value_name = "JSON|@FILE|-",
        default_value = "{}",
        hide_default_value = true,
        allow_negative_numbers = true
    )]
    pub(crate) args: String,
    /// Ask the command to say what it would do
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `install`.
#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// The bundle
    #[arg(value_name = "DIR|FILE.plugin")]
    pub(crate) bundle: PathBuf,
    /// Refuse any other content than this
    #[arg(long, value_name = "sha256:…")]
    pub(crate) digest: Option<String>,
    /// Enable it, too
    #[arg(long)]
    pub(crate) enable: bool,
    /// Grant this permission, too; repeatable
    #[arg(long, value_name = "PERM")]
    pub(crate) grant: Vec<String>,
}

/// `verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// What to check
    #[arg(value_name = "DIR|FILE.plugin|NAME")]
    pub(crate) what: String,
}

/// `grant` and `revoke`.
#[derive(Debug, Args)]
pub(crate) struct PermissionArgs {
    /// The plugin's name
    pub(crate) name: String,
    /// The permissions, as `pluginctl permissions` writes them
    #[arg(required = true, value_name = "PERM")]
    pub(crate) permissions: Vec<String>,
}

/// `remove`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The plugins' names
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Keep what they wrote below /data
    #[arg(long)]
    pub(crate) keep_data: bool,
}

/// `enable` and `disable`.
#[derive(Debug, Args)]
pub(crate) struct EnableArgs {
    /// The plugins' names
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Start them, too; `disable` stops them in any case
    #[arg(long)]
    pub(crate) now: bool,
}

/// `kill`.
#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// The plugins' names
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// The signal, by name or number
    #[arg(short, long, default_value = "TERM", value_name = "SIGNAL")]
    pub(crate) signal: String,
}

/// `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The bundle's folder, or a .plugin file
    #[arg(value_name = "DIR")]
    pub(crate) bundle: PathBuf,
    /// The command; the plugin's name may be left out
    #[arg(value_name = "PLUGIN.COMMAND")]
    pub(crate) target: String,
    /// Grant this permission for the call; repeatable
    #[arg(long, value_name = "PERM")]
    pub(crate) grant: Vec<String>,
    #[command(flatten)]
    pub(crate) call: Call,
    /// Show the private supervisor's log
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// `pack`.
#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// The bundle's folder
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The file to write [default: NAME-VERSION.plugin in the current folder]
    #[arg(short = 'O', long = "output-file", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The plugin and its command in one word, or the plugin alone
    #[arg(value_name = "PLUGIN.COMMAND")]
    pub(crate) target: String,
    /// The command, where the first word is the plugin alone
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    #[command(flatten)]
    pub(crate) call: Call,
    /// Call so often, all callers together
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = value_parser!(u64).range(1..))]
    pub(crate) calls: u64,
    /// Call for so long instead
    #[arg(long, value_name = "SPAN", conflicts_with = "calls", value_parser = human::parse_span)]
    pub(crate) time: Option<Duration>,
    /// So many callers, each with a channel of its own
    #[arg(short = 'c', long, default_value_t = 1, value_parser = value_parser!(u32).range(1..=1024))]
    pub(crate) callers: u32,
    /// So many calls at once by each caller
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=1024))]
    pub(crate) in_flight: u32,
}

/// `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Show the private supervisor's log
    #[arg(short, long)]
    pub(crate) verbose: bool,
}
