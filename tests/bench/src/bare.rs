//! Starting the plugin with nothing but what a start needs: the floors of a cold start and of spawn-per-call.
//!
//! bubblewrap gets the arguments that plugind's launcher gives it for a plugin of the runtime `static`
//! (`supervisor/launcher/src/bubblewrap.rs`), without the helper: no Landlock, no seccomp, no report, no handshake.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::Error;
use crate::programs::Programs;
use crate::scopes::Scopes;

const REQUEST: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"command/invoke\",\"params\":{\"command\":\"echo\",\"arguments\":{\"text\":\"first\"}}}\n";

const ETC: [(&str, &str); 4] = [
    ("passwd", "root:x:0:0:root:/:/bin/false\nplugin:x:1000:1000:plugin:/data:/bin/false\n"),
    ("group", "root:x:0:\nplugin:x:1000:\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n"),
    ("hosts", "127.0.0.1 localhost plugin\n::1 localhost plugin\n"),
];

/// A bundle's folder, and what else bubblewrap mounts.
#[derive(Debug)]
pub struct Bare {
    programs: Programs,
    folder: PathBuf,
    started: u32,
}

impl Bare {
    /// Prepares the folders.
    pub fn new(programs: &Programs) -> Result<Bare, Error> {
        let folder = std::env::temp_dir().join(format!("relay-bench-bare-{}", std::process::id()));
        let failed = || Error::io("cannot make a bundle");
        for part in ["plugin/bin", "data", "etc"] {
            fs::create_dir_all(folder.join(part)).map_err(failed())?;
        }
        fs::copy(&programs.echo_plugin, folder.join("plugin/bin/echo-plugin")).map_err(failed())?;
        fs::copy(&programs.manifest, folder.join("plugin/plugin.json")).map_err(failed())?;
        for (name, text) in ETC {
            fs::write(folder.join("etc").join(name), text).map_err(failed())?;
        }
        Ok(Bare { programs: programs.clone(), folder, started: 0 })
    }

    /// From nothing to the first answer in a scope of its own.
    pub fn cold_start(&mut self, scopes: &mut Scopes) -> Result<Duration, Error> {
        self.started += 1;
        let unit = format!("relay-bench-{}-{}.scope", std::process::id(), self.started);
        let start = Instant::now();
        let mut gate = Command::new(&self.programs.floor);
        gate.arg("gate").arg("/usr/bin/bwrap");
        let mut child = self.spawn(gate)?;
        scopes.start(&unit, child.id())?;
        open_gate(&mut child)?;
        answer(&mut child)?;
        let time = start.elapsed();
        end(child)?;
        Ok(time)
    }

    /// A process for one call, from its start to its end.
    pub fn spawn_per_call(&self) -> Result<Duration, Error> {
        let start = Instant::now();
        let mut child = self.spawn(Command::new("/usr/bin/bwrap"))?;
        answer(&mut child)?;
        end(child)?;
        Ok(start.elapsed())
    }

    fn spawn(&self, mut command: Command) -> Result<Child, Error> {
        let failed = || Error::io("cannot start bubblewrap");
        for namespace in ["user", "pid", "ipc", "uts", "cgroup", "net"] {
            command.arg(format!("--unshare-{namespace}"));
        }
        command.args(["--disable-userns", "--new-session", "--clearenv", "--cap-drop", "ALL"]);
        command.args(["--uid", "1000", "--gid", "1000", "--hostname", "plugin"]);
        let environment = [
            ("PATH", "/usr/bin:/bin"),
            ("HOME", "/data"),
            ("LANG", "C.UTF-8"),
            ("TMPDIR", "/tmp"),
            ("PLUGIND_PROTOCOL", "plugind/1"),
            ("PLUGIND_NAME", "bench"),
            ("PLUGIND_INSTANCE", "00000000"),
        ];
        for (name, value) in environment {
            command.args(["--setenv", name, value]);
        }
        command.args(["--perms", "0755", "--dir", "/etc"]);
        let mut inherited = Vec::new();
        for (name, _) in ETC {
            let file = File::open(self.folder.join("etc").join(name)).map_err(failed())?;
            // Inherited by number.
            fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|cause| failed()(cause.into()))?;
            command.args(["--perms", "0444", "--file"]).arg(file.as_raw_fd().to_string());
            command.arg(format!("/etc/{name}"));
            inherited.push(file);
        }
        command.args(["--proc", "/proc", "--dev", "/dev"]);
        for tmpfs in ["/dev/shm", "/tmp"] {
            command.args(["--perms", "1777", "--size", "1048576", "--tmpfs", tmpfs]);
        }
        command.arg("--ro-bind").arg(self.folder.join("plugin")).arg("/plugin");
        command.arg("--bind").arg(self.folder.join("data")).arg("/data");
        command.args(["--dir", "/workspace", "--ro-bind"]);
        // In the helper's place, which plugind mounts, too.
        command.arg(&self.programs.floor).arg("/run/plugind/enter");
        command.args(["--remount-ro", "/", "--chdir", "/plugin", "--", "/plugin/bin/echo-plugin"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.spawn().map_err(failed())
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn open_gate(child: &mut Child) -> Result<(), Error> {
    write(child, b"1")
}

fn answer(child: &mut Child) -> Result<(), Error> {
    write(child, REQUEST)?;
    let mut line = String::new();
    if let Some(stdout) = &mut child.stdout {
        BufReader::new(stdout).read_line(&mut line).map_err(Error::io("no answer"))?;
    }
    if line.contains("\"result\":{\"text\":\"first\"}") { Ok(()) } else { Err(Error::Answer(line)) }
}

fn write(child: &mut Child, bytes: &[u8]) -> Result<(), Error> {
    match &mut child.stdin {
        Some(stdin) => stdin.write_all(bytes).map_err(Error::io("the bare plugin takes no request")),
        None => Ok(()),
    }
}

fn end(mut child: Child) -> Result<(), Error> {
    drop(child.stdin.take());
    child.wait().map(drop).map_err(Error::io("cannot wait for bubblewrap"))
}
