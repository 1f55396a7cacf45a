//! `describe`: what a plugin is, offers and asks for.

use std::time::Duration;

use plugind_protocol::Error;
use plugind_protocol::manifest::{Command, Manifest, format_size};
use serde_json::Value;

use super::{DONE, client, permissions};
use crate::colour::{Style, Tone};
use crate::model::Described;
use crate::output::Context;
use crate::page::Page;
use crate::{escape, human};

pub(super) async fn run(context: &Context, name: &str) -> Result<u8, Error> {
    let client = client(context).await?;
    if context.is_json() {
        context.raw_json(&client.describe_raw(name).await?)?;
    } else {
        context.print(&text(&client.describe(name).await?, context.style))?;
    }
    Ok(DONE)
}

fn text(described: &Described, style: Style) -> String {
    let manifest = &described.manifest;
    let mut page = Page::default();
    let title = format!("{} {}", manifest.name, manifest.version);
    page.line(format_args!(
        "{} - {}",
        style.paint(Tone::Strong, &title),
        escape::line(&manifest.description)
    ));
    field(&mut page, "Digest", &described.digest);
    field(&mut page, "Commands digest", &described.commands_digest);
    field(&mut page, "Protocol", &word(&manifest.protocol));
    if manifest.is_declarative() {
        field(&mut page, "Program", "none: it only contributes");
    } else {
        field(&mut page, "Program", &manifest.exec.join(" "));
        field(&mut page, "Runtime", &word(&manifest.runtime));
    }
    bounds(&mut page, manifest);
    let heading =
        |text: &str, page: &mut Page| page.line(format_args!("\n{}", style.paint(Tone::Strong, text)));

    let requested = manifest.requested();
    heading(if requested.is_empty() { "Asks for no permissions" } else { "Asks for" }, &mut page);
    for permission in &requested {
        let permission = permission.to_string();
        page.line(format_args!("  {permission}: {}", permissions::meaning(&permission)));
    }
    if !manifest.commands.is_empty() {
        heading("Commands", &mut page);
        manifest.commands.iter().for_each(|found| command(&mut page, found, style));
    }
    if !manifest.contributes.is_empty() {
        heading("Contributes", &mut page);
        for (kind, items) in &manifest.contributes {
            page.line(format_args!("  {}: {}", escape::line(kind), items.len()));
        }
    }
    page.into_text()
}

fn bounds(page: &mut Page, manifest: &Manifest) {
    let (resources, lifecycle) = (&manifest.resources, &manifest.lifecycle);
    field(
        page,
        "Bounds",
        &format!(
            "memory {}, cpu {}%, {} tasks, /tmp {}, frames {}, {} calls at once",
            format_size(resources.memory_max),
            resources.cpu_quota,
            resources.tasks_max,
            format_size(resources.tmp_size),
            format_size(resources.frame_max),
            resources.in_flight
        ),
    );
    field(page, "Activation", &word(&lifecycle.activation));
    field(page, "Restart", &word(&lifecycle.restart));
    if lifecycle.instances > 1 {
        field(page, "Instances", &format!("{}, each with these bounds", lifecycle.instances));
    }
}

fn command(page: &mut Page, command: &Command, style: Style) {
    let timeout = human::span(Duration::from_millis(u64::from(command.timeout_ms)));
    let mut facts = vec![command.risk.to_string(), timeout];
    facts.extend(command.idempotent.then(|| "idempotent".to_owned()));
    facts.extend(command.dry_run.then(|| "dry run".to_owned()));
    let name = style.paint(Tone::Strong, &escape::line(&command.name));
    page.line(format_args!("  {name} ({}): {}", facts.join(", "), escape::line(&command.description)));
    for (label, schema) in [("takes", &command.input_schema), ("gives", &command.output_schema)] {
        if let Some(shape) = shape(schema) {
            page.line(format_args!("    {label} {}", escape::short(&shape, 300)));
        }
    }
}

/// An object's properties, or else the type, in a few words; `-o json` has the whole schema.
fn shape(schema: &Value) -> Option<String> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return type_of(schema);
    };
    let required = schema.get("required").and_then(Value::as_array);
    let fields = properties.iter().map(|(name, property)| {
        let optional = !required.is_some_and(|names| names.iter().any(|required| required == name));
        let kind = type_of(property).map(|kind| format!(": {kind}")).unwrap_or_default();
        format!("{name}{}{kind}", if optional { "?" } else { "" })
    });
    Some(format!("{{ {} }}", fields.collect::<Vec<_>>().join(", ")))
}

fn type_of(schema: &Value) -> Option<String> {
    match schema.get("type")? {
        Value::String(kind) => Some(kind.clone()),
        Value::Array(kinds) => Some(kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|")),
        _ => None,
    }
}

/// A value as the manifest writes it.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

fn field(page: &mut Page, label: &str, value: &str) {
    if !value.is_empty() {
        page.line(format_args!("{label:>15}: {}", escape::line(value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_described_in_words() {
        let described: Described = serde_json::from_str(
            r#"{"manifest":{"manifest":1,"name":"textstats","version":"1.0.0","description":"Unicode \u001b statistics",
                "protocol":"plugind/1","exec":["bin/textstats"],
                "commands":[{"name":"count","description":"Count","risk":"read-only","idempotent":true,
                  "input_schema":{"type":"object","properties":{"text":{"type":"string"},"by":{"type":["string","null"]}},
                                  "required":["text"]},
                  "output_schema":{"type":"object"}}],
                "permissions":{"env":["TZ"]}},
              "digest":"sha256:00","commands_digest":"11"}"#,
        )
        .unwrap();
        let text = text(&described, Style::PLAIN);
        for line in [
            "textstats 1.0.0 - Unicode \\u{1b} statistics",
            "         Digest: sha256:00",
            "        Program: bin/textstats",
            "        Runtime: static",
            "         Bounds: memory 512M, cpu 100%, 64 tasks, /tmp 64M, frames 1M, 32 calls at once",
            "  env:TZ: see the environment variable TZ",
            "  count (read-only, 30s, idempotent): Count",
            "    takes { by?: string|null, text: string }",
            "    gives object",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n---\n{text}");
        }
    }
}
