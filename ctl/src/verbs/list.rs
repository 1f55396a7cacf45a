//! `list`: what is installed.

use plugind_protocol::Error;
use serde::Serialize;

use super::{DONE, client};
use crate::colour::tone_of_state;
use crate::model::Plugin;
use crate::output::Context;
use crate::table::{Cell, Table};

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    version: &'a str,
    state: &'a str,
    enabled: bool,
    description: &'a str,
    digest: &'a str,
}

pub(super) async fn run(context: &Context) -> Result<u8, Error> {
    let plugins = client(context).await?.plugins().await?;
    if context.is_json() {
        context.json(&plugins.iter().map(listed).collect::<Vec<_>>())?;
    } else {
        context.print(&table(&plugins).render(context.style, context.legend, "plugin"))?;
    }
    Ok(DONE)
}

fn listed(plugin: &Plugin) -> Listed<'_> {
    let Plugin { name, version, state, description, digest, .. } = plugin;
    Listed { name, version, state, enabled: plugin.enabled, description, digest }
}

fn table(plugins: &[Plugin]) -> Table {
    let mut table = Table::new(&["NAME", "VERSION", "STATE", "ENABLED", "DESCRIPTION"]);
    for plugin in plugins {
        table.push(vec![
            Cell::new(&plugin.name),
            Cell::new(&plugin.version),
            Cell::new(&plugin.state).tone(tone_of_state(&plugin.state)),
            Cell::new(if plugin.enabled { "enabled" } else { "disabled" }),
            Cell::new(&plugin.description),
        ]);
    }
    table
}
