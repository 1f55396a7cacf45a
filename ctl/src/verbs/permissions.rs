//! `permissions`, `grant` and `revoke`: what plugins ask for, in plain words, and the operator's decision.

use std::collections::BTreeSet;

use plugind_protocol::{Error, Kind, Permission};
use serde::Serialize;

use super::{DONE, client};
use crate::cli::PermissionArgs;
use crate::colour::{Style, Tone};
use crate::model::Plugin;
use crate::output::Context;
use crate::table::{Cell, Table};

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Listed {
    plugin: String,
    permission: String,
    requested: bool,
    granted: bool,
    meaning: String,
}

pub(super) async fn list(context: &Context, name: Option<&str>) -> Result<u8, Error> {
    let client = client(context).await?;
    let plugins = match name {
        Some(name) => vec![client.plugin(name).await?],
        None => client.plugins().await?,
    };
    let found: Vec<Listed> = plugins.iter().flat_map(listed).collect();
    if context.is_json() {
        context.json(&found)?;
    } else if let (Some(name), true) = (name, found.is_empty()) {
        context.note(&format!("{name} asks for no permissions"));
    } else {
        context.print(&table(&found, context.style).render(context.style, context.legend, "permission"))?;
    }
    Ok(DONE)
}

pub(super) async fn grant(context: &Context, args: &PermissionArgs) -> Result<u8, Error> {
    let permissions = parse(&args.permissions)?;
    client(context).await?.grant(&args.name, &permissions).await?;
    Ok(DONE)
}

pub(super) async fn revoke(context: &Context, args: &PermissionArgs) -> Result<u8, Error> {
    let permissions = parse(&args.permissions)?;
    client(context).await?.revoke(&args.name, &permissions).await?;
    Ok(DONE)
}

/// Permissions in their one text form.
pub(super) fn parse(texts: &[String]) -> Result<Vec<String>, Error> {
    let parsed = texts.iter().map(|text| text.parse::<Permission>().map(|permission| permission.to_string()));
    parsed.collect::<Result<_, _>>().map_err(|cause| {
        Error::new(
            Kind::InvalidArguments,
            cause.to_string(),
            "`pluginctl permissions NAME` shows what a plugin asks for, in this form",
        )
    })
}

/// What a permission means; one of another version says nothing.
pub(super) fn meaning(permission: &str) -> String {
    permission.parse::<Permission>().map(|permission| permission.summary()).unwrap_or_default()
}

fn listed(plugin: &Plugin) -> Vec<Listed> {
    let all: BTreeSet<&String> =
        plugin.requested_permissions.iter().chain(&plugin.granted_permissions).collect();
    all.into_iter()
        .map(|permission| Listed {
            plugin: plugin.name.clone(),
            permission: permission.clone(),
            requested: is_requested(plugin, permission),
            granted: plugin.is_granted(permission),
            meaning: meaning(permission),
        })
        .collect()
}

/// Asked for as it is, or as part of more: reading, where writing is asked for.
fn is_requested(plugin: &Plugin, permission: &str) -> bool {
    let parsed = permission.parse::<Permission>().ok();
    plugin.requested_permissions.iter().any(|asked| {
        asked == permission
            || parsed.as_ref().is_some_and(|permission| {
                asked.parse::<Permission>().is_ok_and(|asked| asked.covers(permission))
            })
    })
}

fn table(permissions: &[Listed], style: Style) -> Table {
    let mut table = Table::new(&["PLUGIN", "PERMISSION", "GRANTED", "MEANING"]);
    for permission in permissions {
        let (word, tone) = match (permission.granted, permission.requested) {
            (true, true) => ("yes", Tone::Good),
            (true, false) => ("yes, not asked for", Tone::Faint),
            (false, _) => ("no", Tone::Warn),
        };
        let name = if style.terminal && permission.meaning.contains("NETWORK") {
            Cell::new(&permission.permission).tone(Tone::Strong)
        } else {
            Cell::new(&permission.permission)
        };
        table.push(vec![
            Cell::new(&permission.plugin),
            name,
            Cell::new(word).tone(tone),
            Cell::new(&permission.meaning),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_permission_is_listed_once_with_its_meaning() {
        let plugin = Plugin {
            name: "notes".into(),
            requested_permissions: vec!["network:host".into(), "env:TZ".into()],
            granted_permissions: vec!["env:TZ".into(), "secret:old".into()],
            ..Plugin::default()
        };
        let text = table(&listed(&plugin), Style::PLAIN).render(Style::PLAIN, true, "permission");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "notes\tenv:TZ\tyes\tsee the environment variable TZ");
        assert!(lines[1].starts_with("notes\tnetwork:host\tno\tuse the HOST'S NETWORK"), "{}", lines[1]);
        assert_eq!(lines[2], "notes\tsecret:old\tyes, not asked for\tread the secret \"old\"");
    }

    #[test]
    fn reading_is_part_of_the_writing_that_was_asked_for() {
        let plugin = Plugin {
            requested_permissions: vec!["mount:docs:write".into()],
            granted_permissions: vec!["mount:docs:read".into()],
            ..Plugin::default()
        };
        let listed = listed(&plugin);
        assert!(listed.iter().all(|permission| permission.requested));
        assert_eq!(listed.iter().filter(|permission| permission.granted).count(), 1);
    }

    #[test]
    fn what_is_no_permission_never_reaches_the_bus() {
        assert_eq!(parse(&["env:TZ".into()]).as_deref(), Ok(&["env:TZ".to_owned()][..]));
        let error = parse(&["env:TZ".into(), "everything".into()]).unwrap_err();
        assert_eq!((error.kind, error.exit_code()), (Kind::InvalidArguments, 2));
        assert!(error.message.contains("`everything`"));
    }
}
