//! Bundles that break a rule: refused by `pluginctl` with the path that its author knows, and by the supervisor again
//! where they come past it. Nothing of a refused one is left.
#![cfg(feature = "stage")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use plugind_integration::archive::{Archive, kind};
use plugind_integration::{Bundle, Plugind, memory, until};
use plugind_protocol::Kind;
use serde_json::json;

const RAW_CALL: &str = env!("CARGO_BIN_EXE_raw-call");

const MIB: u64 = 1 << 20;

/// What a test does to a good bundle's folder, by the folder's path.
type Spoil = fn(&Path);

fn chmod(path: PathBuf, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
}

fn sparse(path: PathBuf, size: u64) {
    File::create(&path).and_then(|file| file.set_len(size)).expect("a file with a hole");
    chmod(path, 0o644);
}

#[test]
fn a_folder_with_an_entry_that_could_change_hands_is_refused() {
    let folders: &[(&str, Spoil)] = &[
        ("bin/hostile-plugin can be written by its group", |dir| {
            chmod(dir.join("bin/hostile-plugin"), 0o775);
        }),
        ("plugin.json can be written by everybody", |dir| chmod(dir.join("plugin.json"), 0o646)),
        ("bin can be written by its group", |dir| chmod(dir.join("bin"), 0o775)),
        ("bin/hostile-plugin is setuid or setgid", |dir| chmod(dir.join("bin/hostile-plugin"), 0o4755)),
        ("bin/hostile-plugin is setuid or setgid", |dir| chmod(dir.join("bin/hostile-plugin"), 0o2755)),
        ("link is a symbolic link", |dir| symlink("/etc/passwd", dir.join("link")).unwrap()),
        ("link is a symbolic link", |dir| symlink("bin", dir.join("link")).unwrap()),
        ("pipe is a named pipe", |dir| mkfifo(&dir.join("pipe"), Mode::S_IRUSR).unwrap()),
        ("null is a device", |dir| {
            mknod(&dir.join("null"), SFlag::S_IFCHR, Mode::S_IRUSR, makedev(1, 3)).unwrap();
        }),
        ("large", |dir| sparse(dir.join("large"), 256 * MIB + 1)),
        ("larger than", |dir| (0..3).for_each(|n| sparse(dir.join(format!("part-{n}")), 200 * MIB))),
        ("more than 4096 files", |dir| (0..4100).for_each(|n| sparse(dir.join(format!("f{n}")), 0))),
        ("has more than 16 components", |dir| fs::create_dir_all(dir.join("d/".repeat(17))).unwrap()),
    ];
    let plugind = Plugind::new();
    for (said, spoil) in folders {
        let bundle = Bundle::hostile();
        spoil(Path::new(bundle.path()));
        for verb in ["install", "verify", "pack"] {
            let error = plugind.ctl(&[verb, bundle.path()]).fails(Kind::InvalidManifest);
            assert!(error.message.contains(said), "{said}: {error:?}");
        }
    }
    plugind.unharmed();
}

#[test]
fn a_folder_with_files_of_another_user_is_refused() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    nix::unistd::chown(&Path::new(bundle.path()).join("plugin.json"), Some(12345.into()), None).unwrap();
    let error = plugind.ctl(&["install", bundle.path()]).fails(Kind::InvalidManifest);
    assert!(error.message.ends_with("belongs to another user (uid 12345)"), "{error:?}");
    plugind.unharmed();
}

#[test]
fn a_stream_with_such_an_entry_is_refused_by_the_supervisor() {
    let file = |path: &str, mode| Archive::default().file(path, mode, b"x").unfinished();
    let other =
        |kind, path: &str, target: &str| Archive::default().entry(kind, path, 0o644, 0, target).unfinished();
    let long = |name: &str| {
        let mut name = name.as_bytes().to_vec();
        name.push(0);
        let head = Archive::default().entry(kind::LONG_NAME, "././@LongLink", 0o644, name.len() as u64, "");
        head.content(&name).file("short", 0o644, b"x").unfinished()
    };
    let extended = |record: &str| {
        let head = Archive::default().entry(kind::EXTENDED, "pax", 0o644, record.len() as u64, "");
        head.content(record.as_bytes()).file("short", 0o644, b"x").unfinished()
    };
    let entries = [
        ("symbolic link", other(kind::SYMLINK, "link", "/etc/passwd")),
        ("hard link", other(kind::HARD_LINK, "link", "plugin.json")),
        ("a device", other(kind::CHARACTER_DEVICE, "null", "")),
        ("a device", other(kind::BLOCK_DEVICE, "disk", "")),
        ("a named pipe", other(kind::FIFO, "pipe", "")),
        ("sparse", other(kind::SPARSE, "sparse", "")),
        ("of a kind that bundles do not have", other(b'7', "contiguous", "")),
        ("writable by others than its owner (mode 664)", file("x", 0o664)),
        ("writable by others than its owner (mode 646)", file("x", 0o646)),
        ("setuid, setgid or sticky", file("x", 0o4755)),
        ("setuid, setgid or sticky", file("x", 0o2755)),
        ("writable by others", Archive::default().entry(kind::FOLDER, "d/", 0o775, 0, "").unfinished()),
        (
            "setuid, setgid or sticky",
            Archive::default().entry(kind::FOLDER, "d/", 0o2755, 0, "").unfinished(),
        ),
        ("`..` component", file("../x", 0o644)),
        ("`..` component", file("a/../../x", 0o644)),
        ("`..` component", file("./../x", 0o644)),
        ("`..` component", Archive::default().entry(kind::FOLDER, "../d/", 0o755, 0, "").unfinished()),
        ("of a kind that bundles do not have", long("../../../../tmp/x")),
        ("of a kind that bundles do not have", extended("19 path=../../../x\n")),
        ("is absolute", file("/etc/x", 0o644)),
        ("of a kind that bundles do not have", long("/etc/x")),
        ("of a kind that bundles do not have", long(&"n".repeat(300))),
        ("of a kind that bundles do not have", long(&"d/".repeat(20))),
        ("empty component", file("a//x", 0o644)),
        ("backslash", file("a\\x", 0o644)),
        ("control or direction character", file("a\u{1b}x", 0o644)),
        ("control or direction character", file("a\u{202e}x", 0o644)),
        ("twice", file("plugin.json", 0o644)),
        ("too large", Archive::default().entry(kind::FILE, "x", 0o644, 256 * MIB + 1, "").unfinished()),
        ("is not a tar stream", b"\x1f\x8b this is gzip, or so it says ".repeat(32)),
    ];
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    for (said, entry) in &entries {
        let mut stream = Archive::of(&bundle).unfinished();
        stream.extend(entry);
        stream.extend([0; 1024]);
        let outcome = plugind.install_stream(RAW_CALL, &stream);
        assert_ne!(outcome.code, Some(0), "{said}: installed");
        let error = outcome.fails(Kind::InvalidManifest);
        assert!(error.message.contains(said), "{said}: {error:?}");
    }
    plugind.unharmed();
    // The same stream without any of these is installed.
    let installed = plugind.install_stream(RAW_CALL, &Archive::of(&bundle).bytes()).json();
    assert_eq!(installed["name"], bundle.name());
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}

#[test]
fn a_stream_with_a_path_that_is_a_file_and_a_folder_is_refused() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    for (first, second) in [("x", "x/y"), ("x/y", "x")] {
        let stream = Archive::of(&bundle).file(first, 0o644, b"x").file(second, 0o644, b"x").bytes();
        let error = plugind.install_stream(RAW_CALL, &stream).fails(Kind::InvalidManifest);
        assert!(error.message.contains("as a file and as a folder"), "{error:?}");
        plugind.unharmed();
    }
}

#[test]
fn a_stream_that_ends_early_is_refused() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    let whole = Archive::of(&bundle).unfinished();
    for length in [0, 1, 511, 512, 600, whole.len() / 2, whole.len() - 1] {
        let error = plugind.install_stream(RAW_CALL, &whole[..length]).fails(Kind::InvalidManifest);
        assert!(error.outcome_known, "{length}: {error:?}");
    }
    plugind.unharmed();
}

#[test]
fn more_files_or_folders_than_a_bundle_may_have_are_refused() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    let mut many = Archive::of(&bundle);
    for number in 0..4200 {
        many = many.file(&format!("f{number}"), 0o644, b"");
    }
    let error = plugind.install_stream(RAW_CALL, &many.bytes()).fails(Kind::InvalidManifest);
    assert!(error.message.contains("at most 4096 files"), "{error:?}");
    let mut many = Archive::of(&bundle);
    for number in 0..4200 {
        many = many.entry(kind::FOLDER, &format!("d{number}/"), 0o755, 0, "");
    }
    let error = plugind.install_stream(RAW_CALL, &many.bytes()).fails(Kind::InvalidManifest);
    assert!(error.message.contains("too many folders"), "{error:?}");
    plugind.unharmed();
}

#[test]
fn a_name_of_hundreds_of_mebibytes_is_not_held_in_memory() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    plugind.install_stream(RAW_CALL, &Archive::of(&bundle).bytes()).success();
    plugind.ctl(&["remove", bundle.name()]).success();
    for kind in [kind::LONG_NAME, kind::EXTENDED] {
        let size = 200 * MIB;
        let name = vec![b'n'; usize::try_from(size).unwrap()];
        let head = Archive::default().entry(kind, "././@LongLink", 0o644, size, "").content(&name);
        let stream = head.file("short", 0o644, b"x").bytes();
        let growth = memory::growth(plugind.pid(), || {
            plugind.install_stream(RAW_CALL, &stream).fails(Kind::InvalidManifest);
        });
        assert!(growth <= 32 * MIB, "{}: {} MiB", char::from(kind), growth / MIB);
        plugind.unharmed();
    }
}

#[test]
fn a_stream_that_pauses_holds_up_nobody_else() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut install = plugind.command(RAW_CALL);
    let mut install = install.arg("install").stdin(reader).stderr(Stdio::null()).spawn().unwrap();
    let staging = plugind.state().join("staging");
    until("the install has begun", || fs::read_dir(&staging).unwrap().next().is_some().then_some(()));
    plugind.answers();
    let status = plugind.ctl(&["list"]);
    assert_eq!(status.json().as_array().map(Vec::len), Some(1));
    // Another install, and a removal, go on beside it.
    assert_eq!(plugind.attempt(&bundle, "echo", &json!(2)).json(), 2);
    drop(writer);
    assert_eq!(install.wait().unwrap().code(), Some(7), "an empty stream is no bundle");
    plugind.unharmed();
    assert_eq!(plugind.attempt(&bundle, "echo", &json!(1)).json(), 1);
}

#[test]
fn a_plugin_file_is_checked_like_a_folder() {
    let plugind = Plugind::new();
    let bundle = Bundle::hostile();
    let bad = Archive::of(&bundle).entry(kind::SYMLINK, "link", 0o644, 0, "/etc/passwd").bytes();
    let place = Bundle::of(&json!({"name": "none"})).file("bad.plugin", &bad, 0o644);
    let file = format!("{}/bad.plugin", place.path());
    for verb in ["install", "verify"] {
        let error = plugind.ctl(&[verb, &file]).fails(Kind::InvalidManifest);
        assert!(error.message.contains("`link`, which is a symbolic link"), "{error:?}");
    }
    let good = place.file("good.plugin", &Archive::of(&bundle).bytes(), 0o644);
    let file = format!("{}/good.plugin", good.path());
    let digest = plugind.ctl(&["verify", &file]).json()["digest"].clone();
    assert_eq!(digest, plugind.ctl(&["verify", bundle.path()]).json()["digest"]);
    plugind.ctl(&["install", &file]).success();
    assert_eq!(plugind.ctl(&["verify", bundle.name()]).json()["digest"], digest);
    plugind.ctl(&["remove", bundle.name()]).success();
    plugind.unharmed();
}
