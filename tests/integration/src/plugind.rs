//! A plugind of a test's own: its own bus, state and processes, beside the test user's real systemd.
//!
//! What is broken in it disturbs no other test, and its supervisor's memory is that of one test. The programs are the
//! installed ones; only the bus is not the session's.

use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::bundle::{Bundle, own};
use crate::ctl::Outcome;
use crate::user::as_tester;
use crate::{scopes, until};

const LIBEXEC: &str = "/usr/libexec/plugind";

/// A bus as `session.conf` has it, without services that it could start.
const BUS: &str = r#"<busconfig>
  <type>session</type>
  <listen>unix:path=BUS</listen>
  <auth>EXTERNAL</auth>
  <policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
  <limit name="max_connections_per_user">100000</limit>
  <limit name="max_incomplete_connections">10000</limit>
  <limit name="auth_timeout">240000</limit>
</busconfig>
"#;

/// A running supervisor with a launcher of its own; both end when it is dropped.
#[derive(Debug)]
pub struct Plugind {
    folder: PathBuf,
    dbus: Child,
    launcher: Child,
    supervisor: Child,
    /// A plugin that must go on answering, whatever happens to others.
    witness: Bundle,
    /// What the state directory holds while nothing but the witness is installed.
    state: Vec<String>,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Plugind {
    /// Starts one, with a well-behaved plugin in it.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn new() -> Plugind {
        let folder = folder();
        fs::write(folder.join("bus.conf"), BUS.replace("BUS", &path(&folder, "bus"))).expect("bus.conf");
        let configuration = path(&folder, "bus.conf");
        let dbus = spawn(
            as_tester("setpriv"),
            &folder,
            "dbus-daemon",
            &["--nofork", "--config-file", &configuration],
        );
        until("the bus listens", || folder.join("bus").exists().then_some(()));
        let launcher = launcher(&folder);
        until("the launcher's socket is there", || {
            folder.join("plugind/launcher.sock").exists().then_some(())
        });
        let supervisor = supervisor(&folder);
        let witness = Bundle::hostile();
        let mut plugind = Plugind { folder, dbus, launcher, supervisor, witness, state: Vec::new() };
        plugind.reachable();
        let source = plugind.witness.path().to_owned();
        plugind.ctl(&["install", "--enable", &source]).success();
        plugind.state = plugind.files();
        plugind
    }

    /// `pluginctl -o json ARGUMENTS` against this one.
    #[must_use]
    pub fn ctl(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(self.command("pluginctl").args(["-o", "json"]).args(arguments))
    }

    /// A command of the test user's that finds this one's bus and state.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        command(as_tester(program), &self.folder)
    }

    /// `raw-call`, the client without `pluginctl`'s own checks.
    #[must_use]
    pub fn raw_call(&self, program: &str, arguments: &[&str]) -> Outcome {
        Outcome::of(self.command(program).args(arguments))
    }

    /// Sends these bytes to `Manager.Install` as a bundle's stream, whatever they are.
    ///
    /// # Panics
    /// If there is no room for them.
    #[must_use]
    pub fn install_stream(&self, program: &str, stream: &[u8]) -> Outcome {
        Outcome::of(self.command(program).arg("install").stdin(self.file(stream)))
    }

    /// The same, where the stream must have this digest.
    #[must_use]
    pub fn install_stream_of(&self, program: &str, stream: &[u8], digest: &str) -> Outcome {
        Outcome::of(self.command(program).args(["install", digest]).stdin(self.file(stream)))
    }

    /// Installs a bundle, calls one command, and removes the bundle again; the call's outcome.
    #[must_use]
    pub fn attempt(&self, bundle: &Bundle, command: &str, arguments: &Value) -> Outcome {
        self.ctl(&["install", "--enable", bundle.path()]).success();
        let outcome = self.call(bundle, command, arguments);
        self.ctl(&["remove", bundle.name()]).success();
        scopes::none_left(bundle.name());
        outcome
    }

    /// Calls a command of an installed bundle.
    #[must_use]
    pub fn call(&self, bundle: &Bundle, command: &str, arguments: &Value) -> Outcome {
        // By standard input, which takes more than a command line does.
        let mut pluginctl = self.command("pluginctl");
        pluginctl.args(["-o", "json", "call", &bundle.command(command), "--args", "-"]);
        Outcome::of(pluginctl.stdin(self.file(arguments.to_string().as_bytes())))
    }

    /// `pluginctl status` of one plugin.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn status(&self, name: &str) -> Value {
        let outcome = self.ctl(&["status", name]);
        let mut list: Value = serde_json::from_str(&outcome.stdout)
            .unwrap_or_else(|cause| panic!("{cause}: {}{}", outcome.stdout, outcome.stderr));
        list[0].take()
    }

    /// Asserts that the supervisor is the one that was started, that it serves the next call, and that its state holds
    /// nothing of what was tried.
    ///
    /// # Panics
    /// If not.
    pub fn unharmed(&self) {
        self.answers();
        assert_eq!(self.files(), self.state, "something is left in its state directory");
    }

    /// The same after removing a plugin, which must have run without a break until then.
    ///
    /// # Panics
    /// If not.
    pub fn unharmed_but_for(&self, bundle: &Bundle) {
        assert_eq!(self.status(bundle.name())["restarts"], 0, "the plugin ended");
        self.ctl(&["remove", bundle.name()]).success();
        scopes::none_left(bundle.name());
        self.unharmed();
    }

    /// Asserts that the supervisor is the one that was started, and serves the next call.
    ///
    /// # Panics
    /// If not.
    pub fn answers(&self) {
        assert_eq!(self.call(&self.witness, "echo", &json!("still here")).json(), "still here");
        assert!(Path::new(&format!("/proc/{}/fd/0", self.pid())).exists(), "the supervisor was replaced");
    }

    /// The supervisor's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.supervisor.id()
    }

    /// The socket of its bus.
    #[must_use]
    pub fn bus(&self) -> PathBuf {
        self.folder.join("bus")
    }

    /// What its services have written to their log so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The state directory.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.folder.join("state/plugind")
    }

    /// Ends the supervisor, lets `change` do something to its state, and starts it again.
    pub fn restart(&mut self, change: impl FnOnce(&Path)) {
        end(&mut self.supervisor);
        change(&self.state());
        self.supervisor = supervisor(&self.folder);
        self.reachable();
    }

    fn reachable(&self) {
        until("the supervisor answers", || (self.ctl(&["list"]).code == Some(0)).then_some(()));
    }

    /// A file without a name, open at its beginning.
    fn file(&self, content: &[u8]) -> File {
        let path = self.folder.join(format!("file-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        let mut file: File =
            File::options().read(true).write(true).create_new(true).open(&path).expect("a new file");
        fs::remove_file(&path).expect("it has no name any more");
        file.write_all(content).and_then(|()| file.rewind()).expect("room for its content");
        file
    }

    /// The names in the folders of the state directory that installs write to. `data` fills with the first start.
    fn files(&self) -> Vec<String> {
        let mut names = Vec::new();
        for folder in ["store", "staging", "registry"] {
            let entries = fs::read_dir(self.state().join(folder)).into_iter().flatten().flatten();
            names.extend(entries.map(|entry| format!("{folder}/{}", entry.file_name().to_string_lossy())));
        }
        let data = fs::read_dir(self.state().join("data")).into_iter().flatten().flatten();
        let data = data.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.extend(data.filter(|name| name != self.witness.name()).map(|name| format!("data/{name}")));
        names.sort();
        names
    }
}

impl Default for Plugind {
    fn default() -> Plugind {
        Plugind::new()
    }
}

impl Drop for Plugind {
    fn drop(&mut self) {
        end(&mut self.supervisor);
        end(&mut self.launcher);
        end(&mut self.dbus);
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<String> = log.lines().map(|line| line.chars().take(300).collect()).collect();
            eprintln!("the end of its log:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn folder() -> PathBuf {
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = PathBuf::from(format!("/tmp/plugind-{}-{number}", std::process::id()));
    fs::create_dir(&folder).expect("a new folder in /tmp");
    fs::create_dir(folder.join("plugind")).expect("a folder for the launcher's socket");
    own(&folder, 0o700);
    own(&folder.join("plugind"), 0o700);
    folder
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("UTF-8").to_owned()
}

fn supervisor(folder: &Path) -> Child {
    spawn(command(as_tester("setpriv"), folder), folder, &format!("{LIBEXEC}/plugind"), &[])
}

/// The launcher by socket activation, as its unit has it. It asks the real user manager for scopes.
fn launcher(folder: &Path) -> Child {
    let socket = path(folder, "plugind/launcher.sock");
    let state = format!("XDG_STATE_HOME={}", path(folder, "state"));
    let program = format!("{LIBEXEC}/plugind-launcher");
    let mut words = vec!["--seqpacket", "--listen", &socket, "--setenv", &state];
    for variable in ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "HOME", "LANG"] {
        words.extend(["--setenv", variable]);
    }
    words.push(&program);
    spawn(as_tester("setpriv"), folder, "systemd-socket-activate", &words)
}

fn command(mut command: Command, folder: &Path) -> Command {
    command.env("XDG_RUNTIME_DIR", folder).env("XDG_STATE_HOME", folder.join("state"));
    command.env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}", path(folder, "bus")));
    command
}

/// Starts a service that does not outlive the test, however that ends.
fn spawn(mut setpriv: Command, folder: &Path, program: &str, arguments: &[&str]) -> Child {
    let log = File::options().append(true).create(true).open(folder.join("log")).expect("a log");
    setpriv.args(["--pdeathsig", "KILL", "--", program]).args(arguments);
    setpriv.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(log);
    setpriv.spawn().expect("setpriv starts")
}

/// Ends a service in order.
fn end(child: &mut Child) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    if matches!(child.try_wait(), Ok(None)) {
        let _ = kill(pid, Signal::SIGTERM);
    }
    until("a service of it ends", || child.try_wait().ok().flatten());
}
