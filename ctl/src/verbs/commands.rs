//! `commands`: what can be called.

use plugind_protocol::manifest::{Command, Risk};
use plugind_protocol::{Error, Kind};
use serde::Serialize;

use super::{DONE, client};
use crate::colour::Tone;
use crate::output::Context;
use crate::table::{Cell, Table};

#[derive(Serialize)]
struct Listed {
    plugin: String,
    command: String,
    risk: Risk,
    idempotent: bool,
    timeout_ms: u32,
    dry_run: bool,
    description: String,
}

pub(super) async fn run(context: &Context, name: Option<&str>) -> Result<u8, Error> {
    let client = client(context).await?;
    let names = match name {
        Some(name) => vec![name.to_owned()],
        None => client.plugins().await?.into_iter().map(|plugin| plugin.name).collect(),
    };
    let mut found = Vec::new();
    for plugin in names {
        match client.describe(&plugin).await {
            Ok(described) => {
                found.extend(described.manifest.commands.into_iter().map(|command| listed(&plugin, command)));
            }
            // Removed since it was listed.
            Err(error) if name.is_none() && error.kind == Kind::NoSuchPlugin => {}
            Err(error) => return Err(error),
        }
    }
    if context.is_json() {
        context.json(&found)?;
    } else {
        context.print(&table(&found).render(context.style, context.legend, "command"))?;
    }
    Ok(DONE)
}

fn listed(plugin: &str, command: Command) -> Listed {
    let Command { name, description, risk, idempotent, timeout_ms, dry_run, .. } = command;
    Listed { plugin: plugin.to_owned(), command: name, risk, idempotent, timeout_ms, dry_run, description }
}

fn table(commands: &[Listed]) -> Table {
    let mut table = Table::new(&["COMMAND", "RISK", "DESCRIPTION"]);
    for command in commands {
        let risk = Cell::new(&command.risk.to_string());
        table.push(vec![
            Cell::new(&format!("{}.{}", command.plugin, command.command)),
            if command.risk == Risk::ReadOnly { risk } else { risk.tone(Tone::Warn) },
            Cell::new(&command.description),
        ]);
    }
    table
}
