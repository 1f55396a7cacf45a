//! `call`: one command's answer.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use plugind_protocol::{Error, Kind, Manifest};
use serde_json::value::RawValue;

use super::target::target;
use super::{DONE, client, stream};
use crate::bus::{CallOptions, Client};
use crate::cli::{Call, CallArgs};
use crate::output::Context;

/// Added to the command's own time before we give up: starting the plugin takes at most 15 s of it.
const SLACK: Duration = Duration::from_secs(20);
/// What a command has where its manifest does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// No frame is longer, so no arguments are either.
const ARGUMENTS_MAX: u64 = 16 << 20;

pub(super) async fn run(context: &Context, args: &CallArgs) -> Result<u8, Error> {
    let (plugin, command) = target(&args.target, args.command.as_deref())?;
    let arguments = arguments(&args.call.args)?;
    let client = client(context).await?;
    let manifest =
        if context.timeout.is_none() { Some(client.describe(plugin).await?.manifest) } else { None };
    let how = options(context, &args.call, manifest.as_ref(), command);
    if args.stream {
        return stream::print(context, &client, plugin, command, &arguments, how).await;
    }
    print(context, &client, plugin, command, &arguments, how).await
}

/// Calls, and prints the result.
pub(super) async fn print(
    context: &Context,
    client: &Client,
    plugin: &str,
    command: &str,
    arguments: &str,
    how: CallOptions,
) -> Result<u8, Error> {
    let result = client.call(plugin, command, arguments, how).await?;
    if serde_json::from_str::<&RawValue>(&result).is_err() {
        return Err(Error::internal(format!("plugind gave a result of {plugin} that is not JSON")));
    }
    context.raw_json(&result)?;
    Ok(DONE)
}

/// How long the plugin has, and how long we wait for the supervisor's answer.
pub(super) fn options(
    context: &Context,
    call: &Call,
    manifest: Option<&Manifest>,
    command: &str,
) -> CallOptions {
    let own = manifest
        .and_then(|manifest| manifest.command(command))
        .map_or(DEFAULT_TIMEOUT, |command| Duration::from_millis(u64::from(command.timeout_ms)));
    CallOptions {
        timeout: context.timeout,
        dry_run: call.dry_run,
        deadline: context.timeout.unwrap_or(own) + SLACK,
    }
}

/// The arguments as JSON text: given, from a file, or from standard input.
pub(super) fn arguments(given: &str) -> Result<String, Error> {
    let text = match given {
        "-" | "@-" => read(io::stdin().lock(), "standard input")?,
        _ => match given.strip_prefix('@') {
            Some(path) => read(File::open(path).map_err(|cause| unreadable(path, &cause))?, path)?,
            None => given.to_owned(),
        },
    };
    match serde_json::from_str::<&RawValue>(&text) {
        Ok(_) => Ok(text),
        Err(cause) => Err(Error::new(
            Kind::InvalidArguments,
            format!("the arguments are not JSON: {cause}"),
            "quote them for the shell, e.g. --args '{\"text\":\"hello\"}'; a file is --args @FILE, standard input --args -",
        )),
    }
}

fn read(from: impl Read, source: &str) -> Result<String, Error> {
    let mut bytes = Vec::new();
    from.take(ARGUMENTS_MAX + 1).read_to_end(&mut bytes).map_err(|cause| unreadable(source, &cause))?;
    if bytes.len() as u64 > ARGUMENTS_MAX {
        return Err(Error::new(
            Kind::InvalidArguments,
            format!("{source} holds more than 16 MiB, which no plugin takes in one call"),
            "call it with smaller parts",
        ));
    }
    String::from_utf8(bytes).map_err(|cause| {
        Error::new(
            Kind::InvalidArguments,
            format!("{source} is not UTF-8: {cause}"),
            "arguments are JSON, which is UTF-8: convert them, e.g. with iconv",
        )
    })
}

fn unreadable(source: &str, cause: &io::Error) -> Error {
    Error::new(
        Kind::InvalidArguments,
        format!("cannot read {source}: {cause}"),
        "see --args in `pluginctl call --help`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked_and_not_rebuilt() {
        for text in ["{}", " {\"a\": 1.10} ", "null", "[1e400]", "\"x\"", "-5"] {
            assert_eq!(arguments(text).as_deref(), Ok(text));
        }
        for text in ["", "{", "{a:1}", "{} {}", "hello", "@/nonexistent/file"] {
            assert_eq!(arguments(text).unwrap_err().kind, Kind::InvalidArguments, "{text}");
        }
    }

    #[test]
    fn what_is_read_is_bounded_utf_8() {
        assert_eq!(read(&b"{}"[..], "it").as_deref(), Ok("{}"));
        assert_eq!(read(io::repeat(b' '), "it").unwrap_err().kind, Kind::InvalidArguments);
        assert_eq!(read(&b"\"\xff\""[..], "it").unwrap_err().kind, Kind::InvalidArguments);
    }
}
