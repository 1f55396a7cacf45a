//! The command line: what is accepted, and the help that says so.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::human;
use crate::page::Page;

/// The verbs by what a person wants; every verb stands in exactly one group.
const GROUPS: [(&str, &[&str]); 5] = [
    ("See what is there", &["list", "status", "describe", "commands", "logs"]),
    ("Use a plugin", &["call"]),
    ("Install and permit", &["install", "verify", "permissions", "grant", "revoke", "remove"]),
    ("Start and stop", &["enable", "disable", "start", "stop", "restart", "kill"]),
    ("Develop and diagnose", &["run", "pack", "doctor"]),
];

const AFTER_HELP: &str = "\
Exit codes:
  0  done            4  no such plugin       8  sandbox, attestation or limits refused
  1  plugin's error  5  not permitted        9  busy, timed out, cancelled or unavailable
  2  wrong use       6  disabled, conflict  10  plugin crashed or broke the protocol
  3  not active      7  invalid bundle      11  fault of plugind

With -o json, answers are JSON on standard output (one line in a pipe) and an error is one line
{\"error\":{\"kind\",\"message\",\"hint\",\"outcome_known\",\"retryable\",\"details\"}} on standard error.
`pluginctl VERB --help` has an example and the shape of each verb's JSON.";

/// Control plugins that run in their own scope and sandbox
#[derive(Debug, Parser)]
#[command(
    name = "pluginctl",
    version,
    subcommand_required = true,
    subcommand_value_name = "VERB",
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) shared: Shared,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Options of every verb.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Shared options")]
pub(crate) struct Shared {
    /// Text for people, or JSON for programs
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
    /// Give up after this time, e.g. 30s or 2min [default: 90s; call and run: the command's own]
    #[arg(long, global = true, value_name = "TIME", value_parser = human::parse_span)]
    pub(crate) timeout: Option<Duration>,
    /// No headings and no count around a table
    #[arg(long, global = true)]
    pub(crate) no_legend: bool,
    /// Print results and errors only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// Formats of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List installed plugins
    #[command(after_help = "\
On a terminal a table; in a pipe one line a plugin, columns separated by tabs.
JSON: [{\"name\",\"version\",\"state\",\"enabled\",\"description\",\"digest\"}]

Example:
  pluginctl list | cut -f1")]
    List,

    /// Show state, limits, permissions, sandbox and last log lines
    #[command(after_help = "\
Exit code: 0 active, 3 not active, 4 no such plugin; without NAME always 0. With -q nothing is printed.
JSON: a list, null where the system does not say:
  [{\"name\",\"version\",\"description\",\"digest\",\"enabled\",\"state\",\"sub_state\",
    \"since_us\",\"unit\",\"instance\",\"main_pid\",\"control_group\",\"restarts\",\"last_exit\",
    \"memory_current\",\"cpu_usage_nsec\",\"tasks_current\",\"requested_permissions\",
    \"granted_permissions\",\"limits\":[{\"name\",\"wanted\",\"in_force\"}],
    \"sandbox\":[{\"layer\",\"text\"}],\"calls\",\"errors\",\"log\"}]

Example:
  pluginctl status textstats")]
    Status(StatusArgs),

    /// Show what a plugin is, offers and asks for
    #[command(after_help = "\
JSON: {\"manifest\":plugin.json,\"digest\",\"commands_digest\"}

Example:
  pluginctl describe textstats -o json | jq .manifest.resources")]
    Describe(NameArgs),

    /// List commands with their risk
    #[command(after_help = "\
JSON: [{\"plugin\",\"command\",\"risk\",\"idempotent\",\"timeout_ms\",\"dry_run\",\"description\"}]

Example:
  pluginctl commands textstats")]
    Commands(OptionalNameArgs),

    /// Show what a plugin wrote to its standard error
    #[command(after_help = "\
JSON: a list of lines; with --follow one JSON string a line.

Example:
  pluginctl logs textstats -n 50 -f")]
    Logs(LogsArgs),

    /// Call a command and print its result
    #[command(after_help = "\
The result is JSON: indented on a terminal, one line in a pipe. --timeout is what the plugin is given to answer.

Example:
  pluginctl call textstats.count --args '{\"text\":\"Grüße\"}'
  jq -Rs '{text:.}' <README | pluginctl call textstats count --args -")]
    Call(CallArgs),

    /// Install a bundle: a folder with plugin.json, or a .plugin file
    #[command(after_help = "\
Nothing is granted and nothing is enabled unless asked for here.
JSON: {\"name\",\"version\",\"digest\",\"enabled\",\"requested\":[],\"granted\":[],\"missing\":[]}

Example:
  pluginctl install textstats-1.0.0.plugin --digest sha256:4c3f… --enable")]
    Install(InstallArgs),

    /// Check a bundle, or an installed plugin's copy, and print its digest
    #[command(after_help = "\
A word is a path when it has a slash, ends in .plugin or is a folder with plugin.json; else an installed plugin's name.
JSON: {\"name\",\"version\",\"digest\"}; version is null for an installed plugin

Example:
  pluginctl verify ./textstats-1.0.0.plugin")]
    Verify(VerifyArgs),

    /// Show in plain words what plugins ask for and what is granted
    #[command(after_help = "\
JSON: [{\"plugin\",\"permission\",\"requested\",\"granted\",\"meaning\"}]

Example:
  pluginctl permissions textstats")]
    Permissions(OptionalNameArgs),

    /// Grant permissions that a plugin asks for
    #[command(after_help = "\
Example:
  pluginctl grant notes mount:docs:read env:TZ")]
    Grant(PermissionArgs),

    /// Take permissions back
    #[command(after_help = "\
Example:
  pluginctl revoke notes mount:docs:read")]
    Revoke(PermissionArgs),

    /// Remove plugins with their data
    #[command(after_help = "\
Example:
  pluginctl remove notes --keep-data")]
    Remove(RemoveArgs),

    /// Allow plugins to be started and called
    #[command(after_help = "\
Example:
  pluginctl enable --now textstats")]
    Enable(EnableArgs),

    /// Stop plugins, and forbid them to be started and called
    #[command(after_help = "\
Example:
  pluginctl disable textstats")]
    Disable(EnableArgs),

    /// Start plugins; a call does this too
    #[command(after_help = "\
Example:
  pluginctl start textstats")]
    Start(NamesArgs),

    /// Stop plugins; returns when nothing of them runs
    #[command(after_help = "\
Example:
  pluginctl stop textstats")]
    Stop(NamesArgs),

    /// Stop plugins and start them again
    #[command(after_help = "\
Example:
  pluginctl restart textstats")]
    Restart(NamesArgs),

    /// Send a signal to plugins' own processes
    #[command(after_help = "\
Example:
  pluginctl kill -s KILL textstats")]
    Kill(KillArgs),

    /// Run one command of a bundle that is not installed
    #[command(after_help = "\
A private supervisor and launcher serve this one call, with the same sandbox, and leave nothing behind. \
The result is printed as by `call`. SIGINT, SIGTERM and SIGHUP clean up first; the exit code is then 128 and the signal's number.

Example:
  pluginctl run examples/textstats textstats.count --args '{\"text\":\"Grüße\"}'")]
    Run(RunArgs),

    /// Make a .plugin file of a bundle's folder and print its digest
    #[command(after_help = "\
The same files give the same bytes. JSON: {\"name\",\"version\",\"digest\",\"file\"}

Example:
  pluginctl pack examples/textstats -O textstats.plugin")]
    Pack(PackArgs),

    /// Run a canary plugin through every step and say what is missing
    #[command(after_help = "\
Exit code: 0 all steps work, 8 some do not. Without an installed daemon a private one is used.
JSON: [{\"step\",\"ok\",\"detail\",\"fix\"}]

Example:
  pluginctl doctor")]
    Doctor(DoctorArgs),
}

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

/// `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Show the private supervisor's log
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Reads the command line; wrong use and `--help` end the process here, as clap does.
pub(crate) fn parse() -> Cli {
    let matches = command().get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The whole command tree, with its verbs grouped in the help.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let width = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter()).map(|verb| verb.len()).max().unwrap_or(0);
    let mut groups = Page::default();
    for (heading, verbs) in GROUPS {
        groups.line(format_args!("{heading}:"));
        for verb in verbs {
            let about = command.find_subcommand(verb).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            groups.line(format_args!("  {verb:width$}  {about}"));
        }
        groups.line("");
    }
    let groups = groups.into_text();
    let template =
        format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}");
    command.help_template(template).after_help(AFTER_HELP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &[&str]) -> Result<Cli, clap::Error> {
        let words = std::iter::once("pluginctl").chain(words.iter().copied());
        Cli::from_arg_matches(&command().try_get_matches_from(words)?)
    }

    #[test]
    fn the_tree_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn every_verb_stands_in_one_group_and_has_an_example() {
        let mut tree = command();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        grouped.sort_unstable();
        let mut verbs: Vec<String> = tree.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
        let top = tree.render_help().to_string();
        for verb in tree.get_subcommands_mut().filter(|verb| verb.get_name() != "help") {
            let name = verb.get_name().to_owned();
            assert!(top.contains(&format!("  {name} ")), "{name} is missing in the help");
            let help = verb.render_help().to_string();
            assert!(
                help.contains(&format!("Example:\n  pluginctl {name}")),
                "{name} has no example:\n{help}"
            );
        }
    }

    #[test]
    fn shared_options_stand_before_and_after_the_verb() {
        for words in [
            ["-o", "json", "--timeout", "2min", "-q", "list"],
            ["list", "-o", "json", "--timeout", "2min", "-q"],
        ] {
            let cli = parse_words(&words).unwrap();
            assert_eq!(cli.shared.output, Format::Json);
            assert_eq!(cli.shared.timeout, Some(Duration::from_secs(120)));
            assert!(cli.shared.quiet && matches!(cli.verb, Verb::List));
        }
    }

    #[test]
    fn arguments_of_a_call() {
        let Verb::Call(call) = parse_words(&["call", "a.b", "--args", "-", "--timeout", "30s"]).unwrap().verb
        else {
            panic!("not a call");
        };
        assert_eq!((call.target.as_str(), call.command, call.call.args.as_str()), ("a.b", None, "-"));
        let Verb::Call(call) = parse_words(&["call", "a", "b", "--args", "-5"]).unwrap().verb else {
            panic!("not a call");
        };
        assert_eq!((call.command.as_deref(), call.call.args.as_str()), (Some("b"), "-5"));
        let Verb::Call(call) = parse_words(&["call", "a.b"]).unwrap().verb else { panic!("not a call") };
        assert_eq!(call.call.args, "{}");
    }

    #[test]
    fn wrong_use_is_exit_code_2() {
        for words in
            [&["frobnicate"][..], &["start"], &["call"], &["list", "--timeout", "0s"], &["grant", "x"], &[]]
        {
            assert_eq!(parse_words(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }
}
