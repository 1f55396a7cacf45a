//! Which bubblewrap is refused, and what is asked of it.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn root(network: bool) -> Root<'static> {
    Root {
        bundle: Path::new("/state/store/sha256-00"),
        contents: &[],
        data: Path::new("/state/data/x"),
        helper: Path::new("/usr/libexec/plugind/plugind-sandbox"),
        usr: true,
        network,
        tmp_size: 4096,
        mounts: vec![("/srv/docs".into(), "/workspace/docs".into(), false)],
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
    }
}

fn words(network: bool) -> Vec<String> {
    written(&root(network))
}

fn written(root: &Root<'_>) -> Vec<String> {
    let arguments = root.arguments().unwrap();
    assert_eq!(arguments.argv[0], "--args");
    let mut file = File::from(arguments.files.last().unwrap().try_clone().unwrap());
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn every_namespace_is_named_strictly() {
    let words = words(false);
    for flag in [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup",
        "--unshare-net",
    ] {
        assert!(words.iter().any(|word| word == flag), "{flag} is missing");
    }
    for weak in
        ["--unshare-all", "--unshare-user-try", "--unshare-cgroup-try", "--share-net", "--die-with-parent"]
    {
        assert!(!words.iter().any(|word| word == weak), "{weak} weakens the sandbox");
    }
    assert!(words.iter().any(|word| word == "--disable-userns"));
    assert!(words.iter().any(|word| word == "--clearenv"));
}

#[test]
fn the_network_is_shared_only_where_it_is_granted() {
    assert!(words(false).iter().any(|word| word == "--unshare-net"));
    assert!(!words(true).iter().any(|word| word == "--unshare-net"));
    assert!(!words(false).iter().any(|word| word == "/etc/resolv.conf"));
    assert!(words(true).iter().any(|word| word == "/etc/resolv.conf"));
}

#[test]
fn the_bundle_and_a_read_only_root_are_bound_read_only() {
    let words = words(false);
    let bind = |inside: &str| {
        let at = words.iter().position(|word| word == inside).unwrap();
        words[at - 2].clone()
    };
    assert_eq!(bind("/plugin"), "--ro-bind");
    assert_eq!(bind("/workspace/docs"), "--ro-bind");
    assert_eq!(bind("/data"), "--bind");
}

fn program(name: &str, mode: u32, script: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("plugind-bwrap-{name}-{}", std::process::id()));
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

async fn refusal(path: &Path) -> String {
    let error = check(path, None).await.unwrap_err();
    assert_eq!(error.kind, Kind::SandboxDenied);
    assert!(!error.hint.is_empty());
    error.message
}

#[tokio::test]
async fn a_missing_bubblewrap_is_refused_with_the_package() {
    let error = check(Path::new("/nonexistent/bwrap"), None).await.unwrap_err();
    assert!(error.message.contains("missing") && error.hint.contains("apt install bubblewrap"));
}

#[tokio::test]
async fn a_setuid_bubblewrap_is_refused() {
    let path = program("setuid", 0o4755, "echo bubblewrap 0.11.0");
    assert!(refusal(&path).await.contains("setuid"));
    fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn a_bubblewrap_that_others_can_write_is_refused() {
    let path = program("writable", 0o777, "echo bubblewrap 0.11.0");
    assert!(refusal(&path).await.contains("changed by others"));
    fs::remove_file(path).unwrap();
}

#[test]
fn versions_are_read_as_numbers() {
    assert_eq!(version("bubblewrap 0.8.0\n"), Some((0, 8)));
    assert!(version("bubblewrap 0.12.0\n") > version("bubblewrap 0.8.0\n"));
    assert_eq!(version("something else"), None);
}

#[test]
fn files_from_memory_stand_in_for_the_store_s_folder() {
    let contents = [Content { path: "lib/x.py".into(), executable: false, bytes: b"x = 1".to_vec() }];
    let words = written(&Root { contents: &contents, ..root(false) });
    let at = words.iter().position(|word| word == "/plugin/lib/x.py").unwrap();
    assert_eq!(
        (words[at - 2].as_str(), words[at - 4].as_str(), words[at - 3].as_str()),
        ("--file", "--perms", "0444")
    );
    let bound = words.windows(3).any(|words| words[0] == "--ro-bind" && words[2] == "/plugin");
    assert!(!bound, "the folder itself is not bound");
}
