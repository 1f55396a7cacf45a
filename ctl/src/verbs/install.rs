//! `install`: a bundle into the store, and what its reviewer should know.

use plugind_protocol::{BundleDigest, Error, Kind, Manifest, Permission};
use serde::Serialize;

use super::{DONE, client, permissions};
use crate::bundle::Bundle;
use crate::bus::{Client, Lifecycle};
use crate::cli::InstallArgs;
use crate::escape;
use crate::model::Plugin;
use crate::output::Context;
use crate::page::Page;

#[derive(Serialize)]
struct Installed<'a> {
    name: &'a str,
    version: &'a str,
    digest: &'a str,
    enabled: bool,
    requested: &'a [String],
    granted: &'a [String],
    missing: Vec<String>,
}

pub(super) async fn run(context: &Context, args: &InstallArgs) -> Result<u8, Error> {
    let wanted = args.digest.as_deref().map(parse_digest).transpose()?;
    let grants = permissions::parse(&args.grant)?;
    let bundle = Bundle::open(&args.bundle)?;
    check_digest(bundle.digest, wanted)?;
    check_grants(&bundle.manifest, &grants)?;

    let client = client(context).await?;
    let name = send(&client, bundle).await?;
    if !grants.is_empty() {
        client.grant(&name, &grants).await?;
    }
    if args.enable {
        client.lifecycle(&name, Lifecycle::Enable).await?;
    }

    let plugin = client.plugin(&name).await?;
    if context.is_json() {
        context.json(&Installed {
            name: &plugin.name,
            version: &plugin.version,
            digest: &plugin.digest,
            enabled: plugin.enabled,
            requested: &plugin.requested_permissions,
            granted: &plugin.granted_permissions,
            missing: plugin.missing_permissions(),
        })?;
    } else if !context.quiet {
        context.print(&text(&plugin))?;
    }
    Ok(DONE)
}

/// Installs exactly what was checked; gives the plugin's name.
pub(super) async fn send(client: &Client, bundle: Bundle) -> Result<String, Error> {
    let digest = bundle.digest.to_string();
    let (descriptor, sender) = bundle.send()?;
    match client.install(descriptor, &digest).await {
        Ok(name) => Ok(name),
        Err(error) => Err(sender.failure().await.unwrap_or(error)),
    }
}

/// Only what a bundle asks for can be granted; said before anything is installed.
pub(super) fn check_grants(manifest: &Manifest, grants: &[String]) -> Result<(), Error> {
    let requested = manifest.requested();
    let covered =
        |grant: &Permission| requested.iter().any(|asked| asked.covers(grant) || grant.covers(asked));
    match grants.iter().find(|grant| !grant.parse().is_ok_and(|grant| covered(&grant))) {
        None => Ok(()),
        Some(grant) => {
            let asked: Vec<String> = requested.iter().map(ToString::to_string).collect();
            let asks = if asked.is_empty() { "nothing".to_owned() } else { asked.join(" ") };
            Err(Error::new(
                Kind::InvalidArguments,
                format!("{} does not ask for {grant}", manifest.name),
                format!("it asks for {asks}"),
            ))
        }
    }
}

fn parse_digest(text: &str) -> Result<BundleDigest, Error> {
    text.parse().map_err(|cause: plugind_protocol::digest::DigestError| {
        Error::new(
            Kind::InvalidArguments,
            cause.to_string(),
            "copy it as `pluginctl pack` or `verify` printed it",
        )
    })
}

fn check_digest(found: BundleDigest, wanted: Option<BundleDigest>) -> Result<(), Error> {
    match wanted {
        Some(wanted) if wanted != found => Err(Error::new(
            Kind::DigestMismatch,
            format!("the bundle's digest is {found}, not {wanted}"),
            "it is not what was reviewed: get the right file, or review this one and use its digest",
        )),
        _ => Ok(()),
    }
}

fn text(plugin: &Plugin) -> String {
    let name = &plugin.name;
    let mut page = Page::default();
    page.line(format_args!("Installed {name} {}", escape::line(&plugin.version)));
    page.line(&plugin.digest);
    let missing = plugin.missing_permissions();
    if !missing.is_empty() {
        page.line("It asks for what is not granted:");
        let width = missing.iter().map(String::len).max().unwrap_or(0);
        for permission in &missing {
            let shown = escape::line(permission);
            page.line(format_args!("  {shown:width$}  {}", permissions::meaning(permission)));
        }
        page.line(format_args!("To grant it:  pluginctl grant {name} {}", missing.join(" ")));
    }
    if !plugin.enabled {
        page.line(format_args!("To enable it: pluginctl enable {name}"));
    }
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin() -> Plugin {
        Plugin {
            name: "notes".into(),
            version: "1.0.0".into(),
            digest: format!("sha256:{}", "0".repeat(64)),
            requested_permissions: vec!["env:TZ".into(), "mount:docs:write".into()],
            granted_permissions: vec!["env:TZ".into()],
            ..Plugin::default()
        }
    }

    #[test]
    fn the_reviewer_sees_what_is_missing_and_the_exact_command() {
        let expected = "Installed notes 1.0.0\n\
            sha256:0000000000000000000000000000000000000000000000000000000000000000\n\
            It asks for what is not granted:\n  \
              mount:docs:write  read, change and delete every file of the root \"docs\"\n\
            To grant it:  pluginctl grant notes mount:docs:write\n\
            To enable it: pluginctl enable notes\n";
        assert_eq!(text(&plugin()), expected);
    }

    #[test]
    fn nothing_is_said_where_nothing_is_left_to_do() {
        let done = Plugin { enabled: true, requested_permissions: Vec::new(), ..plugin() };
        assert_eq!(text(&done).lines().count(), 2);
    }

    #[test]
    fn another_digest_is_refused() {
        let digest = BundleDigest([1; 32]);
        assert_eq!(check_digest(digest, None), Ok(()));
        assert_eq!(check_digest(digest, Some(digest)), Ok(()));
        let error = check_digest(digest, Some(BundleDigest([2; 32]))).unwrap_err();
        assert_eq!((error.kind, error.exit_code()), (Kind::DigestMismatch, 7));
        assert_eq!(parse_digest("sha256:12").unwrap_err().kind, Kind::InvalidArguments);
    }

    #[test]
    fn only_what_is_asked_for_can_be_granted() {
        let manifest = Manifest::parse(
            br#"{"manifest":1,"name":"notes","version":"1.0.0","description":"x","protocol":"plugind/1","exec":["bin/x"],
               "permissions":{"mounts":[{"root":"docs","access":"write"}],"env":["TZ"]},
               "commands":[{"name":"c","description":"x","risk":"mutating"}]}"#,
        )
        .unwrap();
        for grant in ["env:TZ", "mount:docs:write", "mount:docs:read"] {
            assert_eq!(check_grants(&manifest, &[grant.into()]), Ok(()), "{grant}");
        }
        let error = check_grants(&manifest, &["env:TZ".into(), "network:host".into()]).unwrap_err();
        assert_eq!(error.message, "notes does not ask for network:host");
        assert_eq!(error.hint, "it asks for mount:docs:write env:TZ");
    }
}
