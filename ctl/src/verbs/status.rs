//! `status`: one plugin's life at a glance, as `systemctl status` shows a unit's.

use std::time::Duration;

use plugind_protocol::{Error, Kind};
use serde::Serialize;

use super::{DONE, client, permissions};
use crate::bus::Client;
use crate::cli::StatusArgs;
use crate::colour::{Style, Tone, tone_of_state};
use crate::model::{Layer, Limit, Plugin};
use crate::output::Context;
use crate::page::Page;
use crate::{escape, human};

/// LSB: the program is not running.
const NOT_ACTIVE: u8 = 3;

#[derive(Debug, Serialize)]
struct Status {
    #[serde(flatten)]
    plugin: Plugin,
    log: Vec<String>,
}

pub(super) async fn run(context: &Context, args: &StatusArgs) -> Result<u8, Error> {
    let client = client(context).await?;
    let mut code = DONE;
    let mut found = Vec::new();
    if args.names.is_empty() {
        for plugin in client.plugins().await? {
            found.push(with_log(&client, plugin, args.lines).await);
        }
    }
    for name in &args.names {
        match client.plugin(name).await {
            Ok(plugin) => {
                code = code.max(if plugin.state == "active" { DONE } else { NOT_ACTIVE });
                found.push(with_log(&client, plugin, args.lines).await);
            }
            Err(error) if error.kind == Kind::NoSuchPlugin => code = code.max(context.fail(&error)),
            Err(error) => return Err(error),
        }
    }
    if !context.quiet {
        if context.is_json() {
            context.json(&found)?;
        } else {
            let texts: Vec<String> = found.iter().map(|status| text(status, context.style)).collect();
            context.print(&texts.join("\n"))?;
        }
    }
    Ok(code)
}

/// A log that cannot be read does not hide the rest.
async fn with_log(client: &Client, plugin: Plugin, lines: u32) -> Status {
    let log =
        if lines == 0 { Vec::new() } else { client.logs(&plugin.name, lines).await.unwrap_or_default() };
    Status { plugin, log }
}

fn text(status: &Status, style: Style) -> String {
    let plugin = &status.plugin;
    let mut page = Page::default();
    page.line(format_args!(
        "{}{} - {}",
        style.dot(&plugin.state),
        plugin.name,
        escape::line(&plugin.description)
    ));
    field(&mut page, "Loaded", &loaded(plugin));
    field(&mut page, "Active", &active(plugin, style));
    process(&mut page, plugin);
    list(&mut page, "Limits", plugin.limits.iter().map(|limit| limit_line(limit, style)));
    let permissions = plugin.requested_permissions.iter();
    list(&mut page, "Permissions", permissions.map(|permission| permission_line(plugin, permission, style)));
    let layers = plugin.sandbox.iter();
    list(
        &mut page,
        "Sandbox",
        layers.map(|Layer { layer, text }| escape::line(&format!("{layer}: {text}")).into_owned()),
    );
    if !status.log.is_empty() {
        page.line("");
        status.log.iter().for_each(|line| page.line(escape::line(line)));
    }
    page.into_text()
}

fn loaded(plugin: &Plugin) -> String {
    // As many digits as git shows: enough to tell versions apart at a glance.
    let digest = plugin.digest.get(..19).unwrap_or(&plugin.digest);
    let enabled = if plugin.enabled { "enabled" } else { "disabled" };
    format!("version {} ({}; {enabled})", escape::line(&plugin.version), escape::line(digest))
}

fn active(plugin: &Plugin, style: Style) -> String {
    let sub = if plugin.sub_state.is_empty() || plugin.sub_state == plugin.state {
        String::new()
    } else {
        format!(" ({})", plugin.sub_state)
    };
    let state = style.paint(tone_of_state(&plugin.state), &escape::line(&format!("{}{sub}", plugin.state)));
    match plugin.since_us {
        Some(micros) => format!("{state} since {}", human::moment(micros)),
        None => state,
    }
}

/// What runs, and what it takes; what the system does not say is left out.
fn process(page: &mut Page, plugin: &Plugin) {
    if !plugin.unit.is_empty() {
        field(page, "Unit", &escape::line(&plugin.unit));
    }
    if plugin.main_pid != 0 {
        field(page, "Main PID", &plugin.main_pid.to_string());
    }
    if let Some(tasks) = plugin.tasks_current {
        field(page, "Tasks", &tasks.to_string());
    }
    if let Some(memory) = plugin.memory_current {
        field(page, "Memory", &human::bytes(memory));
    }
    if let Some(nanoseconds) = plugin.cpu_usage_nsec {
        field(page, "CPU", &human::span(Duration::from_nanos(nanoseconds)));
    }
    if !plugin.control_group.is_empty() {
        field(page, "CGroup", &escape::line(&plugin.control_group));
    }
    if !plugin.last_exit.is_empty() {
        field(page, "Last exit", &escape::line(&plugin.last_exit));
    }
    if plugin.calls > 0 || plugin.restarts > 0 {
        field(
            page,
            "Calls",
            &format!("{} ({} failed), restarts: {}", plugin.calls, plugin.errors, plugin.restarts),
        );
    }
}

fn permission_line(plugin: &Plugin, permission: &str, style: Style) -> String {
    let granted = plugin.is_granted(permission);
    let word =
        if granted { style.paint(Tone::Good, "granted") } else { style.paint(Tone::Warn, "not granted") };
    let meaning = permissions::meaning(permission);
    let meaning = if meaning.is_empty() { meaning } else { format!(": {meaning}") };
    format!("{}{}, {word}{meaning}", style.mark(granted), escape::line(permission))
}

fn limit_line(limit: &Limit, style: Style) -> String {
    let (tone, word) = if limit.in_force { (Tone::Good, "in force") } else { (Tone::Bad, "NOT in force") };
    let what = format!("{} {}", limit.name, limit.wanted);
    format!("{}{}, {}", style.mark(limit.in_force), escape::line(&what), style.paint(tone, word))
}

fn field(page: &mut Page, label: &str, value: &str) {
    page.line(format_args!("{label:>11}: {value}"));
}

/// The label stands before the first item only.
fn list(page: &mut Page, label: &str, items: impl Iterator<Item = String>) {
    for (count, item) in items.enumerate() {
        if count == 0 {
            field(page, label, &item);
        } else {
            page.line(format_args!("{:>11}  {item}", ""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Status {
        let limit =
            |name: &str, wanted: &str, in_force| Limit { name: name.into(), wanted: wanted.into(), in_force };
        Status {
            plugin: Plugin {
                name: "textstats".into(),
                version: "1.0.0".into(),
                description: "Unicode text\nstatistics".into(),
                digest: format!("sha256:0123456789abcdef{}", "0".repeat(48)),
                enabled: true,
                state: "active".into(),
                sub_state: "running".into(),
                unit: "plugind-textstats-00c0ffee.scope".into(),
                main_pid: 4242,
                control_group: "/user.slice/plugind.slice/x.scope".into(),
                memory_current: Some(1_258_292),
                cpu_usage_nsec: Some(12_000_000),
                tasks_current: Some(3),
                requested_permissions: vec!["env:TZ".into(), "network:host".into()],
                granted_permissions: vec!["env:TZ".into()],
                limits: vec![limit("memory", "512M", true), limit("cpu", "100%", false)],
                sandbox: vec![Layer { layer: "landlock".into(), text: "ABI 7".into() }],
                calls: 3,
                errors: 1,
                ..Plugin::default()
            },
            log: vec!["ready".into(), "\u{1b}[31mred".into()],
        }
    }

    #[test]
    fn a_running_plugin_in_a_pipe() {
        let expected = "\
textstats - Unicode text\\nstatistics
     Loaded: version 1.0.0 (sha256:0123456789ab; enabled)
     Active: active (running)
       Unit: plugind-textstats-00c0ffee.scope
   Main PID: 4242
      Tasks: 3
     Memory: 1.2M
        CPU: 12ms
     CGroup: /user.slice/plugind.slice/x.scope
      Calls: 3 (1 failed), restarts: 0
     Limits: memory 512M, in force
             cpu 100%, NOT in force
Permissions: env:TZ, granted: see the environment variable TZ
             network:host, not granted: use the HOST'S NETWORK, unfiltered: every server this machine reaches, its local services included
    Sandbox: landlock: ABI 7

ready
\\u{1b}[31mred
";
        assert_eq!(text(&running(), Style::PLAIN), expected);
    }

    #[test]
    fn a_terminal_gets_dots_and_marks() {
        let text = text(&running(), Style::TERMINAL);
        assert!(text.starts_with("* textstats - "), "{text}");
        assert!(
            text.contains("     Limits: + memory 512M, in force\n             - cpu 100%, NOT in force\n"),
            "{text}"
        );
        assert!(text.contains("Permissions: + env:TZ, granted"), "{text}");
    }

    #[test]
    fn a_stopped_plugin_shows_no_process() {
        let stopped = Status {
            plugin: Plugin {
                name: "x".into(),
                version: "1.0.0".into(),
                description: "d".into(),
                digest: "sha256:0".into(),
                state: "failed".into(),
                last_exit: "killed by signal 9".into(),
                ..Plugin::default()
            },
            log: Vec::new(),
        };
        let expected = "x - d\n     Loaded: version 1.0.0 (sha256:0; disabled)\n     Active: failed\n  \
                        Last exit: killed by signal 9\n";
        assert_eq!(text(&stopped, Style::PLAIN), expected);
    }

    #[test]
    fn json_is_flat() {
        let value = serde_json::to_value(running()).unwrap();
        assert_eq!(value["main_pid"], 4242);
        assert_eq!(value["log"][0], "ready");
        assert_eq!(value["limits"][1]["in_force"], false);
        assert!(value["since_us"].is_null());
    }
}
