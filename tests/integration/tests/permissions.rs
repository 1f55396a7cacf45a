//! Permissions: without a grant nothing, with one exactly that, and nothing after it was revoked.
#![cfg(feature = "stage")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use plugind_integration::ctl::run_through;
use plugind_integration::installed::Process;
use plugind_integration::{Bundle, Installed, Outcome, Report, ctl, scopes, user};
use plugind_protocol::Kind;
use serde_json::{Value, json};

/// A folder of the test user's with a root to grant, and the configuration that names it; removed when dropped.
struct Root {
    folder: PathBuf,
    configured: String,
}

impl Root {
    fn new(name: &str, access: &str) -> Root {
        let folder = PathBuf::from(format!("/tmp/root-{name}-{}", std::process::id()));
        let root = folder.join("docs");
        fs::create_dir_all(root.join("below")).unwrap();
        fs::write(root.join("letter"), "a letter").unwrap();
        fs::write(folder.join("beside"), "beside the root").unwrap();
        symlink(folder.join("beside"), root.join("way-out")).unwrap();
        symlink("../beside", root.join("way-up")).unwrap();
        let configuration = folder.join("plugind");
        fs::create_dir(&configuration).unwrap();
        let text = format!("[roots.docs]\npath = {:?}\naccess = \"{access}\"\n", root.to_str().unwrap());
        fs::write(configuration.join("plugind.toml"), text).unwrap();
        let root = Root { configured: format!("XDG_CONFIG_HOME={}", folder.display()), folder };
        give(&root.folder);
        root
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join("docs").join(name)
    }

    fn run(&self, bundle: &Bundle, command: &str, arguments: &Value, grants: &[&str]) -> Outcome {
        run_through(&["env", &self.configured], bundle, command, arguments, grants)
    }

    fn python(&self, access: &str, code: &str) -> Report {
        let bundle = asking(Bundle::python(), json!({"mounts": [{"root": "docs", "access": access}]}));
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
    std::os::unix::fs::lchown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
    if path.is_dir() && !path.is_symlink() {
        fs::read_dir(path).unwrap().flatten().for_each(|entry| give(&entry.path()));
    }
}

fn asking(bundle: Bundle, permissions: Value) -> Bundle {
    bundle.manifest(|manifest| manifest["permissions"] = permissions)
}

fn list(path: &str) -> Value {
    json!({"what": "list-dir", "path": path})
}

fn read(path: &str) -> Value {
    json!({"what": "read-path", "path": path})
}

/// A secret of the installed plugind, removed when dropped.
struct Secret(PathBuf);

impl Secret {
    fn new(name: &str, mode: u32) -> Secret {
        let user = user::tester();
        let folder = user.dir.join(".local/state/plugind/secrets");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        fs::write(&path, format!("the secret {name}")).unwrap();
        for path in [&folder, &path] {
            chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Secret(path)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn without_a_grant_a_plugin_has_nothing_of_what_it_asks_for() {
    let root = Root::new("ungranted", "write");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let bundle = asking(
        Bundle::hostile(),
        json!({"network": {"mode": "host"}, "mounts": [{"root": "docs", "access": "write"}],
               "secrets": ["token"], "env": ["LOGNAME"]}),
    );
    let probe =
        |arguments: &Value, grants: &[&str]| Report::of(&root.run(&bundle, "probe", arguments, grants));
    let connect = json!({"what": "connect-tcp", "host": "127.0.0.1", "port": port});
    let environ = json!({"what": "environ"});

    assert_eq!(probe(&list("/workspace"), &[]).allowed(), &json!([]));
    assert_eq!(probe(&list("/run"), &[]).allowed(), &json!(["plugind"]));
    probe(&connect, &[]).denied(&[Errno::EACCES, Errno::ECONNREFUSED]);
    assert!(probe(&environ, &[]).allowed()["LOGNAME"].is_null());

    let grants = ["mount:docs:write", "network:host", "env:LOGNAME"];
    assert_eq!(probe(&list("/workspace"), &grants).allowed(), &json!(["docs"]));
    probe(&connect, &grants).allowed();
    assert_eq!(probe(&environ, &grants).allowed()["LOGNAME"], user::NAME);
    // Each grant alone is no other.
    assert_eq!(probe(&list("/workspace"), &["network:host"]).allowed(), &json!([]));
    probe(&connect, &["mount:docs:write"]).denied(&[Errno::EACCES, Errno::ECONNREFUSED]);
}

#[test]
fn installing_grants_and_enables_nothing() {
    let bundle = asking(Bundle::hostile(), json!({"network": {"mode": "host"}, "env": ["LOGNAME"]}));
    ctl(&["install", bundle.path()]).success();
    let refused = ctl(&["call", &bundle.command("echo")]);
    let listed = ctl(&["permissions", bundle.name()]).json();
    ctl(&["enable", bundle.name()]).success();
    let answered = ctl(&["call", &bundle.command("echo"), "--args", "[1]"]);
    ctl(&["remove", bundle.name()]).success();
    refused.fails(Kind::Disabled);
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|one| one["requested"] == true && one["granted"] == false), "{listed:?}");
    assert_eq!(answered.json(), json!([1]));
}

#[test]
fn a_root_granted_for_reading_can_be_read_and_no_more() {
    let root = Root::new("read", "write");
    let code = "import os\n\
        found = {'list': sorted(os.listdir('/workspace/docs')), 'letter': open('/workspace/docs/letter').read()}\n\
        def refused(work):\n    \
            try: work()\n    \
            except OSError as cause: return cause.errno\n\
        docs = '/workspace/docs/'\n\
        found['refused'] = [refused(work) for work in (\n    \
            lambda: open(docs + 'letter', 'a'), lambda: open(docs + 'new', 'w'), lambda: os.unlink(docs + 'letter'),\n    \
            lambda: os.mkdir(docs + 'new'), lambda: os.rename(docs + 'letter', docs + 'below/letter'),\n    \
            lambda: os.truncate(docs + 'letter', 0), lambda: os.chmod(docs + 'letter', 0o777))]\n\
        result = found";
    let report = root.python("read", code);
    let found = report.allowed();
    assert_eq!(found["letter"], "a letter");
    assert_eq!(found["list"], json!(["below", "letter", "way-out", "way-up"]));
    let refused = found["refused"].as_array().unwrap();
    let read_only = [json!(Errno::EROFS as i32), json!(Errno::EACCES as i32)];
    assert!(refused.iter().all(|errno| read_only.contains(errno)), "{refused:?}");
    assert_eq!(fs::read_to_string(root.path("letter")).unwrap(), "a letter");
}

#[test]
fn a_root_granted_for_writing_can_be_changed_and_never_executed() {
    let root = Root::new("write", "write");
    let report = root.python(
        "write",
        "import os\n\
         open('/workspace/docs/new', 'w').write('written')\n\
         os.rename('/workspace/docs/letter', '/workspace/docs/below/letter')\n\
         os.mkdir('/workspace/docs/folder')",
    );
    report.allowed();
    assert_eq!(fs::read_to_string(root.path("new")).unwrap(), "written");
    assert!(root.path("below/letter").exists() && root.path("folder").is_dir());
    let bundle = asking(Bundle::hostile(), json!({"mounts": [{"root": "docs", "access": "write"}]}));
    let exec = json!({"what": "exec-path", "path": "/workspace/docs/program", "copy": true});
    Report::of(&root.run(&bundle, "probe", &exec, &["mount:docs:write"])).denied(&[Errno::EACCES]);
    let made = fs::metadata(root.path("program")).unwrap().permissions().mode();
    assert_eq!(made & 0o111, 0o111, "it was copied, and is a program to everybody else");
}

#[test]
fn links_in_a_root_lead_nowhere_outside_it() {
    let root = Root::new("links", "read");
    for link in ["way-out", "way-up"] {
        assert_eq!(fs::read_to_string(root.path(link)).unwrap(), "beside the root", "outside it leads there");
        root.python("read", &format!("open('/workspace/docs/{link}')")).denied(&[Errno::ENOENT]);
    }
    root.python("read", "open('/workspace/docs/../beside')").denied(&[Errno::ENOENT]);
    root.python("read", "open('/workspace/docs/../docs/letter')").allowed();
}

/// A program of the operator's with this bit would run as the operator for every user of the machine.
#[test]
fn no_setuid_program_can_be_left_in_a_root() {
    let root = Root::new("setuid", "write");
    for mode in ["0o4755", "0o2755"] {
        let made = root.python(
            "write",
            &format!(
                "import os; open('/workspace/docs/program', 'w'); os.chmod('/workspace/docs/program', {mode})"
            ),
        );
        let found = fs::metadata(root.path("program")).unwrap().permissions().mode();
        made.denied(&[Errno::EPERM]);
        assert_eq!(found & 0o6000, 0, "{found:o}");
        let at_once = format!(
            "import os; os.close(os.open('/workspace/docs/program2', os.O_CREAT | os.O_RDWR, {mode}))"
        );
        root.python("write", &at_once).denied(&[Errno::EPERM]);
    }
    root.python("write", "import os; os.chmod('/workspace/docs/letter', 0o755)").allowed();
}

#[test]
fn a_root_is_never_granted_further_than_the_configuration_says() {
    let root = Root::new("ceiling", "read");
    let bundle = asking(Bundle::hostile(), json!({"mounts": [{"root": "docs", "access": "write"}]}));
    let write = root.run(&bundle, "probe", &list("/workspace"), &["mount:docs:write"]);
    write.fails(Kind::PermissionDenied);
    // What was asked for writing may be granted for reading.
    let report =
        Report::of(&root.run(&bundle, "probe", &read("/workspace/docs/letter"), &["mount:docs:read"]));
    assert_eq!(report.allowed(), "a letter");
    let append = json!({"what": "write-path", "path": "/workspace/docs/letter"});
    Report::of(&root.run(&bundle, "probe", &append, &["mount:docs:read"]))
        .denied(&[Errno::EROFS, Errno::EACCES]);
    // A root that the configuration does not know.
    let bundle = asking(Bundle::hostile(), json!({"mounts": [{"root": "other", "access": "read"}]}));
    root.run(&bundle, "echo", &json!(1), &["mount:other:read"]).fails(Kind::PermissionDenied);
    assert_eq!(root.run(&bundle, "echo", &json!(1), &[]).json(), 1);
}

/// Below Landlock ABI 9 nothing handles sockets by path, and `status` says so.
#[test]
fn sockets_in_a_granted_root_are_as_open_as_status_says() {
    let root = Root::new("socket", "write");
    let socket = root.path("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
    let connect = "import socket; socket.socket(socket.AF_UNIX).connect('/workspace/docs/socket')";
    let doctor = ctl(&["doctor"]).json().to_string();
    for access in ["read", "write"] {
        let report = root.python(access, connect);
        if doctor.contains("sockets by path (ABI 9)") {
            report.allowed();
        } else {
            report.denied(&[Errno::EACCES]);
        }
    }
    let mine = "import socket; socket.socket(socket.AF_UNIX).connect('/tmp/root-socket')";
    root.python("read", mine).denied(&[Errno::ENOENT]);
}

#[test]
fn a_variable_is_passed_only_if_it_was_granted_and_exists() {
    let bundle = asking(Bundle::hostile(), json!({"env": ["GRANTED", "REFUSED", "ABSENT"]}));
    let outer = ["env", "GRANTED=yes", "REFUSED=no", "UNASKED=no"];
    let grants = ["env:GRANTED", "env:ABSENT"];
    let report = Report::of(&run_through(&outer, &bundle, "probe", &json!({"what": "environ"}), &grants));
    let environ = report.allowed().as_object().unwrap();
    assert_eq!(environ["GRANTED"], "yes");
    assert!(["REFUSED", "ABSENT", "UNASKED"].iter().all(|name| !environ.contains_key(*name)), "{environ:?}");
}

#[test]
fn a_secret_is_a_file_of_the_plugin_it_was_granted_to() {
    let (token, other) = (format!("token-{}", std::process::id()), format!("other-{}", std::process::id()));
    let _secrets = [Secret::new(&token, 0o600), Secret::new(&other, 0o600)];
    let plugin = Installed::new(asking(Bundle::python(), json!({"secrets": [token, other]})));
    plugin.python("open('/run/credentials')").denied(&[Errno::ENOENT]);
    let grant = format!("secret:{token}");
    plugin.permit("grant", &[&grant]).success();
    let secret = format!("open('/run/credentials/{token}')");
    assert_eq!(
        plugin.python(&format!("result = {secret}.read()")).allowed(),
        &json!(format!("the secret {token}"))
    );
    let names = plugin.python("import os; result = os.listdir('/run/credentials')");
    assert_eq!(names.allowed(), &json!([token]), "and no other");
    plugin.python(&secret.replace("')", "', 'a')")).denied(&[Errno::EROFS, Errno::EACCES]);
    plugin.python(&format!("import os; os.unlink('/run/credentials/{token}')")).denied(&[
        Errno::EROFS,
        Errno::EACCES,
        Errno::EBUSY,
    ]);
    // Nowhere else.
    let told =
        plugin.python("result = open('/proc/self/environ').read() + open('/proc/self/cmdline').read()");
    assert!(!told.allowed().as_str().unwrap().contains("the secret"));
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains("the secret"), "{}", process.path().display());
    }
    plugin.permit("revoke", &[&grant]).success();
    plugin.python(&secret).denied(&[Errno::ENOENT]);
}

#[test]
fn a_secret_that_others_can_read_is_refused() {
    let name = format!("loose-{}", std::process::id());
    let secret = Secret::new(&name, 0o644);
    let plugin = Installed::new(asking(Bundle::hostile(), json!({"secrets": [name]})));
    plugin.permit("grant", &[&format!("secret:{name}")]).success();
    let error = plugin.call("echo", &json!(1)).fails(Kind::PermissionDenied);
    assert!(error.message.contains("0600"), "{error}");
    fs::set_permissions(&secret.0, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(plugin.call("echo", &json!(1)).json(), 1);
    drop(secret);
    plugin.permit("revoke", &[&format!("secret:{name}")]).success();
    plugin.permit("grant", &[&format!("secret:{name}")]).success();
    plugin.call("echo", &json!(1)).fails(Kind::PermissionDenied);
}

#[test]
fn the_hosts_network_is_granted_in_capitals() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect =
        json!({"what": "connect-tcp", "host": "127.0.0.1", "port": listener.local_addr().unwrap().port()});
    let plugin = Installed::new(asking(Bundle::hostile(), json!({"network": {"mode": "host"}})));
    plugin.probe(&connect).denied(&[Errno::EACCES, Errno::ECONNREFUSED]);
    let status = || Outcome::of(user::as_tester("pluginctl").args(["status", plugin.name()])).stdout;
    assert!(status().contains("network: none"), "{}", status());
    plugin.permit("grant", &["network:host"]).success();
    plugin.probe(&connect).allowed();
    assert!(status().contains("network: the HOST'S NETWORK, unfiltered"), "{}", status());
    assert!(status().contains("network:host, granted: use the HOST'S NETWORK"), "{}", status());
    let names = plugin.probe(&list("/etc")).allowed().to_string();
    assert!(names.contains("hosts") && !names.contains("shadow"), "{names}");
}

#[test]
fn revoking_stops_a_running_plugin_and_it_starts_again_with_less() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect =
        json!({"what": "connect-tcp", "host": "127.0.0.1", "port": listener.local_addr().unwrap().port()});
    let plugin =
        Installed::new(asking(Bundle::hostile(), json!({"network": {"mode": "host"}, "env": ["LOGNAME"]})));
    plugin.permit("grant", &["network:host", "env:LOGNAME"]).success();
    plugin.probe(&connect).allowed();
    let before = plugin.processes();
    plugin.permit("revoke", &["network:host"]).success();
    assert!(!before.is_empty() && !before.iter().any(Process::is_alive), "{before:?}");
    plugin.probe(&connect).denied(&[Errno::EACCES, Errno::ECONNREFUSED]);
    let environ = json!({"what": "environ"});
    assert_eq!(plugin.probe(&environ).allowed()["LOGNAME"], user::NAME, "the other grant stays");
    assert_eq!(plugin.status()["granted_permissions"], json!(["env:LOGNAME"]));
    // Revoking what is not granted disturbs nobody.
    let running = plugin.processes();
    plugin.permit("revoke", &["network:host"]).success();
    assert!(running.iter().all(Process::is_alive));
}

#[test]
fn only_what_was_asked_for_can_be_granted() {
    let plugin = Installed::new(asking(Bundle::hostile(), json!({"env": ["LOGNAME"]})));
    for permission in ["network:host", "env:USER", "secret:token", "mount:docs:read"] {
        plugin.permit("grant", &[permission]).fails(Kind::InvalidArguments);
    }
    assert_eq!(plugin.status()["granted_permissions"], json!([]));
    plugin.permit("grant", &["env:LOGNAME"]).success();
    assert_eq!(plugin.status()["granted_permissions"], json!(["env:LOGNAME"]));
}

#[test]
fn the_brokered_network_cannot_be_granted() {
    let plugin =
        Installed::new(asking(Bundle::hostile(), json!({"network": {"hosts": ["api.example.org"]}})));
    plugin.permit("grant", &["network:api.example.org"]).fails(Kind::Unavailable);
    assert_eq!(plugin.call("echo", &json!(1)).json(), 1, "it runs without it");
    assert_eq!(plugin.status()["granted_permissions"], json!([]));
}

#[test]
fn grants_belong_to_the_bundle_that_was_reviewed() {
    let bundle = asking(Bundle::hostile(), json!({"env": ["LOGNAME"]}));
    let environ = json!({"what": "environ"}).to_string();
    let granted = || {
        let report = ctl(&["call", &bundle.command("probe"), "--args", &environ]).json();
        !report["value"]["LOGNAME"].is_null()
    };
    ctl(&["install", "--enable", "--grant", "env:LOGNAME", bundle.path()]).success();
    assert!(granted());
    // Another bundle of the same name has to be reviewed anew.
    let changed = asking(Bundle::hostile(), json!({"env": ["LOGNAME"]}))
        .manifest(|manifest| manifest["name"] = bundle.name().into())
        .file("changed", b"by a byte", 0o644);
    ctl(&["install", changed.path()]).fails(Kind::Conflict);
    assert!(granted(), "the refused one changed nothing");
    ctl(&["remove", "--keep-data", bundle.name()]).success();
    ctl(&["install", "--enable", changed.path()]).success();
    assert!(!granted());
    ctl(&["remove", bundle.name()]).success();
    scopes::none_left(bundle.name());
}
