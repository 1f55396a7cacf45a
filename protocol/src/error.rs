//! The one error type of plugind: what D-Bus, the channel, HTTP, MCP and `pluginctl` all show.
//!
//! A plugin's own failure is always [`Kind::PluginError`], so that no plugin can forge one of ours.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::envelope::{RpcError, code};

/// What went wrong, as a caller's program tells errors apart (DESIGN §10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// `plugin.json` or the bundle's shape breaks a rule.
    InvalidManifest,
    /// Bytes differ from the digest they are pinned to.
    DigestMismatch,
    /// The running program is not the one that was reviewed.
    AttestationFailed,
    /// A sandbox layer is missing, refused or weaker than required.
    SandboxDenied,
    /// A resource limit is not in force.
    LimitsUnavailable,
    /// Not granted to this plugin, or not allowed to this caller.
    PermissionDenied,
    /// A person has to agree, and nobody could be asked.
    ConsentRequired,
    /// No plugin of that name is installed.
    NoSuchPlugin,
    /// The plugin has no command of that name.
    NoSuchCommand,
    /// The plugin is installed and not enabled.
    Disabled,
    /// Arguments are not JSON, or break the command's schema.
    InvalidArguments,
    /// A queue or an in-flight bound is full.
    Busy,
    /// A deadline passed.
    TimedOut,
    /// The caller, or a stop, took the call back.
    Cancelled,
    /// The plugin's process ended.
    Crashed,
    /// The plugin wrote something that is not the protocol.
    ProtocolViolation,
    /// A frame is longer than `frame_max`.
    FrameTooLarge,
    /// A part that plugind needs is not there now: a bus, the launcher, a user manager.
    Unavailable,
    /// The state does not allow it: already installed, in use, already running.
    Conflict,
    /// A fault of plugind's own.
    Internal,
    /// What the plugin itself answered; `details` holds its code, message and data.
    PluginError,
}

impl Kind {
    /// All kinds, in the order of DESIGN §10.
    pub const ALL: [Kind; 21] = [
        Kind::InvalidManifest,
        Kind::DigestMismatch,
        Kind::AttestationFailed,
        Kind::SandboxDenied,
        Kind::LimitsUnavailable,
        Kind::PermissionDenied,
        Kind::ConsentRequired,
        Kind::NoSuchPlugin,
        Kind::NoSuchCommand,
        Kind::Disabled,
        Kind::InvalidArguments,
        Kind::Busy,
        Kind::TimedOut,
        Kind::Cancelled,
        Kind::Crashed,
        Kind::ProtocolViolation,
        Kind::FrameTooLarge,
        Kind::Unavailable,
        Kind::Conflict,
        Kind::Internal,
        Kind::PluginError,
    ];

    /// The kind's name as it stands on every wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::InvalidManifest => "InvalidManifest",
            Kind::DigestMismatch => "DigestMismatch",
            Kind::AttestationFailed => "AttestationFailed",
            Kind::SandboxDenied => "SandboxDenied",
            Kind::LimitsUnavailable => "LimitsUnavailable",
            Kind::PermissionDenied => "PermissionDenied",
            Kind::ConsentRequired => "ConsentRequired",
            Kind::NoSuchPlugin => "NoSuchPlugin",
            Kind::NoSuchCommand => "NoSuchCommand",
            Kind::Disabled => "Disabled",
            Kind::InvalidArguments => "InvalidArguments",
            Kind::Busy => "Busy",
            Kind::TimedOut => "TimedOut",
            Kind::Cancelled => "Cancelled",
            Kind::Crashed => "Crashed",
            Kind::ProtocolViolation => "ProtocolViolation",
            Kind::FrameTooLarge => "FrameTooLarge",
            Kind::Unavailable => "Unavailable",
            Kind::Conflict => "Conflict",
            Kind::Internal => "Internal",
            Kind::PluginError => "PluginError",
        }
    }

    /// The kind with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The D-Bus error name, `org.plugind1.Error.<Kind>`.
    #[must_use]
    pub fn dbus_name(self) -> String {
        format!("{DBUS_ERROR_PREFIX}{}", self.name())
    }

    /// Whether the same call may succeed later without anybody changing anything.
    #[must_use]
    pub fn retryable(self) -> bool {
        matches!(self, Kind::Busy | Kind::TimedOut | Kind::Crashed | Kind::Unavailable)
    }

    /// The exit code of `pluginctl`: 1 stands for the plugin's own failure, 2 for wrong use (as clap's), and codes
    /// from 3 on keep clear of the LSB meanings that `status` has.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::PluginError => 1,
            Kind::InvalidArguments | Kind::NoSuchCommand => 2,
            Kind::NoSuchPlugin => 4,
            Kind::PermissionDenied | Kind::ConsentRequired => 5,
            Kind::Disabled | Kind::Conflict => 6,
            Kind::InvalidManifest | Kind::DigestMismatch => 7,
            Kind::AttestationFailed | Kind::SandboxDenied | Kind::LimitsUnavailable => 8,
            Kind::Busy | Kind::TimedOut | Kind::Cancelled | Kind::Unavailable => 9,
            Kind::Crashed | Kind::ProtocolViolation | Kind::FrameTooLarge => 10,
            Kind::Internal => 11,
        }
    }
}

impl Kind {
    /// The code of a JSON-RPC error: JSON-RPC's own where it has one, else one of its range for servers. Programs tell
    /// kinds apart by `data.kind`; a plugin's own error has [`Kind::PluginError`]'s code, whatever it said itself.
    #[must_use]
    pub fn rpc_code(self) -> i64 {
        match self {
            Kind::InvalidArguments => code::INVALID_PARAMS,
            Kind::NoSuchCommand => code::METHOD_NOT_FOUND,
            Kind::Internal => code::INTERNAL_ERROR,
            other => -32_010 - i64::from(other as u8),
        }
    }
}

/// What every D-Bus error name of ours starts with.
pub const DBUS_ERROR_PREFIX: &str = "org.plugind1.Error.";

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error with what to do about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Error {
    /// What a program tells errors apart by.
    pub kind: Kind,
    /// What happened, in one sentence that names the thing it happened to.
    pub message: String,
    /// What the reader can do about it; never empty.
    pub hint: String,
    /// `false` where the work may have been done, or half done.
    pub outcome_known: bool,
    /// Whether trying again as it is makes sense.
    pub retryable: bool,
    /// Facts for programs: exit status, stderr lines, limits, the plugin's own error.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub details: serde_json::Value,
}

impl Error {
    /// An error whose outcome is known: nothing was done.
    pub fn new(kind: Kind, message: impl Into<String>, hint: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
            hint: hint.into(),
            outcome_known: true,
            retryable: kind.retryable(),
            details: serde_json::Value::Null,
        }
    }

    /// A fault of our own; the hint asks for a report.
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(Kind::Internal, message, "this is a fault of plugind: please report it with its log")
    }

    /// The same error, after work may have begun: `outcome_known` becomes `false`.
    #[must_use]
    pub fn outcome_unknown(mut self) -> Error {
        self.outcome_known = false;
        self
    }

    /// The same error with facts for programs.
    #[must_use]
    pub fn with_details(mut self, details: serde_json::Value) -> Error {
        self.details = details;
        self
    }

    /// The exit code of `pluginctl` for this error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }
}

/// An error on a channel: the message, and all of it as `data`.
impl From<&Error> for RpcError {
    fn from(error: &Error) -> RpcError {
        let data = serde_json::value::to_raw_value(error).ok();
        RpcError { code: error.kind.rpc_code(), message: error.message.clone(), data }
    }
}

impl Error {
    /// The error that a channel brought.
    #[must_use]
    pub fn from_rpc(error: &RpcError) -> Error {
        let whole = error.data.as_ref().and_then(|data| serde_json::from_str(data.get()).ok());
        whole.unwrap_or_else(|| {
            Error::new(
                Kind::Internal,
                format!("an error without its kind: {error}"),
                "client and daemon may be of different versions: restart plugind after an upgrade",
            )
            .outcome_unknown()
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_own_name_and_by_serde() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert!(kind.exit_code() != 0);
        }
    }

    #[test]
    fn an_error_survives_its_json() {
        let error = Error::new(Kind::Crashed, "textstats ended", "see its log")
            .outcome_unknown()
            .with_details(serde_json::json!({"signal": 9}));
        let text = serde_json::to_string(&error).unwrap();
        assert_eq!(serde_json::from_str::<Error>(&text).unwrap(), error);
    }

    #[test]
    fn an_error_survives_a_channel_and_its_code_tells_the_kind() {
        let error =
            Error::new(Kind::Busy, "too much", "try again").with_details(serde_json::json!({"limit": 3}));
        assert_eq!(Error::from_rpc(&RpcError::from(&error)), error);
        let mut codes: Vec<i64> = Kind::ALL.map(Kind::rpc_code).into();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Kind::ALL.len());
        let foreign = Error::from_rpc(&RpcError::new(-1, "what"));
        assert_eq!((foreign.kind, foreign.outcome_known), (Kind::Internal, false));
    }
}
