//! What can go wrong on this side of a channel.

use std::fmt;

use plugind_protocol::error::DBUS_ERROR_PREFIX;
use plugind_protocol::{Error, Kind};
use zbus::{Message, fdo};

/// The channel ended. What was asked on it may have been done.
pub(super) fn ended(cause: impl fmt::Display) -> Error {
    Error::new(
        Kind::Unavailable,
        format!("the channel to plugind ended: {cause}"),
        "open another channel; `journalctl --user -u plugind` tells why this one ended",
    )
    .outcome_unknown()
}

/// There is no channel, so nothing was done.
pub(super) fn not_opened(cause: impl fmt::Display) -> Error {
    unavailable(format!("the socket cannot be a channel: {cause}"))
}

/// The request cannot be sent, so nothing was done.
pub(super) fn not_sent(ended: &Error) -> Error {
    Error { outcome_known: true, ..ended.clone() }
}

pub(super) fn too_large(bytes: usize, frame_max: usize) -> Error {
    let message = format!("the call is a frame of {bytes} bytes, and frame_max is {frame_max}");
    let hint = "send less at a time, or ask for more in the plugin's resources.frame_max (at most 16M)";
    let details = serde_json::json!({"bytes": bytes, "frame_max": frame_max});
    Error::new(Kind::FrameTooLarge, message, hint).with_details(details)
}

pub(super) fn bad_arguments(target: &str, cause: impl fmt::Display) -> Error {
    let message = format!("the arguments of {target} cannot be sent: {cause}");
    Error::new(Kind::InvalidArguments, message, format!("see {}", describe(target)))
}

/// The plugin did what was asked; what it answered is of another shape than this program expects.
pub(super) fn unexpected_result(target: &str, cause: impl fmt::Display) -> Error {
    let message = format!("the result of {target} is not what this program expects: {cause}");
    Error::new(Kind::PluginError, message, format!("compare with the output schema: {}", describe(target)))
}

fn describe(target: &str) -> String {
    let plugin = target.split_once('.').map_or(target, |(plugin, _)| plugin);
    format!("pluginctl describe {plugin}")
}

/// A stream that breaks the channel's rules: it is given up, since a part of it is lost.
pub(super) fn broken_stream(cause: &str) -> Error {
    let hint = "client and daemon may be of different versions: restart plugind after an upgrade";
    Error::new(Kind::ProtocolViolation, format!("plugind broke a rule of the channel: {cause}"), hint)
        .outcome_unknown()
}

pub(super) fn no_runtime() -> Error {
    Error::new(
        Kind::Conflict,
        "a channel was opened outside of a tokio runtime",
        "open it in an async function that tokio runs, with its I/O and time drivers enabled",
    )
}

/// The supervisor's own error, or what the bus says in its place.
pub(super) fn from_zbus(cause: zbus::Error) -> Error {
    match cause {
        zbus::Error::MethodError(name, message, reply) => from_reply(name.as_str(), message, &reply),
        zbus::Error::FDO(cause) => from_bus(&cause),
        other => unavailable(format!("the connection to plugind broke: {other}")).outcome_unknown(),
    }
}

/// An error reply whose body is `(s message, s error_json)`.
fn from_reply(name: &str, message: Option<String>, reply: &Message) -> Error {
    let message = message.unwrap_or_default();
    let Some(kind) = name.strip_prefix(DBUS_ERROR_PREFIX).and_then(Kind::from_name) else {
        return unavailable(format!("{name}: {message}"));
    };
    let whole = reply.body().deserialize::<(String, String)>().ok();
    whole
        .and_then(|(_, json)| serde_json::from_str::<Error>(&json).ok())
        // The name is what the bus relayed; a body that says otherwise is not believed.
        .filter(|error| error.kind == kind)
        .unwrap_or_else(|| {
            Error::new(kind, message, "see `pluginctl status` and `journalctl --user -u plugind`")
        })
}

fn from_bus(cause: &fdo::Error) -> Error {
    let kind = match cause {
        fdo::Error::AccessDenied(_) | fdo::Error::AuthFailed(_) => Kind::PermissionDenied,
        fdo::Error::LimitsExceeded(_) | fdo::Error::NoMemory(_) => Kind::Busy,
        fdo::Error::TimedOut(_) | fdo::Error::Timeout(_) => Kind::TimedOut,
        _ => Kind::Unavailable,
    };
    Error { kind, retryable: kind.retryable(), ..unavailable(format!("plugind cannot be reached: {cause}")) }
}

fn unavailable(message: String) -> Error {
    Error::new(Kind::Unavailable, message, "see `systemctl --user status plugind` and `pluginctl doctor`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(name: &str, body: &(impl serde::Serialize + zbus::wire::DynamicType)) -> zbus::Error {
        let call = Message::method_call("/", "Call").destination(":1.2").build(&()).unwrap();
        Message::error(&call.header(), name).build(body).unwrap().into()
    }

    #[test]
    fn the_supervisors_error_arrives_whole() {
        let sent = Error::new(Kind::NoSuchPlugin, "no plugin `x`", "install it")
            .with_details(serde_json::json!({"name": "x"}));
        let body = (sent.message.as_str(), serde_json::to_string(&sent).unwrap());
        assert_eq!(from_zbus(reply(&Kind::NoSuchPlugin.dbus_name(), &body)), sent);
        let forged = from_zbus(reply(&Kind::Busy.dbus_name(), &body));
        assert_eq!((forged.kind, forged.message.as_str()), (Kind::Busy, "no plugin `x`"));
    }

    #[test]
    fn errors_of_the_bus_have_kinds_and_hints() {
        for (name, kind) in [
            ("ServiceUnknown", Kind::Unavailable),
            ("TimedOut", Kind::TimedOut),
            ("AccessDenied", Kind::PermissionDenied),
            ("LimitsExceeded", Kind::Busy),
        ] {
            let error = from_zbus(reply(&format!("org.freedesktop.DBus.Error.{name}"), &"why"));
            assert_eq!((error.kind, error.retryable), (kind, kind.retryable()), "{name}");
            assert!(!error.hint.is_empty());
        }
        assert_eq!(from_zbus(reply("org.example.Odd", &"what")).message, "org.example.Odd: what");
    }
}
