//! Bundles to install or to run: a copy of a built one, changed as a test wants it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::user::tester;

/// A folder of the test user's with a bundle in it; removed when dropped.
#[derive(Debug)]
pub struct Bundle {
    folder: PathBuf,
    name: String,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Bundle {
    /// A copy of the hostile plugin (`tests/hostile`), with a name of its own.
    #[must_use]
    pub fn hostile() -> Bundle {
        Bundle::copy("hostile")
    }

    /// A copy of the textstats example, with a name of its own only if it is changed by [`Bundle::manifest`].
    #[must_use]
    pub fn textstats() -> Bundle {
        Bundle::copy("textstats")
    }

    /// A plugin whose command `probe` runs the Python in its argument `code`; it sees the system's `/usr`.
    #[must_use]
    pub fn python() -> Bundle {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let manifest = json!({
            "manifest": 1, "name": format!("python-{}-{number}", std::process::id()), "version": "1.0.0",
            "description": "Runs the Python that it is sent", "protocol": "plugind/1",
            "exec": ["/usr/bin/python3", "main.py"], "runtime": "system",
            "commands": [{"name": "probe", "description": "Runs `code`", "risk": "code-execution"}],
            "lifecycle": {"restart": "no"},
        });
        Bundle::of(&manifest).file("main.py", include_bytes!("../fixtures/probe.py"), 0o644)
    }

    /// A folder with only this manifest.
    #[must_use]
    pub fn of(manifest: &Value) -> Bundle {
        let bundle = Bundle::empty(manifest["name"].as_str().unwrap_or("none"));
        bundle.file("plugin.json", manifest.to_string().as_bytes(), 0o644)
    }

    fn copy(built: &str) -> Bundle {
        let source = repository().join("target/bundles").join(built);
        assert!(source.join("plugin.json").exists(), "{} is not built: make build", source.display());
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Names are unique over the parallel test programs too.
        let name = if built == "hostile" {
            format!("hostile-{}-{number}", std::process::id())
        } else {
            built.to_owned()
        };
        let bundle = Bundle::empty(&name);
        copy_folder(&source, &bundle.folder);
        bundle.manifest(|manifest| manifest["name"] = name.clone().into())
    }

    fn empty(name: &str) -> Bundle {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(format!("/tmp/bundle-{}-{number}", std::process::id()));
        fs::create_dir(&folder).expect("a new folder in /tmp");
        own(&folder, 0o755);
        Bundle { folder, name: name.to_owned() }
    }

    /// Changes `plugin.json`.
    #[must_use]
    pub fn manifest(mut self, change: impl FnOnce(&mut Value)) -> Bundle {
        let path = self.folder.join("plugin.json");
        let text = fs::read(&path).expect("plugin.json");
        let mut manifest: Value = serde_json::from_slice(&text).expect("JSON");
        change(&mut manifest);
        if let Some(name) = manifest["name"].as_str() {
            name.clone_into(&mut self.name);
        }
        self.file("plugin.json", manifest.to_string().as_bytes(), 0o644)
    }

    /// Asks for these permissions, as `plugin.json` writes them.
    #[must_use]
    pub fn asking(self, permissions: Value) -> Bundle {
        self.manifest(|manifest| manifest["permissions"] = permissions)
    }

    /// How the hostile plugin misbehaves.
    #[must_use]
    pub fn mode(self, mode: &str) -> Bundle {
        self.file("mode", mode.as_bytes(), 0o644)
    }

    /// Adds or replaces a file.
    #[must_use]
    pub fn file(self, path: &str, content: &[u8], mode: u32) -> Bundle {
        let place = self.folder.join(path);
        if let Some(parent) = place.parent().filter(|parent| !parent.exists()) {
            fs::create_dir_all(parent).expect("a folder in the bundle");
            own(parent, 0o755);
        }
        fs::write(&place, content).expect("a file in the bundle");
        own(&place, mode);
        self
    }

    /// The bundle's folder.
    #[must_use]
    pub fn path(&self) -> &str {
        self.folder.to_str().expect("UTF-8")
    }

    /// The plugin's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `NAME.command`, as `pluginctl` takes it.
    #[must_use]
    pub fn command(&self, command: &str) -> String {
        format!("{}.{command}", self.name)
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The checkout that the tests belong to.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout")
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a built bundle").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&target).expect("a folder");
            own(&target, 0o755);
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("a file");
            let executable = entry.metadata().expect("its mode").permissions().mode() & 0o111 != 0;
            own(&target, if executable { 0o755 } else { 0o644 });
        }
    }
}

pub(crate) fn own(path: &Path, mode: u32) {
    let user = tester();
    chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("chown");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}
