//! The help: the verbs in groups, and what holds for all of them.

use clap::{Command, CommandFactory};

use super::Cli;
use crate::page::Page;

/// The verbs by what a person wants; every verb stands in exactly one group.
const GROUPS: [(&str, &[&str]); 5] = [
    ("See what is there", &["list", "status", "top", "describe", "commands", "logs"]),
    ("Use a plugin", &["call"]),
    ("Install and permit", &["install", "verify", "permissions", "grant", "revoke", "remove"]),
    ("Start and stop", &["enable", "disable", "start", "stop", "restart", "kill"]),
    ("Develop and diagnose", &["run", "pack", "bench", "doctor"]),
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

/// The whole command tree, with its verbs grouped in the help.
pub(super) fn command() -> Command {
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
}
