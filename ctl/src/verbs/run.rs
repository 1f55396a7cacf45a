//! `run`: one call of a bundle that is not installed, by a private supervisor.

use plugind_protocol::{Error, Manifest};

use super::{call, install, permissions};
use crate::bundle::Bundle;
use crate::bus::Lifecycle;
use crate::cli::RunArgs;
use crate::output::{Context, DEADLINE};
use crate::private;

pub(super) async fn run(context: &Context, args: &RunArgs) -> Result<u8, Error> {
    let grants = permissions::parse(&args.grant)?;
    let bundle = Bundle::open(&args.bundle)?;
    install::check_grants(&bundle.manifest, &grants)?;
    let arguments = call::arguments(&args.call.args)?;
    let command = command(&bundle.manifest, &args.target).to_owned();
    let how = call::options(context, &args.call, Some(&bundle.manifest), &command);
    note_missing(context, &bundle.manifest, &grants);

    // --timeout is for the command; the steps before it have their own.
    private::with(DEADLINE, args.verbose, async |client| {
        let name = install::send(client, bundle).await?;
        if !grants.is_empty() {
            client.grant(&name, &grants).await?;
        }
        client.lifecycle(&name, Lifecycle::Enable).await?;
        call::print(context, client, &name, &command, &arguments, how).await
    })
    .await
}

/// The command that a word means: one of the plugin's own names, or that after `PLUGIN.`.
fn command<'a>(manifest: &Manifest, target: &'a str) -> &'a str {
    if manifest.command(target).is_some() {
        return target;
    }
    target.strip_prefix(&manifest.name).and_then(|rest| rest.strip_prefix('.')).unwrap_or(target)
}

fn note_missing(context: &Context, manifest: &Manifest, grants: &[String]) {
    let missing: Vec<String> = manifest
        .requested()
        .iter()
        .map(ToString::to_string)
        .filter(|permission| !grants.contains(permission))
        .map(|permission| format!("--grant {permission}"))
        .collect();
    if !missing.is_empty() {
        context.note(&format!(
            "note: {} runs without what it asks for; to grant it: {}",
            manifest.name,
            missing.join(" ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugins_name_before_the_command_may_be_left_out() {
        let manifest = Manifest::parse(
            br#"{"manifest":1,"name":"stats","version":"1.0.0","description":"x","protocol":"plugind/1","exec":["bin/x"],
               "commands":[{"name":"count","description":"x","risk":"read-only"},
                           {"name":"stats.deep","description":"x","risk":"read-only"}]}"#,
        )
        .unwrap();
        for (target, expected) in [
            ("count", "count"),
            ("stats.count", "count"),
            ("stats.deep", "stats.deep"),
            ("stats.stats.deep", "stats.deep"),
            ("other.count", "other.count"),
        ] {
            assert_eq!(command(&manifest, target), expected);
        }
    }
}
