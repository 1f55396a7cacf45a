//! A script of a bundle: read once, hashed, and shown to the interpreter from memory.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::libc;
use plugind_protocol::digest::hex;
use plugind_protocol::{Error, Kind};
use sha2::{Digest as _, Sha256};

/// A larger script is no script; in memory it is charged to the plugin's scope.
const SCRIPT_MAX: u64 = 16 << 20;

/// The bytes of the script at `path` in the folder `bundle`, which must have this digest.
pub(crate) fn read(bundle: &Path, path: &str, sha256: &str) -> Result<Vec<u8>, Error> {
    let changed = |how: String| {
        Error::new(
            Kind::DigestMismatch,
            format!("the script {path} is not what was verified: {how}"),
            "something changed it meanwhile; run `pluginctl verify`",
        )
    };
    let mut text = Vec::new();
    let read = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(bundle.join(path))
        .and_then(|file| file.take(SCRIPT_MAX + 1).read_to_end(&mut text));
    match read {
        Err(cause) => Err(changed(cause.to_string())),
        Ok(length) if length as u64 > SCRIPT_MAX => Err(Error::new(
            Kind::InvalidManifest,
            format!("the script {path} is larger than {} MiB", SCRIPT_MAX >> 20),
            "let the script that exec names be a small one that loads the rest",
        )),
        Ok(_) if hex(&Sha256::digest(&text)) == sha256 => Ok(text),
        Ok(_) => Err(changed("its SHA-256 differs".to_owned())),
    }
}
