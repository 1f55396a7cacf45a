//! The stage's test user, and commands that run as it.

use std::process::Command;

use nix::unistd::User;

/// The name of the test user.
pub const NAME: &str = "tester";

/// The test user's entry in the stage's user database.
///
/// # Panics
/// Outside the stage, with what to do.
#[must_use]
pub fn tester() -> User {
    let user = User::from_name(NAME).ok().flatten();
    let booted = std::path::Path::new("/run/systemd/system").exists();
    match user {
        Some(user) if booted && nix::unistd::geteuid().is_root() => user,
        _ => panic!("this test needs the stage: run it with `make stage-test`"),
    }
}

/// The user's runtime directory.
#[must_use]
pub fn runtime_dir() -> String {
    format!("/run/user/{}", tester().uid)
}

/// A command that runs as the test user, in a clean login environment.
#[must_use]
pub fn as_tester(program: &str) -> Command {
    as_tester_through(&[], program)
}

/// The same, started through other programs that run as root, e.g. `unshare --mount`.
#[must_use]
pub fn as_tester_through(outer: &[&str], program: &str) -> Command {
    let user = tester();
    let mut words: Vec<String> = outer.iter().map(|&word| word.to_owned()).collect();
    let (uid, gid) = (user.uid.to_string(), user.gid.to_string());
    words.extend(["setpriv", "--reuid", &uid, "--regid", &gid, "--init-groups", "--"].map(str::to_owned));
    words.push(program.to_owned());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env_clear();
    command.env("HOME", &user.dir).env("USER", NAME).env("LOGNAME", NAME).env("LANG", "C.UTF-8");
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    command.env("XDG_RUNTIME_DIR", runtime_dir());
    command.env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}/bus", runtime_dir()));
    command.current_dir(&user.dir);
    command
}
