use std::env;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{Uid, chown, mkdtemp, mkfifo};
use plugind_protocol::digest::{BUNDLE_SIZE_MAX, Entry, FILE_SIZE_MAX, FILES_MAX};
use sha2::{Digest, Sha256};

use super::*;

const PLUGIN_JSON: &str = r#"{"manifest":1,"name":"demo","version":"1.0.0","description":"A demo","protocol":"plugind/1",
  "exec":["bin/demo"],"commands":[{"name":"c","description":"x","risk":"read-only"}]}"#;

/// A bundle's folder that is gone afterwards.
struct Dir(PathBuf);

impl Dir {
    /// A folder with nothing in it.
    fn empty() -> Dir {
        Dir(mkdtemp(&env::temp_dir().join("bundle-test.XXXXXX")).unwrap())
    }

    /// A sound bundle.
    fn sound() -> Dir {
        let dir = Dir::empty();
        dir.write("plugin.json", PLUGIN_JSON.as_bytes(), 0o644);
        dir.write("bin/demo", b"\x7fELF demo", 0o755);
        dir
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn write(&self, path: &str, content: &[u8], mode: u32) {
        self.parents(path);
        fs::write(self.path(path), content).unwrap();
        self.mode(path, mode);
    }

    fn parents(&self, path: &str) {
        let mut folder = self.0.clone();
        for component in Path::new(path).parent().unwrap() {
            folder.push(component);
            if fs::create_dir(&folder).is_ok() {
                fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
            }
        }
    }

    fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), Permissions::from_mode(mode)).unwrap();
    }

    fn size(&self, path: &str, size: u64) {
        File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path(path))
            .unwrap()
            .set_len(size)
            .unwrap();
        self.mode(path, 0o644);
    }

    fn packed(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        Bundle::open(&self.0).unwrap().pack(&mut bytes).unwrap();
        bytes
    }

    /// The refusal, which must name the path.
    fn refusal(&self, path: &str) -> Error {
        let error = Bundle::open(&self.0).unwrap_err();
        assert_eq!((error.kind, error.exit_code()), (Kind::InvalidManifest, 7), "{error}");
        assert!(error.message.contains(path), "`{}` does not name {path}", error.message);
        assert!(!error.hint.is_empty());
        error
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_sound_bundle_is_packed_and_read_back_with_one_digest() {
    let dir = Dir::sound();
    dir.write("data/ü.txt", b"", 0o600);
    let folder = Bundle::open(&dir.0).unwrap();
    let entry = |path: &str, executable, content: &[u8]| Entry {
        path: path.into(),
        executable,
        size: content.len() as u64,
        sha256: Sha256::digest(content).into(),
    };
    let expected = plugind_protocol::digest::bundle(&[
        entry("plugin.json", false, PLUGIN_JSON.as_bytes()),
        entry("bin/demo", true, b"\x7fELF demo"),
        entry("data/ü.txt", false, b""),
    ]);
    assert_eq!(Ok(folder.digest), expected);

    let out = Dir::empty();
    out.write("x.plugin", &dir.packed(), 0o644);
    let archive = Bundle::open(&out.path("x.plugin")).unwrap();
    assert_eq!(archive.digest, folder.digest);
    assert_eq!(archive.manifest, folder.manifest);
}

#[test]
fn packing_depends_on_nothing_but_the_files() {
    let (one, other) = (Dir::sound(), Dir::empty());
    other.write("bin/demo", b"\x7fELF demo", 0o700);
    other.write("plugin.json", PLUGIN_JSON.as_bytes(), 0o600);
    fs::create_dir(other.path("an-empty-folder")).unwrap();
    let bytes = one.packed();
    assert_eq!(bytes, other.packed());

    let mut archive = tar::Archive::new(&bytes[..]);
    let mut paths = Vec::new();
    for entry in archive.entries().unwrap() {
        let entry = entry.unwrap();
        let header = entry.header();
        assert!(header.as_ustar().is_some());
        assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (0, 0, 0));
        assert_eq!((header.username(), header.groupname()), (Ok(Some("")), Ok(Some(""))));
        paths.push((entry.path().unwrap().display().to_string(), header.mode().unwrap()));
    }
    assert_eq!(paths, [("bin/demo".to_owned(), 0o755), ("plugin.json".to_owned(), 0o644)]);
}

#[test]
fn anything_but_files_and_folders_is_refused() {
    let dir = Dir::sound();
    symlink("/etc/passwd", dir.path("link")).unwrap();
    assert!(dir.refusal("/link is a symbolic link").hint.contains("readlink -f"));

    let dir = Dir::sound();
    symlink("bin", dir.path("lib")).unwrap();
    dir.refusal("/lib is a symbolic link");

    let dir = Dir::sound();
    mkfifo(&dir.path("pipe"), Mode::S_IRUSR).unwrap();
    assert!(dir.refusal("/pipe is a named pipe").hint.contains("rm "));

    let dir = Dir::sound();
    let _listener = UnixListener::bind(dir.path("sock")).unwrap();
    dir.refusal("/sock is a socket");

    let dir = Dir::sound();
    // Making devices takes a right that not everybody has.
    if mknod(&dir.path("null"), SFlag::S_IFCHR, Mode::S_IRUSR, makedev(1, 3)).is_ok() {
        dir.refusal("/null is a device");
    }
}

#[test]
fn what_others_can_change_is_refused() {
    for (path, mode, who) in [
        ("bin/demo", 0o775, "its group"),
        ("plugin.json", 0o646, "everybody"),
        ("bin", 0o775, "its group"),
        ("bin", 0o1777, "everybody"),
        ("", 0o770, "its group"),
    ] {
        let dir = Dir::sound();
        dir.mode(path, mode);
        let error = dir.refusal(path);
        assert!(error.message.ends_with(&format!("can be written by {who}")), "{error}");
        assert!(error.hint.starts_with("chmod go-w "), "{}", error.hint);
    }
    for (path, mode) in [("bin/demo", 0o4755), ("bin/demo", 0o2755), ("bin", 0o2755)] {
        let dir = Dir::sound();
        dir.mode(path, mode);
        assert!(dir.refusal(path).message.ends_with("is setuid or setgid"));
    }
}

#[test]
fn files_of_other_people_are_refused() {
    let dir = Dir::sound();
    // Only root can give files away.
    if chown(&dir.path("bin/demo"), Some(Uid::from_raw(12345)), None).is_ok() {
        assert!(dir.refusal("bin/demo").message.ends_with("belongs to another user (uid 12345)"));
    }
}

#[test]
fn too_large_and_too_many_are_refused_before_anything_is_read() {
    let dir = Dir::sound();
    dir.size("big", FILE_SIZE_MAX + 1);
    dir.refusal("big");

    let dir = Dir::sound();
    for name in ["a", "b", "c"] {
        dir.size(name, BUNDLE_SIZE_MAX / 3 + 1);
    }
    assert!(dir.refusal("").message.contains("larger than"));

    let dir = Dir::sound();
    for number in 0..FILES_MAX {
        dir.size(&format!("f{number}"), 0);
    }
    assert!(dir.refusal("").message.contains("more than 4096 files"));
}

#[test]
fn paths_that_a_bundle_cannot_have_are_refused() {
    let long = "n".repeat(120);
    for path in ["a\\b", "new\nline", "\u{202e}txt", &["d"; 17].join("/"), &long] {
        let dir = Dir::sound();
        dir.write(path, b"", 0o644);
        let error = Bundle::open(&dir.0).unwrap_err();
        assert_eq!(error.kind, Kind::InvalidManifest, "{path}");
    }
}

#[test]
fn the_manifest_must_be_there_and_run_something_of_the_bundle() {
    let dir = Dir::empty();
    assert!(dir.refusal("").message.ends_with("holds no plugin.json"));

    let dir = Dir::sound();
    dir.write("plugin.json", b"{\"manifest\":1,\"novel\":2}", 0o644);
    assert_eq!(Bundle::open(&dir.0).unwrap_err().kind, Kind::InvalidManifest);

    let dir = Dir::sound();
    fs::remove_file(dir.path("bin/demo")).unwrap();
    assert!(dir.refusal("`bin/demo`").message.contains("does not hold"));

    let dir = Dir::sound();
    dir.mode("bin/demo", 0o644);
    assert_eq!(dir.refusal("`bin/demo`").hint, "chmod +x bin/demo");
}

#[test]
fn a_path_without_a_bundle_is_wrong_use() {
    for path in ["/nonexistent/bundle", "/dev/null"] {
        let error = Bundle::open(Path::new(path)).unwrap_err();
        assert!(matches!(error.kind, Kind::InvalidArguments | Kind::InvalidManifest), "{error}");
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_is_refused() {
    let dir = Dir::sound();
    let bundle = Bundle::open(&dir.0).unwrap();
    dir.write("bin/demo", b"\x7fELF demo, longer", 0o755);
    assert!(bundle.pack(&mut Vec::new()).unwrap_err().message.ends_with("changed while it was read"));
    dir.write("bin/demo", b"\x7fELF", 0o755);
    assert!(bundle.pack(&mut Vec::new()).is_err());
    dir.write("bin/demo", b"\x7fELF DEMO", 0o755);
    assert!(bundle.pack(&mut Vec::new()).unwrap_err().message.ends_with("changed while it was read"));
    fs::remove_file(dir.path("bin/demo")).unwrap();
    symlink("/etc/passwd", dir.path("bin/demo")).unwrap();
    assert!(bundle.pack(&mut Vec::new()).unwrap_err().message.contains("cannot be read"));
}

/// An archive with one more entry, made by hand: the tar crate refuses to write most of these.
fn archive(name: &str, kind: u8, mode: &str, content: &[u8]) -> Dir {
    let sound = Dir::sound();
    let mut bytes = sound.packed();
    bytes.truncate(bytes.len() - 1024);
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..100 + mode.len()].copy_from_slice(mode.as_bytes());
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[148..156].copy_from_slice(b"        ");
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512) + 1024, 0);
    let dir = Dir::empty();
    dir.write("x.plugin", &bytes, 0o644);
    dir
}

fn archive_refusal(dir: &Dir) -> Error {
    let error = Bundle::open(&dir.path("x.plugin")).unwrap_err();
    assert_eq!(error.kind, Kind::InvalidManifest, "{error}");
    error
}

#[test]
fn an_archive_made_elsewhere_obeys_the_same_rules() {
    assert!(Bundle::open(&archive("more/x", b'0', "0000644\0", b"x").path("x.plugin")).is_ok());
    assert!(Bundle::open(&archive("more/", b'5', "0000755\0", b"").path("x.plugin")).is_ok());
    for (name, kind, mode, what) in [
        ("../x", b'0', "0000644\0", "`.` or `..`"),
        ("/x", b'0', "0000644\0", "absolute"),
        ("./x", b'0', "0000644\0", "`.` or `..`"),
        ("x", b'0', "0004755\0", "setuid"),
        ("x", b'0', "0000664\0", "its group"),
        ("x", b'1', "0000644\0", "hard link"),
        ("x", b'2', "0000644\0", "symbolic link"),
        ("x", b'3', "0000644\0", "device"),
        ("x", b'6', "0000644\0", "named pipe"),
        ("x", b'x', "0000644\0", "extension"),
        ("x", b'L', "0000644\0", "extension"),
        ("bin/demo", b'0', "0000644\0", "twice"),
        ("bin", b'0', "0000644\0", "as a file and as a folder"),
    ] {
        let error = archive_refusal(&archive(name, kind, mode, b""));
        assert!(error.message.contains(what), "{name}: {error}");
    }
}

#[test]
fn what_is_no_archive_is_refused() {
    let dir = Dir::empty();
    for content in [&b"hello"[..], &[b'x'; 2000][..], &[0; 1024][..], &[][..]] {
        dir.write("x.plugin", content, 0o644);
        archive_refusal(&dir);
    }
    let whole = Dir::sound().packed();
    dir.write("x.plugin", &whole[..whole.len() - 1024 - 512], 0o644);
    archive_refusal(&dir);
}

#[tokio::test]
async fn a_folder_is_sent_as_the_same_bytes() {
    let dir = Dir::sound();
    let (descriptor, sender) = Bundle::open(&dir.0).unwrap().send().unwrap();
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut File::from(descriptor), &mut bytes).unwrap();
    assert_eq!(bytes, dir.packed());
    assert_eq!(sender.failure().await, None);
}

#[tokio::test]
async fn a_reader_that_goes_away_early_is_no_failure_of_the_folder() {
    let dir = Dir::sound();
    dir.size("large", 1 << 20);
    let (descriptor, sender) = Bundle::open(&dir.0).unwrap().send().unwrap();
    drop(descriptor);
    assert_eq!(sender.failure().await, None);

    let bundle = Bundle::open(&dir.0).unwrap();
    File::options().append(true).open(dir.path("large")).unwrap().write_all(b"more").unwrap();
    let (descriptor, sender) = bundle.send().unwrap();
    io::copy(&mut File::from(descriptor), &mut io::sink()).unwrap();
    assert!(sender.failure().await.unwrap().message.ends_with("changed while it was read"));
}

#[test]
fn paths_in_hints_can_be_pasted() {
    assert_eq!(quote("/a/b-c.d"), "/a/b-c.d");
    assert_eq!(quote("it's me"), "'it'\\''s me'");
    assert_eq!(quote(""), "''");
}
