//! The production arrangement: gate, strict bubblewrap, `enter`, and a plugin that looks around.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod common;

use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use common::{Ended, SANDBOX, Scratch, enter_through};
use nix::unistd::getuid;
use serde_json::{Value, json};

const MANIFEST: &str = r#"{"manifest": 1, "name": "canary", "version": "0.1.0", "protocol": "plugind/1",
    "exec": ["bin/canary", "canary"], "runtime": "static",
    "commands": [{"name": "probe", "description": "what a plugin sees", "risk": "read-only", "timeout_ms": 1000}]}"#;

/// The manifest's commands in canonical form, hashed by another program than ours.
fn commands_digest() -> String {
    let canonical =
        r#"[{"description":"what a plugin sees","name":"probe","risk":"read-only","timeout_ms":1000}]"#;
    let output = Command::new("/bin/sh")
        .args(["-c", "printf %s \"$1\" | sha256sum", "sh", canonical])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

/// A bundle that only its owner may write, as the store has it.
fn bundle() -> Scratch {
    let scratch = Scratch::new();
    std::fs::create_dir(format!("{}/bin", scratch.path())).unwrap();
    scratch.file("plugin.json", MANIFEST.as_bytes(), 0o644);
    scratch.copy("bin/canary", SANDBOX);
    scratch
}

/// Where the binary under test is inside.
const INSIDE: &str = "/run/plugind-sandbox";

/// bubblewrap as strict as the launcher's, up to the binary under test.
fn bwrap(bundle: &Scratch) -> Vec<String> {
    let strict = "/usr/bin/bwrap --unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup --unshare-net \
                  --disable-userns --new-session --clearenv --setenv PATH /usr/bin:/bin --setenv HOME /data \
                  --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
                  --proc /proc --dev /dev --tmpfs /tmp --tmpfs /data --dir /etc --chdir /plugin";
    let mut words: Vec<String> = strict.split_whitespace().map(str::to_owned).collect();
    // The copy in the bundle, because another user may not reach this crate's folder.
    let binary = format!("{}/bin/canary", bundle.path());
    for (from, to) in [(bundle.path(), "/plugin"), (binary.as_str(), INSIDE)] {
        words.extend(["--ro-bind".into(), from.into(), to.into()]);
    }
    words.extend(["--".into(), INSIDE.into()]);
    words
}

/// As whoever runs the tests, and where that is root also as somebody else.
fn users() -> Vec<Option<u32>> {
    if getuid().is_root() { vec![None, Some(1000)] } else { vec![None] }
}

fn as_user(words: &[String], uid: Option<u32>) -> Vec<String> {
    let mut command = Vec::new();
    if let Some(uid) = uid {
        let ids = format!("/usr/bin/setpriv --reuid {uid} --regid {uid} --clear-groups --inh-caps=-all");
        command.extend(ids.split_whitespace().map(str::to_owned));
    }
    command.extend_from_slice(words);
    command
}

fn run(bundle: &Scratch, uid: Option<u32>, options: &[&str], program: &[&str]) -> Ended {
    let before = as_user(&bwrap(bundle), uid);
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let mut all = vec!["--exec", "/plugin", "--write", "/tmp", "--write", "/data", "--read", "/"];
    all.extend(options);
    enter_through(&before, &all, program)
}

#[test]
fn the_canary_speaks_the_wire_through_every_layer() {
    let bundle = bundle();
    let digest =
        Command::new("/usr/bin/sha256sum").arg(format!("{}/bin/canary", bundle.path())).output().unwrap();
    let digest = String::from_utf8(digest.stdout).unwrap()[..64].to_owned();
    let metadata = std::fs::metadata(bundle.path()).unwrap();
    let id = format!("{}:{}", metadata.dev(), metadata.ino());
    for uid in users() {
        let mut words = as_user(&bwrap(&bundle), uid);
        let enter = format!(
            "enter --bundle-id {id} --entry-sha256 {digest} --nofile 256 --read / --exec /usr --exec /plugin \
             --write /tmp --write /data --device /dev/null -- /plugin/bin/canary canary"
        );
        words.extend(enter.split_whitespace().map(str::to_owned));
        let greeting = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocol": "plugind/1", "name": "canary", "version": "0.1.0", "commands_digest": commands_digest()}});
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "command/invoke",
            "params": {"command": "probe", "arguments": {}, "meta": {}}});
        let lines = format!("{greeting}\n{call}\n");
        let output = with_input(&words, &lines);
        let replies: Vec<Value> = output
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{output}")))
            .collect();
        assert_eq!(replies[0]["result"], greeting["params"]);
        let seen = &replies[1]["result"];
        assert_eq!(seen["pid1"], "bwrap");
        assert_eq!(seen["fds"], json!(["0", "1", "2"]));
        // Without the PWD that bubblewrap adds.
        assert_eq!(seen["env"], json!(["HOME", "PATH"]));
        assert_eq!(seen["no_new_privs"], 1);
        assert_eq!(seen["seccomp"], 2);
        assert_eq!(seen["uid"], uid.unwrap_or_else(|| getuid().as_raw()));
        let root = ["bin", "data", "dev", "etc", "lib", "lib64", "plugin", "proc", "run", "tmp", "usr"];
        assert_eq!(seen["root"], json!(root));
    }
}

/// Runs a command with this input, and returns what it printed by its end.
fn with_input(words: &[String], input: &str) -> String {
    use std::io::Write;
    let mut child = Command::new("/usr/bin/timeout")
        .args(["--foreground", "--signal=KILL", "60"])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_bundle_that_was_exchanged_is_refused() {
    let (verified, other) = (bundle(), bundle());
    let metadata = std::fs::metadata(verified.path()).unwrap();
    let id = format!("{}:{}", metadata.dev(), metadata.ino());
    let ended = run(&other, None, &["--bundle-id", &id], &["/usr/bin/true"]);
    let message = ended.failed("bundle")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("is not the bundle that was verified"), "{message}");
    let ended = run(&verified, None, &["--bundle-id", &id], &["/usr/bin/true"]);
    ended.ready();
    assert!(ended.status.success());
}

#[test]
fn programs_are_run_from_usr_and_the_bundle_only() {
    let bundle = bundle();
    let script = "cp /usr/bin/true /tmp/true && cp /usr/bin/true /data/true || exit 1; \
                  for file in /usr/bin/true /plugin/bin/canary /tmp/true /data/true; do \
                  $file --version >/dev/null 2>&1; echo $file $?; done; \
                  echo x >/plugin/new; echo $?";
    for uid in users() {
        let ended = run(&bundle, uid, &[], &["/bin/sh", "-c", script]);
        ended.ready();
        assert_eq!(
            ended.stdout, "/usr/bin/true 0\n/plugin/bin/canary 0\n/tmp/true 126\n/data/true 126\n2\n",
            "{ended:#?}"
        );
    }
}

#[test]
fn gate_and_bubblewrap_and_enter_are_one_process_chain() {
    let bundle = bundle();
    let mut words = vec![
        "/bin/sh".to_owned(),
        "-c".to_owned(),
        "exec \"$@\" 3<&0 0</dev/null".to_owned(),
        "sh".to_owned(),
    ];
    words.extend([SANDBOX, "gate", "--gate", "3", "--"].map(str::to_owned));
    words.extend(bwrap(&bundle));
    words.extend(
        ["enter", "--exec", "/usr", "--exec", "-/lib64", "--", "/bin/echo", "ran"].map(str::to_owned),
    );
    assert_eq!(with_input(&words, "1"), "ran\n");
}
