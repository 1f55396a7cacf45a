//! What plugins are pinned to: the digest of a bundle's files, and that of its commands.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Kind};
use crate::manifest::ManifestError;

/// The most files in a bundle.
pub const FILES_MAX: usize = 4096;
/// The largest file of a bundle, bytes.
pub const FILE_SIZE_MAX: u64 = 256 << 20;
/// The largest sum of a bundle's files, bytes.
pub const BUNDLE_SIZE_MAX: u64 = 512 << 20;
/// The longest path in a bundle, bytes.
pub const PATH_MAX: usize = 255;
/// The most components of such a path.
pub const PATH_COMPONENTS_MAX: usize = 16;

/// One regular file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path in the bundle; see [`check_path`].
    pub path: String,
    /// Whether it is executable: mode 0755, else 0644.
    pub executable: bool,
    /// Its length in bytes.
    pub size: u64,
    /// SHA-256 of its content.
    pub sha256: [u8; 32],
}

/// A listing of files that is no bundle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// A path breaks a rule.
    #[error("the bundle's entry `{path}` {cause}")]
    Path {
        /// The path, shortened and escaped.
        path: String,
        /// The rule.
        cause: &'static str,
    },
    /// Two entries have one path.
    #[error("the bundle holds `{0}` twice")]
    Duplicate(String),
    /// A path is a file and a folder.
    #[error("the bundle holds `{0}` as a file and as a folder")]
    FileAndFolder(String),
    /// More files than [`FILES_MAX`].
    #[error("the bundle holds more than {FILES_MAX} files")]
    TooManyFiles,
    /// A file above [`FILE_SIZE_MAX`].
    #[error("the bundle's file `{0}` is larger than {FILE_SIZE_MAX} bytes")]
    FileTooLarge(String),
    /// All files together above [`BUNDLE_SIZE_MAX`].
    #[error("the bundle's files are larger than {BUNDLE_SIZE_MAX} bytes together")]
    BundleTooLarge,
}

impl From<BundleError> for Error {
    fn from(error: BundleError) -> Error {
        let hint = match &error {
            BundleError::Path { .. } => {
                "paths are relative, up to 255 bytes and 16 components, with no `.` or `..`, backslash or control \
                 character"
            }
            BundleError::Duplicate(_) | BundleError::FileAndFolder(_) => {
                "make the bundle from a folder with `pluginctl pack`"
            }
            BundleError::TooManyFiles | BundleError::FileTooLarge(_) | BundleError::BundleTooLarge => {
                "leave out of the bundle what the plugin does not need at run time"
            }
        };
        Error::new(Kind::InvalidManifest, error.to_string(), hint)
    }
}

/// Whether `path` may stand in a bundle.
pub fn check_path(path: &str) -> Result<(), BundleError> {
    let refuse = |cause| Err(BundleError::Path { path: crate::text::clip(path, 120), cause });
    if path.is_empty() {
        return refuse("is empty");
    }
    if path.len() > PATH_MAX {
        return refuse("is longer than 255 bytes");
    }
    if path.starts_with('/') {
        return refuse("is absolute");
    }
    if path.contains('\\') {
        return refuse("contains a backslash");
    }
    if path.chars().any(crate::text::unfit) {
        return refuse("contains a control or direction character");
    }
    if path.split('/').count() > PATH_COMPONENTS_MAX {
        return refuse("has more than 16 components");
    }
    for component in path.split('/') {
        match component {
            "" => return refuse("has an empty component"),
            "." | ".." => return refuse("has a `.` or `..` component"),
            _ => {}
        }
    }
    Ok(())
}

/// The digest of a bundle: over the listing of its files in the order of their paths' bytes, whatever order they
/// are given in.
pub fn bundle(entries: &[Entry]) -> Result<BundleDigest, BundleError> {
    check_sizes(entries)?;
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
    check_paths(&sorted)?;

    let mut hash = Sha256::new();
    hash.update(b"plugind-bundle 1\n");
    for entry in sorted {
        let mode = if entry.executable { "0755" } else { "0644" };
        hash.update(format!("{mode} {} {} {}\n", entry.size, hex(&entry.sha256), entry.path));
    }
    Ok(BundleDigest(hash.finalize().into()))
}

fn check_sizes(entries: &[Entry]) -> Result<(), BundleError> {
    if entries.len() > FILES_MAX {
        return Err(BundleError::TooManyFiles);
    }
    if let Some(entry) = entries.iter().find(|entry| entry.size > FILE_SIZE_MAX) {
        return Err(BundleError::FileTooLarge(crate::text::clip(&entry.path, 120)));
    }
    if entries.iter().map(|entry| entry.size).sum::<u64>() > BUNDLE_SIZE_MAX {
        return Err(BundleError::BundleTooLarge);
    }
    Ok(())
}

fn check_paths(sorted: &[&Entry]) -> Result<(), BundleError> {
    let mut folders = BTreeSet::new();
    for entry in sorted {
        check_path(&entry.path)?;
        folders.extend(entry.path.match_indices('/').map(|(end, _)| &entry.path[..end]));
    }
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].path == pair[1].path) {
        return Err(BundleError::Duplicate(pair[0].path.clone()));
    }
    if let Some(entry) = sorted.iter().find(|entry| folders.contains(entry.path.as_str())) {
        return Err(BundleError::FileAndFolder(entry.path.clone()));
    }
    Ok(())
}

/// The digest of the `commands` of a `plugin.json`, as lower-case hex: SHA-256 of their RFC 8785 form exactly as
/// they were written, with no defaults filled in; of `[]` where there are none.
pub fn commands(manifest: &[u8]) -> Result<String, ManifestError> {
    let document = crate::manifest::read_document(manifest)?;
    descriptors(document.get("commands").unwrap_or(&Value::Array(Vec::new())))
}

/// The digest of an ordered list of command descriptors, as lower-case hex.
pub fn descriptors(list: &Value) -> Result<String, ManifestError> {
    if !list.is_array() {
        return Err(ManifestError::new("commands", "is not a list", "write `\"commands\": [ … ]`"));
    }
    let canonical = serde_json_canonicalizer::to_vec(list)
        .map_err(|error| ManifestError::new("commands", error.to_string(), "write plain JSON"))?;
    Ok(hex(&Sha256::digest(canonical)))
}

/// Bytes in lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// SHA-256 over a bundle's listing; its text form is `sha256:<hex>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct BundleDigest(pub [u8; 32]);

impl BundleDigest {
    /// The bundle's folder in the store, `sha256-<hex>`.
    #[must_use]
    pub fn store_name(&self) -> String {
        format!("sha256-{}", hex(&self.0))
    }

    /// The digest from a store folder's name.
    #[must_use]
    pub fn from_store_name(name: &str) -> Option<BundleDigest> {
        parse_hex(name.strip_prefix("sha256-")?).map(BundleDigest)
    }
}

impl fmt::Display for BundleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex(&self.0))
    }
}

impl fmt::Debug for BundleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a digest: write sha256: and 64 digits of lower-case hex")]
pub struct DigestError(String);

impl FromStr for BundleDigest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<BundleDigest, DigestError> {
        text.strip_prefix("sha256:")
            .and_then(parse_hex)
            .map(BundleDigest)
            .ok_or_else(|| DigestError(crate::text::clip(text, 80)))
    }
}

impl From<BundleDigest> for String {
    fn from(digest: BundleDigest) -> String {
        digest.to_string()
    }
}

impl TryFrom<String> for BundleDigest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<BundleDigest, DigestError> {
        text.parse()
    }
}

/// Lower case only, so that a digest has one text form and can be compared as text.
fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, content: &[u8]) -> Entry {
        Entry {
            path: path.to_owned(),
            executable: path.starts_with("bin/"),
            size: content.len() as u64,
            sha256: Sha256::digest(content).into(),
        }
    }

    #[test]
    fn a_bundle_digest_is_the_hash_of_its_listing() {
        let entries = [entry("plugin.json", b"{}"), entry("bin/x", b"x")];
        // printf 'plugind-bundle 1\n0755 1 %s bin/x\n0644 2 %s plugin.json\n' \
        //   "$(printf x | sha256sum | cut -c1-64)" "$(printf '{}' | sha256sum | cut -c1-64)" | sha256sum
        let expected = "sha256:88f6dc8aabe834c5e56ba64ae430757ec91ab999d12fcabfc0951aa948418408";
        assert_eq!(bundle(&entries).unwrap().to_string(), expected);
        let [first, second] = entries;
        assert_eq!(bundle(&[second, first]).unwrap().to_string(), expected);
    }

    #[test]
    fn each_fact_of_a_file_changes_the_digest() {
        let base = entry("a", b"x");
        let digest = bundle(std::slice::from_ref(&base)).unwrap();
        for other in [
            Entry { path: "b".into(), ..base.clone() },
            Entry { executable: true, ..base.clone() },
            Entry { size: 2, ..base.clone() },
            Entry { sha256: [0; 32], ..base.clone() },
        ] {
            assert_ne!(bundle(&[other]).unwrap(), digest);
        }
    }

    #[test]
    fn paths_that_leave_or_confuse_are_refused() {
        let deep = ["a"; 17].join("/");
        let long = "a".repeat(256);
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../a",
            "a/../b",
            "a/..",
            ".",
            "./a",
            "a/./b",
            "a//b",
            "a/",
            "a\\b",
            "a\nb",
            "a\u{202e}b",
            &deep,
            &long,
        ] {
            assert!(matches!(check_path(path), Err(BundleError::Path { .. })), "{path}");
        }
        for path in
            ["a", "bin/textstats", "...", "..a", ".hidden", "ü/ß", &"a".repeat(255), &["a"; 16].join("/")]
        {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn listings_beyond_the_caps_are_refused() {
        let sized = |path: &str, size| Entry { size, ..entry(path, b"") };
        assert_eq!(bundle(&[entry("a", b""), entry("a", b"")]), Err(BundleError::Duplicate("a".into())));
        assert_eq!(
            bundle(&[entry("a", b""), entry("a!", b""), entry("a/b", b"")]),
            Err(BundleError::FileAndFolder("a".into()))
        );
        assert_eq!(bundle(&[sized("a", FILE_SIZE_MAX + 1)]), Err(BundleError::FileTooLarge("a".into())));
        assert_eq!(
            bundle(&[sized("a", FILE_SIZE_MAX), sized("b", FILE_SIZE_MAX), sized("c", 1)]),
            Err(BundleError::BundleTooLarge)
        );
        let many: Vec<Entry> = (0..=FILES_MAX).map(|number| sized(&number.to_string(), 0)).collect();
        assert_eq!(bundle(&many), Err(BundleError::TooManyFiles));
        assert!(bundle(&many[1..]).is_ok());
    }

    #[test]
    fn a_digest_has_one_text_form() {
        let digest = BundleDigest([0xab; 32]);
        assert_eq!(digest.to_string().parse::<BundleDigest>().unwrap(), digest);
        assert_eq!(BundleDigest::from_store_name(&digest.store_name()), Some(digest));
        assert_eq!(serde_json::to_value(digest).unwrap(), digest.to_string());
        for text in
            [digest.to_string().to_uppercase(), digest.store_name(), "sha256:ab".into(), hex(&[0; 32])]
        {
            assert!(text.parse::<BundleDigest>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_commands_digest_is_that_of_the_canonical_list() {
        let of = |text: &str| commands(text.as_bytes());
        // printf '[]' | sha256sum
        let none = "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945";
        assert_eq!(of("{}").unwrap(), none);
        assert_eq!(of(r#"{"commands": [ ]}"#).unwrap(), none);
        // printf '[{"b":1,"ä":10}]' | sha256sum
        let one = of(r#"{"name": 3, "commands": [{"\u00e4": 1e1, "b": 1.0}]}"#).unwrap();
        assert_eq!(one, "ca2772ffb3803c40622b60a4390bb5c27369e6bde60bd361ab45f04339629e3c");
        assert_ne!(of(r#"{"commands": [{}, {"a": 1}]}"#), of(r#"{"commands": [{"a": 1}, {}]}"#));
    }

    #[test]
    fn only_one_reading_of_commands_is_hashed() {
        for text in
            [r#"{"commands":[],"commands":[]}"#, r#"{"commands":[{"a":1,"a":2}]}"#, r#"{"commands":{}}"#]
        {
            assert!(commands(text.as_bytes()).is_err(), "{text}");
        }
    }
}
