//! The bubblewrap program: is it one that may be trusted, and the arguments that make a plugin's root.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use plugind_protocol::{Error, Kind};
use tokio::process::Command;
use tokio::time::timeout;

use crate::content::Content;

/// The distribution's bubblewrap; never searched in `PATH`.
pub(crate) const PATH: &str = "/usr/bin/bwrap";

/// Where the helper stands inside; Landlock keeps the plugin from running it again.
pub(crate) const HELPER: &str = "/run/plugind/enter";

/// It prints a line and ends.
const VERSION_DEADLINE: Duration = Duration::from_secs(5);

/// The user and group that a plugin sees itself as.
const UID: &str = "1000";

/// The synthesised files of `/etc`.
const FILES: [(&str, &str); 4] = [
    ("/etc/passwd", "root:x:0:0:root:/:/bin/false\nplugin:x:1000:1000:plugin:/data:/bin/false\n"),
    ("/etc/group", "root:x:0:\nplugin:x:1000:\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n"),
    ("/etc/hosts", "127.0.0.1 localhost plugin\n::1 localhost plugin\n"),
];

/// Names beside `/usr` that programs of it use.
const ROOT_NAMES: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What of the host's `/etc` a plugin with the host's network needs; absent ones are left out.
const NETWORK_FILES: [&str; 4] =
    ["/etc/resolv.conf", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/services"];

/// A plugin's root, as the launcher worked it out.
pub(crate) struct Root<'a> {
    pub(crate) bundle: &'a Path,
    /// The bundle's files, where they are shown from memory instead of its folder.
    pub(crate) contents: &'a [Content],
    pub(crate) data: &'a Path,
    pub(crate) helper: &'a Path,
    pub(crate) usr: bool,
    pub(crate) network: bool,
    pub(crate) tmp_size: u64,
    /// Host path, path inside, writable.
    pub(crate) mounts: Vec<(PathBuf, PathBuf, bool)>,
    pub(crate) env: Vec<(String, String)>,
}

/// bubblewrap's arguments, and the files that they name by number and that must be inherited.
///
/// All but the first two are in a file: everybody can read a command line, the plugin's own `/proc/1/cmdline` included,
/// and these name the host's folders and the values of granted variables.
pub(crate) struct Arguments {
    pub(crate) argv: [OsString; 3],
    files: Vec<OwnedFd>,
}

impl Root<'_> {
    /// The arguments up to `--`.
    ///
    /// Every namespace is named: `--unshare-all` means the `-try` forms for user and cgroup namespaces, which silently
    /// weaken where they are refused. No `--die-with-parent`: it is bound to a thread and eats the plugin's SIGTERM;
    /// the scope's cgroup is the kill switch.
    pub(crate) fn arguments(&self) -> io::Result<Arguments> {
        let mut argv = Argv::default();
        for namespace in ["user", "pid", "ipc", "uts", "cgroup"] {
            argv.flag(&format!("--unshare-{namespace}"));
        }
        if !self.network {
            argv.flag("--unshare-net");
        }
        argv.flag("--disable-userns");
        argv.flag("--new-session");
        argv.flag("--clearenv");
        argv.option("--cap-drop", ["ALL"]);
        argv.option("--uid", [UID]);
        argv.option("--gid", [UID]);
        argv.option("--hostname", ["plugin"]);
        for (name, value) in &self.env {
            argv.option("--setenv", [name, value]);
        }
        self.system(&mut argv);
        let mut files = self.etc(&mut argv)?;
        argv.option("--proc", ["/proc"]);
        argv.option("--dev", ["/dev"]);
        // Both are charged to the scope.
        let size = self.tmp_size.to_string();
        for tmpfs in ["/dev/shm", "/tmp"] {
            argv.option("--perms", ["1777"]);
            argv.option("--size", [&size]);
            argv.option("--tmpfs", [tmpfs]);
        }
        files.extend(self.plugin(&mut argv)?);
        argv.bind("--bind", self.data, Path::new("/data"));
        argv.option("--dir", ["/workspace"]);
        for (host, inside, write) in &self.mounts {
            argv.bind(if *write { "--bind" } else { "--ro-bind" }, host, inside);
        }
        argv.bind("--ro-bind", self.helper, Path::new(HELPER));
        argv.option("--remount-ro", ["/"]);
        argv.option("--chdir", ["/plugin"]);
        Arguments::new(&argv.0, files)
    }

    /// `/usr` and the names that point into it.
    fn system(&self, argv: &mut Argv) {
        if !self.usr {
            return;
        }
        argv.option("--ro-bind", ["/usr", "/usr"]);
        for name in ROOT_NAMES {
            if let Ok(target) = fs::read_link(name) {
                argv.bind("--symlink", &target, Path::new(name));
            }
        }
        for name in unmerged() {
            argv.option("--ro-bind", [name, name]);
        }
    }

    /// `/plugin`: the store's folder, or its files from memory.
    fn plugin(&self, argv: &mut Argv) -> io::Result<Vec<OwnedFd>> {
        if self.contents.is_empty() {
            argv.bind("--ro-bind", self.bundle, Path::new("/plugin"));
        }
        let mut files = Vec::new();
        for Content { path, executable, bytes } in self.contents {
            let file = in_memory(bytes)?;
            let place = Path::new("/plugin").join(path);
            argv.option("--perms", [if *executable { "0555" } else { "0444" }]);
            argv.option("--file", [&file.as_raw_fd().to_string(), &place.to_string_lossy()]);
            files.push(file);
        }
        Ok(files)
    }

    /// The synthesised `/etc`.
    fn etc(&self, argv: &mut Argv) -> io::Result<Vec<OwnedFd>> {
        let mut files = Vec::new();
        argv.option("--perms", ["0755"]);
        argv.option("--dir", ["/etc"]);
        for (path, text) in FILES {
            let file = in_memory(text.as_bytes())?;
            argv.option("--perms", ["0444"]);
            argv.option("--file", [&file.as_raw_fd().to_string(), path]);
            files.push(file);
        }
        let mut from_host = Vec::new();
        if self.usr {
            from_host.push("/etc/ld.so.cache");
        }
        if self.network {
            from_host.extend(NETWORK_FILES);
        }
        for path in from_host {
            argv.option("--ro-bind-try", [path, path]);
        }
        Ok(files)
    }
}

impl Arguments {
    fn new(options: &[OsString], mut files: Vec<OwnedFd>) -> io::Result<Arguments> {
        let mut text = Vec::new();
        for option in options {
            text.extend_from_slice(option.as_bytes());
            text.push(0);
        }
        let file = in_memory(&text)?;
        let argv = ["--args".into(), file.as_raw_fd().to_string().into(), "--".into()];
        files.push(file);
        Ok(Arguments { argv, files })
    }

    /// The descriptors that bubblewrap must inherit.
    pub(crate) fn inherited(&self) -> Vec<BorrowedFd<'_>> {
        self.files.iter().map(AsFd::as_fd).collect()
    }
}

#[derive(Default)]
struct Argv(Vec<OsString>);

impl Argv {
    fn flag(&mut self, flag: &str) {
        self.0.push(flag.into());
    }

    fn option<const N: usize>(&mut self, option: &str, values: [&str; N]) {
        self.flag(option);
        self.0.extend(values.into_iter().map(OsString::from));
    }

    fn bind(&mut self, option: &str, from: &Path, to: &Path) {
        self.flag(option);
        self.0.extend([from.into(), to.into()]);
    }
}

fn in_memory(text: &[u8]) -> io::Result<OwnedFd> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let mut file = File::from(memfd_create(c"plugind", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(text)?;
    file.rewind()?;
    Ok(file.into())
}

/// Folders that are not links into `/usr` on this machine, and are bound on their own.
pub(crate) fn unmerged() -> impl Iterator<Item = &'static str> {
    ROOT_NAMES.into_iter().filter(|name| fs::symlink_metadata(name).is_ok_and(|meta| meta.is_dir()))
}

/// What the file at [`PATH`] was when it was last found fit; looked at again when it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    inode: (u64, u64),
    changed: (i64, i64),
}

/// Checks the bubblewrap program at `path`, running `--version` only if it is not the one that `known` stands for.
pub(crate) async fn check(path: &Path, known: Option<Identity>) -> Result<Identity, Error> {
    let denied = |message: String, hint: &str| Error::new(Kind::SandboxDenied, message, hint);
    let shown = path.display();
    let meta = fs::metadata(path).map_err(|cause| {
        denied(
            format!("bubblewrap is missing: {shown}: {cause}"),
            "install it: apt install bubblewrap (or dnf install bubblewrap)",
        )
    })?;
    if !meta.is_file() || meta.mode() & 0o111 == 0 {
        return Err(denied(format!("{shown} is not a program"), "reinstall the package bubblewrap"));
    }
    if meta.mode() & 0o6000 != 0 {
        return Err(denied(
            format!(
                "{shown} is setuid: such a bubblewrap runs with root's rights, and had holes for it (CVE-2026-41163)"
            ),
            "take the bit away (chmod u-s /usr/bin/bwrap) and allow unprivileged user namespaces instead",
        ));
    }
    if meta.uid() != 0 && meta.uid() != overflow_uid() || meta.mode() & 0o022 != 0 {
        return Err(denied(
            format!(
                "{shown} can be changed by others than root (uid {}, mode {:o})",
                meta.uid(),
                meta.mode() & 0o7777
            ),
            "reinstall the package bubblewrap",
        ));
    }
    let identity = Identity { inode: (meta.dev(), meta.ino()), changed: (meta.ctime(), meta.ctime_nsec()) };
    if known == Some(identity) {
        return Ok(identity);
    }
    let run =
        Command::new(path).arg("--version").env_clear().stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(VERSION_DEADLINE, run)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(|cause| {
            denied(format!("{shown} does not run: {cause}"), "reinstall the package bubblewrap")
        })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match version(&text) {
        Some(version) if version >= (0, 8) => Ok(identity),
        _ => Err(denied(
            format!("{shown} is too old or not bubblewrap: it says {:?}", text.trim()),
            "install bubblewrap 0.8 or later: --disable-userns came with it",
        )),
    }
}

/// In a user namespace that does not map root, root's files show this owner.
fn overflow_uid() -> u32 {
    fs::read_to_string("/proc/sys/kernel/overflowuid")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(65534)
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().strip_prefix("bubblewrap ")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests;
