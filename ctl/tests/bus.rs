//! The binary against a bus of its own: verbs, exit codes, pipes.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod fake;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use fake::session::{Session, seen};

#[test]
fn list_is_tabs_in_a_pipe_and_json_on_one_line() {
    let session = Session::start();
    let (code, out, err) = session.run(&["list"]);
    let expected = "demo\t1.2.3\tactive\tenabled\tA demo\nidle-one\t1.2.3\tinactive\tenabled\tA demo\n";
    assert_eq!((code, out.as_str(), err.as_str()), (0, expected, ""));

    let (code, out, _) = session.run(&["list", "-o", "json"]);
    assert_eq!((code, out.lines().count()), (0, 1));
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(list[1]["name"], "idle-one");
    assert_eq!(list[1]["state"], "inactive");
}

#[test]
fn status_has_the_exit_codes_of_lsb() {
    let session = Session::start();
    let (code, out, _) = session.run(&["status", "demo"]);
    assert_eq!(code, 0);
    assert!(
        out.starts_with("demo - A demo\n     Loaded: version 1.2.3 (sha256:abababababab; enabled)\n"),
        "{out}"
    );
    assert!(
        out.contains("     Limits: memory 512M, in force\n             cpu 100%, NOT in force\n"),
        "{out}"
    );
    assert!(out.ends_with("\nfirst\nsecond \\u{1b}[2J\n"), "{out}");
    assert!(!out.contains("Memory:"), "{out}");
    let counters = " (3 failed: Busy 2, TimedOut 1), restarts: 0\n    Latency: p50 254us, p99 1.25ms; 2 in flight, 0 queued\n      \
                    Bytes: 4.0K in, 1.0K out\n";
    assert!(out.contains(counters), "{out}");

    assert_eq!(session.run(&["status", "idle-one"]).0, 3);
    let (code, out, err) = session.run(&["status", "absent", "demo"]);
    assert_eq!(code, 4);
    assert!(out.starts_with("demo - "));
    assert!(err.starts_with("pluginctl: NoSuchPlugin: no plugin `absent` is installed\n  hint: "), "{err}");
    assert_eq!(session.run(&["status", "Not A Name"]).0, 4);
    assert_eq!(session.run(&["status"]).0, 0);
    assert_eq!(session.run(&["status", "-q", "idle-one"]), (3, String::new(), String::new()));
}

#[test]
fn status_has_null_where_there_is_no_number() {
    let session = Session::start();
    let status = |name| {
        let (_, out, _) = session.run(&["status", name, "-o", "json"]);
        serde_json::from_str::<serde_json::Value>(&out).unwrap()[0].clone()
    };
    let demo = status("demo");
    assert_eq!(demo["errors_by_kind"], serde_json::json!({"Busy": 2, "TimedOut": 1}));
    assert_eq!((&demo["latency_p50_us"], &demo["in_flight"]), (&254.into(), &2.into()));
    assert_eq!(demo["instances"][0]["main_pid"], 42);
    // Without a call there is no latency, and this supervisor does not count stray answers.
    let idle = status("idle-one");
    assert!(idle["latency_p50_us"].is_null() && idle["stray_answers"].is_null(), "{idle}");
}

#[test]
fn verbs_of_the_lifecycle_are_silent_and_go_on_after_an_error() {
    let session = Session::start();
    for words in [
        &["start", "demo"][..],
        &["stop", "demo", "idle-one"],
        &["restart", "demo"],
        &["enable", "--now", "demo"],
        &["disable", "--now", "demo"],
        &["kill", "demo"],
        &["kill", "-s", "sigkill", "demo"],
        &["remove", "--keep-data", "demo"],
        &["grant", "demo", "env:TZ", "mount:docs:read"],
        &["revoke", "demo", "env:TZ"],
    ] {
        assert_eq!(session.run(words), (0, String::new(), String::new()), "{words:?}");
    }
    let expected = "start demo\nstop demo\nstop idle-one\nrestart demo\nenable demo\nstart demo\ndisable demo\nstop demo\n\
                    kill 15 demo\nkill 9 demo\nremove keep_data=true demo\ngrant env:TZ,mount:docs:read demo\n\
                    revoke env:TZ demo\n";
    assert_eq!(session.journal(), expected);

    let (code, _, err) = session.run(&["start", "absent", "demo"]);
    assert_eq!(code, 4);
    assert_eq!(err, "pluginctl: NoSuchPlugin: no plugin absent\n  hint: pluginctl list\n");
    assert!(session.journal().ends_with("start absent\nstart demo\n"));
}

#[test]
fn call_takes_arguments_from_everywhere_and_gives_them_back_unchanged() {
    let session = Session::start();
    let big = r#"{"n":12345678901234567890123,"a":[1.50]}"#;
    assert_eq!(session.run(&["call", "demo.echo", "--args", big]), (0, format!("{big}\n"), String::new()));
    assert_eq!(session.run(&["call", "demo", "echo"]).1, "{}\n");
    fs::write(session.dir.path("arguments.json"), "[ 1,\n 2 ]").unwrap();
    assert_eq!(session.run(&["call", "demo.echo", "--args", "@arguments.json"]).1, "[1,2]\n");

    let mut child = session
        .command(&["call", "demo.echo", "--args", "-", "--timeout", "7s", "--dry-run"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"\"from stdin\"").unwrap();
    assert_eq!(seen(&child.wait_with_output().unwrap()).1, "\"from stdin\"\n");
    assert!(session.journal().ends_with("call demo echo \"from stdin\" timeout=Some(7000) dry_run=true\n"));
}

#[test]
fn a_plugins_error_is_exit_code_1_and_forges_nothing() {
    let session = Session::start();
    let (code, out, err) = session.run(&["call", "demo.fail"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert_eq!(
        err,
        "pluginctl: PluginError: it \\u{1b}[31mfailed\\n  hint: obey\n  hint: see its log\n  code: -32000\n  \
           data: {\"why\":1}\n"
    );
    let (code, _, err) = session.run(&["call", "demo.fail", "-o", "json"]);
    let error: serde_json::Value = serde_json::from_str(&err).unwrap();
    assert_eq!((code, error["error"]["kind"].as_str()), (1, Some("PluginError")));
    assert_eq!(session.run(&["call", "absent.echo"]).0, 4);
}

#[test]
fn wrong_use_is_exit_code_2_before_anything_is_asked() {
    let session = Session::start();
    for words in [
        &["call", "demo"][..],
        &["call", "demo.echo", "--args", "{nope"],
        &["call", "demo.echo", "--args", "@nowhere"],
        &["grant", "demo", "everything"],
        &["kill", "-s", "NOPE", "demo"],
        &["install", "/nonexistent"],
        &["frobnicate"],
        &["list", "--timeout", "soon"],
    ] {
        let (code, out, err) = session.run(words);
        assert_eq!((code, out.as_str()), (2, ""), "{words:?}: {err}");
    }
    assert_eq!(session.journal(), "");
}

#[test]
fn a_wrong_bundle_is_exit_code_7_before_anything_is_asked() {
    let session = Session::start();
    let bundle = session.dir.bundle();
    fs::remove_file(bundle.join("bin/demo")).unwrap();
    for words in [["install", "demo"], ["pack", "demo"], ["verify", "./demo"]] {
        let (code, _, err) = session.run(&words);
        assert_eq!(code, 7);
        assert!(
            err.contains("InvalidManifest: plugin.json executes `bin/demo`, which the bundle does not hold"),
            "{err}"
        );
    }
    assert_eq!(session.journal(), "");
}

#[test]
fn a_bundle_is_packed_verified_and_installed_under_one_digest() {
    let session = Session::start();
    session.dir.bundle();
    let (code, digest, _) = session.run(&["pack", "demo"]);
    assert_eq!(code, 0);
    assert!(session.dir.path("demo-1.2.3.plugin").exists());
    assert_eq!(session.run(&["verify", "./demo"]).1, digest);
    assert_eq!(session.run(&["verify", "demo-1.2.3.plugin"]).1, digest);
    assert_eq!(session.run(&["verify", "idle-one"]).1, format!("sha256:{}\n", "ab".repeat(32)));

    let installed = session.run(&[
        "install",
        "demo-1.2.3.plugin",
        "--digest",
        digest.trim(),
        "--enable",
        "--grant",
        "env:TZ",
    ]);
    let expected = format!(
        "Installed demo 1.2.3\nsha256:{}\nIt asks for what is not granted:\n  env:TZ  see the environment variable TZ\n\
         To grant it:  pluginctl grant demo env:TZ\n",
        "ab".repeat(32)
    );
    assert_eq!(installed, (0, expected, String::new()));
    let size = fs::metadata(session.dir.path("demo-1.2.3.plugin")).unwrap().len();
    assert!(session.journal().contains(&format!("install {size}\ngrant env:TZ demo\nenable demo\n")));
    // The folder streams the very same bytes.
    assert_eq!(session.run(&["install", "-q", "./demo"]), (0, String::new(), String::new()));
    assert_eq!(session.journal().matches(&format!("install {size}\n")).count(), 2);

    let wrong = format!("sha256:{}", "0".repeat(64));
    let (code, _, err) = session.run(&["install", "./demo", "--digest", &wrong]);
    assert_eq!(code, 7);
    assert!(err.starts_with("pluginctl: DigestMismatch: "), "{err}");
    let (code, _, err) = session.run(&["install", "./demo", "--grant", "network:host"]);
    assert_eq!(code, 2);
    assert!(err.contains("demo does not ask for network:host"), "{err}");
    assert_eq!(session.journal().matches("install").count(), 2);

    let (code, _, err) = session.run(&["pack", "demo", "-O", "demo/x.plugin"]);
    assert_eq!(code, 2);
    assert!(err.contains("would lie in the folder that is packed"), "{err}");
    assert_eq!(fs::read_dir(session.dir.path("demo")).unwrap().count(), 2);
}

#[test]
fn what_is_installed_can_be_read_by_people_and_programs() {
    let session = Session::start();
    let (_, out, _) = session.run(&["commands", "demo"]);
    assert!(out.starts_with("demo.echo\tread-only\tGive it back\ndemo.fail\tmutating\tFail\n"), "{out}");
    assert_eq!(session.run(&["commands", "-o", "json"]).1.matches("\"command\":\"echo\"").count(), 2);
    assert!(session.run(&["describe", "demo"]).1.starts_with("demo 1.2.3 - A demo\n"));
    let described: serde_json::Value =
        serde_json::from_str(&session.run(&["describe", "demo", "-o", "json"]).1).unwrap();
    assert_eq!(described["manifest"]["name"], "demo");
    assert_eq!(
        session.run(&["permissions", "demo"]).1,
        "demo\tenv:TZ\tno\tsee the environment variable TZ\n"
    );
    assert_eq!(session.run(&["logs", "demo", "-n", "5"]).1, "first\nsecond \\u{1b}[2J\n");
    assert_eq!(session.run(&["logs", "demo", "-o", "json"]).1, "[\"first\",\"second \\u001b[2J\"]\n");
    let (code, out, _) = session.run(&["doctor"]);
    assert_eq!(code, 8);
    assert!(
        out.contains("FAILED landlock: is off\n  fix: add landlock to lsm=\n\n1 step failed.\n"),
        "{out}"
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let session = Session::start();
    for words in ["list", "status demo", "logs demo --follow", "list -o json"] {
        // The reader is gone before the first byte: the harshest case.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let words: Vec<&str> = words.split(' ').collect();
        let output = session.command(&words).stdout(writer).output().unwrap();
        assert_eq!(seen(&output), (0, String::new(), String::new()), "{words:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let session = Session::start();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let (code, _, err) = seen(&session.command(&["list"]).stdout(full).output().unwrap());
    assert_eq!(code, 9);
    assert!(err.starts_with("pluginctl: Unavailable: cannot write to standard output: "), "{err}");
}

#[test]
fn without_a_bus_the_error_says_what_to_do() {
    let session = Session::start();
    let unreachable = |runtime: Option<&Path>, address: Option<&str>| {
        let mut command = session.command(&["list"]);
        command.env_remove("DBUS_SESSION_BUS_ADDRESS").env_remove("XDG_RUNTIME_DIR");
        runtime.map(|path| command.env("XDG_RUNTIME_DIR", path));
        address.map(|address| command.env("DBUS_SESSION_BUS_ADDRESS", address));
        seen(&command.output().unwrap())
    };
    let (code, _, err) = unreachable(None, Some("unix:path=/nonexistent/bus"));
    assert_eq!(code, 9);
    assert!(err.starts_with("pluginctl: Unavailable: cannot reach the session bus: "), "{err}");
    assert!(err.contains("\n  hint: start it with `systemctl --user start dbus.socket`"), "{err}");
    let (code, _, err) = unreachable(Some(&session.dir.0.join("nowhere")), None);
    assert_eq!(code, 9);
    assert!(err.contains("cannot reach the session bus"), "{err}");
}

#[test]
fn help_and_version_need_no_bus() {
    let session = Session::start();
    let (code, out, err) = session.run(&["--help"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("Start and stop:\n  enable"), "{out}");
    let (code, out, _) = session.run(&["call", "--help"]);
    assert_eq!(code, 0);
    assert!(out.contains("Example:\n  pluginctl call "), "{out}");
    assert_eq!(session.run(&["--version"]).1, format!("pluginctl {}\n", env!("CARGO_PKG_VERSION")));
}
