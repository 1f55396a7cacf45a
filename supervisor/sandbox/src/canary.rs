//! A plugin that does no work and tells what it sees: `pluginctl doctor` starts it through every layer.

use std::io::{self, BufRead, Read, Write};
use std::process::ExitCode;

use nix::unistd::{getgid, getuid};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::entry::hex;
use crate::report::complain;

const MANIFEST: &str = "/plugin/plugin.json";
const PROTOCOL: &str = "plugind/1";
/// The command that the canary's manifest must declare.
const COMMAND: &str = "probe";

/// A line that is longer than any that the supervisor sends to a canary.
const LINE_MAX: u64 = 1 << 20;

const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const ATTESTATION_FAILED: i64 = -32001;

pub(crate) fn run() -> ExitCode {
    let served = Identity::read().and_then(|own| serve(&own, io::stdin().lock(), io::stdout().lock()));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(format_args!("canary: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// The canary's own values, which it holds against those that it is greeted with.
#[derive(Debug)]
struct Identity {
    name: String,
    version: String,
    commands_digest: String,
}

impl Identity {
    fn read() -> io::Result<Identity> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("{MANIFEST}: {what}"));
        let bytes = std::fs::read(MANIFEST).map_err(|error| wrong(error.to_string()))?;
        Identity::parse(&bytes).map_err(wrong)
    }

    fn parse(manifest: &[u8]) -> Result<Identity, String> {
        let manifest: Value = serde_json::from_slice(manifest).map_err(|error| error.to_string())?;
        let text = |field: &str| {
            manifest[field].as_str().map(str::to_owned).ok_or_else(|| format!("{field} is not a string"))
        };
        let commands = manifest.get("commands").cloned().unwrap_or_else(|| json!([]));
        let canonical = serde_json_canonicalizer::to_vec(&commands).map_err(|error| error.to_string())?;
        Ok(Identity {
            name: text("name")?,
            version: text("version")?,
            commands_digest: hex(&Sha256::digest(canonical)),
        })
    }

    fn answer(&self) -> Value {
        json!({
            "protocol": PROTOCOL,
            "name": self.name,
            "version": self.version,
            "commands_digest": self.commands_digest,
        })
    }

    /// The first of the four values that differs.
    fn difference(&self, params: &Value) -> Option<String> {
        let own = self.answer();
        let differs = |(field, value): (&String, &Value)| {
            (params.get(field) != Some(value)).then(|| format!("{field} is {value} here"))
        };
        own.as_object().into_iter().flatten().find_map(differs)
    }
}

/// Answers line after line, until `shutdown` or the end of the input.
fn serve(identity: &Identity, mut input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        if input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let Answer { reply, last } = answer(identity, &line);
        if let Some(reply) = reply {
            writeln!(output, "{reply}")?;
            output.flush()?;
        }
        match last {
            None => {}
            Some(Ok(())) => return Ok(()),
            Some(Err(why)) => return Err(io::Error::other(why)),
        }
    }
}

struct Answer {
    reply: Option<Value>,
    /// Set where the canary ends after it: well, or because it is not who it was greeted as.
    last: Option<Result<(), String>>,
}

fn answer(identity: &Identity, line: &[u8]) -> Answer {
    let Ok(Value::Object(request)) = serde_json::from_slice(line) else {
        return Answer { reply: Some(failed(&Value::Null, INVALID_REQUEST, "not an object")), last: None };
    };
    let Some(id) = request.get("id") else {
        return Answer { reply: None, last: None };
    };
    let mut last = None;
    let params = request.get("params").unwrap_or(&Value::Null);
    let reply = match request.get("method").and_then(Value::as_str) {
        Some("initialize") => match identity.difference(params) {
            None => result(id, &identity.answer()),
            Some(difference) => {
                let reply = failed(id, ATTESTATION_FAILED, &format!("attestation failed: {difference}"));
                last = Some(Err(difference));
                reply
            }
        },
        Some("command/invoke") if params["command"] == COMMAND => result(id, &surroundings()),
        Some("command/invoke") => failed(id, INVALID_PARAMS, "there is no such command"),
        Some("ping") => result(id, &json!({})),
        Some("shutdown") => {
            last = Some(Ok(()));
            result(id, &json!({}))
        }
        _ => failed(id, METHOD_NOT_FOUND, "there is no such method"),
    };
    Answer { reply: Some(reply), last }
}

fn result(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn failed(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

/// What a plugin sees from in here. What cannot be read is null.
fn surroundings() -> Value {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut seen = Map::new();
    seen.insert(
        "pid1".into(),
        std::fs::read_to_string("/proc/1/comm").map(|name| name.trim().to_owned()).ok().into(),
    );
    seen.insert("root".into(), names("/").into());
    seen.insert("uid".into(), getuid().as_raw().into());
    seen.insert("gid".into(), getgid().as_raw().into());
    seen.insert("fds".into(), open_descriptors().into());
    let mut env: Vec<String> =
        std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    env.sort();
    seen.insert("env".into(), env.into());
    for (name, field) in [("no_new_privs", "NoNewPrivs:"), ("seccomp", "Seccomp:")] {
        let value = status.lines().find_map(|line| line.strip_prefix(field));
        seen.insert(name.into(), value.and_then(|value| value.trim().parse::<u64>().ok()).into());
    }
    Value::Object(seen)
}

fn names(folder: &str) -> Option<Vec<String>> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    Some(names)
}

/// Without the one that the listing itself took.
fn open_descriptors() -> Option<Vec<String>> {
    let mut open = names("/proc/self/fd")?;
    open.retain(|fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok());
    Some(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity::parse(
            br#"{"name": "canary", "version": "0.1.0", "commands": [{"name": "probe", "timeout_ms": 1e3}]}"#,
        )
        .unwrap()
    }

    fn talk(lines: &str) -> (Vec<Value>, io::Result<()>) {
        let mut output = Vec::new();
        let ended = serve(&identity(), lines.as_bytes(), &mut output);
        let replies = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        (replies.map(|line| serde_json::from_slice(line).unwrap()).collect(), ended)
    }

    #[test]
    fn the_digest_is_of_the_canonical_form() {
        let digest = hex(&Sha256::digest(br#"[{"name":"probe","timeout_ms":1000}]"#));
        assert_eq!(identity().commands_digest, digest);
    }

    #[test]
    fn it_answers_and_ends_at_shutdown() {
        let own = identity();
        let greeting = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": own.answer()});
        let lines = format!(
            "{greeting}\r\n\n{}\n{}\n{}\n{}\n{}\n",
            r#"{"jsonrpc":"2.0","method":"$/cancel","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":"a","method":"command/invoke","params":{"command":"probe","arguments":{}}}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"nothing"}"#,
            r#"{"jsonrpc":"2.0","id":4,"method":"shutdown"}"#,
            r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#,
        );
        let (replies, ended) = talk(&lines);
        ended.unwrap();
        assert_eq!(replies.len(), 4);
        assert_eq!(replies[0]["result"], own.answer());
        assert_eq!(replies[1]["id"], "a");
        assert!(replies[1]["result"]["root"].as_array().unwrap().contains(&"usr".into()));
        assert_eq!(replies[2]["error"]["code"], METHOD_NOT_FOUND);
        assert_eq!(replies[3], json!({"jsonrpc": "2.0", "id": 4, "result": {}}));
    }

    #[test]
    fn greeted_as_another_it_says_so_and_ends() {
        let mut params = identity().answer();
        params["version"] = "0.2.0".into();
        let greeting = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let (replies, ended) = talk(&format!("{greeting}\n"));
        assert_eq!(replies[0]["error"]["code"], ATTESTATION_FAILED);
        assert!(ended.unwrap_err().to_string().contains("version"));
    }
}
