//! Files that are swapped between their verification and their use: what answers is always what was verified, or
//! nothing answers.
#![cfg(feature = "stage")]

use std::fs::{self, Permissions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use plugind_integration::{Bundle, Plugind};
use plugind_protocol::{Error, Kind};
use serde_json::{Value, json};

const STARTS: usize = 50;

/// What the verified program answers `sleep` with, and the other one.
const GOOD: &[u8] = b"slept_ms";
const EVIL: &[u8] = b"SWAPPED!";

/// Does something again and again beside the work, in turn, until the work is done.
fn beside<T>(swap: impl Fn() + Send + Sync, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                swap();
            }
        });
        // Also when the work panics, or the scope would wait for ever.
        let guard = Done(&done);
        let outcome = work();
        drop(guard);
        outcome
    })
}

struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn exchange(one: &Path, other: &Path) {
    renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE).expect("an exchange");
}

/// The same program with another answer.
fn evil(program: &[u8]) -> Vec<u8> {
    let mut evil = program.to_vec();
    let places: Vec<usize> =
        (0..evil.len() - GOOD.len()).filter(|&at| evil[at..].starts_with(GOOD)).collect();
    assert!(!places.is_empty(), "the program holds the text of its answer");
    for at in places {
        evil[at..at + EVIL.len()].copy_from_slice(EVIL);
    }
    evil
}

/// Where the store keeps a plugin's bundle.
fn stored(plugind: &Plugind, name: &str) -> PathBuf {
    let digest = plugind.status(name)["digest"].as_str().expect("a digest").replace(':', "-");
    plugind.state().join("store").join(digest)
}

/// Starts the plugin anew and has it answer; `true` if it was the verified one, `false` if the start was refused.
fn one_start(plugind: &Plugind, bundle: &Bundle, command: &str, good: &Value) -> bool {
    let outcome = plugind.call(bundle, command, &json!({"ms": 0}));
    let answered = if outcome.code == Some(0) {
        assert_eq!(&outcome.json(), good, "the other one answered");
        true
    } else {
        let error = outcome.error();
        assert!(is_refusal(&error), "{error:?}");
        false
    };
    plugind.ctl(&["stop", bundle.name()]).success();
    answered
}

/// A swapped program is found by its digest; one that is written to in this moment cannot even be executed.
fn is_refusal(error: &Error) -> bool {
    error.kind == Kind::DigestMismatch
        || error.kind == Kind::SandboxDenied && error.message.contains("is open for writing")
}

/// Many starts while `swap` goes on; afterwards, with everything as it was, the plugin runs.
fn start_often(
    plugind: &Plugind,
    bundle: &Bundle,
    command: &str,
    good: &Value,
    swap: impl Fn() + Send + Sync,
) {
    let answers = beside(swap, || (0..STARTS).filter(|_| one_start(plugind, bundle, command, good)).count());
    println!("{answers} of {STARTS} starts were answered");
    assert!(one_start(plugind, bundle, command, good), "it is as it was");
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn a_program_that_is_exchanged_in_the_store_never_answers() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let program = stored(&plugind, bundle.name()).join("bin/hostile-plugin");
    let other = plugind.state().join("other");
    fs::write(&other, evil(&fs::read(&program).unwrap())).unwrap();
    fs::set_permissions(&other, Permissions::from_mode(0o555)).unwrap();
    start_often(&plugind, &bundle, "sleep", &json!({"slept_ms": 0}), || {
        exchange(&program, &other);
        exchange(&program, &other);
    });
}

#[test]
fn a_program_that_is_written_to_in_the_store_never_answers() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let program = stored(&plugind, bundle.name()).join("bin/hostile-plugin");
    let content = fs::read(&program).unwrap();
    let other = evil(&content);
    let at = content.iter().zip(&other).position(|(good, evil)| good != evil).unwrap();
    let write = |from: &[u8]| {
        let mut file = fs::File::options().write(true).open(&program).unwrap();
        file.seek(SeekFrom::Start(at as u64))
            .and_then(|_| file.write_all(&from[at..at + EVIL.len()]))
            .unwrap();
    };
    // In place, so that neither name nor inode changes; the mode is no obstacle to root.
    for _ in 0..10 {
        write(&other);
        plugind.call(&bundle, "sleep", &json!({"ms": 0})).fails(Kind::DigestMismatch);
        write(&content);
        assert_eq!(plugind.call(&bundle, "sleep", &json!({"ms": 0})).json(), json!({"slept_ms": 0}));
        // While it runs the kernel lets nobody write to it.
        assert!(fs::File::options().write(true).open(&program).is_err());
        plugind.ctl(&["stop", bundle.name()]).success();
    }
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn a_folder_that_is_exchanged_in_the_store_never_answers() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let folder = stored(&plugind, bundle.name());
    let program = fs::read(folder.join("bin/hostile-plugin")).unwrap();
    let other = Bundle::hostile().manifest(|manifest| manifest["name"] = bundle.name().into()).file(
        "bin/hostile-plugin",
        &evil(&program),
        0o755,
    );
    let beside = plugind.state().join("other");
    fs::rename(other.path(), &beside).unwrap();
    start_often(&plugind, &bundle, "sleep", &json!({"slept_ms": 0}), || {
        exchange(&folder, &beside);
        exchange(&folder, &beside);
    });
}

/// A script is not executed from the descriptor that was hashed: its interpreter opens it by name.
#[test]
fn a_script_that_is_exchanged_in_the_store_never_answers() {
    let plugind = Plugind::new();
    let script = |answer: &str| SCRIPT.replace("ANSWER", answer);
    let bundle = Bundle::hostile().file("main.py", script("good").as_bytes(), 0o644).manifest(|manifest| {
        manifest["exec"] = json!(["/usr/bin/python3", "main.py"]);
        manifest["runtime"] = "system".into();
    });
    plugind.ctl(&["install", "--enable", bundle.path()]).success();
    let stored = stored(&plugind, bundle.name()).join("main.py");
    let other = plugind.state().join("other");
    fs::write(&other, script("evil")).unwrap();
    fs::set_permissions(&other, Permissions::from_mode(0o444)).unwrap();
    start_often(&plugind, &bundle, "sleep", &json!("good"), || {
        exchange(&stored, &other);
        exchange(&stored, &other);
    });
}

const SCRIPT: &str = r#"
import hashlib, json, sys
manifest = json.load(open("plugin.json"))
canonical = json.dumps(manifest["commands"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
own = {key: manifest[key] for key in ("protocol", "name", "version")}
own["commands_digest"] = hashlib.sha256(canonical.encode()).hexdigest()
for line in sys.stdin:
    frame = json.loads(line)
    if "id" in frame:
        result = own if frame["method"] == "initialize" else "ANSWER"
        print(json.dumps({"jsonrpc": "2.0", "id": frame["id"], "result": result}), flush=True)
        if frame["method"] == "shutdown":
            break
"#;

#[test]
fn a_source_that_is_exchanged_during_the_install_never_becomes_another_bundle() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    let program = Path::new(bundle.path()).join("bin/hostile-plugin");
    let content = fs::read(&program).unwrap();
    let place = Bundle::of(&json!({"name": "none"})).file("other", &evil(&content), 0o755);
    let other = Path::new(place.path()).join("other");
    let digest = plugind.ctl(&["verify", bundle.path()]).json()["digest"].as_str().unwrap().to_owned();
    let mut installed = 0;
    beside(
        || {
            exchange(&program, &other);
            exchange(&program, &other);
        },
        || {
            for _ in 0..STARTS {
                let outcome = plugind.ctl(&["install", "--enable", bundle.path(), "--digest", &digest]);
                if outcome.code == Some(0) {
                    installed += 1;
                    assert!(one_start(&plugind, &bundle, "sleep", &json!({"slept_ms": 0})));
                    plugind.ctl(&["remove", bundle.name()]).success();
                } else {
                    let error = outcome.error();
                    let changed = error.message.contains("changed while it was read");
                    assert!(error.kind == Kind::DigestMismatch || changed, "{error:?}");
                }
            }
        },
    );
    println!("{installed} of {STARTS} installs were done");
    plugind.unharmed();
}
