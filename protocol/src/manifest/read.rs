//! From bytes to the typed manifest, with errors that name the field.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{MANIFEST_MAX, Manifest, ManifestError};
use crate::strict::Strict;
use crate::text::clip;

/// The document as it stands, with no key twice anywhere.
pub(crate) fn read_document(bytes: &[u8]) -> Result<Value, ManifestError> {
    if bytes.len() > MANIFEST_MAX {
        return Err(ManifestError::new(
            "",
            format!("is larger than {MANIFEST_MAX} bytes"),
            "put large data into files of the bundle",
        ));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(ManifestError::new("", "begins with a byte order mark", "save it as UTF-8 without one"));
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        let cause = format!("is not UTF-8: byte {}", error.valid_up_to());
        return Err(ManifestError::new("", cause, "save it as UTF-8"));
    }
    let Strict::<true>(document) = deserialize(bytes)?;
    if document.is_object() {
        Ok(document)
    } else {
        Err(ManifestError::new("", "is not a JSON object", "write `{ \"manifest\": 1, … }`"))
    }
}

/// The typed manifest, its rules not yet checked.
pub(super) fn typed(bytes: &[u8]) -> Result<Manifest, ManifestError> {
    let document = read_document(bytes)?;
    // A later format is named as such, not by the first of its fields that this version does not know.
    if let Some(version) = document.get("manifest").filter(|version| **version != 1) {
        return Err(ManifestError::new(
            "manifest",
            format!("is {}, and this plugind reads version 1", clip(&version.to_string(), 40)),
            "write `\"manifest\": 1`, or use a plugind that knows this version",
        ));
    }
    deserialize(bytes)
}

fn deserialize<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ManifestError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        explain(&path, error.inner())
    })?;
    deserializer.end().map_err(|error| explain("", &error))?;
    Ok(value)
}

fn explain(path: &str, error: &serde_json::Error) -> ManifestError {
    let path = if path == "." { String::new() } else { clip(path, 200) };
    let message = error.to_string();
    let hint = match message.split_once(", expected ") {
        Some((_, expected)) if message.starts_with("unknown field") => {
            format!("allowed here: {}", plain_list(expected))
        }
        Some((_, expected)) if message.starts_with("unknown variant") => {
            format!("write {}", plain_list(expected))
        }
        _ if message.starts_with("missing field") => "add it; see the manifest's JSON Schema".to_owned(),
        _ if error.is_data() => "see the manifest's JSON Schema, plugin.schema.json".to_owned(),
        _ => "correct the JSON there".to_owned(),
    };
    ManifestError { path, cause: clip(&message, 300), hint }
}

/// serde's "one of `a`, `b` at line 1 column 2", without what is not a name.
fn plain_list(expected: &str) -> &str {
    let list = expected.split(" at line ").next().unwrap_or(expected);
    list.strip_prefix("one of ").unwrap_or(list)
}
