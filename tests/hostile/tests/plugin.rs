//! The hostile plugin outside any sandbox: it misbehaves as it says, and its probes find what is there.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use plugind_hostile::mode;
use plugind_hostile::own::Own;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);

/// A folder that is a bundle, but for the program.
struct Bundle(PathBuf);

impl Bundle {
    fn new(name: &str, mode: &str) -> Bundle {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{mode}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/plugin.json"), path.join("plugin.json")).unwrap();
        fs::write(path.join("mode"), format!("{mode}\n")).unwrap();
        Bundle(path)
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Plugin {
    child: Child,
    stdin: ChildStdin,
    chunks: Receiver<Vec<u8>>,
    buffer: Vec<u8>,
    _bundle: Bundle,
}

impl Plugin {
    fn start(name: &str, mode: &str) -> Plugin {
        Plugin::start_by(name, mode, Command::new(env!("CARGO_BIN_EXE_hostile-plugin")))
    }

    fn start_by(name: &str, mode: &str, mut command: Command) -> Plugin {
        let bundle = Bundle::new(name, mode);
        command.current_dir(&bundle.0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        // Bounded, so that a flood stops when nobody looks at it.
        let (sender, chunks) = mpsc::sync_channel(4);
        thread::spawn(move || {
            let mut chunk = vec![0; 1 << 16];
            while let Ok(length @ 1..) = stdout.read(&mut chunk) {
                if sender.send(chunk[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Plugin { child, stdin, chunks, buffer: Vec::new(), _bundle: bundle }
    }

    fn send(&mut self, frame: &Value) {
        // A plugin that has left reads nothing.
        let _ = writeln!(self.stdin, "{frame}");
    }

    fn initialize(&mut self) {
        self.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}));
    }

    /// The next line, without its newline; at the end of the stream, what is left.
    fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return String::from_utf8_lossy(&line[..end]).into_owned();
            }
            match self.chunks.recv_timeout(PATIENCE) {
                Ok(chunk) => self.buffer.extend(chunk),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return String::from_utf8_lossy(&std::mem::take(&mut self.buffer)).into_owned();
                }
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("nothing came"),
            }
        }
    }

    fn frame(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|cause| panic!("{cause}: {line:.200}"))
    }

    /// Calls a command as request `id`.
    fn invoke(&mut self, id: u64, command: &str, arguments: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "command/invoke", "params": {
            "command": command, "arguments": arguments, "meta": {"invocation": format!("call-{id}")}}}));
    }

    fn call(&mut self, command: &str, arguments: &Value) -> Value {
        self.invoke(2, command, arguments);
        self.frame()
    }

    fn probe(&mut self, arguments: &Value) -> Value {
        self.call("probe", arguments)["result"].take()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn right_answer() -> Value {
    let own = Own::of(&fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/plugin.json")).unwrap()).unwrap();
    json!({"jsonrpc": "2.0", "id": 1, "result": {"protocol": own.protocol, "name": own.name,
           "version": own.version, "commands_digest": own.commands_digest}})
}

#[test]
fn the_template_is_a_manifest_and_every_command_of_it_exists() {
    let bytes = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/plugin.json")).unwrap();
    let manifest = plugind_protocol::Manifest::parse(&bytes).unwrap();
    let mut plugin = Plugin::start("template", "normal");
    plugin.initialize();
    assert_eq!(plugin.frame(), right_answer());
    for command in &manifest.commands {
        // Those that leave, that never answer, or that have nothing to check in their arguments.
        if ["abort", "close-stdout", "spin", "half-line", "spawn-orphan"].contains(&command.name.as_str()) {
            continue;
        }
        let answer = plugin.call(&command.name, &json!({}));
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(!message.starts_with("no command"), "{}: {answer}", command.name);
        if ["double-reply", "unknown-id-reply"].contains(&command.name.as_str()) {
            plugin.frame();
        }
    }
    let answer = plugin.call("no-such-command", &json!({}));
    assert_eq!(answer["error"]["message"], "no command `no-such-command`");
}

#[test]
fn modes_answer_as_they_say() {
    let right = right_answer().to_string();
    for (name, expected) in [
        ("normal", right.clone()),
        ("flood-stderr", right.clone()),
        ("stubborn", right.clone()),
        ("bom", format!("\u{feff}{right}")),
        ("nul", format!("{right}\0")),
        ("crlf", format!("{right}\r")),
        ("array", "[]".to_owned()),
        ("scalar", "7".to_owned()),
        ("lsp", format!("Content-Length: {}\r", right.len())),
        ("half-line-then-exit", right[..right.len() / 2].to_owned()),
        ("wrong-id", right.replace("\"id\":1,", "\"id\":1001,")),
        ("string-id", right.replace("\"id\":1,", "\"id\":\"1\",")),
        ("repeated-id", right.clone()),
        ("wrong-version", right.replace("1.0.0", "99.0.0")),
        ("wrong-name", right.replace("\"hostile\"", "\"hostile-other\"")),
        ("wrong-protocol", right.replace("plugind/1", "plugind/0")),
        ("junk-lines", "Welcome to hostile 1.0!".to_owned()),
        ("junk-endless", "this is no frame".to_owned()),
    ] {
        let mut plugin = Plugin::start("modes", name);
        plugin.initialize();
        assert_eq!(plugin.line(), expected, "{name}");
    }
}

#[test]
fn modes_that_need_a_closer_look() {
    let mut plugin = Plugin::start("look", "brackets");
    plugin.initialize();
    assert_eq!(plugin.line().matches('[').count(), 200_000);
    let mut plugin = Plugin::start("look", "nested");
    plugin.initialize();
    assert!(plugin.line().starts_with("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[[["));
    let mut plugin = Plugin::start("look", "wrong-digest");
    plugin.initialize();
    assert_eq!(plugin.frame()["result"]["commands_digest"], "0".repeat(64));
    let mut plugin = Plugin::start("look", "refuse");
    plugin.initialize();
    assert_eq!(plugin.frame()["error"]["code"], -32001);
    assert_eq!(plugin.child.wait().unwrap().code(), Some(1));
    let mut plugin = Plugin::start("look", "flood-stdout");
    assert_eq!(plugin.frame()["method"], "log");
    let mut plugin = Plugin::start("look", "endless-line");
    plugin.initialize();
    let length: usize = (0..16).map(|_| plugin.chunks.recv_timeout(PATIENCE).unwrap().len()).sum();
    assert!(length > 16 << 10);
    for (name, code) in [("exit", 0), ("exit-code-7", 7), ("no-such-mode", 9)] {
        let mut plugin = Plugin::start("look", name);
        assert_eq!(
            (plugin.line(), plugin.child.wait().unwrap().code()),
            (String::new(), Some(code)),
            "{name}"
        );
    }
    // Nobody answers, and the process is there: EOF ends the one that reads.
    let mut plugin = Plugin::start("look", "nothing");
    plugin.initialize();
    drop(std::mem::replace(
        &mut plugin.stdin,
        Command::new("true").stdin(Stdio::piped()).spawn().unwrap().stdin.unwrap(),
    ));
    assert_eq!(plugin.line(), "");
    let mut plugin = Plugin::start("look", "close-stdout");
    assert_eq!(plugin.line(), "");
    assert!(plugin.child.try_wait().unwrap().is_none());
    assert_eq!(mode::NAMES.len(), 30);
}

#[test]
fn commands_break_the_wire_as_they_say() {
    let mut plugin = Plugin::start("commands", "normal");
    assert_eq!(plugin.call("echo", &json!({"a": [1]}))["result"], json!({"a": [1]}));
    assert_eq!(plugin.call("double-reply", &json!({}))["result"]["reply"], 1);
    assert_eq!(plugin.frame()["result"]["reply"], 2);
    assert_eq!(plugin.call("unknown-id-reply", &json!({"id": "x"}))["id"], "x");
    assert_eq!(plugin.frame()["id"], 2);
    let error = plugin.call("raise", &json!({}))["error"].take();
    assert_eq!(error["code"], -32000);
    assert!(error["message"].as_str().unwrap().contains("\u{1b}[31m"));
    assert_eq!(
        plugin.call("big-result", &json!({"bytes": 100_000}))["result"]["data"].as_str().unwrap().len(),
        100_000
    );
    plugin.invoke(2, "raw", &json!({"text": "[]\n"}));
    assert_eq!((plugin.line(), plugin.frame()["id"].as_u64()), ("[]".to_owned(), Some(2)));
    plugin.invoke(3, "wait-cancel", &json!({"ms": 30_000}));
    plugin.send(
        &json!({"jsonrpc": "2.0", "method": "$/cancel", "params": {"invocation": "call-3", "reason": "r"}}),
    );
    assert_eq!(plugin.frame()["result"]["cancel"]["reason"], "r");
    plugin.invoke(4, "host-request", &json!({"method": "host/kv.get", "params": {"key": "k"}}));
    assert_eq!(plugin.frame()["method"], "host/kv.get");
    plugin.send(&json!({"jsonrpc": "2.0", "id": 9001, "error": {"code": -32601, "message": "none"}}));
    assert_eq!(plugin.frame()["result"]["reply"]["error"]["code"], -32601);
    assert_eq!(plugin.call("tasks", &json!({"count": 3}))["result"]["started"], 3);
    plugin.invoke(5, "half-line", &json!({"exit": true}));
    assert_eq!(plugin.line(), "{\"jsonrpc\":\"2.0\",\"id\":");
    assert_eq!(plugin.child.wait().unwrap().code(), Some(0));
}

#[test]
fn chunks_need_credit_unless_they_are_told_otherwise() {
    let mut plugin = Plugin::start("streams", "normal");
    let notice = |method: &str, params: &Value| json!({"jsonrpc": "2.0", "method": method, "params": params});
    plugin.invoke(1, "chunks", &json!({"n": 3, "size": 2}));
    for at in 0..3 {
        plugin.send(&notice("$/credit", &json!({"invocation": "call-1", "n": 1})));
        let data = json!({"at": at, "fill": "xx"});
        let chunk = notice("$/chunk", &json!({"invocation": "call-1", "seq": at, "data": data}));
        assert_eq!(plugin.frame(), chunk);
    }
    assert_eq!(plugin.frame()["result"]["chunks"], 3);
    plugin.invoke(2, "chunks", &json!({"n": 1, "ignore_credit": true, "wrong_seq": true}));
    assert_eq!(plugin.frame()["params"]["seq"], 1);
    assert_eq!(plugin.frame()["result"]["chunks"], 1);
    plugin.invoke(3, "chunks", &json!({"n": 1}));
    plugin.send(&notice("$/cancel", &json!({"invocation": "call-3"})));
    assert_eq!(plugin.frame()["result"]["chunks"], 0);
    plugin.invoke(4, "progress", &json!({"n": 2}));
    let steps = [0, 1].map(|_| plugin.frame()["params"]["data"]["at"].take());
    assert_eq!((steps, plugin.frame()["result"]["steps"].take()), ([json!(0), json!(1)], json!(2)));
}

#[test]
fn a_call_is_held_until_its_key_is_released_or_it_is_cancelled() {
    let mut plugin = Plugin::start("hold", "normal");
    plugin.invoke(1, "hold", &json!({"key": "a"}));
    plugin.invoke(2, "release", &json!({"key": "a"}));
    // In either order.
    let released: Vec<Value> = (0..2).map(|_| plugin.frame()["result"]["released"].take()).collect();
    assert!(released.contains(&json!(true)), "{released:?}");
    plugin.invoke(3, "hold", &json!({"key": "b"}));
    plugin.send(&json!({"jsonrpc": "2.0", "method": "$/cancel", "params": {"invocation": "call-3"}}));
    assert_eq!(plugin.frame()["result"]["released"], false);
    assert_eq!(
        [0, 1].map(|_| plugin.call("turn", &json!({}))["result"]["turn"].take()),
        [json!(0), json!(1)]
    );
}

#[test]
fn orphans_live_until_they_are_killed() {
    let mut plugin = Plugin::start("orphans", "normal");
    let result = plugin.call("spawn-orphan", &json!({"stop": true, "count": 2}))["result"].take();
    let pids: Vec<i64> = result["pids"].as_array().unwrap().iter().map(|pid| pid.as_i64().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    for pid in pids {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        assert_eq!(comm, "orphan\n");
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    }
}

#[test]
fn probes_find_what_is_there() {
    let mut plugin = Plugin::start("probes", "normal");
    let found = plugin.probe(&json!({"what": "read-path", "path": "/proc/self/comm"}));
    assert_eq!(found, json!({"ok": true, "errno": null, "value": "hostile-plugin\n"}));
    let found = plugin.probe(&json!({"what": "read-path", "path": "/no/such/file"}));
    assert_eq!((&found["ok"], &found["errno"]), (&json!(false), &json!(nix::libc::ENOENT)));
    let found = plugin.probe(&json!({"what": "exec-path", "path": "copy"}));
    assert_eq!(found["value"], json!({"code": 0, "stdout": "ok\n"}));
    assert_eq!(plugin.probe(&json!({"what": "fill", "path": "zeroes", "bytes": 100_000}))["value"], 100_000);
    for what in ["socketpair", "threads", "jit", "own-abstract", "clone3", "signals", "proc-pids", "limits"] {
        let arguments = json!({"what": what, "name": format!("hostile-{}", std::process::id())});
        let found = plugin.probe(&arguments);
        assert_eq!(found["ok"], true, "{what}: {found}");
    }
    let fds = plugin.probe(&json!({"what": "fds"}))["value"].take();
    assert!(["0", "1", "2"].iter().all(|fd| fds[fd].is_string()), "{fds}");
    assert!(plugin.probe(&json!({"what": "status"}))["value"]["CapEff"].is_string());
}

/// Runs the plugin under faults and returns what a probe finds.
fn under_fault(faults: &[&str], probe: &Value) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fault-errno"));
    command.args(faults).args(["--", env!("CARGO_BIN_EXE_hostile-plugin")]);
    Plugin::start_by("fault", "normal", command).probe(probe)
}

#[test]
fn faults_are_those_asked_for() {
    use nix::libc;
    for (call, errno, number) in [
        ("landlock_create_ruleset", "ENOSYS", libc::ENOSYS),
        ("landlock_create_ruleset", "EOPNOTSUPP", libc::EOPNOTSUPP),
        ("landlock_restrict_self", "EINVAL", libc::EINVAL),
        ("setns", "ELOOP", libc::ELOOP),
    ] {
        let found = under_fault(&[call, errno], &json!({"what": "syscall", "name": call}));
        assert_eq!(found["errno"], number, "{call}");
    }
    let user_namespaces =
        ["clone:ARG0&CLONE_NEWUSER=CLONE_NEWUSER", "ENOSPC", "unshare:ARG0&0x10000000=0x10000000", "EACCES"];
    assert_eq!(under_fault(&user_namespaces, &json!({"what": "clone-userns"}))["errno"], libc::ENOSPC);
    assert_eq!(under_fault(&user_namespaces, &json!({"what": "unshare-userns"}))["errno"], libc::EACCES);
    // Other clones are not concerned, nor other calls.
    assert_eq!(under_fault(&user_namespaces, &json!({"what": "threads"}))["ok"], true);
    assert_eq!(under_fault(&user_namespaces, &json!({"what": "status"}))["value"]["NoNewPrivs"], "1");
}
