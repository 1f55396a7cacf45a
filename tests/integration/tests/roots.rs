//! Roots of the configuration: what a plugin does below `/workspace`, and that it stays there.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use nix::errno::Errno;
use plugind_integration::{Bundle, Report, Root, ctl, user};
use plugind_protocol::Kind;
use serde_json::{Value, json};

fn list(path: &str) -> Value {
    json!({"what": "list-dir", "path": path})
}

fn read(path: &str) -> Value {
    json!({"what": "read-path", "path": path})
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
    let bundle = Bundle::hostile().asking(json!({"mounts": [{"root": "docs", "access": "write"}]}));
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

/// A root that lies in another can be exchanged by who may write that one.
/// A plugin that may write to the outer one could put a link to anywhere in the inner one's place.
#[test]
fn a_root_within_a_root_cannot_be_made_to_lead_elsewhere() {
    let root = Root::new("nested", "write");
    let bundle = Bundle::hostile();
    assert_eq!(root.run(&bundle, "echo", &json!(1), &[]).json(), 1);
    root.configure("inner", &root.path("below"));
    let error = root.run(&bundle, "echo", &json!(1), &[]).fails(Kind::Unavailable);
    assert!(error.message.contains("roots.inner") && error.message.contains("roots.docs"), "{error}");
}

#[test]
fn a_root_that_leads_elsewhere_by_a_link_is_refused() {
    let root = Root::new("link", "read");
    let elsewhere = root.path("../elsewhere");
    std::os::unix::fs::symlink(user::tester().dir, &elsewhere).unwrap();
    let elsewhere = elsewhere.parent().unwrap().canonicalize().unwrap().join("elsewhere");
    root.configure("linked", &elsewhere);
    let bundle = Bundle::hostile().asking(json!({"mounts": [{"root": "linked", "access": "read"}]}));
    let error = root.run(&bundle, "echo", &json!(1), &["mount:linked:read"]).fails(Kind::PermissionDenied);
    assert!(error.message.contains("linked") && error.message.contains("leads to"), "{error}");
    assert_eq!(root.run(&bundle, "echo", &json!(1), &[]).json(), 1);
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
    let bundle = Bundle::hostile().asking(json!({"mounts": [{"root": "docs", "access": "write"}]}));
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
    let bundle = Bundle::hostile().asking(json!({"mounts": [{"root": "other", "access": "read"}]}));
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
