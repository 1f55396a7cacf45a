//! The private supervisor's and launcher's processes.

use std::collections::VecDeque;
use std::env;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use plugind_protocol::{Error, Kind};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::no_pair;
use crate::output;

/// How long each of the two may take to stop what it started and end.
const END_TIMEOUT: Duration = Duration::from_secs(25);
/// How many of their last log lines are kept for an error.
const LOG_LINES: usize = 20;

/// The two processes.
pub(super) struct Children {
    supervisor: Child,
    launcher: Child,
    log: Option<JoinHandle<VecDeque<String>>>,
}

/// How they ended.
#[derive(Debug)]
pub(super) struct Ended {
    supervisor: Option<ExitStatus>,
    launcher: Option<ExitStatus>,
    log: VecDeque<String>,
}

impl Children {
    /// Starts both; `bus` is the supervisor's end of the D-Bus connection.
    pub(super) fn spawn(bus: UnixStream, state: &Path, verbose: bool) -> Result<Children, Error> {
        let (to_launcher, to_supervisor) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .map_err(|cause| no_pair(&cause.into()))?;
        let (log, stderr) = if verbose {
            (None, [Stdio::inherit(), Stdio::inherit()])
        } else {
            let (reader, writer) = io::pipe().map_err(|cause| no_pair(&cause))?;
            let other = writer.try_clone().map_err(|cause| no_pair(&cause))?;
            let receiver = pipe::Receiver::from_owned_fd(reader.into()).map_err(|cause| no_pair(&cause))?;
            (Some(tokio::spawn(last_lines(receiver))), [writer.into(), other.into()])
        };
        let [supervisor_log, launcher_log] = stderr;

        let mut launcher = command("plugind-launcher", &["--connection-fd", "0"], state)?;
        launcher.stdin(to_supervisor).stdout(Stdio::null()).stderr(launcher_log);
        let mut supervisor = command("plugind", &["--bus-fd", "0", "--launcher-fd", "1"], state)?;
        supervisor.stdin(OwnedFd::from(bus)).stdout(to_launcher).stderr(supervisor_log);
        // The commands hold our copies of the descriptors; they are closed with them, so that ends of streams are seen.
        Ok(Children { launcher: spawn(launcher)?, supervisor: spawn(supervisor)?, log })
    }

    /// Waits for both, after the connection was closed; kills what does not end by itself.
    pub(super) async fn end(mut self) -> Ended {
        let supervisor = wait(&mut self.supervisor, "plugind").await;
        let launcher = wait(&mut self.launcher, "plugind-launcher").await;
        let mut ended = Ended { supervisor, launcher, log: VecDeque::new() };
        if let Some(mut lines) = self.log {
            // Both are gone, so the pipe ends at once unless something they started still holds it.
            match tokio::time::timeout(Duration::from_secs(1), &mut lines).await {
                Ok(lines) => ended.log = lines.unwrap_or_default(),
                Err(_) => lines.abort(),
            }
        }
        ended
    }
}

impl Ended {
    /// The same error, with what the two wrote and how they ended where that may explain it.
    pub(super) fn explain(&self, mut error: Error) -> Error {
        let ours = matches!(
            error.kind,
            Kind::Unavailable
                | Kind::Internal
                | Kind::TimedOut
                | Kind::SandboxDenied
                | Kind::LimitsUnavailable
        );
        if !ours || error.details.get("stderr").is_some() {
            return error;
        }
        let mut lines: Vec<String> = self.log.iter().cloned().collect();
        for (name, status) in [("plugind", self.supervisor), ("plugind-launcher", self.launcher)] {
            match status {
                Some(status) if !status.success() => lines.push(format!("{name} ended: {status}")),
                _ => {}
            }
        }
        if lines.is_empty() {
            return error;
        }
        match &mut error.details {
            Value::Object(details) => {
                details.insert("stderr".into(), json!(lines));
            }
            details @ Value::Null => *details = json!({ "stderr": lines }),
            _ => {}
        }
        error
    }
}

fn command(program: &str, options: &[&str], state: &Path) -> Result<Command, Error> {
    let mut command = Command::new(find(program)?);
    command.args(options).arg("--state-dir").arg(state);
    // What a service manager told us about our own unit is not about them.
    for variable in
        ["INVOCATION_ID", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS"]
    {
        command.env_remove(variable);
    }
    // Their log is shown with an error, where what went well would only be in the way.
    if env::var_os("PLUGIND_LOG").is_none() {
        command.env("PLUGIND_LOG", "warn");
    }
    // Ctrl-C on the terminal is for us: we end them in order.
    command.process_group(0).kill_on_drop(true);
    Ok(command)
}

fn spawn(mut command: Command) -> Result<Child, Error> {
    command.spawn().map_err(|cause| {
        let program = command.as_std().get_program().display().to_string();
        Error::new(
            Kind::Unavailable,
            format!("cannot start {program}: {cause}"),
            "reinstall plugind: its programs do not run",
        )
    })
}

/// The program beside this one, installed or in a build folder.
fn find(program: &str) -> Result<PathBuf, Error> {
    let folders = if let Some(folder) = env::var_os("PLUGIND_LIBEXEC").filter(|value| !value.is_empty()) {
        vec![PathBuf::from(folder)]
    } else {
        let exe = env::current_exe().unwrap_or_default();
        let folder = exe.parent().unwrap_or(Path::new("/usr/bin")).to_owned();
        vec![folder.join("../libexec/plugind"), folder]
    };
    folders.iter().map(|folder| folder.join(program)).find(|path| path.is_file()).ok_or_else(|| {
        let places: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        Error::new(
            Kind::Unavailable,
            format!("{program} is not installed: it is not in {}", places.join(" or ")),
            "install all of plugind, or set PLUGIND_LIBEXEC to the folder of its programs",
        )
    })
}

async fn wait(child: &mut Child, name: &str) -> Option<ExitStatus> {
    if let Ok(ended) = tokio::time::timeout(END_TIMEOUT, child.wait()).await {
        return ended.ok();
    }
    output::warn(&format!("{name} does not end by itself and is killed"));
    // It may end in this very moment.
    let _ = child.start_kill();
    tokio::time::timeout(END_TIMEOUT, child.wait()).await.ok()?.ok()
}

/// Reads to the end and keeps the last lines, each cut to a sane length.
async fn last_lines(pipe: pipe::Receiver) -> VecDeque<String> {
    const CHUNK: usize = 4096;
    let mut reader = BufReader::with_capacity(CHUNK, pipe);
    let mut lines = VecDeque::new();
    let mut line = Vec::new();
    while let Ok(chunk) = reader.fill_buf().await {
        if chunk.is_empty() {
            break;
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(chunk.len(), |end| end + 1);
        let room = CHUNK.saturating_sub(line.len());
        line.extend_from_slice(&chunk[..end.unwrap_or(chunk.len()).min(room)]);
        reader.consume(taken);
        if end.is_some() {
            keep(&mut lines, &mut line);
        }
    }
    keep(&mut lines, &mut line);
    lines
}

fn keep(lines: &mut VecDeque<String>, line: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(line).trim_end().to_owned();
    line.clear();
    if !text.is_empty() {
        if lines.len() == LOG_LINES {
            lines.pop_front();
        }
        lines.push_back(text);
    }
}
