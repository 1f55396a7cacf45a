//! Two-sided attestation: the running program says itself who it is, and must be who was reviewed (DESIGN §6).

use plugind_protocol::{Error, Kind, Manifest};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::PROTOCOL;
use crate::relay::shown;

/// The four values that both sides must agree on.
#[derive(Deserialize)]
pub(super) struct Identity {
    pub(super) protocol: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) commands_digest: String,
}

impl Identity {
    /// What the reviewed manifest says.
    pub(super) fn of(manifest: &Manifest) -> Identity {
        Identity {
            protocol: PROTOCOL.to_owned(),
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            commands_digest: manifest.commands_digest.clone(),
        }
    }

    /// Compares the plugin's own answer to `initialize` with these values.
    pub(super) fn compare(&self, answer: &RawValue, plugin: &str) -> Result<(), Error> {
        let failed = |message: String, hint: &str| Err(Error::new(Kind::AttestationFailed, message, hint));
        let theirs: Identity = match serde_json::from_str(answer.get()) {
            Ok(theirs) => theirs,
            Err(cause) => {
                return failed(
                    format!("{plugin} answered `initialize` with something else: {cause}"),
                    "the answer holds the plugin's own protocol, name, version and commands_digest",
                );
            }
        };
        let hint =
            "the program in the bundle and its plugin.json are of different builds: pack them together again";
        for (what, ours, theirs) in [
            ("protocol", &self.protocol, &theirs.protocol),
            ("name", &self.name, &theirs.name),
            ("version", &self.version, &theirs.version),
            ("commands_digest", &self.commands_digest, &theirs.commands_digest),
        ] {
            if ours != theirs {
                return failed(
                    format!(
                        "{plugin}'s program says its {what} is {:?}, and the reviewed manifest says {ours:?}",
                        shown(theirs)
                    ),
                    hint,
                );
            }
        }
        Ok(())
    }
}
