//! `verify`: what a bundle hashes to.

use std::path::Path;

use plugind_protocol::Error;

use super::{DONE, client};
use crate::bundle::Bundle;
use crate::cli::VerifyArgs;
use crate::output::Context;

pub(super) async fn run(context: &Context, args: &VerifyArgs) -> Result<u8, Error> {
    let (name, version, digest) = if is_path(&args.what) {
        let Bundle { manifest, digest, .. } = Bundle::open(Path::new(&args.what))?;
        (manifest.name, Some(manifest.version), digest.to_string())
    } else {
        (args.what.clone(), None, client(context).await?.verify(&args.what).await?)
    };
    if context.is_json() {
        context.json(&serde_json::json!({ "name": name, "version": version, "digest": digest }))?;
    } else {
        context.print(&format!("{digest}\n"))?;
    }
    Ok(DONE)
}

/// Whether a word means a path rather than an installed plugin.
fn is_path(word: &str) -> bool {
    word.contains('/')
        || word.starts_with('.')
        || word.ends_with(".plugin")
        || Path::new(word).join("plugin.json").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_names() {
        for path in [".", "./x", "/x", "a/b", "x-1.0.plugin"] {
            assert!(is_path(path), "{path}");
        }
        for name in ["textstats", "no-such-folder-here"] {
            assert!(!is_path(name), "{name}");
        }
    }
}
