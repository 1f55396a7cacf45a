//! A plugin as a process of its own: what happens to its stdin, stdout and exit status.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod sample;

use std::io::{Read, Write};
use std::process::{Command, ExitCode, Output, Stdio};

use plugind_sdk::{Call, Error, Failure};
use sample::{initialize, invoke, plugin};
use serde_json::{Value, json};

/// Set in the process that is the plugin.
const ROLE: &str = "PLUGIND_SDK_TEST_CHILD";

fn main() -> ExitCode {
    if std::env::var_os(ROLE).is_none() {
        frames_alone_are_on_stdout();
        attestation_decides_the_exit_code();
        println!("child: ok");
        return ExitCode::SUCCESS;
    }
    match be_a_plugin() {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("{cause:?}");
            ExitCode::FAILURE
        }
    }
}

fn be_a_plugin() -> Result<(), Error> {
    plugin(&["print", "read", "panic"])
        .command("print", |_: &Call, (): ()| {
            print!("{{\"printed\": true}}");
            println!("by the plugin");
            let status = Command::new("/bin/sh").args(["-c", "echo by a child"]).status()?;
            Ok::<_, Failure>(status.code())
        })
        .command("read", |_: &Call, (): ()| {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            Ok::<_, Failure>(text)
        })
        .command("panic", |_: &Call, (): ()| -> Result<(), Failure> { panic!("on purpose") })
        .serve()
}

fn run(frames: &[Value]) -> (Output, Vec<Value>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for frame in frames {
        // A plugin that refused the handshake reads no more.
        let _ = writeln!(stdin, "{frame}");
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let mut frames: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    frames.sort_by_key(|frame| frame["id"].as_u64());
    (output, frames)
}

fn frames_alone_are_on_stdout() {
    let (output, frames) = run(&[
        initialize(&["print", "read", "panic"]),
        invoke(1, "print", json!(null)),
        invoke(2, "read", json!(null)),
        invoke(3, "panic", json!(null)),
    ]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(frames.len(), 4);
    assert_eq!(frames[1]["result"], 0);
    assert_eq!(frames[2]["result"], "");
    assert_eq!(frames[3]["error"]["message"], "the command panicked: on purpose");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("{\"printed\": true}by the plugin\n"), "{stderr}");
    assert!(stderr.contains("by a child\n"), "{stderr}");
}

fn attestation_decides_the_exit_code() {
    let mut request = initialize(&["print", "read", "panic"]);
    request["params"]["version"] = json!("9.9.9");
    let (output, frames) = run(&[request]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(frames[0]["error"]["code"], -32001);
    assert!(String::from_utf8(output.stderr).unwrap().contains("attestation failed: version"));
}
