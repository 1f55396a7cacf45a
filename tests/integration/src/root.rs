//! A root of the operator's configuration, to grant.

use std::fs;
use std::os::unix::fs::{lchown, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bundle::Bundle;
use crate::ctl::{Outcome, run_through};
use crate::probe::Report;
use crate::user;

/// A folder of the test user's with a root to grant, and the configuration that names it; removed when dropped.
#[derive(Debug)]
pub struct Root {
    folder: PathBuf,
    configured: String,
}

impl Root {
    /// A root named `docs` with a few files, that may be granted as far as `access` says.
    pub fn new(name: &str, access: &str) -> Root {
        let folder = PathBuf::from(format!("/tmp/root-{name}-{}", std::process::id()));
        let root = folder.join("docs");
        fs::create_dir_all(root.join("below")).expect("the root's folder");
        fs::write(root.join("letter"), "a letter").expect("the root's folder");
        fs::write(folder.join("beside"), "beside the root").expect("the root's folder");
        symlink(folder.join("beside"), root.join("way-out")).expect("the root's folder");
        symlink("../beside", root.join("way-up")).expect("the root's folder");
        let configuration = folder.join("plugind");
        fs::create_dir(&configuration).expect("the root's folder");
        let text = format!("[roots.docs]\npath = \"{}\"\naccess = \"{access}\"\n", root.display());
        fs::write(configuration.join("plugind.toml"), text).expect("the root's folder");
        let root = Root { configured: format!("XDG_CONFIG_HOME={}", folder.display()), folder };
        give(&root.folder);
        root
    }

    /// Adds another root to the configuration.
    pub fn configure(&self, name: &str, path: &Path) {
        let file = self.folder.join("plugind/plugind.toml");
        let text = fs::read_to_string(&file).expect("the configuration");
        let text = format!("{text}[roots.{name}]\npath = \"{}\"\n", path.display());
        fs::write(&file, text).expect("the configuration");
    }

    /// A file of the root.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join("docs").join(name)
    }

    /// Runs a command of a bundle with this configuration and these grants.
    pub fn run(&self, bundle: &Bundle, command: &str, arguments: &Value, grants: &[&str]) -> Outcome {
        run_through(&["env", &self.configured], bundle, command, arguments, grants)
    }

    /// Runs a piece of Python in a plugin that was granted the root.
    pub fn python(&self, access: &str, code: &str) -> Report {
        let bundle = Bundle::python().asking(json!({"mounts": [{"root": "docs", "access": access}]}));
        let grant = format!("mount:docs:{access}");
        Report::of(&self.run(&bundle, "probe", &json!({"code": code}), &[&grant]))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn give(path: &Path) {
    let user = user::tester();
    lchown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("the root's folder");
    if path.is_dir() && !path.is_symlink() {
        fs::read_dir(path).expect("the root's folder").flatten().for_each(|entry| give(&entry.path()));
    }
}
