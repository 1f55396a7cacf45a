//! Installing the plugin of the bench, under as many names as a row wants.

use std::fs::{self, File, TryLockError};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::Error;
use crate::programs::Programs;
use crate::supervisor::run;

/// What the command lines of `pluginctl` are kept to.
const NAMES_AT_ONCE: usize = 50;

/// What the names of all plugins of the bench begin with.
const PREFIX: &str = "bench-";

/// Installed plugins; removed when dropped. There is one at a time: runs side by side would measure each other.
#[derive(Debug)]
pub struct Plugins {
    programs: Programs,
    names: Vec<String>,
    _turn: File,
}

impl Plugins {
    /// None yet; those of an interrupted run are removed. Waits for a run that is going on.
    pub fn new(programs: &Programs) -> Result<Plugins, Error> {
        let turn = turn()?;
        let list = run(Command::new("pluginctl").args(["-o", "json", "list"]))?;
        let list: Vec<Value> = serde_json::from_str(&list)
            .map_err(|cause| Error::Answer(format!("pluginctl list: {cause}: {list}")))?;
        let names = list.iter().filter_map(|plugin| plugin["name"].as_str());
        let left: Vec<String> = names.filter(|name| name.starts_with(PREFIX)).map(str::to_owned).collect();
        remove(&left);
        Ok(Plugins { programs: programs.clone(), names: Vec::new(), _turn: turn })
    }

    /// Whether it is installed.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|installed| installed == name)
    }

    /// Installs and enables it as `bench-NAME`, with this `frame_max`; its whole name.
    pub fn add(&mut self, name: &str, frame_max: &str) -> Result<String, Error> {
        let names = self.add_all(&[name.to_owned()], frame_max)?;
        names.into_iter().next().ok_or_else(|| Error::Answer("nothing was installed".to_owned()))
    }

    /// The same for many names.
    pub fn add_all(&mut self, names: &[String], frame_max: &str) -> Result<Vec<String>, Error> {
        let names: Vec<String> = names.iter().map(|name| format!("{PREFIX}{name}")).collect();
        let folder = Folder(std::env::temp_dir().join(format!("relay-bench-{}", std::process::id())));
        let failed = || Error::io("cannot make a bundle");
        fs::create_dir_all(folder.0.join("bin")).map_err(failed())?;
        fs::copy(&self.programs.echo_plugin, folder.0.join("bin/echo-plugin")).map_err(failed())?;
        let text = fs::read(&self.programs.manifest).map_err(failed())?;
        let mut manifest: Value = serde_json::from_slice(&text).map_err(|cause| failed()(cause.into()))?;
        manifest["resources"]["frame_max"] = frame_max.into();
        for name in &names {
            manifest["name"] = name.as_str().into();
            fs::write(folder.0.join("plugin.json"), manifest.to_string()).map_err(failed())?;
            run(Command::new("pluginctl").arg("install").arg(&folder.0))?;
            self.names.push(name.clone());
        }
        for some in names.chunks(NAMES_AT_ONCE) {
            run(Command::new("pluginctl").arg("enable").args(some))?;
        }
        Ok(names)
    }
}

impl Drop for Plugins {
    fn drop(&mut self) {
        remove(&self.names);
    }
}

fn remove(names: &[String]) {
    for some in names.chunks(NAMES_AT_ONCE) {
        if let Err(cause) = run(Command::new("pluginctl").arg("remove").args(some)) {
            eprintln!("{cause}");
        }
    }
}

/// Held until the file is closed.
fn turn() -> Result<File, Error> {
    let path = std::env::temp_dir().join("relay-bench.lock");
    let failed = || Error::io(format!("cannot lock {}", path.display()));
    let file = File::create(&path).map_err(failed())?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("another run is going on: waiting for its end");
            file.lock().map_err(failed())?;
        }
        Err(TryLockError::Error(cause)) => return Err(failed()(cause)),
    }
    Ok(file)
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
