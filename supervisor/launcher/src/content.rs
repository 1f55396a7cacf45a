//! The files of a small bundle of scripts: read once, hashed, and shown to the plugin from memory.
//!
//! A program is executed from the descriptor that was hashed; a script is opened by its interpreter, by name, when
//! somebody may have put another file in its place.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::libc;
use plugind_protocol::digest::hex;
use plugind_protocol::launch::{BundleFile, IN_MEMORY_SIZE_MAX};
use plugind_protocol::{Error, Kind};
use sha2::{Digest as _, Sha256};

/// A file as it was verified.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) path: String,
    pub(crate) executable: bool,
    pub(crate) bytes: Vec<u8>,
}

/// Reads the files from the folder `bundle`; each must have its digest.
pub(crate) fn read(bundle: &Path, files: &[BundleFile]) -> Result<Vec<Content>, Error> {
    let mut left = IN_MEMORY_SIZE_MAX;
    let mut contents = Vec::new();
    for file in files {
        let bytes = read_one(bundle, file, left)?;
        left -= bytes.len() as u64;
        contents.push(Content { path: file.path.clone(), executable: file.executable, bytes });
    }
    Ok(contents)
}

fn read_one(bundle: &Path, file: &BundleFile, left: u64) -> Result<Vec<u8>, Error> {
    let changed = |how: &str| {
        Error::new(
            Kind::DigestMismatch,
            format!("the bundle's file {} is not what was verified: {how}", file.path),
            "something changed it meanwhile; run `pluginctl verify`",
        )
    };
    let mut bytes = Vec::new();
    File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(bundle.join(&file.path))
        .and_then(|open| open.take(left + 1).read_to_end(&mut bytes))
        .map_err(|cause| changed(&cause.to_string()))?;
    if bytes.len() as u64 > left || hex(&Sha256::digest(&bytes)) != file.sha256 {
        return Err(changed("its SHA-256 differs"));
    }
    Ok(bytes)
}
