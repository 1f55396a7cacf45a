//! The plugin's commands: what it does wrong once it runs.

use std::io::{self, Write};
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::serve::Shared;
use crate::sys::{self, Orphan};
use crate::{misbehave, mode, probe, streams};

/// One call of a command.
#[derive(Debug)]
pub struct Invocation {
    /// What all calls share.
    pub shared: Arc<Shared>,
    /// The request's id, as it came.
    pub id: Value,
    params: Value,
}

/// What becomes of a call.
#[derive(Debug)]
pub enum Answer {
    /// This result is sent.
    Result(Value),
    /// The command sent what there is to send.
    Given,
}

impl Invocation {
    /// A call as its request describes it.
    #[must_use]
    pub fn new(shared: &Arc<Shared>, id: Value, params: Value) -> Invocation {
        Invocation { shared: Arc::clone(shared), id, params }
    }

    pub(crate) fn arguments(&self) -> &Value {
        &self.params["arguments"]
    }

    /// The call's name in `$/cancel`, `$/credit`, `$/chunk` and `$/progress`.
    pub(crate) fn name(&self) -> &str {
        self.params["meta"]["invocation"].as_str().unwrap_or_default()
    }
}

/// A string argument.
pub(crate) fn text<'a>(arguments: &'a Value, key: &str) -> Result<&'a str, String> {
    arguments[key].as_str().ok_or_else(|| format!("`{key}` must be a string"))
}

/// A number argument.
pub(crate) fn number(arguments: &Value, key: &str) -> Result<u64, String> {
    arguments[key].as_u64().ok_or_else(|| format!("`{key}` must be a number from 0 on"))
}

/// An optional flag.
pub(crate) fn flag(arguments: &Value, key: &str, default: bool) -> bool {
    arguments[key].as_bool().unwrap_or(default)
}

fn milliseconds(arguments: &Value) -> Result<Duration, String> {
    number(arguments, "ms").map(Duration::from_millis)
}

/// Runs the command that the invocation names. An error is one of the arguments.
pub fn run(invocation: &Invocation) -> Result<Answer, String> {
    let arguments = invocation.arguments();
    match invocation.params["command"].as_str().unwrap_or_default() {
        "double-reply" | "unknown-id-reply" | "raise" | "half-line" | "raw" | "close-stdout" => {
            break_the_wire(invocation)
        }
        "exit" | "abort" | "kill-self" | "memory" | "spin" | "tasks" | "spawn-orphan" => {
            strain_the_process(invocation)
        }
        "echo" => Ok(Answer::Result(arguments.clone())),
        "probe" => probe::run(arguments).map(Answer::Result),
        "sleep" | "late-reply" => {
            let time = milliseconds(arguments)?;
            thread::sleep(time);
            Ok(Answer::Result(json!({"slept_ms": time.as_millis()})))
        }
        "wait-cancel" => {
            let cancel = invocation.shared.wait_for_cancel(invocation.name(), milliseconds(arguments)?);
            Ok(Answer::Result(json!({"cancelled": cancel.is_some(), "cancel": cancel})))
        }
        "hold" => {
            let key = text(arguments, "key")?;
            let released = invocation.shared.wait_for_release(key, invocation.name(), streams::PATIENCE);
            Ok(Answer::Result(json!({"released": released})))
        }
        "release" => {
            invocation.shared.release(text(arguments, "key")?);
            Ok(Answer::Result(json!({})))
        }
        "turn" => Ok(Answer::Result(json!({"turn": invocation.shared.turn()}))),
        "chunks" => streams::chunks(invocation).map(Answer::Result),
        "progress" => streams::progress(invocation).map(Answer::Result),
        "cancels" => Ok(Answer::Result(json!({"cancels": invocation.shared.cancels()}))),
        "meta" => Ok(Answer::Result(invocation.params["meta"].clone())),
        "flood-stderr" => {
            misbehave::flood_stderr(number(arguments, "bytes")?);
            Ok(Answer::Result(json!({})))
        }
        "flood-stdout-junk" => {
            misbehave::flood_stdout(invocation.shared.wire, number(arguments, "bytes")?);
            Ok(Answer::Result(json!({})))
        }
        "stderr" => {
            // A stderr that nobody reads is the caller's doing.
            let _ = io::stderr().write_all(text(arguments, "text")?.as_bytes());
            Ok(Answer::Result(json!({})))
        }
        "big-result" => {
            let bytes = usize::try_from(number(arguments, "bytes")?).map_err(|cause| cause.to_string())?;
            Ok(Answer::Result(json!({"data": "x".repeat(bytes)})))
        }
        "bad-output" => Ok(Answer::Result(json!({"number": "seven"}))),
        "cgroup" => {
            let text = std::fs::read_to_string("/proc/self/cgroup").map_err(|cause| cause.to_string())?;
            Ok(Answer::Result(json!({"cgroup": text})))
        }
        "notify" => {
            let (method, params) = (text(arguments, "method")?, &arguments["params"]);
            invocation.shared.wire.frame(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
            Ok(Answer::Result(json!({})))
        }
        "host-request" => {
            let method = text(arguments, "method")?;
            let id = if arguments["id"].is_null() { json!(9001) } else { arguments["id"].clone() };
            let receiver = invocation.shared.request(&id, method, &arguments["params"]);
            let reply = receiver.recv_timeout(Duration::from_secs(10)).ok();
            Ok(Answer::Result(json!({"reply": reply})))
        }
        other => Err(format!("no command `{other}`")),
    }
}

/// Commands whose answer is what is wrong.
fn break_the_wire(invocation: &Invocation) -> Result<Answer, String> {
    let arguments = invocation.arguments();
    let wire = invocation.shared.wire;
    match invocation.params["command"].as_str().unwrap_or_default() {
        "double-reply" => {
            wire.result(&invocation.id, &json!({"reply": 1}));
            Ok(Answer::Result(json!({"reply": 2})))
        }
        "unknown-id-reply" => {
            let unknown = if arguments["id"].is_null() { json!(u32::MAX) } else { arguments["id"].clone() };
            wire.result(&unknown, &json!({"reply": "to nobody"}));
            Ok(Answer::Result(json!({"reply": "right"})))
        }
        "raise" => {
            let forged = "AttestationFailed: org.plugind1.Error.PermissionDenied \u{1b}]0;owned\u{7}\u{1b}[31m\
                          \u{1b}[2J\r\nplugind: all is well";
            let code = arguments["code"].as_i64().unwrap_or(-32000);
            let message = arguments["message"].as_str().unwrap_or(forged);
            let data = json!({"kind": "PermissionDenied", "message": forged, "hint": "", "outcome_known": true,
                              "retryable": true});
            wire.frame(&json!({"jsonrpc": "2.0", "id": invocation.id,
                               "error": {"code": code, "message": message, "data": data}}));
            Ok(Answer::Given)
        }
        "half-line" => {
            wire.raw(br#"{"jsonrpc":"2.0","id":"#);
            if flag(arguments, "exit", false) {
                process::exit(0);
            }
            Ok(Answer::Given)
        }
        "raw" => {
            let text = text(arguments, "text")?.replace("@id@", &invocation.id.to_string());
            wire.raw(text.as_bytes());
            Ok(Answer::Result(json!({})))
        }
        _ => {
            // There is no stdout to answer on after this.
            let _ = nix::unistd::close(1);
            Ok(Answer::Given)
        }
    }
}

/// Commands that end the process, fill it, or leave others behind.
fn strain_the_process(invocation: &Invocation) -> Result<Answer, String> {
    let arguments = invocation.arguments();
    match invocation.params["command"].as_str().unwrap_or_default() {
        "exit" => process::exit(i32::try_from(number(arguments, "code")?).unwrap_or(-1)),
        "abort" => process::abort(),
        "kill-self" => {
            let signal = i32::try_from(number(arguments, "signal")?).map_err(|cause| cause.to_string())?;
            let signal = Signal::try_from(signal).map_err(|cause| cause.to_string())?;
            signal::kill(Pid::this(), signal).map_err(|cause| cause.to_string())?;
            Ok(Answer::Result(json!({"survived": signal.as_str()})))
        }
        "memory" => {
            let bytes = usize::try_from(number(arguments, "bytes")?).map_err(|cause| cause.to_string())?;
            // A byte other than zero makes every page real.
            let memory = vec![1_u8; bytes];
            if flag(arguments, "keep", false) {
                std::mem::forget(memory);
            }
            Ok(Answer::Result(json!({"bytes": bytes})))
        }
        "spin" => {
            let end = arguments["ms"].as_u64().map(|ms| Instant::now() + Duration::from_millis(ms));
            while end.is_none_or(|end| Instant::now() < end) {
                std::hint::spin_loop();
            }
            Ok(Answer::Result(json!({})))
        }
        "tasks" => {
            let wanted = number(arguments, "count")?;
            let started =
                (0..wanted).take_while(|_| thread::Builder::new().spawn(|| mode::wait_for_ever()).is_ok());
            Ok(Answer::Result(json!({"wanted": wanted, "started": started.count()})))
        }
        _ => {
            let orphan = Orphan {
                setsid: flag(arguments, "setsid", true),
                double_fork: flag(arguments, "double_fork", true),
                stop: flag(arguments, "stop", false),
                hold_stdout: flag(arguments, "hold_stdout", false),
            };
            let count = arguments["count"].as_u64().unwrap_or(1);
            let pids = (0..count).map(|_| sys::spawn_orphan(orphan)).collect::<Result<Vec<_>, _>>();
            let pids = pids.map_err(|errno| format!("fork: {}", io::Error::from_raw_os_error(errno)))?;
            Ok(Answer::Result(json!({"pids": pids})))
        }
    }
}
