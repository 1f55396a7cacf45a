//! `pluginctl run` and `doctor` with a private supervisor. This program is that supervisor and its launcher, too: it
//! is linked as `plugind` and `plugind-launcher` in a folder, and its arguments tell what it is started as.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod fake;

use std::env;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fake::Dir;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use zbus::{Guid, connection};

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("--bus-fd") => supervisor(&arguments),
        Some("--connection-fd") => launcher(&arguments),
        _ => {
            let filter = arguments.first().filter(|word| !word.starts_with('-'));
            tests(filter.map_or("", String::as_str));
        }
    }
}

/// The fake supervisor: ends with its connection, or as `FAKE` says.
fn supervisor(arguments: &[String]) {
    assert_eq!(arguments[..4], ["--bus-fd", "0", "--launcher-fd", "1"]);
    assert_eq!(arguments[4], "--state-dir");
    let state = PathBuf::from(&arguments[5]);
    assert_eq!(fs::metadata(&state).unwrap().mode() & 0o7777, 0o700);
    // What a store leaves: folders that cannot be written.
    fs::create_dir_all(state.join("store/sha256-0")).unwrap();
    fs::write(state.join("store/sha256-0/x"), "x").unwrap();
    fs::set_permissions(state.join("store/sha256-0"), fs::Permissions::from_mode(0o555)).unwrap();

    let mode = env::var("FAKE").unwrap_or_default();
    if mode == "die" {
        eprintln!("no \u{1b}[31mluck today");
        std::process::exit(3);
    }
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().unwrap());
    // The standard input itself must not keep the connection open once ours is closed, so nothing else reads it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let builder = connection::Builder::unix_stream(stream).server(Guid::generate()).p2p();
        let connection =
            fake::serve(builder, PathBuf::from(env::var("JOURNAL").unwrap())).build().await.unwrap();
        connection.closed().await;
        if mode == "linger" {
            std::future::pending::<()>().await;
        }
    });
}

/// The fake launcher: ends when the supervisor's end of its socket is closed.
fn launcher(arguments: &[String]) {
    assert_eq!(arguments[..3], ["--connection-fd", "0", "--state-dir"]);
    let mut end = Vec::new();
    io::stdin().read_to_end(&mut end).unwrap();
    assert!(end.is_empty());
}

type Test = (&'static str, fn(&Setup));

const TESTS: [Test; 7] = [
    ("a_bundle_is_run_and_nothing_is_left", a_bundle_is_run_and_nothing_is_left),
    ("errors_of_the_call_keep_their_kind", errors_of_the_call_keep_their_kind),
    ("a_supervisor_that_does_not_start_is_explained", a_supervisor_that_does_not_start_is_explained),
    ("a_signal_ends_the_call_and_cleans_up", a_signal_ends_the_call_and_cleans_up),
    ("a_supervisor_that_does_not_end_is_killed", a_supervisor_that_does_not_end_is_killed),
    ("doctor_needs_no_daemon", doctor_needs_no_daemon),
    ("who_cannot_have_a_supervisor_is_told_why", who_cannot_have_a_supervisor_is_told_why),
];

fn tests(filter: &str) {
    for (name, test) in TESTS {
        if name.contains(filter) {
            let setup = Setup::new();
            test(&setup);
            setup.assert_clean();
            println!("test {name} ... ok");
        }
    }
}

/// An ordinary user's folder with a bundle and the programs: plugind refuses root, so a test that root runs becomes
/// somebody else.
struct Setup {
    dir: Dir,
    user: Option<u32>,
}

const NOBODY: u32 = 65534;

impl Setup {
    fn new() -> Setup {
        let dir = Dir::new();
        dir.bundle();
        fs::create_dir(dir.path("runtime")).unwrap();
        fs::create_dir(dir.path("libexec")).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_pluginctl"), dir.path("pluginctl")).unwrap();
        fs::copy(env::current_exe().unwrap(), dir.path("libexec/fake")).unwrap();
        for program in ["plugind", "plugind-launcher"] {
            symlink("fake", dir.path("libexec").join(program)).unwrap();
        }
        let user = nix::unistd::geteuid().is_root().then_some(NOBODY);
        if let Some(user) = user {
            for path in ["", "demo", "demo/plugin.json", "demo/bin", "demo/bin/demo", "runtime", "libexec"] {
                chown(dir.path(path), Some(user), Some(user)).unwrap();
            }
        }
        Setup { dir, user }
    }

    fn command(&self, words: &[&str], mode: &str) -> Command {
        let mut command = Command::new(self.dir.path("pluginctl"));
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
            .args(words)
            .env("PLUGIND_LIBEXEC", self.dir.path("libexec"))
            .env("XDG_RUNTIME_DIR", self.dir.path("runtime"))
            .env("XDG_CONFIG_HOME", self.dir.path("config"))
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
            .env("JOURNAL", self.journal_path())
            .env("FAKE", mode)
            .current_dir(&self.dir.0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, words: &[&str], mode: &str) -> (i32, String, String) {
        seen(&self.command(words, mode).output().unwrap())
    }

    fn journal_path(&self) -> PathBuf {
        self.dir.path("journal")
    }

    fn journal(&self) -> String {
        fs::read_to_string(self.journal_path()).unwrap_or_default()
    }

    /// No state directory and no process is left.
    fn assert_clean(&self) {
        assert_eq!(fs::read_dir(self.dir.path("runtime")).unwrap().count(), 0, "a state directory is left");
        let programs = self.dir.path("libexec").display().to_string();
        assert_eq!(running(&programs), Vec::<String>::new(), "a process is left");
    }
}

/// The processes whose command line begins with this.
fn running(program: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(program)).collect()
}

fn seen(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn a_bundle_is_run_and_nothing_is_left(setup: &Setup) {
    let (code, out, err) = setup.run(&["run", "demo", "demo.echo", "--args", "{\"a\":1.0}"], "");
    assert_eq!((code, out.as_str()), (0, "{\"a\":1.0}\n"), "{err}");
    assert_eq!(err, "note: demo runs without what it asks for; to grant it: --grant env:TZ\n");
    let journal = setup.journal();
    let steps: Vec<&str> = journal.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(steps, ["install", "enable", "call"]);

    let (code, out, err) = setup.run(&["run", "./demo", "echo", "--grant", "env:TZ", "--timeout", "3s"], "");
    assert_eq!((code, out.as_str(), err.as_str()), (0, "{}\n", ""));
    assert!(
        setup.journal().ends_with(
            "grant env:TZ demo\nenable demo\ncall demo echo {} timeout=Some(3000) dry_run=false\n"
        )
    );
}

fn errors_of_the_call_keep_their_kind(setup: &Setup) {
    let (code, _, err) = setup.run(&["run", "-q", "demo", "demo.fail"], "");
    assert_eq!(code, 1);
    assert!(err.starts_with("pluginctl: PluginError: "), "{err}");
    let (code, _, err) = setup.run(&["run", "-q", "demo", "demo.exit"], "");
    assert_eq!(code, 9);
    assert!(err.starts_with("pluginctl: Unavailable: "), "{err}");
    assert!(err.contains("\n  note: the work may have been done"), "{err}");
    assert!(err.contains("\n  stderr: the fake supervisor falls over\n"), "{err}");
    assert!(err.contains("\n  stderr: plugind ended: exit status: 7\n"), "{err}");
    // What is wrong with the bundle is said before anything is started.
    fs::remove_file(setup.dir.path("demo/plugin.json")).unwrap();
    fs::remove_file(setup.journal_path()).unwrap();
    assert_eq!(setup.run(&["run", "demo", "demo.echo"], "").0, 7);
    assert_eq!(setup.journal(), "");
}

fn a_supervisor_that_does_not_start_is_explained(setup: &Setup) {
    let (code, _, err) = setup.run(&["run", "-q", "demo", "demo.echo"], "die");
    assert_eq!(code, 9);
    assert!(err.starts_with("pluginctl: Unavailable: the private supervisor did not start: "), "{err}");
    assert!(err.contains("\n  stderr: no \\u{1b}[31mluck today\n"), "{err}");
    let (_, _, err) = setup.run(&["run", "-q", "-v", "demo", "demo.echo"], "die");
    assert!(err.starts_with("no \u{1b}[31mluck today\n"), "{err}");

    fs::remove_file(setup.dir.path("libexec/plugind-launcher")).unwrap();
    let (code, _, err) = setup.run(&["run", "-q", "demo", "demo.echo"], "");
    assert_eq!(code, 9);
    assert!(err.contains("plugind-launcher is not installed: it is not in "), "{err}");
}

fn a_signal_ends_the_call_and_cleans_up(setup: &Setup) {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let _ = fs::remove_file(setup.journal_path());
        let child = setup.command(&["run", "-q", "demo", "demo.hang"], "").spawn().unwrap();
        wait_until(|| setup.journal().contains("call demo hang"));
        send(&child, signal);
        let (found, out, err) = seen(&child.wait_with_output().unwrap());
        assert_eq!((found, out.as_str()), (code, ""), "{err}");
        assert!(err.starts_with("pluginctl: Cancelled: interrupted by signal "), "{err}");
        setup.assert_clean();
    }
}

fn a_supervisor_that_does_not_end_is_killed(setup: &Setup) {
    let (code, out, err) = setup.run(&["run", "-q", "demo", "demo.echo"], "linger");
    assert_eq!((code, out.as_str()), (0, "{}\n"));
    assert_eq!(err, "pluginctl: plugind does not end by itself and is killed\n");
}

fn doctor_needs_no_daemon(setup: &Setup) {
    let (code, out, _) = setup.run(&["doctor"], "");
    assert_eq!(code, 8);
    assert!(out.starts_with("FAILED session bus: cannot reach the session bus: "), "{out}");
    assert!(
        out.contains(
            "\nok store: fine\nFAILED landlock: is off\n  fix: add landlock to lsm=\n\n2 steps failed.\n"
        ),
        "{out}"
    );
}

fn who_cannot_have_a_supervisor_is_told_why(setup: &Setup) {
    let output =
        setup.command(&["run", "demo", "demo.echo"], "").env_remove("XDG_RUNTIME_DIR").output().unwrap();
    let (code, _, err) = seen(&output);
    assert_eq!(code, 9);
    assert!(err.contains("pluginctl: Unavailable: XDG_RUNTIME_DIR is not set"), "{err}");
    if setup.user.is_some() {
        let mut command = setup.command(&["run", "demo", "demo.echo"], "");
        let (code, _, err) = seen(&command.uid(0).gid(0).output().unwrap());
        assert_eq!(code, 7, "root does not take a bundle of somebody else: {err}");
        let (code, out, _) = seen(&setup.command(&["doctor"], "").uid(0).gid(0).output().unwrap());
        assert_eq!(code, 8);
        assert!(
            out.contains(
                "\nFAILED private supervisor: plugind does not run as root\n  fix: run it as a user"
            ),
            "{out}"
        );
    }
    assert_eq!(setup.journal(), "");
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

/// Looks again and again; a generous bound only keeps a broken test from hanging.
fn wait_until(is: impl Fn() -> bool) {
    let bound = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < bound, "nothing happened for a minute");
        std::thread::yield_now();
    }
}
