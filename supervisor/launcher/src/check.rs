//! Checks of what the supervisor asks for: it parses untrusted bytes, so its requests are not trusted either.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use plugind_config::{Access, Directories, Settings};
use plugind_protocol::digest::check_path;
use plugind_protocol::launch::{IN_MEMORY_FILES_MAX, Launch};
use plugind_protocol::{Error, Kind};

/// The host paths that a checked launch stands for.
#[derive(Debug)]
pub(crate) struct Paths {
    pub(crate) bundle: PathBuf,
    pub(crate) data: PathBuf,
    /// Host path, path inside, writable.
    pub(crate) mounts: Vec<(PathBuf, PathBuf, bool)>,
}

/// Checks a launch, and works out its host paths.
pub(crate) fn launch(
    launch: &Launch,
    directories: &Directories,
    settings: &Settings,
) -> Result<Paths, Error> {
    name(&launch.name)?;
    instance(&launch.instance)?;
    exec(&launch.exec, launch.usr, settings)?;
    if launch.in_memory.len() > IN_MEMORY_FILES_MAX {
        return Err(refused("too many files in memory"));
    }
    for file in &launch.in_memory {
        check_path(&file.path).map_err(|_| refused("a file's path leaves the bundle"))?;
    }
    environment(&launch.env)?;
    limits(launch)?;
    let bundle = directories.store().join(digest_folder(&launch.digest)?);
    let meta = std::fs::symlink_metadata(&bundle).map_err(|cause| {
        Error::new(
            Kind::DigestMismatch,
            format!("the store has no bundle {}: {}: {cause}", launch.digest, bundle.display()),
            "install the plugin again",
        )
    })?;
    if !meta.is_dir() || (meta.dev(), meta.ino()) != launch.bundle {
        return Err(Error::new(
            Kind::DigestMismatch,
            format!("{} is not the folder that was verified", bundle.display()),
            "something replaced it meanwhile; run `pluginctl verify`",
        ));
    }
    let mut mounts = Vec::new();
    for mount in &launch.mounts {
        mounts.push(root(&mount.root, mount.write, directories, settings)?);
    }
    for secret in &launch.secrets {
        word("secret", secret)?;
        mounts.push((directories.secret(secret), Path::new("/run/credentials").join(secret), false));
    }
    Ok(Paths { bundle, data: directories.data(&launch.name), mounts })
}

fn refused(what: &str) -> Error {
    Error::new(
        Kind::InvalidArguments,
        format!("the launcher refuses the request: {what}"),
        "supervisor and launcher must be of the same version",
    )
}

fn name(name: &str) -> Result<(), Error> {
    let bytes = name.as_bytes();
    let fits = (1..=40).contains(&bytes.len())
        && bytes[0].is_ascii_lowercase()
        && bytes.iter().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == b'-')
        && !name.ends_with('-');
    if fits { Ok(()) } else { Err(refused("not a plugin's name")) }
}

fn instance(instance: &str) -> Result<(), Error> {
    let fits =
        instance.len() == 8 && instance.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
    if fits { Ok(()) } else { Err(refused("an instance is eight hexadecimal digits")) }
}

fn word(what: &str, text: &str) -> Result<(), Error> {
    let fits = (1..=64).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'_')
        && !text.starts_with(['-', '_']);
    if fits { Ok(()) } else { Err(refused(&format!("not a {what}'s name: {text:?}"))) }
}

fn digest_folder(digest: &str) -> Result<String, Error> {
    digest
        .strip_prefix("sha256:")
        .filter(|hex| {
            hex.len() == 64 && hex.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
        })
        .map(|hex| format!("sha256-{hex}"))
        .ok_or_else(|| refused("not a bundle digest"))
}

fn exec(exec: &[String], usr: bool, settings: &Settings) -> Result<(), Error> {
    let Some(program) = exec.first() else { return Err(refused("nothing to execute")) };
    if exec.iter().any(|word| word.contains('\0')) || exec.iter().map(String::len).sum::<usize>() > 64 * 1024
    {
        return Err(refused("arguments hold a NUL or are longer than 64 KiB"));
    }
    let path = Path::new(program);
    if path.is_absolute() {
        return if usr && settings.interpreters.iter().any(|allowed| allowed == path) {
            Ok(())
        } else {
            Err(Error::new(
                Kind::PermissionDenied,
                format!("{program} is not an interpreter that the operator allows"),
                format!("add it to `interpreters` in plugind.toml: interpreters = [\"{program}\"]"),
            ))
        };
    }
    if path.components().all(|part| matches!(part, Component::Normal(_))) {
        Ok(())
    } else {
        Err(refused("the program's path leaves the bundle"))
    }
}

fn environment(env: &[(String, String)]) -> Result<(), Error> {
    const OURS: [&str; 5] = ["PATH", "HOME", "LANG", "TMPDIR", "PWD"];
    let mut seen = BTreeSet::new();
    for (name, value) in env {
        let fits = !name.is_empty()
            && name.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.starts_with("LD_")
            && !name.starts_with("PLUGIND_")
            && !OURS.contains(&name.as_str());
        if !fits || value.contains('\0') || value.len() > 32 * 1024 || !seen.insert(name) {
            return Err(refused(&format!("environment variable {name:?}")));
        }
    }
    Ok(())
}

fn limits(launch: &Launch) -> Result<(), Error> {
    let limits = &launch.limits;
    if limits.memory_max < 1 << 20 || limits.tasks_max == 0 || limits.cpu_percent == 0 || limits.tmp_size == 0
    {
        return Err(refused("a limit is zero, or memory is below 1 MiB"));
    }
    Ok(())
}

fn root(
    name: &str,
    write: bool,
    directories: &Directories,
    settings: &Settings,
) -> Result<(PathBuf, PathBuf, bool), Error> {
    word("root", name)?;
    let Some(root) = settings.roots.get(name) else {
        return Err(Error::new(
            Kind::PermissionDenied,
            format!("plugind.toml has no root {name:?}"),
            format!("add it: [roots.{name}] with path = \"/…\""),
        ));
    };
    if write && root.access < Access::Write {
        return Err(Error::new(
            Kind::PermissionDenied,
            format!("the root {name:?} may be granted for reading only"),
            format!("set access = \"write\" below [roots.{name}] in plugind.toml"),
        ));
    }
    let changed = |how: String| {
        Error::new(
            Kind::PermissionDenied,
            format!("the root {name:?} cannot be used: {how}"),
            format!("write the path below [roots.{name}] in plugind.toml without symbolic links"),
        )
    };
    // bubblewrap follows links in what it binds.
    match root.path.canonicalize() {
        Ok(real) if real == root.path && real.is_dir() => {}
        Ok(real) if real == root.path => return Err(changed(format!("{} is not a folder", real.display()))),
        Ok(real) => return Err(changed(format!("{} leads to {}", root.path.display(), real.display()))),
        Err(cause) => return Err(changed(format!("{}: {cause}", root.path.display()))),
    }
    if real_overlap(&root.path, directories.state()) {
        return Err(changed("it holds plugind's own state, or is within it".to_owned()));
    }
    Ok((root.path.clone(), Path::new("/workspace").join(name), write))
}

fn real_overlap(root: &Path, state: &Path) -> bool {
    let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    root.starts_with(&state) || state.starts_with(root)
}

#[cfg(test)]
mod tests;
