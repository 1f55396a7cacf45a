//! `status`: one plugin's life at a glance, as `systemctl status` shows a unit's.

use std::time::Duration;

use plugind_protocol::{Error, Kind};
use serde::Serialize;

use super::{DONE, client, permissions};
use crate::bus::Client;
use crate::cli::StatusArgs;
use crate::colour::{Style, Tone, tone_of_state};
use crate::model::{Instance, Layer, Limit, Plugin};
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
    if plugin.instances.len() > 1 {
        list(page, "Instances", plugin.instances.iter().map(instance_line));
    } else {
        if !plugin.unit.is_empty() {
            field(page, "Unit", &escape::line(&plugin.unit));
        }
        if plugin.main_pid != 0 {
            field(page, "Main PID", &plugin.main_pid.to_string());
        }
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
    if !plugin.control_group.is_empty() && plugin.instances.len() <= 1 {
        field(page, "CGroup", &escape::line(&plugin.control_group));
    }
    if !plugin.last_exit.is_empty() {
        field(page, "Last exit", &escape::line(&plugin.last_exit));
    }
    calls(page, plugin);
}

/// What was called, and what it cost; nothing of it before the first call.
fn calls(page: &mut Page, plugin: &Plugin) {
    if plugin.calls > 0 || plugin.restarts > 0 {
        let kinds: Vec<String> =
            plugin.errors_by_kind.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let by_kind = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
        let line =
            format!("{} ({} failed{by_kind}), restarts: {}", plugin.calls, plugin.errors, plugin.restarts);
        field(page, "Calls", &escape::line(&line));
    }
    let (in_flight, queued) = (plugin.in_flight.unwrap_or(0), plugin.queued.unwrap_or(0));
    if plugin.latency_p50_us.is_some() || in_flight > 0 || queued > 0 {
        let latency = |micros: Option<u64>| micros.map_or_else(|| "-".to_owned(), human::latency);
        let (p50, p99) = (latency(plugin.latency_p50_us), latency(plugin.latency_p99_us));
        field(page, "Latency", &format!("p50 {p50}, p99 {p99}; {in_flight} in flight, {queued} queued"));
    }
    if let (Some(into), Some(out)) = (plugin.bytes_in, plugin.bytes_out)
        && (into > 0 || out > 0)
    {
        field(page, "Bytes", &format!("{} in, {} out", human::bytes(into), human::bytes(out)));
    }
    let (stray, dropped) = (plugin.stray_answers.unwrap_or(0), plugin.progress_dropped.unwrap_or(0));
    if stray > 0 || dropped > 0 {
        field(page, "Dropped", &format!("stray answers: {stray}, progress: {dropped}"));
    }
}

fn instance_line(instance: &Instance) -> String {
    let Instance { id, unit, control_group, main_pid } = instance;
    escape::line(&format!("{id}: main PID {main_pid}, {unit}, {control_group}")).into_owned()
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
                errors_by_kind: [("TimedOut".into(), 1)].into(),
                bytes_in: Some(1536),
                bytes_out: Some(37),
                in_flight: Some(2),
                queued: Some(0),
                latency_p50_us: Some(254),
                latency_p99_us: Some(1254),
                stray_answers: Some(0),
                progress_dropped: Some(7),
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
      Calls: 3 (1 failed: TimedOut 1), restarts: 0
    Latency: p50 254us, p99 1.25ms; 2 in flight, 0 queued
      Bytes: 1.5K in, 37B out
    Dropped: stray answers: 0, progress: 7
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
    fn several_instances_are_listed() {
        let mut status = running();
        let instance = |name: &str, main_pid| Instance {
            id: name.into(),
            unit: format!("plugind-textstats-{name}.scope"),
            control_group: format!("/plugind.slice/{name}.scope"),
            main_pid,
        };
        status.plugin.instances = vec![instance("00c0ffee", 4242), instance("0badcafe", 4343)];
        let text = text(&status, Style::PLAIN);
        let expected = "  \
  Instances: 00c0ffee: main PID 4242, plugind-textstats-00c0ffee.scope, /plugind.slice/00c0ffee.scope
             0badcafe: main PID 4343, plugind-textstats-0badcafe.scope, /plugind.slice/0badcafe.scope
      Tasks: 3
";
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("Main PID:") && !text.contains("CGroup:"), "{text}");
    }

    #[test]
    fn an_older_supervisor_shows_what_it_has() {
        let plugin = Plugin { calls: 3, errors: 1, ..Plugin::default() };
        let text = text(&Status { plugin, log: Vec::new() }, Style::PLAIN);
        assert!(text.ends_with("      Calls: 3 (1 failed), restarts: 0\n"), "{text}");
    }

    #[test]
    fn json_is_flat() {
        let value = serde_json::to_value(running()).unwrap();
        assert_eq!(value["main_pid"], 4242);
        assert_eq!(value["log"][0], "ready");
        assert_eq!(value["limits"][1]["in_force"], false);
        assert!(value["since_us"].is_null());
        assert_eq!(value["errors_by_kind"]["TimedOut"], 1);
        assert_eq!((&value["in_flight"], &value["latency_p99_us"]), (&2.into(), &1254.into()));
    }
}
