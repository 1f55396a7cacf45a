//! A plugin's standard error: it is kept, and it forges nothing, whatever is in it.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use plugind_integration::{Bundle, Installed, Outcome, ctl, until, user};
use plugind_protocol::Kind;
use serde_json::{Value, json};

/// Takes a terminal over, forges a field of the journal and a line of the supervisor's.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m red\r over\u{202e}turned\0\u{8}\n\
                       forged\nPRIORITY=0\nPLUGIND_PLUGIN=somebody\n<0>plugind: ERROR forged\n";

fn said_by(plugin: &Installed) -> Vec<String> {
    let lines = ctl(&["logs", plugin.name()]).json();
    lines.as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect()
}

/// The plugin's entries of the journal, and those of somebody whom it claims to be.
fn journal(plugin: &str) -> Vec<Value> {
    let field = format!("PLUGIND_PLUGIN={plugin}");
    let outcome = Outcome::of(Command::new("journalctl").args(["--no-pager", "--output", "json", &field]));
    outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_a_plugin_writes_controls_no_terminal_and_forges_no_line() {
    let plugin = Installed::new(Bundle::hostile());
    plugin.call("stderr", &json!({"text": HOSTILE})).success();
    plugin.call("stderr", &json!({"text": "the end\n"})).success();
    until("the end is read", || said_by(&plugin).iter().any(|line| line.contains("the end")).then_some(()));

    let lines = said_by(&plugin);
    assert!(lines.iter().any(|line| line.contains("red") && line.contains("turned")), "{lines:?}");
    assert!(lines.iter().any(|line| line == "forged"), "{lines:?}");
    for verb in ["logs", "status"] {
        let text = Outcome::of(user::as_tester("pluginctl").args([verb, plugin.name()])).stdout;
        assert!(text.contains("the end"), "{text}");
        let active = text.chars().find(|&c| c.is_control() && c != '\n' || c == '\u{202e}');
        assert_eq!(active, None, "{verb}: {text:?}");
    }

    let entries = until("the journal has it", || {
        let entries = journal(plugin.name());
        entries
            .iter()
            .any(|entry| entry["MESSAGE"].as_str().is_some_and(|text| text.contains("the end")))
            .then_some(entries)
    });
    for entry in &entries {
        assert_eq!(entry["SYSLOG_IDENTIFIER"], "plugind", "{entry}");
        assert_eq!(entry["PLUGIND_PLUGIN"], plugin.name(), "{entry}");
        assert_ne!(entry["PRIORITY"], "0", "{entry}");
        // Bytes that are no text would be a list of numbers.
        let message = entry["MESSAGE"].as_str().unwrap_or_else(|| panic!("no text: {entry}"));
        assert!(!message.chars().any(|c| c.is_control() && c != '\n'), "{entry}");
    }
    assert_eq!(journal("somebody").len(), 0);
}

#[test]
fn a_long_line_and_many_lines_are_cut_and_the_plugin_goes_on() {
    let plugin = Installed::new(Bundle::hostile());
    plugin.call("stderr", &json!({"text": "x".repeat(100_000) + "\n"})).success();
    plugin.call("flood-stderr", &json!({"bytes": 8 << 20})).success();
    plugin.call("stderr", &json!({"text": "the end\n"})).success();
    until("the end is read", || said_by(&plugin).iter().any(|line| line == "the end").then_some(()));
    let all = ctl(&["logs", "--lines", "100000", plugin.name()]);
    assert!(all.json().as_array().unwrap().len() <= 1000, "the newest are kept");
    assert!(all.stdout.len() < 8 << 20, "{} bytes", all.stdout.len());
    assert_eq!(plugin.call("echo", &json!(1)).json(), 1);
}

/// The same bytes as a line of plugind's own are told apart by a field that a plugin cannot set.
#[test]
fn a_plugin_cannot_pass_its_words_off_as_plugind_s_own() {
    let plugin = Installed::new(Bundle::hostile());
    let forged = format!("granted to {}: network:host caller=\"uid:0\"", plugin.name());
    plugin.call("stderr", &json!({"text": format!("{forged}\n")})).success();
    let params = json!({"level": "error", "message": forged});
    plugin.call("notify", &json!({"method": "log", "params": params})).success();
    let sources = |text: &str| {
        let entries = journal(plugin.name());
        let said = entries
            .iter()
            .filter(|entry| entry["MESSAGE"].as_str().is_some_and(|said| said.starts_with(text)));
        said.map(|entry| entry["PLUGIND_SOURCE"].as_str().unwrap_or("none").to_owned()).collect::<Vec<_>>()
    };
    let mut found =
        until("the journal has both", || Some(sources("granted to")).filter(|found| found.len() == 2));
    found.sort();
    assert_eq!(found, ["log", "stderr"]);
    assert_eq!(sources("installed"), ["plugind"]);
}

#[test]
fn a_crash_shows_the_lines_of_the_instance_that_crashed_and_no_others() {
    let plugin = Installed::new(Bundle::hostile());
    plugin.call("stderr", &json!({"text": "of an earlier instance\n"})).success();
    until("it is read", || said_by(&plugin).iter().any(|line| line.contains("earlier")).then_some(()));
    ctl(&["restart", plugin.name()]).success();
    let error = plugin.call("exit", &json!({"code": 3})).fails(Kind::Crashed);
    assert_eq!(error.details["exit_code"], 3, "{error:?}");
    assert!(!error.details["stderr"].to_string().contains("earlier"), "{error:?}");
}
