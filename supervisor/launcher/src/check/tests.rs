//! A supervisor that was taken over must get nowhere.

use std::fs;

use plugind_protocol::launch::{Limits, RootMount};

use super::*;

struct Place {
    directories: Directories,
    settings: Settings,
    state: PathBuf,
}

impl Place {
    fn new(name: &str) -> Place {
        let state = std::env::temp_dir().join(format!("plugind-check-{name}-{}", std::process::id()));
        let directories = Directories::at(&state);
        fs::create_dir_all(directories.store().join(format!("sha256-{}", "0".repeat(64)))).unwrap();
        let mut settings = Settings::default();
        let docs = state.with_extension("docs");
        fs::create_dir_all(&docs).unwrap();
        let root = plugind_config::Root { path: docs, access: Access::Read };
        settings.roots.insert("docs".into(), root);
        Place { directories, settings, state }
    }

    fn good(&self) -> Launch {
        let digest = format!("sha256:{}", "0".repeat(64));
        let meta = fs::metadata(self.directories.store().join(digest.replace(':', "-"))).unwrap();
        Launch {
            name: "x".into(),
            instance: "01234567".into(),
            digest,
            bundle: (meta.dev(), meta.ino()),
            exec: vec!["bin/x".into()],
            entry_sha256: None,
            in_memory: Vec::new(),
            usr: false,
            network: false,
            mounts: vec![RootMount { root: "docs".into(), write: false }],
            secrets: vec!["token".into()],
            env: vec![("TZ".into(), "UTC".into())],
            limits: Limits { memory_max: 1 << 20, cpu_percent: 1, tasks_max: 1, tmp_size: 4096 },
        }
    }

    fn refuses(&self, change: impl FnOnce(&mut Launch)) {
        let mut request = self.good();
        change(&mut request);
        launch(&request, &self.directories, &self.settings).unwrap_err();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.state);
        let _ = fs::remove_dir_all(self.state.with_extension("docs"));
    }
}

#[test]
fn a_good_request_passes_and_paths_are_the_launchers_own() {
    let place = Place::new("good");
    let paths = launch(&place.good(), &place.directories, &place.settings).unwrap();
    assert_eq!(paths.mounts[0], (place.state.with_extension("docs"), "/workspace/docs".into(), false));
    assert!(paths.bundle.starts_with(&place.state) && paths.data.starts_with(&place.state));
}

#[test]
fn every_way_out_is_refused() {
    let place = Place::new("bad");
    place.refuses(|request| request.name = "../x".into());
    place.refuses(|request| request.name = String::new());
    place.refuses(|request| request.instance = "0123456g".into());
    place.refuses(|request| request.digest = "sha256:../../../etc".into());
    place.refuses(|request| request.digest = format!("sha256:{}", "1".repeat(64)));
    place.refuses(|request| request.bundle.1 += 1);
    place.refuses(|request| request.exec.clear());
    place.refuses(|request| request.exec = vec!["../sh".into()]);
    place.refuses(|request| request.exec = vec!["/usr/bin/env".into(), "x".into()]);
    place.refuses(|request| request.exec = vec!["/usr/bin/python3".into(), "x".into()]);
    place.refuses(|request| request.mounts[0].root = "../../etc".into());
    place.refuses(|request| request.mounts[0].root = "other".into());
    place.refuses(|request| request.mounts[0].write = true);
    place.refuses(|request| request.secrets = vec!["../registry/x.json".into()]);
    place.refuses(|request| request.env = vec![("LD_PRELOAD".into(), "/x".into())]);
    place.refuses(|request| request.env = vec![("PATH".into(), "/x".into())]);
    place.refuses(|request| request.env = vec![("A".into(), "1".into()), ("A".into(), "2".into())]);
    place.refuses(|request| request.limits.tasks_max = 0);
}

#[test]
fn an_allowed_interpreter_needs_usr() {
    let place = Place::new("interpreter");
    let mut request = place.good();
    request.exec = vec!["/usr/bin/python3".into(), "main.py".into()];
    request.usr = true;
    launch(&request, &place.directories, &place.settings).unwrap();
}

#[test]
fn a_root_that_leads_elsewhere_by_a_link_is_refused() {
    let place = Place::new("link");
    let docs = place.state.with_extension("docs");
    fs::remove_dir(&docs).unwrap();
    std::os::unix::fs::symlink("/etc", &docs).unwrap();
    let error = launch(&place.good(), &place.directories, &place.settings).unwrap_err();
    assert!(error.message.contains("leads to /etc"), "{error}");
    fs::remove_file(&docs).unwrap();
}

#[test]
fn a_root_around_plugind_s_own_state_is_refused() {
    let mut place = Place::new("around");
    let around = place.state.parent().unwrap().to_owned();
    place.settings.roots.get_mut("docs").unwrap().path = around;
    let error = launch(&place.good(), &place.directories, &place.settings).unwrap_err();
    assert!(error.message.contains("own state"), "{error}");
}
