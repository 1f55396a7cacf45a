//! Files: what of the host's a plugin finds, and what it can write and execute.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use plugind_integration::{Bundle, Installed, Outside, user};
use serde_json::{Value, json};

/// What a plugin's root holds (DESIGN §4), without the system's own names.
const ROOT: [&str; 8] = ["data", "dev", "etc", "plugin", "proc", "run", "tmp", "workspace"];

fn list(path: &str) -> Value {
    json!({"what": "list-dir", "path": path})
}

fn read(path: impl AsRef<Path>) -> Value {
    json!({"what": "read-path", "path": path.as_ref()})
}

fn write(path: &str) -> Value {
    json!({"what": "write-path", "path": path})
}

/// A file of the host, removed when dropped.
struct Planted(PathBuf);

impl Planted {
    fn new(path: impl Into<PathBuf>, owner: u32) -> Planted {
        let path = path.into();
        fs::write(&path, "planted").unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        Planted(path)
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn the_root_of_a_static_plugin_holds_nothing_of_the_system() {
    let plugin = Installed::new(Bundle::hostile());
    assert_eq!(plugin.probe(&list("/")).allowed(), &json!(ROOT));
    for path in ["/usr", "/lib", "/lib64", "/bin", "/sys", "/home", "/root", "/var", "/proc/1/root"] {
        plugin.probe(&list(path)).denied(&[Errno::ENOENT, Errno::EACCES]);
    }
    assert_eq!(plugin.probe(&list("/plugin")).allowed(), &json!(["bin", "plugin.json"]));
    for empty in ["/data", "/tmp", "/dev/shm", "/workspace"] {
        assert_eq!(plugin.probe(&list(empty)).allowed(), &json!([]), "{empty}");
    }
}

#[test]
fn the_root_of_a_system_plugin_adds_usr_and_the_names_that_lead_into_it() {
    let plugin = Installed::new(Bundle::hostile().manifest(|manifest| manifest["runtime"] = "system".into()));
    let leads = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];
    let leads = leads.into_iter().filter(|name| fs::symlink_metadata(format!("/{name}")).is_ok());
    let expected: BTreeSet<&str> = ROOT.into_iter().chain(["usr"]).chain(leads).collect();
    assert_eq!(plugin.probe(&list("/")).allowed(), &json!(expected));
    plugin.probe(&json!({"what": "exec-path", "path": "/usr/bin/true", "copy": false})).allowed();
    plugin.probe(&write("/usr/planted")).denied(&[Errno::EROFS]);
    plugin.probe(&write("/bin/planted")).denied(&[Errno::EROFS]);
}

#[test]
fn etc_is_synthesised() {
    let synthesised = ["group", "hosts", "nsswitch.conf", "passwd"];
    let plugin = Installed::new(Bundle::hostile());
    assert_eq!(plugin.probe(&list("/etc")).allowed(), &json!(synthesised));
    let users = plugin.probe(&read("/etc/passwd")).allowed().to_string();
    assert!(users.contains("plugin:x:1000:") && !users.contains(user::NAME), "{users}");
    let outside = Outside::tester().probe(&read("/etc/passwd")).allowed().to_string();
    assert!(outside.contains("root:"), "the host has another: {outside}");

    let plugin = Installed::new(Bundle::hostile().manifest(|manifest| manifest["runtime"] = "system".into()));
    let mut expected: BTreeSet<&str> = synthesised.into();
    expected.insert("ld.so.cache");
    assert_eq!(plugin.probe(&list("/etc")).allowed(), &json!(expected));
}

#[test]
fn files_of_the_host_are_not_there_whoever_owns_them() {
    let tester = user::tester();
    let own = [
        Planted::new(tester.dir.join(format!("planted-{}", std::process::id())), tester.uid.as_raw()),
        Planted::new(format!("/tmp/planted-{}", std::process::id()), tester.uid.as_raw()),
        Planted::new(format!("/var/tmp/planted-{}", std::process::id()), tester.uid.as_raw()),
    ];
    let others = Planted::new(format!("/tmp/planted-other-{}", std::process::id()), 65534);
    let outside = Outside::tester();
    for runtime in ["static", "system"] {
        let bundle = Bundle::hostile().manifest(|manifest| manifest["runtime"] = runtime.into());
        let plugin = Installed::new(bundle);
        for Planted(path) in &own {
            assert_eq!(outside.probe(&read(path)).allowed(), "planted", "its user can read it");
            plugin.probe(&read(path)).denied(&[Errno::ENOENT]);
            // The same by a way that goes up first.
            plugin.probe(&read(format!("/plugin/../..{}", path.display()))).denied(&[Errno::ENOENT]);
        }
        outside.probe(&read(&others.0)).denied(&[Errno::EACCES]);
        for path in [others.0.to_str().unwrap(), "/etc/shadow", "/etc/machine-id", "/etc/hostname"] {
            plugin.probe(&read(path)).denied(&[Errno::ENOENT]);
        }
        assert!(plugin.probe(&read("/plugin/plugin.json")).allowed().as_str().unwrap().starts_with('{'));
    }
}

#[test]
fn the_bundle_and_the_root_cannot_be_changed() {
    let plugin = Installed::new(Bundle::hostile());
    for path in
        ["/plugin/plugin.json", "/plugin/bin/hostile-plugin", "/plugin/new", "/etc/passwd", "/etc/new"]
    {
        plugin.probe(&write(path)).denied(&[Errno::EROFS, Errno::EACCES]);
    }
    for path in ["/plugin/plugin.json", "/plugin/bin", "/etc/passwd", "/workspace", "/run/plugind/enter"] {
        let probe = json!({"what": "remove-path", "path": path});
        plugin.probe(&probe).denied(&[Errno::EROFS, Errno::EACCES, Errno::EBUSY]);
    }
    for path in ["/new", "/plugin/new", "/etc/new", "/run/new", "/workspace/new", "/proc/new"] {
        let probe = json!({"what": "create-dir", "path": path});
        plugin.probe(&probe).denied(&[Errno::EROFS, Errno::EACCES, Errno::ENOENT]);
    }
    for folder in ["/data", "/tmp", "/dev/shm"] {
        plugin.probe(&write(&format!("{folder}/file"))).allowed();
        plugin.probe(&json!({"what": "create-dir", "path": format!("{folder}/folder")})).allowed();
        plugin.probe(&json!({"what": "remove-path", "path": format!("{folder}/file")})).allowed();
    }
    assert_eq!(plugin.call("echo", &json!(1)).json(), 1, "it is whole");
}

/// `/dev` is a tmpfs that could be written: only Landlock keeps the plugin from it.
#[test]
fn landlock_alone_keeps_dev_from_being_written() {
    let plugin = Installed::new(Bundle::python());
    let writable = plugin.python(
        "mounts = [line.split() for line in open('/proc/self/mountinfo')]\n\
         result = [fields[5] for fields in mounts if fields[4] == '/dev'][0]",
    );
    assert!(writable.allowed().as_str().unwrap().split(',').any(|option| option == "rw"));
    plugin.python("open('/dev/new', 'w')").denied(&[Errno::EACCES]);
    plugin.python("import os; os.mkdir('/dev/new')").denied(&[Errno::EACCES]);
    plugin.python("import os; os.unlink('/dev/null')").denied(&[Errno::EACCES]);
    plugin.python("open('/dev/null', 'w').write('x')").allowed();
    plugin.python("open('/dev/shm/new', 'w').write('x')").allowed();
}

/// Neither tmpfs nor the folder of `/data` is mounted noexec: only Landlock keeps the plugin from it.
#[test]
fn landlock_alone_keeps_what_was_written_from_being_executed() {
    let plugin = Installed::new(Bundle::hostile());
    for folder in ["/data", "/tmp", "/dev/shm"] {
        let copy = json!({"what": "exec-path", "path": format!("{folder}/copy"), "copy": true});
        plugin.probe(&copy).denied(&[Errno::EACCES]);
        let made = plugin.probe(&list(folder)).allowed().clone();
        assert_eq!(made, json!(["copy"]), "the copy itself was made");
    }
    // The helper has all it needs to make a sandbox, and nothing that a plugin may run.
    let helper = json!({"what": "exec-path", "path": "/run/plugind/enter", "copy": false});
    plugin.probe(&helper).denied(&[Errno::EACCES]);
    let own = json!({"what": "exec-path", "path": "/plugin/bin/hostile-plugin", "copy": false});
    assert_eq!(plugin.probe(&own).allowed()["stdout"], "ok\n");
}

#[test]
fn every_mount_is_nosuid_and_read_only_but_for_the_plugins_own() {
    let plugin = Installed::new(Bundle::python());
    let mounts = plugin.python("result = [line.split()[4:6] for line in open('/proc/self/mountinfo')]");
    let mounts: Vec<(String, String)> = serde_json::from_value(mounts.allowed().clone()).unwrap();
    let own = ["/data", "/tmp", "/dev/shm"];
    for (place, options) in &mounts {
        let has = |option| options.split(',').any(|other| other == option);
        assert!(has("nosuid"), "{place} {options}");
        let kernels = place == "/dev" || place.starts_with("/dev/") || place == "/proc";
        assert!(has("ro") || kernels || own.contains(&place.as_str()), "{place} {options}");
    }
    for place in own {
        assert!(mounts.iter().any(|(mounted, _)| mounted == place), "{place} is a mount");
    }
}

#[test]
fn devices_are_the_harmless_ones() {
    let plugin = Installed::new(Bundle::python());
    let expected = [
        "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
        "urandom", "zero",
    ];
    assert_eq!(plugin.python("import os; result = sorted(os.listdir('/dev'))").allowed(), &json!(expected));
    for device in ["null", "zero", "full", "random", "urandom"] {
        plugin.python(&format!("open('/dev/{device}', 'rb', 0).read(1)")).allowed();
    }
    plugin.python("open('/dev/core', 'rb')").denied(&[Errno::EACCES, Errno::ENOENT, Errno::EPERM]);
    // Terminals: those of the sandbox, of which there are none and none can be used.
    assert_eq!(plugin.python("import os; result = os.listdir('/dev/pts')").allowed(), &json!(["ptmx"]));
    plugin.python("open('/dev/ptmx', 'r+b', 0)").denied(&[Errno::EACCES]);
    for kind in ["stat.S_IFCHR", "stat.S_IFBLK"] {
        let make = format!("import os, stat; os.mknod('/data/node', {kind} | 0o600, os.makedev(1, 3))");
        plugin.python(&make).denied(&[Errno::EACCES, Errno::EPERM]);
    }
    plugin.python("import os, stat; os.mknod('/data/pipe', stat.S_IFIFO | 0o600)").allowed();
}

#[test]
fn the_kernels_settings_can_be_read_and_not_changed() {
    let plugin = Installed::new(Bundle::python());
    for path in [
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/user/max_user_namespaces",
        "/proc/self/oom_score_adj",
        "/proc/self/uid_map",
        "/proc/self/mem",
    ] {
        plugin.python(&format!("open('{path}', 'r+b', 0)")).denied(&[Errno::EACCES, Errno::EROFS]);
    }
    plugin.python("result = open('/proc/sys/kernel/hostname').read()").allowed();
    plugin.python("open('/data/settings', 'w+b', 0)").allowed();
}

#[test]
fn temporary_files_are_bounded() {
    let bundle = Bundle::hostile().manifest(|manifest| manifest["resources"] = json!({"tmp_size": "1M"}));
    let plugin = Installed::new(bundle);
    for folder in ["/tmp", "/dev/shm"] {
        let fill = |name: &str, bytes: u32| {
            plugin.probe(&json!({"what": "fill", "path": format!("{folder}/{name}"), "bytes": bytes}))
        };
        assert_eq!(fill("half", 512 << 10).allowed(), &json!(512 << 10));
        fill("more", 1 << 20).denied(&[Errno::ENOSPC]);
    }
    // Another file system, which is not bounded by it.
    plugin.probe(&json!({"what": "fill", "path": "/data/file", "bytes": 2 << 20})).allowed();
}

#[test]
fn the_data_of_a_plugin_is_its_own() {
    let (first, second) = (Installed::new(Bundle::hostile()), Installed::new(Bundle::hostile()));
    for plugin in [&first, &second] {
        plugin.probe(&write("/data/file")).allowed();
        plugin.probe(&write("/tmp/file")).allowed();
        assert_eq!(plugin.probe(&list("/data")).allowed(), &json!(["file"]));
        assert_eq!(plugin.probe(&list("/tmp")).allowed(), &json!(["file"]));
    }
    first.probe(&write("/data/file")).allowed();
    let lines =
        |plugin: &Installed| plugin.probe(&read("/data/file")).allowed().as_str().unwrap().lines().count();
    assert_eq!((lines(&first), lines(&second)), (2, 1));
    let state = user::tester().dir.join(".local/state/plugind");
    first.probe(&list(state.to_str().unwrap())).denied(&[Errno::ENOENT]);
}

#[test]
fn the_state_is_closed_to_other_users() {
    let plugin = Installed::new(Bundle::hostile());
    plugin.probe(&write("/data/file")).allowed();
    let state = user::tester().dir.join(".local/state/plugind");
    for path in [state.clone(), state.join("store"), state.join("registry"), state.join("data")] {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
    }
    let record = state.join("registry").join(format!("{}.json", plugin.name()));
    assert_eq!(fs::metadata(&record).unwrap().permissions().mode() & 0o7777, 0o600);
    Outside::tester().probe(&read(&record)).allowed();
    let socket = PathBuf::from(user::runtime_dir()).join("plugind/launcher.sock");
    let modes = [socket.as_path(), socket.parent().unwrap()]
        .map(|path| fs::metadata(path).unwrap().permissions().mode());
    assert_eq!(
        modes.map(|mode| mode & 0o7777),
        [0o600, 0o700],
        "who reaches the launcher's socket starts plugins"
    );
}
