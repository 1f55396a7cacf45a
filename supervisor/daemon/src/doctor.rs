//! `doctor`: a canary plugin goes through the very steps of a start, and each step is explained.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use plugind_config::Enforcement;
use plugind_protocol::{Error, Manifest};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::contract::Contract;
use crate::plugin::{Session, Surroundings, bounds, call_once};
use crate::registry::Record;
use crate::relay::{PluginLog, Pool};

/// The canary's manifest; its program is the sandbox helper itself.
const MANIFEST: &str = r#"{
  "manifest": 1, "name": "plugind-canary", "version": "1.0.0", "description": "Tries every layer of the sandbox",
  "protocol": "plugind/1", "exec": ["bin/plugind-sandbox", "canary"], "runtime": "static",
  "commands": [ { "name": "probe", "description": "What the sandbox looks like from inside", "risk": "read-only" } ],
  "resources": { "memory_max": "64M", "tasks_max": 8, "tmp_size": "1M" }
}"#;

/// One step, and what to do where it failed.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    #[serde(rename = "step")]
    name: String,
    ok: bool,
    detail: String,
    fix: String,
}

impl Step {
    fn good(step: &str, detail: impl Into<String>) -> Step {
        Step { name: step.to_owned(), ok: true, detail: detail.into(), fix: String::new() }
    }

    fn bad(step: &str, error: &Error) -> Step {
        Step { name: step.to_owned(), ok: false, detail: error.message.clone(), fix: error.hint.clone() }
    }
}

/// Runs the canary. It is gone when this returns.
pub(crate) async fn run(surroundings: &Surroundings) -> Vec<Step> {
    // There is one canary: its bundle and its data are removed at the end.
    static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _one = ONE.lock().await;
    let mut steps = Vec::new();
    let installed = match install(surroundings).await {
        Ok(installed) => installed,
        Err(error) => {
            steps.push(Step::bad("store", &error));
            return steps;
        }
    };
    let (record, contract) = installed;
    steps.push(Step::good("store", format!("the canary's bundle {} was verified", record.digest)));
    let pool = Pool::new(&record.name, bounds(&contract), Arc::default());
    let log = Arc::new(PluginLog::new(&record.name));
    match Session::start(surroundings, &record, &contract, &pool, log).await {
        Err(error) => steps.push(Step::bad("start", &error)),
        Ok(session) => {
            describe(&session, surroundings, &mut steps);
            session.link.open();
            steps.push(probe(&pool).await);
            let status = session.stop().await;
            steps.push(Step::good("stop", format!("the scope is empty ({status})")));
        }
    }
    let removed = async {
        surroundings.store.remove(&record.digest).await?;
        surroundings.store.discard(&surroundings.directories.data(&record.name)).await
    };
    if let Err(error) = removed.await {
        steps.push(Step::bad("removal", &error));
    }
    steps
}

fn describe(session: &Session, surroundings: &Surroundings, steps: &mut Vec<Step>) {
    let launched = &session.launched;
    steps.push(Step::good("scope", format!("{} in {}", launched.unit, launched.cgroup)));
    for limit in &launched.limits {
        let step = format!("limit {}", limit.name);
        if limit.in_force {
            steps.push(Step::good(&step, format!("in force ({})", limit.wanted)));
        } else {
            // With `required` the start itself would have been refused.
            let accepted = surroundings.settings.enforcement == Enforcement::BestEffort;
            steps.push(Step {
                name: step,
                ok: accepted,
                detail: format!(
                    "NOT in force; accepted by enforcement = \"{}\"",
                    surroundings.settings.enforcement
                ),
                fix:
                    "delegate the cpu, memory and pids controllers to the user manager on a cgroup v2 machine"
                        .to_owned(),
            });
        }
    }
    for (layer, text) in &launched.layers {
        steps.push(Step::good(layer, text.clone()));
    }
    steps.push(Step::good("handshake", "the program is the one that its manifest describes"));
}

async fn probe(pool: &Arc<Pool>) -> Step {
    let Ok(arguments) = RawValue::from_string("{}".to_owned()) else {
        return Step::bad("call", &Error::internal("an empty object is JSON"));
    };
    match call_once(pool, "probe", arguments, "doctor", Duration::from_secs(10)).await {
        Ok(result) => Step::good("call", result.get()),
        Err(error) => Step::bad("call", &error),
    }
}

async fn install(surroundings: &Surroundings) -> Result<(Record, Contract), Error> {
    let helper = plugind_config::libexec("plugind-sandbox")?;
    let store = surroundings.store.clone();
    let installed = tokio::task::spawn_blocking(move || {
        let bundle = bundle(&helper).map_err(|cause| crate::store::at(&helper, &cause))?;
        store.unpack(bundle, None).and_then(|unpacked| store.publish(unpacked))
    })
    .await
    .map_err(|cause| Error::internal(cause.to_string()))??;
    let contract = Contract::new(
        installed.digest,
        installed.manifest_sha256.clone(),
        Manifest::parse(MANIFEST.as_bytes())?,
    )?;
    Ok((Record::new(installed.manifest.name, installed.digest, installed.manifest_sha256), contract))
}

/// The canary's bundle as a tar file in memory.
fn bundle(helper: &std::path::Path) -> std::io::Result<OwnedFd> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use std::io::Seek as _;
    let mut archive = tar::Builder::new(File::from(memfd_create(c"plugind-canary", MFdFlags::MFD_CLOEXEC)?));
    let mut add = |path: &str, mode: u32, size: u64, data: &mut dyn std::io::Read| {
        let mut header = tar::Header::new_ustar();
        header.set_mode(mode);
        header.set_size(size);
        archive.append_data(&mut header, path, data)
    };
    let mut program = File::open(helper)?;
    let size = program.metadata()?.len();
    add("plugin.json", 0o644, MANIFEST.len() as u64, &mut MANIFEST.as_bytes())?;
    add("bin/plugind-sandbox", 0o755, size, &mut program)?;
    let mut file = archive.into_inner()?;
    file.rewind()?;
    Ok(file.into())
}
