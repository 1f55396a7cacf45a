//! Attestation: the supervisor and the program each say what the program is.

use plugind_protocol::Manifest;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The program's own values, from the manifest that was compiled in.
#[derive(Debug, Serialize)]
pub(crate) struct Own<'a> {
    protocol: &'static str,
    name: &'a str,
    version: &'a str,
    commands_digest: &'a str,
}

/// The `params` of `initialize`. A value that is missing differs from any.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Expected {
    protocol: String,
    name: String,
    version: String,
    commands_digest: String,
    pub(crate) limits: Limits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Limits {
    pub(crate) frame_max: Option<usize>,
    pub(crate) in_flight: Option<usize>,
}

pub(crate) fn own(manifest: &Manifest) -> Own<'_> {
    Own {
        protocol: "plugind/1",
        name: &manifest.name,
        version: &manifest.version,
        commands_digest: &manifest.commands_digest,
    }
}

impl Expected {
    pub(crate) fn read(params: Option<&RawValue>) -> serde_json::Result<Expected> {
        serde_json::from_str(params.map_or("{}", RawValue::get))
    }

    /// Which values differ, for people; `None` where all are the same.
    pub(crate) fn differences(&self, own: &Own<'_>) -> Option<String> {
        let pairs = [
            ("protocol", own.protocol, &self.protocol),
            ("name", own.name, &self.name),
            ("version", own.version, &self.version),
            ("commands_digest", own.commands_digest, &self.commands_digest),
        ];
        let differences: Vec<String> = pairs
            .iter()
            .filter(|(_, own, expected)| own != expected)
            .map(|(what, own, expected)| {
                format!("{what} of this program is `{own}`, and `{expected}` is expected")
            })
            .collect();
        (!differences.is_empty()).then(|| differences.join("; "))
    }
}
