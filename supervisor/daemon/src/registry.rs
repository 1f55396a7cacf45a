//! What the operator decided about each plugin, on disk: one versioned file a plugin, replaced atomically.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use plugind_protocol::{BundleDigest, Error, Kind, Permission};
use serde::{Deserialize, Serialize};

use crate::store::{at, private_folder, sync_folder};

/// The format of a record.
const VERSION: u32 = 1;

/// A record is never larger (bytes).
const RECORD_MAX: u64 = 1 << 20;

/// One plugin's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    version: u32,
    pub(crate) name: String,
    pub(crate) digest: BundleDigest,
    /// SHA-256 of the bundle's `plugin.json`, so that it can be read alone and is still the reviewed one.
    pub(crate) manifest_sha256: String,
    pub(crate) enabled: bool,
    /// What was granted, by the digest that was reviewed: another bundle of the same name starts with nothing.
    grants: BTreeMap<BundleDigest, BTreeSet<Permission>>,
}

impl Record {
    /// A new plugin: disabled, nothing granted.
    pub(crate) fn new(name: String, digest: BundleDigest, manifest_sha256: String) -> Record {
        Record { version: VERSION, name, digest, manifest_sha256, enabled: false, grants: BTreeMap::new() }
    }

    /// What is granted to the installed bundle.
    pub(crate) fn granted(&self) -> BTreeSet<Permission> {
        self.grants.get(&self.digest).cloned().unwrap_or_default()
    }

    /// Replaces what is granted to the installed bundle.
    pub(crate) fn set_granted(&mut self, granted: BTreeSet<Permission>) {
        self.grants.insert(self.digest, granted);
    }
}

/// A record's file that is there and cannot be used.
#[derive(Debug, Clone)]
pub(crate) struct BrokenRecord {
    pub(crate) name: String,
    pub(crate) error: Error,
}

/// The folder of records.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    folder: PathBuf,
}

impl Registry {
    /// Opens the folder.
    pub(crate) fn open(folder: PathBuf) -> Result<Registry, Error> {
        private_folder(&folder)?;
        Ok(Registry { folder })
    }

    /// Every record; a torn or foreign file is told apart from one that is not there.
    pub(crate) fn load(&self) -> Result<(Vec<Record>, Vec<BrokenRecord>), Error> {
        let (mut records, mut broken) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.folder).map_err(|cause| at(&self.folder, &cause))? {
            let path = entry.map_err(|cause| at(&self.folder, &cause))?.path();
            let Some(name) =
                path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"))
            else {
                // What a write that was cut off left: the record itself is whole beside it.
                let _ = fs::remove_file(&path);
                continue;
            };
            match read(&path, name) {
                Ok(record) => records.push(record),
                Err(error) => broken.push(BrokenRecord { name: name.to_owned(), error }),
            }
        }
        Ok((records, broken))
    }

    /// Writes a record: a new file, on disk, then in place of the old one.
    pub(crate) fn save(&self, record: &Record) -> Result<(), Error> {
        let path = self.path(&record.name);
        let temporary = self.folder.join(format!("{}.new", record.name));
        let text = serde_json::to_vec_pretty(record).map_err(|cause| Error::internal(cause.to_string()))?;
        let write = || {
            let mut file: File =
                File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            sync_folder(&self.folder)
        };
        write().map_err(|cause| {
            let _ = fs::remove_file(&temporary);
            at(&path, &cause)
        })
    }

    /// Removes a record.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name);
        fs::remove_file(&path).and_then(|()| sync_folder(&self.folder)).map_err(|cause| at(&path, &cause))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }
}

fn read(path: &Path, name: &str) -> Result<Record, Error> {
    let torn = |what: String| {
        Error::new(
            Kind::Internal,
            format!("{}: {what}", path.display()),
            "mend or remove that file, then restart plugind; it is never read as an empty one",
        )
    };
    let meta = fs::symlink_metadata(path).map_err(|cause| at(path, &cause))?;
    if !meta.is_file() || meta.len() > RECORD_MAX {
        return Err(torn("not a record of plugind".to_owned()));
    }
    let bytes = fs::read(path).map_err(|cause| at(path, &cause))?;
    let record: Record = serde_json::from_slice(&bytes).map_err(|cause| torn(cause.to_string()))?;
    if record.version != VERSION {
        return Err(torn(format!(
            "version {} is not the version {VERSION} that this plugind knows",
            record.version
        )));
    }
    if record.name != name {
        return Err(torn(format!("it is the record of {:?}", record.name)));
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(name: &str) -> Registry {
        let folder = std::env::temp_dir().join(format!("plugind-registry-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Registry::open(folder).unwrap()
    }

    fn record() -> Record {
        let mut record = Record::new("x".into(), BundleDigest([7; 32]), "0".repeat(64));
        record.set_granted(BTreeSet::from(["env:TZ".parse().unwrap()]));
        record
    }

    #[test]
    fn a_record_survives_and_grants_belong_to_a_digest() {
        let registry = registry("survives");
        registry.save(&record()).unwrap();
        let (mut records, broken) = registry.load().unwrap();
        assert!(broken.is_empty());
        assert_eq!(records[0], record());
        records[0].digest = BundleDigest([8; 32]);
        assert!(records[0].granted().is_empty(), "another bundle has no grants");
    }

    #[test]
    fn a_torn_record_is_reported_and_never_read_as_empty() {
        let registry = registry("torn");
        registry.save(&record()).unwrap();
        let path = registry.path("x");
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let (records, broken) = registry.load().unwrap();
            assert!(records.is_empty() && broken.len() == 1, "cut at {length}");
            assert!(broken[0].error.message.contains("x.json"));
        }
    }

    #[test]
    fn a_record_of_another_version_or_name_is_refused() {
        let registry = registry("foreign");
        fs::write(registry.path("y"), serde_json::to_vec(&record()).unwrap()).unwrap();
        let mut newer = serde_json::to_value(record()).unwrap();
        newer["version"] = 2.into();
        fs::write(registry.path("x"), newer.to_string()).unwrap();
        let (records, broken) = registry.load().unwrap();
        assert!(records.is_empty() && broken.len() == 2);
    }

    #[test]
    fn what_a_cut_off_write_left_is_swept() {
        let registry = registry("swept");
        registry.save(&record()).unwrap();
        fs::write(registry.folder.join("x.new"), "{").unwrap();
        let (records, broken) = registry.load().unwrap();
        assert!(records.len() == 1 && broken.is_empty());
        assert!(!registry.folder.join("x.new").exists());
    }
}
