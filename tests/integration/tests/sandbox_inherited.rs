//! What a process inherits: a plugin starts with nothing of whoever started it.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use nix::errno::Errno;
use plugind_integration::ctl::run_through;
use plugind_integration::{Bundle, Installed, Outcome, Report, user};
use serde_json::{Value, json};

fn what(probe: &str) -> Value {
    json!({"what": probe})
}

/// A probe of a plugin that is run through other programs.
fn through(outer: &[&str], probe: &str) -> Value {
    let outcome = run_through(outer, &Bundle::hostile(), "probe", &what(probe), &[]);
    Report::of(&outcome).allowed().clone()
}

/// The same programs with another at their end, whose output is the control case.
fn control(outer: &[&str], words: &[&str]) -> String {
    let mut command = user::as_tester_through(outer, words[0]);
    let outcome = Outcome::of(command.args(&words[1..]));
    outcome.success();
    outcome.stdout
}

/// A process of the installed plugind: a service's main process.
fn main_pid(unit: &str) -> String {
    let words = ["--user", "show", "--property", "MainPID", "--value", unit];
    let pid = Outcome::of(user::as_tester("systemctl").args(words)).stdout.trim().to_owned();
    assert_ne!(pid, "0", "{unit} runs");
    pid
}

fn environment_of(pid: &str) -> BTreeMap<String, String> {
    let text = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.split('\0').filter_map(|pair| pair.split_once('=')).map(|(n, v)| (n.into(), v.into())).collect()
}

#[track_caller]
fn assert_environment(environ: &Value, name: &str) {
    let environ: BTreeMap<String, String> = serde_json::from_value(environ.clone()).unwrap();
    let instance = environ["PLUGIND_INSTANCE"].clone();
    assert!(instance.len() == 8 && instance.bytes().all(|digit| digit.is_ascii_hexdigit()), "{instance}");
    let expected = [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", "/data"),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", "/tmp"),
        ("PLUGIND_NAME", name),
        ("PLUGIND_INSTANCE", &instance),
        ("PLUGIND_PROTOCOL", "plugind/1"),
    ];
    let expected: BTreeMap<String, String> = expected.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
    assert_eq!(environ, expected);
}

#[test]
fn only_standard_input_output_and_error_are_open() {
    let fds = through(&[], "fds");
    let names: Vec<&String> = fds.as_object().unwrap().keys().collect();
    assert_eq!(names, ["0", "1", "2"]);
    assert!(
        fds.as_object().unwrap().values().all(|target| target.as_str().unwrap().starts_with("pipe:")),
        "{fds}"
    );
}

#[test]
fn files_that_the_launcher_was_started_with_stay_outside() {
    let script = "for i in {10..60}; do eval \"exec $i</etc/passwd\"; done; exec \"$@\"";
    let outer = ["bash", "-c", script, "bash"];
    let open = control(&outer, &["ls", "-l", "/proc/self/fd"]);
    assert!(open.lines().filter(|line| line.ends_with("/etc/passwd")).count() > 50, "inherited: {open}");
    let fds = through(&outer, "fds");
    assert_eq!(fds.as_object().unwrap().len(), 3, "{fds}");
}

#[test]
fn files_that_the_launcher_holds_for_other_plugins_stay_outside() {
    let others: Vec<Installed> = (0..4).map(|_| Installed::new(Bundle::hostile())).collect();
    for other in &others {
        other.call("echo", &json!(1)).success();
    }
    let held = fs::read_dir(format!("/proc/{}/fd", main_pid("plugind-launcher.service"))).unwrap().count();
    assert!(held > 4 * others.len(), "the launcher holds {held} files");
    let plugin = Installed::new(Bundle::hostile());
    assert_eq!(plugin.probe(&what("fds")).allowed().as_object().unwrap().len(), 3);
}

#[test]
fn blocked_and_ignored_signals_are_not_inherited() {
    let outer = ["env", "--block-signal=TERM,INT,USR1,RTMIN", "--ignore-signal=HUP,PIPE,USR2"];
    let status = control(&outer, &["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]);
    let masks: Vec<&str> = status.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert!(masks.len() == 2 && masks.iter().all(|mask| mask.contains(|c| c != '0')), "inherited: {status}");
    assert_eq!(through(&outer, "signals"), json!({"blocked": [], "ignored": []}));
}

/// Some daemons leave SIGCHLD ignored to whatever they start; the ends of children are lost to it then.
#[test]
fn an_ignored_sigchld_is_not_inherited() {
    let outer = ["env", "--ignore-signal=CHLD"];
    let status = control(&outer, &["grep", "^SigIgn", "/proc/self/status"]);
    assert!(status.trim_end().ends_with("10000"), "inherited: {status}");
    assert_eq!(through(&outer, "signals"), json!({"blocked": [], "ignored": []}));
}

#[test]
fn the_environment_is_exactly_what_is_documented() {
    let planted = [
        "env",
        "SECRET_TOKEN=planted",
        "AWS_SECRET_ACCESS_KEY=planted",
        "LD_PRELOAD_PATH=planted",
        "NOTIFY_SOCKET=/run/planted",
        "LISTEN_FDS=1",
        "LISTEN_PID=1",
        "INVOCATION_ID=planted",
        "SSH_AUTH_SOCK=/run/planted",
        "http_proxy=http://planted",
        "PYTHONPATH=/planted",
    ];
    assert!(control(&planted, &["env"]).contains("SECRET_TOKEN=planted"), "inherited");
    let bundle = Bundle::hostile();
    let environ = run_through(&planted, &bundle, "probe", &what("environ"), &[]);
    assert_environment(Report::of(&environ).allowed(), bundle.name());
}

#[test]
fn the_environment_of_the_installed_units_does_not_arrive() {
    let plugin = Installed::new(Bundle::hostile());
    let environ = plugin.probe(&what("environ")).allowed().clone();
    assert_environment(&environ, plugin.name());
    let launcher = environment_of(&main_pid("plugind-launcher.service"));
    let supervisor = environment_of(&main_pid("plugind.service"));
    for name in ["INVOCATION_ID", "NOTIFY_SOCKET", "XDG_RUNTIME_DIR"] {
        assert!(launcher.contains_key(name) && supervisor.contains_key(name), "{name} is in the units'");
    }
    assert!(launcher.contains_key("LISTEN_FDS"));
    // The process between launcher and plugin, of whose environment the plugin's was made.
    let parent = fs::read_to_string(format!("/proc/{}/status", plugin.pid())).unwrap();
    let parent = parent.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().to_owned();
    let names: BTreeSet<String> = environment_of(&parent).into_keys().collect();
    assert!(names.is_empty(), "bubblewrap itself has {names:?}");
}

#[test]
fn limits_of_the_process_are_in_force() {
    let limits = through(&[], "limits");
    let limits = limits.as_str().unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        let fields: Vec<&str> = line[name.len()..].split_whitespace().take(2).collect();
        fields.join(" ")
    };
    assert_eq!(limit("Max open files"), "256 256");
    assert_eq!(limit("Max core file size"), "0 0");
    // These would break allocators and JITs, and count the whole user.
    assert_eq!(limit("Max address space"), "unlimited unlimited");
    let outer = ["prlimit", "--core=unlimited", "--nofile=4096:4096"];
    assert_eq!(control(&outer, &["bash", "-c", "ulimit -n"]), "4096\n");
    assert_eq!(through(&outer, "limits").as_str().unwrap().matches(" 256 ").count(), 2);
    // A lower one is not raised.
    let lower = through(&["prlimit", "--nofile=200:200"], "limits");
    assert_eq!(lower.as_str().unwrap().matches(" 200 ").count(), 2);

    let plugin = Installed::new(Bundle::python());
    let open = |count: u32| plugin.python(&format!("files = [open('/dev/null') for _ in range({count})]"));
    open(200).allowed();
    open(256).denied(&[Errno::EMFILE]);
    let raise = "import resource\n\
                 try: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))\n\
                 except ValueError as cause: raise PermissionError(1, str(cause))";
    plugin.python(raise).denied(&[Errno::EPERM]);
    plugin.python(&raise.replace("512", "256")).allowed();
}

#[test]
fn nothing_of_privilege_is_left() {
    let plugin = Installed::new(Bundle::hostile());
    for status in [through(&[], "status"), plugin.probe(&what("status")).allowed().clone()] {
        for capabilities in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status[capabilities], "0000000000000000", "{capabilities}");
        }
        assert_eq!(status["Uid"], "1000\t1000\t1000\t1000");
        assert_eq!(status["Gid"], "1000\t1000\t1000\t1000");
        assert_eq!(status["NoNewPrivs"], "1");
        assert_eq!(status["Seccomp"], "2");
        assert_eq!(
            status["Groups"].as_str().unwrap().replace("1000", "").trim(),
            "",
            "none of the user's groups"
        );
    }
    let python = Installed::new(Bundle::python());
    python.python("import os; os.setuid(0)").denied(&[Errno::EINVAL, Errno::EPERM]);
    python.python("import os; os.setgroups([0])").denied(&[Errno::EPERM, Errno::EINVAL]);
    python.python("import os; os.chroot('/tmp')").denied(&[Errno::EPERM]);
    python.python("import os; os.setuid(1000)").allowed();
}

#[test]
fn a_setuid_program_gives_nothing() {
    let setuid = "import os, stat, subprocess\n\
                  found = [f'/usr/bin/{name}' for name in os.listdir('/usr/bin')]\n\
                  result = [path for path in found if os.lstat(path).st_mode & stat.S_ISUID]";
    let plugin = Installed::new(Bundle::python());
    let found = plugin.python(setuid);
    let found = found.allowed().as_array().unwrap();
    assert!(!found.is_empty(), "this machine has some");
    let line = "import subprocess; result = subprocess.run(['/bin/sh', '-c', 'grep NoNewPrivs /proc/self/status; id -u'], \
                capture_output=True, text=True).stdout";
    assert_eq!(plugin.python(line).allowed(), "NoNewPrivs:\t1\n1000\n", "it is inherited by every program");
}

#[test]
fn the_hosts_name_is_hidden() {
    let plugin = Installed::new(Bundle::python());
    assert_eq!(plugin.python("import socket; result = socket.gethostname()").allowed(), "plugin");
    assert_ne!(fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim(), "plugin");
    plugin.python("import socket; socket.sethostname('other')").denied(&[Errno::EPERM]);
    plugin.python("result = open('/etc/machine-id').read()").denied(&[Errno::ENOENT]);
    assert_eq!(
        plugin.python("import socket; result = socket.gethostbyname('plugin')").allowed(),
        "127.0.0.1"
    );
}

/// Other users of the machine see command lines, and a variable's value is none of their business.
#[test]
fn granted_values_stand_in_no_command_line() {
    let value = environment_of(&main_pid("plugind.service"))["INVOCATION_ID"].clone();
    let bundle = Bundle::hostile().asking(json!({"env": ["INVOCATION_ID"]}));
    let plugin = Installed::new(bundle);
    plugin.permit("grant", &["env:INVOCATION_ID"]).success();
    assert_eq!(plugin.probe(&what("environ")).allowed()["INVOCATION_ID"], value);
    let lines = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let line = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    let telling: Vec<String> = lines.filter(|line| line.contains(&value)).collect();
    assert!(telling.is_empty(), "{telling:?}");
}
