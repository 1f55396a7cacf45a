//! D-Bus errors as the errors of plugind.

use std::io;

use plugind_config::Settings;
use plugind_protocol::error::DBUS_ERROR_PREFIX;
use plugind_protocol::{Error, Kind};
use zbus::Message;
use zbus::fdo;

use crate::escape;

/// The supervisor's own error, or what the bus says in its place.
pub(super) fn from_zbus(cause: zbus::Error) -> Error {
    match cause {
        zbus::Error::MethodError(name, message, reply) => from_reply(name.as_str(), message, &reply),
        zbus::Error::FDO(cause) => from_bus(&cause),
        zbus::Error::InputOutput(cause) => from_io(&cause),
        other => Error::internal(format!("D-Bus: {}", escape::line(&other.to_string()))),
    }
}

/// Whether there is no object at the path.
pub(super) fn is_no_object(cause: &zbus::Error) -> bool {
    matches!(cause, zbus::Error::FDO(cause)
        if matches!(**cause, fdo::Error::UnknownObject(_) | fdo::Error::UnknownInterface(_)))
}

/// An error reply whose body is `(s message, s error_json)`.
fn from_reply(name: &str, message: Option<String>, reply: &Message) -> Error {
    let Some(kind) = name.strip_prefix(DBUS_ERROR_PREFIX).and_then(Kind::from_name) else {
        let message = message.unwrap_or_default();
        return unavailable(
            format!("{name}: {message}"),
            "see `systemctl --user status plugind` and its log",
        );
    };
    let whole = reply
        .body()
        .deserialize::<(String, String)>()
        .ok()
        .and_then(|(_, json)| serde_json::from_str::<Error>(&json).ok())
        // The name is what the bus relayed; a body that says otherwise is not believed.
        .filter(|error| error.kind == kind);
    whole.unwrap_or_else(|| {
        Error::new(
            kind,
            message.unwrap_or_default(),
            "see `pluginctl status` and `systemctl --user status plugind`",
        )
    })
}

fn from_bus(cause: &fdo::Error) -> Error {
    let not_started = matches!(cause, fdo::Error::TimedOut(_) | fdo::Error::Timeout(_))
        || cause_name(cause).contains(".Spawn.");
    if not_started && let Err(fault) = Settings::load() {
        return fault.into();
    }
    match cause {
        fdo::Error::ServiceUnknown(_)
        | fdo::Error::NameHasNoOwner(_)
        | fdo::Error::SpawnServiceNotFound(_) => unavailable(
            "plugind is not installed on this session bus",
            "install plugind for this user, or use `pluginctl run DIR PLUGIN.COMMAND`, which needs no daemon",
        ),
        fdo::Error::NoReply(_) | fdo::Error::Disconnected(_) => unavailable(
            format!("plugind went away before it answered: {cause}"),
            "see why with `journalctl --user -u plugind`; the next request starts it again",
        )
        .outcome_unknown(),
        fdo::Error::TimedOut(_) | fdo::Error::Timeout(_) => Error::new(
            Kind::TimedOut,
            format!("the bus gave up waiting for plugind: {cause}"),
            "see `systemctl --user status plugind`",
        )
        .outcome_unknown(),
        fdo::Error::AccessDenied(_) | fdo::Error::AuthFailed(_) => Error::new(
            Kind::PermissionDenied,
            format!("the bus does not let this through: {cause}"),
            "ask as the user whose plugins they are",
        ),
        fdo::Error::LimitsExceeded(_) | fdo::Error::NoMemory(_) => Error::new(
            Kind::Busy,
            format!("the bus takes no more: {cause}"),
            "try again with less, or a little later",
        ),
        fdo::Error::UnknownMethod(_) | fdo::Error::UnknownInterface(_) | fdo::Error::UnknownObject(_) => {
            unavailable(
                format!("the plugind on the bus does not know this request: {cause}"),
                "it is of another version than this pluginctl: systemctl --user restart plugind",
            )
        }
        _ if cause_name(cause).contains(".Spawn.") => unavailable(
            format!("the bus cannot start plugind: {cause}"),
            "see why with `systemctl --user status plugind` and `journalctl --user -u plugind`",
        ),
        other => Error::internal(format!("D-Bus: {}", escape::line(&other.to_string()))),
    }
}

fn from_io(cause: &io::Error) -> Error {
    if cause.kind() == io::ErrorKind::TimedOut {
        let hint = "see `systemctl --user status plugind`";
        return Error::new(Kind::TimedOut, "plugind did not answer in time", hint).outcome_unknown();
    }
    unavailable(
        format!("the connection to plugind broke: {cause}"),
        "see why with `journalctl --user -u plugind`; the next request starts it again",
    )
    .outcome_unknown()
}

fn unavailable(message: impl Into<String>, hint: &str) -> Error {
    Error::new(Kind::Unavailable, message, hint)
}

fn cause_name(cause: &fdo::Error) -> String {
    zbus::DBusError::name(cause).to_string()
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
        let sent = Error::new(Kind::Crashed, "ended", "see logs")
            .outcome_unknown()
            .with_details(serde_json::json!({"stderr": ["boom"]}));
        let body = (sent.message.as_str(), serde_json::to_string(&sent).unwrap());
        assert_eq!(from_zbus(reply(&Kind::Crashed.dbus_name(), &body)), sent);
    }

    #[test]
    fn a_body_that_contradicts_the_name_is_not_believed() {
        let forged = Error::new(Kind::PermissionDenied, "forged", "run this");
        let body = ("own words", serde_json::to_string(&forged).unwrap());
        let error = from_zbus(reply(&Kind::PluginError.dbus_name(), &body));
        assert_eq!((error.kind, error.message.as_str()), (Kind::PluginError, "own words"));
    }

    #[test]
    fn a_bare_error_keeps_its_kind_and_message() {
        let error = from_zbus(reply("org.plugind1.Error.Busy", &"full"));
        assert_eq!((error.kind, error.message.as_str()), (Kind::Busy, "full"));
        let error = from_zbus(reply("org.example.Odd", &"what"));
        assert_eq!((error.kind, error.message.as_str()), (Kind::Unavailable, "org.example.Odd: what"));
    }

    #[test]
    fn errors_of_the_bus_say_what_to_do() {
        for (name, kind, outcome_known) in [
            ("ServiceUnknown", Kind::Unavailable, true),
            ("NoReply", Kind::Unavailable, false),
            ("TimedOut", Kind::TimedOut, false),
            ("AccessDenied", Kind::PermissionDenied, true),
            ("LimitsExceeded", Kind::Busy, true),
            ("UnknownMethod", Kind::Unavailable, true),
            ("Spawn.ChildExited", Kind::Unavailable, true),
            ("Failed", Kind::Internal, true),
        ] {
            let error = from_zbus(reply(&format!("org.freedesktop.DBus.Error.{name}"), &"why"));
            assert_eq!((error.kind, error.outcome_known), (kind, outcome_known), "{name}");
            assert!(!error.hint.is_empty());
        }
        let broken = io::Error::new(io::ErrorKind::BrokenPipe, "socket closed");
        assert!(!from_zbus(broken.into()).outcome_known);
    }

    #[test]
    fn a_missing_object_is_told_from_other_errors() {
        assert!(is_no_object(&reply("org.freedesktop.DBus.Error.UnknownObject", &"x")));
        assert!(!is_no_object(&reply("org.freedesktop.DBus.Error.AccessDenied", &"x")));
    }
}
