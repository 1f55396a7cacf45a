//! Starting a plugin: stub, scope, gate, bubblewrap, report (DESIGN §3). No step falls back to running with less.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use plugind_config::{Directories, Enforcement, Settings};
use plugind_protocol::launch::{ExitStatus, Launch, Launched, LimitState, unit_name};
use plugind_protocol::{Error, Kind};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::bubblewrap::{self, Root};
use crate::cgroup::Cgroup;
use crate::check::{self, Paths};
use crate::content;
use crate::instance::{Instance, KILL_DEADLINE, translate};
use crate::orphans;
use crate::refusal;
use crate::report::{Layers, Message, ReportSocket};
use crate::scope::{JOB_DEADLINE, Scopes, ServiceManager};
use crate::sys;
use crate::systemd::Systemd;

/// From the opened gate to the plugin's program: about 15 ms, and below the start timeout of 15 s.
const SANDBOX_DEADLINE: Duration = Duration::from_secs(8);

/// Open files of a plugin (DESIGN §4).
const NOFILE: &str = "256";

/// What every launch needs.
pub(crate) struct Launcher {
    directories: Directories,
    settings: Settings,
    pub(crate) systemd: Systemd,
    scopes: Scopes,
    helper: PathBuf,
    bubblewrap: Mutex<Option<bubblewrap::Identity>>,
    pub(crate) instances: Mutex<std::collections::HashMap<String, Arc<Instance>>>,
}

/// A started plugin: what the supervisor is told, the descriptors it gets, and the process to wait for.
pub(crate) struct Started {
    pub(crate) launched: Launched,
    pub(crate) stdio: [OwnedFd; 3],
    pub(crate) instance: Arc<Instance>,
    pub(crate) bubblewrap: Child,
}

/// Our ends of the plugin's pipes, and the plugin's.
struct Pipes {
    ours: [OwnedFd; 3],
    theirs: [OwnedFd; 3],
}

/// The blocked stub: nothing untrusted has run while the gate is shut.
struct Stub {
    child: Child,
    pid: u32,
    pidfd: OwnedFd,
    gate: Option<OwnedFd>,
    report: ReportSocket,
}

impl Launcher {
    pub(crate) fn new(
        directories: Directories,
        settings: Settings,
        systemd: Systemd,
    ) -> Result<Launcher, Error> {
        Ok(Launcher {
            directories,
            settings,
            systemd,
            scopes: Scopes::default(),
            helper: plugind_config::libexec("plugind-sandbox")?,
            bubblewrap: Mutex::default(),
            instances: Mutex::default(),
        })
    }

    /// Starts a plugin, or leaves nothing behind.
    pub(crate) async fn launch(&self, launch: &Launch) -> Result<Started, Error> {
        let paths = check::launch(launch, &self.directories, &self.settings)?;
        self.check_bubblewrap().await?;
        let pipes = Pipes::new()?;
        let mut stub = self.stub(launch, &paths, pipes.theirs)?;
        let unit = unit_name(&launch.name, &launch.instance);
        let outcome = self.enter(launch, &unit, &mut stub, &pipes.ours[2]).await;
        let (launched, cgroup, payload) = match outcome {
            Ok(done) => done,
            Err(error) => {
                // A unit of that name that was there before is somebody else's.
                let made = error.kind != Kind::Conflict;
                stub.abandon(&unit, made.then_some(&self.systemd)).await;
                return Err(error);
            }
        };
        let copies = match Pipes::copies(&pipes.ours) {
            Ok(copies) => copies,
            Err(error) => {
                stub.abandon(&unit, Some(&self.systemd)).await;
                return Err(error);
            }
        };
        let instance = Instance::new(launch.instance.clone(), unit, cgroup, payload, copies);
        Ok(Started { launched, stdio: pipes.ours, instance: Arc::new(instance), bubblewrap: stub.child })
    }

    async fn check_bubblewrap(&self) -> Result<(), Error> {
        let known = *self.bubblewrap.lock().unwrap_or_else(PoisonError::into_inner);
        let found = bubblewrap::check(Path::new(bubblewrap::PATH), known).await?;
        *self.bubblewrap.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        Ok(())
    }

    /// Starts the stub, which waits at its gate.
    fn stub(&self, launch: &Launch, paths: &Paths, stdio: [OwnedFd; 3]) -> Result<Stub, Error> {
        let failed = |cause: std::io::Error| Error::internal(format!("cannot prepare the stub: {cause}"));
        let (gate_inside, gate) = pipe2(OFlag::O_CLOEXEC).map_err(|cause| failed(cause.into()))?;
        let (report, report_inside) = ReportSocket::pair().map_err(failed)?;
        let contents = content::read(&paths.bundle, &launch.in_memory)?;
        let root = Root {
            bundle: &paths.bundle,
            contents: &contents,
            data: &paths.data,
            helper: &self.helper,
            usr: launch.usr,
            network: launch.network,
            tmp_size: launch.limits.tmp_size,
            mounts: paths.mounts.clone(),
            env: environment(launch),
        };
        let arguments = root.arguments().map_err(failed)?;
        let mut command = Command::new(&self.helper);
        command
            .args(["gate", "--gate"])
            .arg(gate_inside.as_raw_fd().to_string())
            .args(["--", bubblewrap::PATH])
            .args(&arguments.argv)
            .arg(bubblewrap::HELPER)
            .args(enter_arguments(launch, paths, report_inside.as_fd()))
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .kill_on_drop(true);
        let [stdin, stdout, stderr] = stdio;
        command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
        let mut inherited = arguments.inherited();
        inherited.extend([gate_inside.as_fd(), report_inside.as_fd()]);
        sys::inherit(&mut command, &inherited);
        let child = command.spawn().map_err(|cause| {
            Error::new(
                Kind::SandboxDenied,
                format!("cannot start {}: {cause}", self.helper.display()),
                "plugind's helper is missing or was replaced: reinstall plugind",
            )
        })?;
        let pid = child.id().ok_or_else(|| Error::internal("the stub has no process id"))?;
        let pidfd = sys::pidfd_open(pid).map_err(failed)?;
        Ok(Stub { child, pid, pidfd, gate: Some(gate), report })
    }

    /// Scope, limits, gate, report; the plugin's pidfd at the end.
    async fn enter(
        &self,
        launch: &Launch,
        unit: &str,
        stub: &mut Stub,
        stderr: &OwnedFd,
    ) -> Result<(Launched, Cgroup, OwnedFd), Error> {
        let description = orphans::description(&launch.name, &launch.instance);
        self.scopes
            .start(&self.systemd, unit, &description, stub.pid, stub.pidfd.as_fd(), &launch.limits)
            .await?;
        let cgroup = Cgroup::of(stub.pid, unit)?;
        let limits = cgroup.limits(&launch.limits);
        if self.settings.enforcement == Enforcement::Required {
            all_in_force(&limits)?;
        }
        stub.open_gate()?;
        let (pid, layers) = timeout(SANDBOX_DEADLINE, stub.reports(stderr)).await.map_err(|_| {
            Error::new(
                Kind::SandboxDenied,
                format!("the sandbox was not complete within {} s", SANDBOX_DEADLINE.as_secs()),
                "the machine is overloaded, or a mount of a granted root hangs",
            )
        })??;
        // With the pidfd open the number cannot become another process's: in the cgroup it is the plugin, or it is gone.
        let payload = match sys::pidfd_open(pid) {
            Ok(payload) if cgroup.holds(pid) => payload,
            _ => return Err(stub.ended_at_once(stderr).await),
        };
        let launched = Launched {
            pid,
            unit: unit.to_owned(),
            cgroup: cgroup.name.clone(),
            limits,
            layers: describe(&layers, launch),
        };
        Ok((launched, cgroup, payload))
    }
}

impl Pipes {
    fn new() -> Result<Pipes, Error> {
        let pipe = || {
            pipe2(OFlag::O_CLOEXEC).map_err(|cause| {
                Error::new(
                    Kind::Unavailable,
                    format!("cannot make a pipe: {cause}"),
                    "the launcher has too many files open: raise LimitNOFILE= of plugind-launcher.service",
                )
            })
        };
        let (stdin_inside, stdin) = pipe()?;
        let (stdout, stdout_inside) = pipe()?;
        let (stderr, stderr_inside) = pipe()?;
        Ok(Pipes { ours: [stdin, stdout, stderr], theirs: [stdin_inside, stdout_inside, stderr_inside] })
    }

    fn copies([stdin, stdout, stderr]: &[OwnedFd; 3]) -> Result<[OwnedFd; 3], Error> {
        let copy = |fd: &OwnedFd| {
            fd.try_clone().map_err(|cause| Error::internal(format!("cannot keep a copy of a pipe: {cause}")))
        };
        Ok([copy(stdin)?, copy(stdout)?, copy(stderr)?])
    }
}

impl Stub {
    fn open_gate(&mut self) -> Result<(), Error> {
        let gate = self.gate.take().ok_or_else(|| Error::internal("the gate was opened twice"))?;
        nix::unistd::write(&gate, b"1").map(drop).map_err(|cause| {
            Error::new(Kind::SandboxDenied, format!("the stub ended at its gate: {cause}"), "try again")
        })
    }

    /// Waits until the plugin's program is executed; its process as this machine numbers it.
    async fn reports(&mut self, stderr: &OwnedFd) -> Result<(u32, Layers), Error> {
        let broken =
            |cause: std::io::Error| Error::internal(format!("the helper's report cannot be read: {cause}"));
        let mut ready = None;
        while let Some(report) = self.report.next().await.map_err(broken)? {
            match report.message {
                Message::Ready(layers) => ready = Some((report.pid, layers)),
                Message::Failed(failure) => return Err(failure.into()),
            }
        }
        // End of file: the helper became the plugin, or bubblewrap ended before it ran.
        if let Some(ready) = ready {
            return Ok(ready);
        }
        let status = self.child.wait().await.map_err(broken)?;
        Err(refusal::classify(&last_words(stderr), &status.to_string()))
    }

    /// Ends the stub and whatever it became.
    async fn abandon<M: ServiceManager>(mut self, unit: &str, manager: Option<&M>) {
        drop(self.gate.take());
        let cgroup = Cgroup::of(self.pid, unit);
        if let Ok(cgroup) = &cgroup {
            let _ = cgroup.kill();
        }
        let _ = self.child.start_kill();
        let _ = timeout(KILL_DEADLINE, self.child.wait()).await;
        if let Ok(cgroup) = &cgroup {
            let _ = cgroup.empty_within(KILL_DEADLINE).await;
        }
        // A scope whose process died before it was moved stays active, and empty, until somebody stops it.
        if let Some(manager) = manager {
            let _ = timeout(JOB_DEADLINE, manager.stop_unit(unit)).await;
            let _ = timeout(JOB_DEADLINE, manager.reset_failed_unit(unit)).await;
        }
    }

    /// The plugin's program was executed and is gone already.
    async fn ended_at_once(&mut self, stderr: &OwnedFd) -> Error {
        let status = match timeout(KILL_DEADLINE, self.child.wait()).await {
            Ok(Ok(status)) => translate(status),
            _ => ExitStatus::Unknown,
        };
        let text = last_words(stderr);
        let lines: Vec<String> = text.lines().map(|line| line.escape_debug().to_string()).collect();
        let mut details = serde_json::json!({ "stderr": lines });
        match status {
            ExitStatus::Code(code) => details["exit_code"] = code.into(),
            ExitStatus::Signal(signal) => details["signal"] = signal.into(),
            ExitStatus::Unknown => {}
        }
        let message = format!("it ended before its handshake ({status})");
        Error::new(Kind::Crashed, message, "see its log: pluginctl logs").with_details(details)
    }
}

/// What is in the stderr pipe now; nobody else has read from it.
fn last_words(stderr: &OwnedFd) -> String {
    let mut text = vec![0; refusal::TEXT_MAX];
    let read = stderr
        .try_clone()
        .and_then(|fd| crate::packet::nonblocking(&fd).map(|()| fd))
        .and_then(|fd| std::fs::File::from(fd).read(&mut text));
    text.truncate(read.unwrap_or(0));
    String::from_utf8_lossy(&text).into_owned()
}

fn all_in_force(limits: &[LimitState]) -> Result<(), Error> {
    let missing: Vec<&str> =
        limits.iter().filter(|limit| !limit.in_force).map(|limit| limit.name.as_str()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        Kind::LimitsUnavailable,
        format!("the kernel does not enforce {}", missing.join(", ")),
        "delegate the controllers to the user manager (Delegate=cpu memory pids in user@.service, systemd 252 or later on a \
         cgroup v2 machine), or accept it with enforcement = \"best-effort\" in plugind.toml",
    )
    .with_details(serde_json::json!({ "not_in_force": missing })))
}

fn environment(launch: &Launch) -> Vec<(String, String)> {
    let fixed = [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", "/data"),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", "/tmp"),
        ("PLUGIND_PROTOCOL", "plugind/1"),
        ("PLUGIND_NAME", &launch.name),
        ("PLUGIND_INSTANCE", &launch.instance),
    ];
    let mut env: Vec<_> = fixed.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    env.extend(launch.env.iter().cloned());
    env
}

/// The helper's arguments: Landlock's rules are the mounts again, seen from inside.
fn enter_arguments(launch: &Launch, paths: &Paths, report: BorrowedFd<'_>) -> Vec<OsString> {
    let mut argv: Vec<OsString> = Vec::new();
    let mut option = |name: &str, value: &str| argv.extend([name.into(), value.into()]);
    option("--report", &report.as_raw_fd().to_string());
    option("--nofile", NOFILE);
    if launch.in_memory.is_empty() {
        option("--bundle-id", &format!("{}:{}", launch.bundle.0, launch.bundle.1));
    }
    if let Some(digest) = &launch.entry_sha256 {
        option("--entry-sha256", digest);
    }
    option("--list", "/");
    option("--exec", "/plugin");
    if launch.usr {
        option("--exec", "/usr");
        for name in bubblewrap::unmerged() {
            option("--exec", name);
        }
    }
    for path in ["/etc", "/proc", "/dev", "/run"] {
        option("--read", path);
    }
    for path in ["/data", "/tmp", "/dev/shm"] {
        option("--write", path);
    }
    for device in ["null", "zero", "full", "random", "urandom", "tty"] {
        option("--device", &format!("/dev/{device}"));
    }
    for (_, inside, write) in paths.mounts.iter().filter(|(_, inside, _)| inside.starts_with("/workspace")) {
        option(if *write { "--write" } else { "--read" }, &inside.to_string_lossy());
    }
    argv.insert(0, "enter".into());
    if launch.network {
        argv.push("--network".into());
    }
    argv.push("--".into());
    let program = &launch.exec[0];
    argv.push(if program.starts_with('/') {
        program.into()
    } else {
        Path::new("/plugin").join(program).into()
    });
    argv.extend(launch.exec[1..].iter().map(OsString::from));
    argv
}

fn describe(layers: &Layers, launch: &Launch) -> Vec<(String, String)> {
    let landlock = match layers.landlock_not_handled.as_slice() {
        [] => format!("ABI {}", layers.landlock_abi),
        missing => format!("ABI {}; not handled by this kernel: {}", layers.landlock_abi, missing.join(", ")),
    };
    let network = if launch.network { "the HOST'S NETWORK, unfiltered" } else { "none" };
    [
        ("namespaces", "user, pid, ipc, uts, cgroup, mount; no nested user namespaces"),
        ("network", network),
        ("landlock", &landlock),
        ("seccomp", "allow-list"),
        ("no_new_privs", "on"),
    ]
    .map(|(layer, text)| (layer.to_owned(), text.to_owned()))
    .into()
}
