//! `plugind.toml`: what the operator decides for the machine.
//!
//! `/etc/plugind/plugind.toml` is read first, then `$XDG_CONFIG_HOME/plugind/plugind.toml`; a key that the later file
//! has replaces the earlier value. Unknown keys are refused with file and line.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};

use plugind_protocol::{Error, Kind};
use serde::Deserialize;

/// The system's file.
pub const SYSTEM_FILE: &str = "/etc/plugind/plugind.toml";

/// What is below these is no file of anybody's.
const SPECIAL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// A configuration file is never larger (bytes); a larger one is not one of ours.
const FILE_MAX: u64 = 1 << 20;

/// What to do where the kernel does not enforce a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcement {
    /// Refuse to start the plugin.
    #[default]
    Required,
    /// Start it, and say in `status` which limits are not in force.
    BestEffort,
}

impl fmt::Display for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Enforcement::Required => "required",
            Enforcement::BestEffort => "best-effort",
        })
    }
}

/// How far a root may be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Reading only.
    #[default]
    Read,
    /// Reading and writing.
    Write,
}

/// A folder that plugins can be granted, by name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// An absolute path.
    pub path: PathBuf,
    /// The most that can be granted.
    #[serde(default)]
    pub access: Access,
}

/// The merged settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// See [`Enforcement`].
    pub enforcement: Enforcement,
    /// Interpreters of `/usr` that a bundle's script may name.
    pub interpreters: Vec<PathBuf>,
    /// Named roots.
    pub roots: BTreeMap<String, Root>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            enforcement: Enforcement::Required,
            interpreters: vec!["/usr/bin/python3".into(), "/usr/bin/node".into()],
            roots: BTreeMap::new(),
        }
    }
}

/// One file, every key optional.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fragment {
    enforcement: Option<Enforcement>,
    interpreters: Option<Vec<PathBuf>>,
    #[serde(default)]
    roots: BTreeMap<String, Root>,
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file is there and cannot be read.
    #[error("cannot read {path}: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// The file's text is wrong; the cause names line and key.
    #[error("{path}: {cause}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line, column and what is wrong there.
        cause: String,
    },
}

impl SettingsError {
    /// The member of an error's details that names the file.
    pub const FILE: &str = "configuration_file";
}

impl From<SettingsError> for Error {
    fn from(error: SettingsError) -> Error {
        let (SettingsError::Unreadable { path, .. } | SettingsError::Malformed { path, .. }) = &error;
        let details = serde_json::json!({ SettingsError::FILE: path });
        Error::new(
            Kind::Unavailable,
            error.to_string(),
            "mend that file; plugind starts nothing on half a configuration",
        )
        .with_details(details)
    }
}

impl Settings {
    /// The settings of this machine and user.
    ///
    /// # Errors
    /// A file that is there and cannot be used; a missing file is no error.
    pub fn load() -> Result<Settings, SettingsError> {
        let user = std::env::var_os("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".config")))
            .filter(|path| path.is_absolute())
            .map(|dir| dir.join("plugind/plugind.toml"));
        Settings::from_files([Some(PathBuf::from(SYSTEM_FILE)), user].into_iter().flatten())
    }

    /// The settings of these files, later ones over earlier ones.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn from_files(paths: impl IntoIterator<Item = PathBuf>) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        for path in paths {
            if let Some(text) = read(&path)? {
                let fragment = parse(&text, &path)?;
                settings.merge(fragment, &path)?;
            }
        }
        Ok(settings)
    }

    /// A plugin that may write to a root could make another one that lies within it lead elsewhere, by a symbolic link.
    fn check_overlaps(&self, file: &Path) -> Result<(), SettingsError> {
        for (name, root) in &self.roots {
            let within = self.roots.iter().find(|(other, inner)| {
                *other != name
                    && inner.path.starts_with(&root.path)
                    && (root.access, inner.access) > (Access::Read, Access::Read)
            });
            if let Some((inner, _)) = within {
                let cause =
                    format!("roots.{inner}: lies within roots.{name}, and one of them may be written to");
                return Err(SettingsError::Malformed { path: file.to_owned(), cause });
            }
        }
        Ok(())
    }

    fn merge(&mut self, fragment: Fragment, file: &Path) -> Result<(), SettingsError> {
        let wrong = |cause: String| SettingsError::Malformed { path: file.to_owned(), cause };
        if let Some(enforcement) = fragment.enforcement {
            self.enforcement = enforcement;
        }
        if let Some(interpreters) = fragment.interpreters {
            if let Some(outside) = interpreters.iter().find(|path| !is_plain_below_usr(path)) {
                return Err(wrong(format!(
                    "interpreters: {} is not a plain path below /usr",
                    outside.display()
                )));
            }
            self.interpreters = interpreters;
        }
        for (name, root) in fragment.roots {
            if !is_root_name(&name) {
                return Err(wrong(format!("roots.{name}: a root's name is [a-z0-9][a-z0-9_-]{{0,63}}")));
            }
            if !is_plain(&root.path) || root.path == Path::new("/") {
                return Err(wrong(format!(
                    "roots.{name}.path: must be an absolute path below /, with no . or .."
                )));
            }
            if let Some(special) = SPECIAL.iter().find(|special| root.path.starts_with(special)) {
                return Err(wrong(format!("roots.{name}.path: {special} is the kernel's, and no plugin's")));
            }
            self.roots.insert(name, root);
        }
        self.check_overlaps(file)
    }
}

fn read(path: &Path) -> Result<Option<String>, SettingsError> {
    let unreadable = |cause| SettingsError::Unreadable { path: path.to_owned(), cause };
    match std::fs::metadata(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(unreadable(cause)),
        Ok(meta) if !meta.is_file() => {
            return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        Ok(meta) if meta.len() > FILE_MAX => {
            return Err(unreadable(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 1 MiB")));
        }
        Ok(_) => {}
    }
    std::fs::read_to_string(path).map(Some).map_err(unreadable)
}

fn parse(text: &str, path: &Path) -> Result<Fragment, SettingsError> {
    toml::from_str(text).map_err(|error| SettingsError::Malformed {
        path: path.to_owned(),
        cause: error.to_string().trim_end().to_owned(),
    })
}

fn is_plain_below_usr(path: &Path) -> bool {
    path.starts_with("/usr") && is_plain(path)
}

/// Absolute, and written without `.` and `..`.
fn is_plain(path: &Path) -> bool {
    let written: PathBuf = path.components().collect();
    path.is_absolute()
        && written.as_os_str().len() == path.as_os_str().len()
        && path.components().all(|part| !matches!(part, Component::ParentDir | Component::CurDir))
}

fn is_root_name(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = name.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= 64
        && plain(bytes[0])
        && bytes.iter().all(|&c| plain(c) || c == b'_' || c == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Settings, SettingsError> {
        let path = Path::new("plugind.toml");
        let mut settings = Settings::default();
        settings.merge(parse(text, path)?, path)?;
        Ok(settings)
    }

    #[test]
    fn an_unknown_key_is_refused_with_file_and_line() {
        let error =
            settings("enforcement = \"required\"\nenforcment = \"best-effort\"\n").unwrap_err().to_string();
        assert!(
            error.contains("plugind.toml") && error.contains("line 2") && error.contains("enforcment"),
            "{error}"
        );
    }

    #[test]
    fn a_root_needs_an_absolute_path_and_a_plain_name() {
        assert!(settings("[roots.docs]\npath = \"/srv/docs\"\n").is_ok());
        assert!(settings("[roots.docs]\npath = \"srv\"\n").is_err());
        assert!(settings("[roots.docs]\npath = \"/\"\n").is_err());
        assert!(settings("[roots.\"../x\"]\npath = \"/srv\"\n").is_err());
    }

    #[test]
    fn a_root_within_one_that_can_be_written_is_refused() {
        let nested = |outer: &str, inner: &str| {
            settings(&format!(
                "[roots.a]\npath = \"/srv/a\"\naccess = \"{outer}\"\n[roots.b]\npath = \"/srv/a/b\"\naccess = \"{inner}\"\n"
            ))
        };
        assert!(nested("read", "read").is_ok());
        for (outer, inner) in [("write", "read"), ("read", "write"), ("write", "write")] {
            let error = nested(outer, inner).unwrap_err().to_string();
            assert!(error.contains("roots.b") && error.contains("roots.a"), "{error}");
        }
        assert!(
            settings("[roots.a]\npath = \"/srv/a\"\n[roots.b]\npath = \"/srv/ab\"\naccess = \"write\"\n")
                .is_ok()
        );
    }

    #[test]
    fn a_path_that_is_not_written_out_plainly_is_refused() {
        for path in ["/srv/../etc", "/srv/./a", "/srv//a", "/srv/a/", "/proc/1", "/sys", "/dev/shm"] {
            assert!(settings(&format!("[roots.a]\npath = \"{path}\"\n")).is_err(), "{path}");
        }
    }

    #[test]
    fn an_interpreter_outside_usr_is_refused() {
        assert!(settings("interpreters = [\"/usr/bin/perl\"]\n").is_ok());
        assert!(settings("interpreters = [\"/home/me/python\"]\n").is_err());
        assert!(settings("interpreters = [\"/usr/../home/me/python\"]\n").is_err());
    }
}
