//! Limits of the scope: read back from the kernel before a plugin runs, and never said to be in force when they are not.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use plugind_integration::ctl::run_through;
use plugind_integration::{Bundle, Installed, Outcome, scopes, user};
use plugind_protocol::Kind;
use serde_json::{Value, json};

/// Each limit as the kernel has it, by the name of its unit property.
fn in_force(cgroup: &str, wanted: &Value) -> BTreeMap<String, bool> {
    let files = [
        ("MemoryMax", "memory.max"),
        ("MemorySwapMax", "memory.swap.max"),
        ("CPUQuota", "cpu.max"),
        ("TasksMax", "pids.max"),
    ];
    let state = |(name, file): (&str, &str)| {
        let found = fs::read_to_string(format!("/sys/fs/cgroup{cgroup}/{file}")).unwrap_or_default();
        let wanted = wanted.as_array().unwrap().iter().find(|limit| limit["name"] == name).unwrap();
        (name.to_owned(), found.trim_end() == wanted["wanted"].as_str().unwrap())
    };
    files.map(state).into()
}

#[test]
fn status_says_of_each_limit_what_the_kernel_says() {
    let resources = json!({"memory_max": "64M", "cpu_quota": "50%", "tasks_max": 16});
    let plugin = Installed::new(Bundle::hostile().manifest(|manifest| manifest["resources"] = resources));
    plugin.call("echo", &json!(1)).success();
    let status = plugin.status();
    let wanted: Vec<&Value> =
        status["limits"].as_array().unwrap().iter().map(|limit| &limit["wanted"]).collect();
    assert_eq!(wanted, [&json!("67108864"), &json!("0"), &json!("50000 100000"), &json!("16")]);
    let kernel = in_force(status["control_group"].as_str().unwrap(), &status["limits"]);
    let text = Outcome::of(user::as_tester("pluginctl").args(["status", plugin.name()])).stdout;
    for limit in status["limits"].as_array().unwrap() {
        let name = limit["name"].as_str().unwrap();
        // A machine without swap accounting has no swap to limit.
        let expected =
            kernel[name] || name == "MemorySwapMax" && limit["in_force"] == true && kernel["MemoryMax"];
        assert_eq!(limit["in_force"], expected, "{limit}");
        let line = text.lines().find(|line| line.contains(&format!("{name} "))).unwrap();
        assert_eq!(line.contains("NOT in force"), !expected, "{line}");
    }
}

#[test]
fn a_limit_that_is_not_in_force_refuses_the_start_unless_that_is_accepted() {
    let folder = PathBuf::from(format!("/tmp/enforcement-{}", std::process::id()));
    fs::create_dir_all(folder.join("plugind")).unwrap();
    // It says on stderr that it ran, where it did.
    let bundle = Bundle::hostile().mode("exit-code-7");
    let attempt = |enforcement: &str| {
        let text = format!("enforcement = \"{enforcement}\"\n");
        fs::write(folder.join("plugind/plugind.toml"), text).unwrap();
        let configuration = format!("XDG_CONFIG_HOME={}", folder.display());
        run_through(&["env", &configuration], &bundle, "echo", &json!(1), &[])
    };
    let (required, accepted) = (attempt("required"), attempt("best-effort"));
    fs::remove_dir_all(&folder).unwrap();
    scopes::none_left(bundle.name());
    assert!(accepted.fails(Kind::Crashed).details["stderr"].to_string().contains("leaving with 7"));

    let plugin = Installed::new(Bundle::hostile());
    plugin.call("echo", &json!(1)).success();
    let status = plugin.status();
    let limits = status["limits"].as_array().unwrap();
    let missing: Vec<&Value> =
        limits.iter().filter(|limit| limit["in_force"] == false).map(|limit| &limit["name"]).collect();
    if missing.is_empty() {
        required.fails(Kind::Crashed);
    } else {
        let error = required.fails(Kind::LimitsUnavailable);
        assert_eq!(error.details["not_in_force"], json!(missing), "{error:?}");
        assert!(!required.stderr.contains("leaving with 7"), "the plugin ran: {}", required.stderr);
    }
}
