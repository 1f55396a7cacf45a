//! Processes: whom a plugin sees and reaches, and what is left when it stops.
#![cfg(feature = "stage")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use nix::errno::Errno;
use plugind_integration::installed::Process;
use plugind_integration::{Bundle, Installed, Outcome, Outside, Report, ctl, run, scopes, until, user};
use plugind_protocol::Kind;
use serde_json::{Value, json};

fn read(path: &str) -> Value {
    json!({"what": "read-path", "path": path})
}

fn service_pid(unit: &str) -> u64 {
    let words = ["--user", "show", "--property", "MainPID", "--value", unit];
    let output = user::as_tester("systemctl").args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn only_the_sandboxs_own_processes_are_seen() {
    let plugin = Installed::new(Bundle::hostile());
    assert_eq!(
        plugin.probe(&json!({"what": "proc-pids"})).allowed(),
        &json!({"1": "bwrap", "2": "hostile-plugin"})
    );
    let outside = Outside::tester().probe(&json!({"what": "proc-pids"})).allowed().clone();
    assert!(outside.as_object().unwrap().values().any(|name| name == "systemd"), "{outside}");
}

#[test]
fn the_supervisors_environment_is_not_there() {
    let plugin = Installed::new(Bundle::hostile());
    let outside = Outside::tester();
    for unit in ["plugind.service", "plugind-launcher.service"] {
        let folder = format!("/proc/{}", service_pid(unit));
        let environ = read(&format!("{folder}/environ"));
        assert!(outside.probe(&environ).allowed().as_str().unwrap().contains("INVOCATION_ID="));
        plugin.probe(&environ).denied(&[Errno::ENOENT]);
        plugin.probe(&json!({"what": "list-dir", "path": folder})).denied(&[Errno::ENOENT]);
    }
    assert!(plugin.probe(&read("/proc/self/environ")).allowed().as_str().unwrap().contains("PLUGIND_NAME="));
}

/// bubblewrap's process 1 has the same user, and neither the plugin's filter nor its rules: only Landlock keeps the
/// plugin from it.
#[test]
fn landlock_alone_keeps_process_1_of_the_sandbox_closed() {
    let plugin = Installed::new(Bundle::hostile());
    plugin.call("echo", &json!(1)).success();
    let status = std::fs::read_to_string(format!("/proc/{}/status", plugin.pid())).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim();
    assert_eq!(Process::find(parent.parse().unwrap()).unwrap().name, "bwrap");
    let maps = read(&format!("/proc/{parent}/maps"));
    Outside::tester().probe(&maps).allowed();
    for file in ["environ", "maps", "fd/0"] {
        plugin.probe(&read(&format!("/proc/1/{file}"))).denied(&[Errno::EACCES]);
    }
    for link in ["root", "cwd"] {
        let path = format!("/proc/1/{link}");
        plugin.probe(&json!({"what": "list-dir", "path": path})).denied(&[Errno::EACCES]);
    }
    plugin.probe(&json!({"what": "write-path", "path": "/proc/1/mem"})).denied(&[Errno::EACCES]);
    for file in ["environ", "maps"] {
        plugin.probe(&read(&format!("/proc/self/{file}"))).allowed();
    }
}

#[test]
fn processes_of_the_host_cannot_be_signalled() {
    let plugin = Installed::new(Bundle::hostile());
    let outside = Outside::tester();
    let signal = |pid: u64, signal: i32| json!({"what": "signal", "pid": pid, "signal": signal});
    for unit in ["plugind.service", "plugind-launcher.service"] {
        outside.probe(&signal(service_pid(unit), 0)).allowed();
        plugin.probe(&signal(service_pid(unit), 0)).denied(&[Errno::ESRCH]);
    }
    // Process 1 of its own sandbox: nothing but Landlock's scope refuses that.
    let report = plugin.probe(&signal(1, 9));
    if plugin.landlock_abi() >= 6 {
        report.denied(&[Errno::EPERM]);
    } else {
        report.allowed();
    }
    plugin.probe(&signal(2, 0)).allowed();
    assert_eq!(plugin.call("echo", &json!(1)).json(), 1);

    // "Everybody" is everybody in the sandbox.
    let python = Installed::new(Bundle::python());
    let witnesses =
        ["plugind.service", "plugind-launcher.service"].map(|unit| Process::find(service_pid(unit)).unwrap());
    let ended = python.python(
        "import os, signal\n\
         child = os.fork()\n\
         while child == 0: signal.pause()\n\
         os.kill(-1, signal.SIGKILL)\n\
         result = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])",
    );
    assert_eq!(ended.allowed(), &json!(-9), "its own child");
    assert!(witnesses.iter().all(Process::is_alive), "{witnesses:?}");
}

#[test]
fn other_processes_cannot_be_traced() {
    let trace = json!({"what": "ptrace"});
    let outside = Outside::tester().probe(&trace).allowed().clone();
    assert_eq!(outside["traceme"], Value::Null, "outside it can");
    let plugin = Installed::new(Bundle::hostile());
    plugin.probe(&trace).denied(&[Errno::EPERM]);
    for name in ["process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise"] {
        plugin.probe(&json!({"what": "syscall", "name": name})).denied(&[Errno::EPERM]);
    }
    let python = Installed::new(Bundle::python());
    python
        .python("import os; child = os.fork() or os._exit(7); result = os.waitpid(child, 0)[1] >> 8")
        .allowed();
}

#[test]
fn shared_memory_of_the_host_is_not_there() {
    let plugin = Installed::new(Bundle::python());
    let made = Outcome::of(user::as_tester("ipcmk").args(["--shmem", "4096"]));
    made.success();
    let id = made.stdout.trim().rsplit(' ').next().unwrap().to_owned();
    let listed = |text: &str| text.lines().skip(1).any(|line| line.split_whitespace().nth(1) == Some(&id));
    let outside = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let inside = plugin.python("result = open('/proc/sysvipc/shm').read()");
    Outcome::of(user::as_tester("ipcrm").args(["--shmem-id", &id])).success();
    assert!(listed(&outside), "{outside}");
    assert_eq!(inside.allowed().as_str().unwrap().lines().count(), 1, "nothing but the heading: {inside:?}");
    let own = "segment = libc.shmget(0, 4096, 0o1600)\n\
               result = len(open('/proc/sysvipc/shm').readlines())";
    assert_eq!(plugin.python(own).allowed(), &json!(2));
}

/// Leaves orphans of every kind behind and gives all the processes of the scope.
fn with_orphans(plugin: &Installed) -> Vec<Process> {
    for (setsid, double_fork, stop, hold_stdout) in [
        (true, true, false, false),
        (true, true, true, false),
        (true, true, false, true),
        (true, true, true, true),
        (false, false, true, true),
    ] {
        let how = json!({"setsid": setsid, "double_fork": double_fork, "stop": stop, "hold_stdout": hold_stdout,
                         "count": 3});
        plugin.call("spawn-orphan", &how).success();
    }
    let stopped = |processes: &[Process]| {
        processes.iter().filter(|process| process.name == "orphan" && process.state == 'T').count()
    };
    until("the orphans have stopped themselves", || {
        let processes = plugin.processes();
        (stopped(&processes) == 9).then_some(processes)
    })
}

/// Process 1 of a sandbox, bubblewrap, has left the cgroup while it still waits for its own children.
#[track_caller]
fn assert_gone(processes: &[Process]) {
    let (inits, others): (Vec<&Process>, Vec<_>) =
        processes.iter().partition(|process| process.name == "bwrap");
    let left: Vec<&Process> = others.into_iter().filter(|process| process.is_alive()).collect();
    assert!(left.is_empty(), "left: {left:?}");
    until("process 1 of the sandbox has ended", || {
        (!inits.iter().any(|process| process.is_alive())).then_some(())
    });
}

#[test]
fn stop_returns_when_nothing_is_left_whatever_hid_or_stopped_itself() {
    let plugin = Installed::new(Bundle::hostile());
    let processes = with_orphans(&plugin);
    let orphans = processes.iter().filter(|process| process.name == "orphan").count();
    assert_eq!(orphans, 15, "{processes:?}");
    assert!(processes.iter().all(Process::is_alive));
    ctl(&["stop", plugin.name()]).success();
    assert_gone(&processes);
    assert_eq!(plugin.status()["state"], "inactive");
    scopes::none_left(plugin.name());
    assert_eq!(plugin.call("echo", &json!(1)).json(), 1, "it can be started again");
}

#[test]
fn a_plugin_that_is_deaf_to_shutdown_and_sigterm_is_stopped_with_its_orphans() {
    let plugin = Installed::new(Bundle::hostile().mode("stubborn"));
    let processes = with_orphans(&plugin);
    ctl(&["stop", plugin.name()]).success();
    assert_gone(&processes);
    scopes::none_left(plugin.name());
}

#[test]
fn orphans_that_hold_stdout_do_not_outlive_a_crash() {
    let plugin = Installed::new(Bundle::hostile());
    let processes = with_orphans(&plugin);
    let error = plugin.call("exit", &json!({"code": 3})).fails(Kind::Crashed);
    assert_eq!(error.details["exit_code"], 3, "{error:?}");
    assert_gone(&processes);
    scopes::none_left(plugin.name());
    assert_eq!(plugin.call("echo", &json!(1)).json(), 1);
}

#[test]
fn disabling_revoking_and_removing_end_orphans_too() {
    let bundle = Bundle::hostile().asking(json!({"env": ["LOGNAME"]}));
    let plugin = Installed::new(bundle);
    plugin.permit("grant", &["env:LOGNAME"]).success();
    for words in [
        vec!["revoke", plugin.name(), "env:LOGNAME"],
        vec!["disable", plugin.name()],
        vec!["remove", plugin.name()],
    ] {
        let processes = with_orphans(&plugin);
        assert!(processes.iter().all(Process::is_alive));
        ctl(&words).success();
        assert_gone(&processes);
        if words[0] == "disable" {
            ctl(&["enable", plugin.name()]).success();
        }
    }
    scopes::none_left(plugin.name());
}

#[test]
fn an_ephemeral_run_leaves_nothing() {
    let bundle = Bundle::hostile();
    let how = json!({"setsid": true, "double_fork": true, "stop": true, "hold_stdout": true, "count": 5});
    let pids = run(&bundle, "spawn-orphan", &how).json();
    assert_eq!(pids["pids"].as_array().unwrap().len(), 5);
    scopes::none_left(bundle.name());
    let mine = |name: &str| {
        std::fs::read_dir(name).unwrap().flatten().map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    let left: Vec<_> = mine("/proc")
        .into_iter()
        .filter_map(|name| std::fs::read_to_string(format!("/proc/{}/cgroup", name.to_str()?)).ok())
        .filter(|cgroup| cgroup.contains(&format!("plugind-{}-", bundle.name())))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    Report::of(&run(&bundle, "probe", &json!({"what": "threads"}))).allowed();
}
