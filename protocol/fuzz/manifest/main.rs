//! Fuzzes `plugin.json`: an input is the bytes of one.

#![no_main]

mod bounds;

use libfuzzer_sys::fuzz_target;
use plugind_protocol::digest;
use plugind_protocol::manifest::MANIFEST_MAX;
use plugind_protocol::{Error, Manifest, ManifestError};

fuzz_target!(|bytes: &[u8]| {
    match Manifest::parse(bytes) {
        Ok(manifest) => {
            assert!(bytes.len() <= MANIFEST_MAX);
            bounds::hold(&manifest);
            survives_its_own_json(&manifest);
            is_pinned_whatever_its_layout(bytes, &manifest);
        }
        Err(error) => explained_within_bounds(error),
    }
});

/// What was read, written with all its defaults, is read as the same.
fn survives_its_own_json(manifest: &Manifest) {
    let text = serde_json::to_vec(manifest).expect("what was read can be written");
    if text.len() > MANIFEST_MAX {
        return;
    }
    let again = Manifest::parse(&text).expect("what was written can be read");
    let commands = serde_json::to_value(&manifest.commands).expect("commands can be written");
    let commands_digest = digest::descriptors(&commands).expect("commands have a digest");
    assert_eq!(again, Manifest { commands_digest, ..manifest.clone() });
    assert_eq!(serde_json::to_vec(&again).expect("it can be written again"), text);
}

/// White space, escapes and the order of members are no part of the digest.
fn is_pinned_whatever_its_layout(bytes: &[u8], manifest: &Manifest) {
    let document: serde_json::Value = serde_json::from_slice(bytes).expect("a manifest is JSON");
    for text in [document.to_string(), format!("{document:#}")] {
        if text.len() <= MANIFEST_MAX {
            let again = Manifest::parse(text.as_bytes()).expect("the same document is read again");
            assert_eq!(again, *manifest);
        }
    }
}

/// A document that is refused may be anything; what is said of it is short, fit to be shown, and helps.
fn explained_within_bounds(error: ManifestError) {
    let error = Error::from(error);
    assert!(error.message.len() < 8192, "a message of {} bytes", error.message.len());
    assert!(!error.message.chars().any(char::is_control), "{:?}", error.message);
    assert!(!error.hint.is_empty());
}
