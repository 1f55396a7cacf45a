//! What a call sends before its answer, as far as it may and beyond.

use std::time::Duration;

use serde_json::{Value, json};

use crate::commands::{Invocation, flag, number};

/// How long a command waits for its caller.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// `n` chunks with `size` bytes each beside their number; without credit, or numbered wrongly, where that is asked for.
pub(crate) fn chunks(invocation: &Invocation) -> Result<Value, String> {
    let arguments = invocation.arguments();
    let n = number(arguments, "n")?;
    let size = usize::try_from(arguments["size"].as_u64().unwrap_or(0)).map_err(|cause| cause.to_string())?;
    let (ignore_credit, wrong_seq) =
        (flag(arguments, "ignore_credit", false), flag(arguments, "wrong_seq", false));
    let fill = "x".repeat(size);
    for at in 0..n {
        if !ignore_credit && !invocation.shared.take_credit(invocation.name(), PATIENCE) {
            return Ok(json!({"chunks": at}));
        }
        let data = json!({"at": at, "fill": fill});
        let seq = if wrong_seq { at + 1 } else { at };
        notify(invocation, "$/chunk", &json!({"invocation": invocation.name(), "seq": seq, "data": data}));
    }
    Ok(json!({"chunks": n}))
}

/// `n` steps of progress, as fast as they can be written.
pub(crate) fn progress(invocation: &Invocation) -> Result<Value, String> {
    let n = number(invocation.arguments(), "n")?;
    for at in 0..n {
        notify(invocation, "$/progress", &json!({"invocation": invocation.name(), "data": {"at": at}}));
    }
    Ok(json!({"steps": n}))
}

fn notify(invocation: &Invocation, method: &str, params: &Value) {
    invocation.shared.wire.frame(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
}
