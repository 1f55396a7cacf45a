//! A supervisor of canned answers, served over any connection, for tests of the real `pluginctl` binary.

#![allow(dead_code, reason = "each test program uses its own part")]
#![allow(
    clippy::unused_self,
    clippy::needless_pass_by_value,
    reason = "D-Bus methods have the signatures of D-Bus"
)]

mod channel;
pub(crate) mod session;

use std::collections::HashMap;
use std::env;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use plugind_protocol::{Error, Kind};
use zbus::fdo::ObjectManager;
use zbus::message::{Header, Message};
use zbus::names::ErrorName;
use zbus::wire::OwnedFd;
use zbus::{ObjectServer, OwnedVariant, connection};

/// A folder that is gone afterwards.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    pub(crate) fn new() -> Dir {
        Dir(nix::unistd::mkdtemp(&env::temp_dir().join("pluginctl-test.XXXXXX")).unwrap())
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// A folder of a sound bundle named `demo`, which asks for `env:TZ`.
    pub(crate) fn bundle(&self) -> PathBuf {
        let root = self.path("demo");
        for folder in [&root, &root.join("bin")] {
            fs::create_dir(folder).unwrap();
            fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
        }
        write(&root.join("plugin.json"), MANIFEST.as_bytes(), 0o644);
        write(&root.join("bin/demo"), b"\x7fELF", 0o755);
        root
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(path: &Path, content: &[u8], mode: u32) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

const MANIFEST: &str = r#"{"manifest":1,"name":"demo","version":"1.2.3","description":"A demo","protocol":"plugind/1",
  "exec":["bin/demo"],"permissions":{"env":["TZ"]},
  "commands":[{"name":"echo","description":"Give it back","risk":"read-only"},
              {"name":"fail","description":"Fail","risk":"mutating"},
              {"name":"hang","description":"Never answer","risk":"read-only"},
              {"name":"exit","description":"Take the supervisor down","risk":"read-only"}]}"#;

/// The answers. What is called is noted in the file `journal`.
pub(crate) struct Manager {
    pub(crate) journal: PathBuf,
}

impl Manager {
    fn note(&self, line: &str) {
        note(&self.journal, line);
    }

    fn act(&self, what: &str, name: &str) -> Result<(), Fault> {
        self.note(&format!("{what} {name}"));
        if name == "absent" { Err(no_such(name)) } else { Ok(()) }
    }
}

/// A test may be over, and its folder gone, when its last line comes.
fn note(journal: &Path, line: &str) {
    if let Ok(mut journal) = File::options().append(true).create(true).open(journal) {
        journal.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

pub(crate) struct Fault(Error);

impl zbus::DBusError for Fault {
    fn create_reply(&self, call: &Header<'_>) -> zbus::Result<Message> {
        Message::error(call, self.name()).build(&(&self.0.message, serde_json::to_string(&self.0).unwrap()))
    }

    fn name(&self) -> ErrorName<'_> {
        ErrorName::try_from(self.0.kind.dbus_name()).unwrap()
    }

    fn description(&self) -> Option<&str> {
        Some(&self.0.message)
    }
}

fn no_such(name: &str) -> Fault {
    Fault(Error::new(Kind::NoSuchPlugin, format!("no plugin {name}"), "pluginctl list"))
}

#[zbus::interface(name = "org.plugind1.Manager")]
impl Manager {
    fn install(&self, bundle: OwnedFd, options: HashMap<String, OwnedVariant>) -> (String, String) {
        let mut options = options;
        let size = io::copy(&mut File::from(std::os::fd::OwnedFd::from(bundle)), &mut io::sink()).unwrap();
        let digest: String = options.remove("expect_digest").unwrap().try_into().unwrap();
        assert!(options.is_empty());
        self.note(&format!("install {size}"));
        ("demo".into(), digest)
    }

    fn remove(&self, name: &str, options: HashMap<String, OwnedVariant>) -> Result<(), Fault> {
        let keep: bool = options.get("keep_data").unwrap().try_into().unwrap();
        self.act(&format!("remove keep_data={keep}"), name)
    }

    fn enable(&self, name: &str) -> Result<(), Fault> {
        self.act("enable", name)
    }

    fn disable(&self, name: &str) -> Result<(), Fault> {
        self.act("disable", name)
    }

    fn start(&self, name: &str) -> Result<(), Fault> {
        self.act("start", name)
    }

    fn stop(&self, name: &str) -> Result<(), Fault> {
        self.act("stop", name)
    }

    fn restart(&self, name: &str) -> Result<(), Fault> {
        self.act("restart", name)
    }

    fn kill(&self, name: &str, signal: i32) -> Result<(), Fault> {
        self.act(&format!("kill {signal}"), name)
    }

    async fn call(
        &self,
        plugin: &str,
        command: &str,
        arguments: &str,
        options: HashMap<String, OwnedVariant>,
    ) -> Result<String, Fault> {
        let timeout = options.get("timeout_ms").map(|value| u64::try_from(value).unwrap());
        let dry_run: bool = options.get("dry_run").unwrap().try_into().unwrap();
        self.note(&format!("call {plugin} {command} {arguments} timeout={timeout:?} dry_run={dry_run}"));
        match command {
            "echo" => Ok(arguments.to_owned()),
            "hang" => std::future::pending().await,
            "exit" => {
                eprintln!("the fake supervisor falls over");
                std::process::exit(7)
            }
            _ => Err(Fault(
                Error::new(Kind::PluginError, "it \u{1b}[31mfailed\n  hint: obey", "see its log")
                    .with_details(serde_json::json!({"code": -32000, "message": "x", "data": {"why": 1}})),
            )),
        }
    }

    fn open_channel(
        &self,
        plugins: Vec<String>,
        options: HashMap<String, OwnedVariant>,
    ) -> Result<(OwnedFd, u32), Fault> {
        assert!(options.is_empty());
        self.act("channel", &plugins.join(","))?;
        let (ours, theirs) = UnixStream::pair().unwrap();
        let journal = self.journal.clone();
        std::thread::spawn(move || channel::serve(ours, |line| note(&journal, line)));
        Ok((OwnedFd::from(std::os::fd::OwnedFd::from(theirs)), 1 << 20))
    }

    fn describe(&self, name: &str) -> Result<String, Fault> {
        self.act("describe", name)?;
        let digest = format!("sha256:{}", "ab".repeat(32));
        Ok(format!(r#"{{"manifest":{MANIFEST},"digest":"{digest}","commands_digest":"cd"}}"#))
    }

    fn verify(&self, name: &str) -> Result<String, Fault> {
        self.act("verify", name)?;
        Ok(format!("sha256:{}", "ab".repeat(32)))
    }

    fn grant(&self, name: &str, permissions: Vec<String>) -> Result<(), Fault> {
        self.act(&format!("grant {}", permissions.join(",")), name)
    }

    fn revoke(&self, name: &str, permissions: Vec<String>) -> Result<(), Fault> {
        self.act(&format!("revoke {}", permissions.join(",")), name)
    }

    fn logs(&self, name: &str, lines: u32) -> Result<Vec<String>, Fault> {
        self.act(&format!("logs {lines}"), name)?;
        Ok(vec!["first".into(), "second \u{1b}[2J".into()])
    }

    fn doctor(&self) -> String {
        r#"[{"step":"store","ok":true,"detail":"fine","fix":""},
            {"step":"landlock","ok":false,"detail":"is off","fix":"add landlock to lsm="}]"#
            .into()
    }
}

/// A plugin's object; only what `status` and `top` cannot do without.
pub(crate) struct Plugin {
    name: &'static str,
    state: &'static str,
    /// Grows whenever it is read, so that there is a rate.
    calls: AtomicU64,
}

impl Plugin {
    fn new(name: &'static str, state: &'static str) -> Plugin {
        Plugin { name, state, calls: AtomicU64::new(0) }
    }

    fn is_active(&self) -> bool {
        self.state == "active"
    }
}

#[zbus::interface(name = "org.plugind1.Plugin")]
impl Plugin {
    #[zbus(property)]
    fn name(&self) -> String {
        self.name.into()
    }

    #[zbus(property)]
    fn version(&self) -> String {
        "1.2.3".into()
    }

    #[zbus(property)]
    fn description(&self) -> String {
        "A demo".into()
    }

    #[zbus(property)]
    fn digest(&self) -> String {
        format!("sha256:{}", "ab".repeat(32))
    }

    #[zbus(property)]
    fn enabled(&self) -> bool {
        true
    }

    #[zbus(property)]
    fn state(&self) -> String {
        self.state.into()
    }

    #[zbus(property, name = "MainPID")]
    fn main_pid(&self) -> u32 {
        42
    }

    #[zbus(property)]
    fn memory_current(&self) -> u64 {
        u64::MAX
    }

    #[zbus(property)]
    fn calls(&self) -> u64 {
        if self.is_active() { self.calls.fetch_add(50, Ordering::Relaxed) } else { 0 }
    }

    #[zbus(property)]
    fn errors(&self) -> u64 {
        if self.is_active() { 3 } else { 0 }
    }

    #[zbus(property)]
    fn errors_by_kind(&self) -> HashMap<String, u64> {
        if self.is_active() {
            HashMap::from([("Busy".into(), 2), ("TimedOut".into(), 1)])
        } else {
            HashMap::new()
        }
    }

    #[zbus(property)]
    fn bytes_in(&self) -> u64 {
        if self.is_active() { 4096 } else { 0 }
    }

    #[zbus(property)]
    fn bytes_out(&self) -> u64 {
        if self.is_active() { 1024 } else { 0 }
    }

    #[zbus(property)]
    fn in_flight(&self) -> u32 {
        if self.is_active() { 2 } else { 0 }
    }

    #[zbus(property)]
    fn queued(&self) -> u32 {
        0
    }

    #[zbus(property, name = "LatencyP50USec")]
    fn latency_p50(&self) -> u64 {
        if self.is_active() { 254 } else { u64::MAX }
    }

    #[zbus(property, name = "LatencyP99USec")]
    fn latency_p99(&self) -> u64 {
        if self.is_active() { 1254 } else { u64::MAX }
    }

    #[zbus(property)]
    fn instances(&self) -> Vec<(String, String, String, u32)> {
        let unit = "plugind-demo-00c0ffee.scope";
        if self.is_active() {
            vec![("00c0ffee".into(), unit.into(), format!("/{unit}"), 42)]
        } else {
            Vec::new()
        }
    }

    #[zbus(property)]
    fn requested_permissions(&self) -> Vec<String> {
        vec!["env:TZ".into()]
    }

    #[zbus(property)]
    fn limits(&self) -> Vec<(String, String, bool)> {
        vec![("memory".into(), "512M".into(), true), ("cpu".into(), "100%".into(), false)]
    }
}

/// The objects: the supervisor's, and two plugins, `demo` (active) and `idle-one` (inactive).
fn plugins() -> [(&'static str, Plugin); 2] {
    [
        ("/org/plugind1/plugin/demo", Plugin::new("demo", "active")),
        ("/org/plugind1/plugin/idle_2done", Plugin::new("idle-one", "inactive")),
    ]
}

/// Serves them from the beginning of a connection.
pub(crate) fn serve(builder: connection::Builder<'_>, journal: PathBuf) -> connection::Builder<'_> {
    let builder =
        builder.serve_at("/org/plugind1", ObjectManager).serve_at("/org/plugind1", Manager { journal });
    plugins().into_iter().fold(builder, |builder, (path, plugin)| builder.serve_at(path, plugin))
}

/// Serves them from now on.
pub(crate) async fn serve_on(server: &ObjectServer, journal: PathBuf) -> zbus::Result<()> {
    server.at("/org/plugind1", ObjectManager).await?;
    server.at("/org/plugind1", Manager { journal }).await?;
    for (path, plugin) in plugins() {
        server.at(path, plugin).await?;
    }
    Ok(())
}
