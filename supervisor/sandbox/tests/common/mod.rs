//! What the tests share: a started `plugind-sandbox enter`, its report, and kernels that answer otherwise.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, setsockopt, socketpair, sockopt};
use nix::sys::time::TimeVal;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use serde_json::Value;

/// The binary under test.
pub(crate) const SANDBOX: &str = env!("CARGO_BIN_EXE_plugind-sandbox");

/// The distribution's Python, whose libraries are all beneath `/usr`.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// No test program takes longer; one that does is killed and fails its test.
const TIME_LIMIT: &str = "60";

/// What a started program left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The report's packets, in order.
    pub(crate) report: Vec<Value>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: ExitStatus,
}

impl Ended {
    /// The `ready` packet of a start that succeeded.
    #[track_caller]
    pub(crate) fn ready(&self) -> &Value {
        assert_eq!(self.report.len(), 1, "{self:#?}");
        assert!(self.report[0]["ready"].is_object(), "{self:#?}");
        &self.report[0]["ready"]
    }

    /// The `failed` packet of a start that failed, having checked its step and exit status.
    #[track_caller]
    pub(crate) fn failed(&self, step: &str) -> &Value {
        let failed = &self.report.last().unwrap_or(&Value::Null)["failed"];
        assert_eq!(failed["step"], step, "{self:#?}");
        assert_eq!(self.status.code(), Some(125), "{self:#?}");
        failed
    }

    /// What a program printed that ended well, as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert!(self.status.success(), "{self:#?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// `plugind-sandbox enter` with what most programs need: `/usr` and its links.
pub(crate) fn enter(options: &[&str], program: &[&str]) -> Ended {
    enter_through(&[SANDBOX], options, program)
}

/// The same behind a command that execs it, such as `bwrap`; its last word is where it finds the binary.
pub(crate) fn enter_through(before: &[&str], options: &[&str], program: &[&str]) -> Ended {
    let usual =
        ["--exec", "/usr", "--exec", "-/lib", "--exec", "-/lib64", "--exec", "-/bin", "--read", "/etc"];
    let usual =
        usual.into_iter().chain(["--read", "/proc", "--device", "/dev/null", "--device", "/dev/urandom"]);
    let mut words: Vec<&OsStr> = before.iter().map(OsStr::new).collect();
    words.extend(["enter", "--report", "3"].map(OsStr::new));
    words.extend(usual.map(OsStr::new));
    words.extend(options.iter().map(OsStr::new));
    words.push(OsStr::new("--"));
    words.extend(program.iter().map(OsStr::new));
    reported(&words)
}

/// Runs a command with a report socket as descriptor 3 and nothing on standard input.
///
/// The socket arrives as standard input and a shell moves it, so that no other test's child can inherit it.
pub(crate) fn reported(words: &[&OsStr]) -> Ended {
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    setsockopt(&ours, sockopt::ReceiveTimeout, &TimeVal::new(90, 0)).unwrap();
    let child = Command::new("/usr/bin/timeout")
        .args(["--foreground", "--signal=KILL", TIME_LIMIT])
        .args(["/bin/sh", "-c", "exec \"$@\" 3<&0 0</dev/null", "sh"])
        .args(words)
        .stdin(theirs)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    Ended {
        report: packets(&ours),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        status: output.status,
    }
}

/// Every packet up to the end, which comes when the program runs or is gone.
fn packets(socket: &OwnedFd) -> Vec<Value> {
    let mut packets = Vec::new();
    let mut buffer = vec![0; 8192];
    loop {
        let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()).unwrap();
        if length == 0 {
            return packets;
        }
        assert!(length <= 4096);
        packets.push(serde_json::from_slice(&buffer[..length]).unwrap());
    }
}

/// Runs one of the functions of `probe.py` in the sandbox and returns what it printed.
#[track_caller]
pub(crate) fn probe(options: &[&str], words: &[&str]) -> Value {
    let script = fixture("probe.py");
    let mut options = options.to_vec();
    options.extend(["--read", script.to_str().unwrap()]);
    let mut program = vec![PYTHON, "-I", "-S", script.to_str().unwrap()];
    program.extend(words);
    let ended = enter(&options, &program);
    ended.ready();
    ended.json()
}

/// A file beside the tests.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A system call and what a filter looks at in its arguments: index, operator, value.
pub(crate) type Answered<'a> = (i64, &'a [(u8, SeccompCmpOp, u64)]);

/// Does `work` on a kernel that answers the given calls with `errno`. Children inherit it, other threads do not.
pub(crate) fn with_answers<T: Send>(
    answered: &[Answered<'_>],
    errno: i32,
    work: impl FnOnce() -> T + Send,
) -> T {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (syscall, tests) in answered {
        let conditions: Vec<SeccompCondition> = tests
            .iter()
            .map(|(argument, operator, value)| {
                SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, operator.clone(), *value).unwrap()
            })
            .collect();
        let rules = rules.entry(*syscall).or_default();
        if !conditions.is_empty() {
            rules.push(SeccompRule::new(conditions).unwrap());
        }
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let errno = SeccompAction::Errno(errno.unsigned_abs());
    let filter: BpfProgram =
        SeccompFilter::new(rules, SeccompAction::Allow, errno, arch).unwrap().try_into().unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            seccompiler::apply_filter(&filter).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

/// A directory that is removed with what is in it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("plugind-sandbox-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        // For the tests that become another user.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// A file in it, with a mode.
    ///
    /// Written by a process of its own: a descriptor of ours that another test's child inherits, even for a moment,
    /// would make the file busy when it is run.
    pub(crate) fn file(&self, name: &str, content: &[u8], mode: u32) -> String {
        let mut writer = Command::new("/bin/sh")
            .args(["-c", "exec cat >\"$1\"", "sh"])
            .arg(self.0.join(name))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer.stdin.take().unwrap().write_all(content).unwrap();
        self.written(name, writer, mode)
    }

    /// A copy of a program.
    pub(crate) fn copy(&self, name: &str, program: &str) -> String {
        let writer = Command::new("/bin/cp").arg(program).arg(self.0.join(name)).spawn().unwrap();
        self.written(name, writer, 0o755)
    }

    fn written(&self, name: &str, mut writer: Child, mode: u32) -> String {
        let path = self.0.join(name);
        assert!(writer.wait().unwrap().success());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.into_os_string().into_string().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program of this machine, if it is there.
pub(crate) fn found(program: &str) -> Option<OsString> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .map(Into::into)
}
