//! The command line: what is accepted, and the help that says so.

mod arguments;
mod help;

use std::time::Duration;

use clap::{Args, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::human;

pub(crate) use arguments::{
    BenchArgs, Call, CallArgs, DoctorArgs, EnableArgs, InstallArgs, KillArgs, LogsArgs, NameArgs, NamesArgs,
    OptionalNameArgs, PackArgs, PermissionArgs, RemoveArgs, RunArgs, SortKey, StatusArgs, TopArgs,
    VerifyArgs,
};

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
    /// Give up after this time, e.g. 30s or 2min [default: 90s; bench, call and run: the command's own]
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
    \"sandbox\":[{\"layer\",\"text\"}],\"calls\",\"errors\",\"errors_by_kind\":{KIND:COUNT},
    \"bytes_in\",\"bytes_out\",\"in_flight\",\"queued\",\"latency_p50_us\",\"latency_p99_us\",\"stray_answers\",
    \"progress_dropped\",\"instances\":[{\"instance\",\"unit\",\"control_group\",\"main_pid\"}],\"log\"}]
Bytes go into the plugin and come out of it; latencies are those of the last one to two minutes.

Example:
  pluginctl status textstats")]
    Status(StatusArgs),

    /// Watch calls, latencies and resources, as `top` shows processes
    #[command(after_help = "\
On a terminal the table is drawn anew each round; keys: q quits, and sorting goes by
  n name  c calls  e errors  l latency (p99)  f in flight  u queued  b bytes  p CPU  m memory
In a pipe one line a plugin, columns separated by tabs, numbers plain, `-` where there is none:
  name, state, calls/s, errors/s, p50 in us, p99 in us, in flight, queued,
  bytes/s into the plugin, bytes/s out of it, CPU in percent of one core, memory in bytes, tasks
JSON: one object a round, on one line, null where there is no number:
  {\"seconds\",\"total\":{\"plugins\",\"active\",…},\"plugins\":[{\"name\",\"state\",\"calls\",\"errors\",
    \"calls_per_second\",\"errors_per_second\",\"latency_p50_us\",\"latency_p99_us\",\"in_flight\",\"queued\",
    \"bytes_in_per_second\",\"bytes_out_per_second\",\"cpu_percent\",\"memory_current\",\"tasks_current\"}]}
  total has the same rates and sums.

Example:
  pluginctl top --sort cpu -d 2s
  pluginctl top -n 60 -o json textstats | jq .total.calls_per_second")]
    Top(TopArgs),

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
With --stream each chunk is a line of JSON on standard output as it comes, progress goes to standard error, and the \
result comes last; with -o json all of it is lines {\"chunk\":…}, {\"progress\":…}, {\"result\":…} on standard output.

Example:
  pluginctl call textstats.count --args '{\"text\":\"Grüße\"}'
  jq -Rs '{text:.}' <README | pluginctl call textstats count --args -
  jq -Rs '{text:.}' <README | pluginctl call --stream textstats.lines --args -")]
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

    /// Call a command many times and measure
    #[command(after_help = "\
Each caller has a channel of its own, and --in-flight calls at once on it. The plugin is started first, so that its start \
is not measured. Rates, bytes and latencies are of the calls that succeeded; bytes are those of arguments and results.
Exit code: 0 if any call succeeded, else that of the most frequent error; after a signal 128 and its number.
JSON: {\"plugin\",\"command\",\"callers\",\"in_flight\",\"seconds\",\"calls\",\"failed\",
  \"errors_by_kind\":{KIND:COUNT},\"calls_per_second\",\"bytes_per_second\",
  \"latency_p50_us\",\"latency_p90_us\",\"latency_p99_us\",\"latency_max_us\"}

Example:
  pluginctl bench textstats.count --args '{\"text\":\"Grüße\"}' -c 4 --in-flight 8 --time 10s")]
    Bench(BenchArgs),

    /// Run a canary plugin through every step and say what is missing
    #[command(after_help = "\
Exit code: 0 all steps work, 8 some do not. Without an installed daemon a private one is used.
JSON: [{\"step\",\"ok\",\"detail\",\"fix\"}]

Example:
  pluginctl doctor")]
    Doctor(DoctorArgs),
}

/// Reads the command line; wrong use and `--help` end the process here, as clap does.
pub(crate) fn parse() -> Cli {
    let matches = help::command().get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &[&str]) -> Result<Cli, clap::Error> {
        let words = std::iter::once("pluginctl").chain(words.iter().copied());
        Cli::from_arg_matches(&help::command().try_get_matches_from(words)?)
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
    fn a_bench_is_bounded_by_calls_or_by_time() {
        let bench = |words: &[&str]| match parse_words(words).unwrap().verb {
            Verb::Bench(args) => (args.calls, args.time, args.callers, args.in_flight),
            _ => panic!("not a bench"),
        };
        assert_eq!(bench(&["bench", "a.b"]), (1000, None, 1, 1));
        assert_eq!(bench(&["bench", "a.b", "-n", "5", "-c", "2", "--in-flight", "3"]), (5, None, 2, 3));
        assert_eq!(bench(&["bench", "a", "b", "--time", "2s"]).1, Some(Duration::from_secs(2)));
    }

    #[test]
    fn wrong_use_is_exit_code_2() {
        for words in [
            &["frobnicate"][..],
            &["start"],
            &["call"],
            &["list", "--timeout", "0s"],
            &["grant", "x"],
            &["top", "-n", "0"],
            &["top", "--sort", "colour"],
            &["bench"],
            &["bench", "a.b", "-n", "5", "--time", "1s"],
            &["bench", "a.b", "-c", "0"],
            &[],
        ] {
            assert_eq!(parse_words(words).unwrap_err().exit_code(), 2, "{words:?}");
        }
    }
}
