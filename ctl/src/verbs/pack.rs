//! `pack`: a folder as a `.plugin` file.

use std::env;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use plugind_protocol::{Error, Kind};

use super::DONE;
use crate::bundle::Bundle;
use crate::cli::PackArgs;
use crate::output::Context;

pub(super) fn run(context: &Context, args: &PackArgs) -> Result<u8, Error> {
    let bundle = Bundle::of_folder(&args.folder)?;
    let manifest = &bundle.manifest;
    let file = match &args.file {
        Some(file) => file.clone(),
        None => PathBuf::from(format!("{}-{}.plugin", manifest.name, manifest.version)),
    };
    check_outside(&file, &args.folder)?;
    write(&bundle, &file)?;
    if context.is_json() {
        context.json(&serde_json::json!({
            "name": manifest.name,
            "version": manifest.version,
            "digest": bundle.digest,
            "file": file,
        }))?;
    } else {
        context.print(&format!("{}\n", bundle.digest))?;
    }
    Ok(DONE)
}

/// A file in the folder that is packed would be part of the next bundle.
fn check_outside(file: &Path, folder: &Path) -> Result<(), Error> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(parent), Ok(folder)) = (parent.canonicalize(), folder.canonicalize()) else {
        return Err(unwritable(file, "its folder is not there"));
    };
    if parent.starts_with(&folder) {
        return Err(Error::new(
            Kind::InvalidArguments,
            format!("{} would lie in the folder that is packed", file.display()),
            "name a file outside of it with -O FILE",
        ));
    }
    Ok(())
}

/// Writes beside the file first, so that it is never there half.
fn write(bundle: &Bundle, file: &Path) -> Result<(), Error> {
    let mut partial = file.as_os_str().to_owned();
    partial.push(format!(".{}.part", std::process::id()));
    let partial = PathBuf::from(partial);
    let written = File::create_new(&partial)
        .map_err(|cause| unwritable(file, &cause.to_string()))
        .and_then(|out| bundle.pack(BufWriter::new(out)))
        .and_then(|()| fs::rename(&partial, file).map_err(|cause| unwritable(file, &cause.to_string())));
    if written.is_err() {
        // It may not have been made at all.
        let _ = fs::remove_file(&partial);
    }
    written
}

fn unwritable(file: &Path, cause: &str) -> Error {
    let here = env::current_dir().unwrap_or_default();
    Error::new(
        Kind::InvalidArguments,
        format!("cannot write {}: {cause}", file.display()),
        format!("name a file in a writable folder with -O FILE; the current folder is {}", here.display()),
    )
}
