//! Every test that `docs/security.md` names exists, and every fixture of the sandbox is named there.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files whose every test is about a promise.
const FIXTURES: [&str; 10] = [
    "limits",
    "logs",
    "permissions",
    "persistence",
    "roots",
    "sandbox_files",
    "sandbox_inherited",
    "sandbox_kernel",
    "sandbox_network",
    "sandbox_processes",
];

#[test]
fn every_test_that_is_named_exists() {
    let named = named();
    assert!(named.len() > 50, "the search found {} tests", named.len());
    let missing: Vec<String> = named
        .iter()
        .filter(|(file, test)| !places(file).iter().any(|place| tests_of(place).contains(test)))
        .map(|(file, test)| format!("{file}::{test}"))
        .collect();
    assert!(missing.is_empty(), "docs/security.md names tests that are not there:\n{}", missing.join("\n"));
}

#[test]
fn every_fixture_is_named() {
    let named = named();
    for file in FIXTURES {
        let tests = places(file).iter().flat_map(|place| tests_of(place)).collect::<BTreeSet<_>>();
        assert!(!tests.is_empty(), "{file} has no tests");
        for test in tests {
            assert!(
                named.contains(&(file.to_owned(), test.clone())),
                "docs/security.md has no {file}::{test}"
            );
        }
    }
}

#[test]
fn only_tests_count_as_tests() {
    let text = "#[test]\nfn one() {}\n\nfn helper() {}\n#[tokio::test(start_paused = true)]\nasync fn two() {}\n\
                #[test]\n#[allow(x)]\nfn three() {}\n";
    assert_eq!(tests_in(text), ["one", "two", "three"].map(str::to_owned).into());
}

/// The code spans of the page that name a test, as file and test.
fn named() -> BTreeSet<(String, String)> {
    let page = fs::read_to_string(repository().join("docs/security.md")).unwrap();
    let spans = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let name = |text: &str| text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'/');
    spans
        .filter_map(|span| span.split_once("::"))
        .filter(|(file, test)| *file != "FILE" && name(file) && name(test))
        .map(|(file, test)| (file.to_owned(), test.to_owned()))
        .collect()
}

/// Where the tests of a file may be: `FILE` is one of these tests, `CRATE/MODULE` is of a crate of the supervisor.
fn places(file: &str) -> Vec<PathBuf> {
    let root = repository();
    match file.split_once('/') {
        None => vec![root.join(format!("tests/integration/tests/{file}.rs"))],
        Some((krate, module)) => {
            let krate = root.join("supervisor").join(krate);
            let places =
                [format!("tests/{module}.rs"), format!("src/{module}/tests.rs"), format!("src/{module}.rs")];
            places.map(|place| krate.join(place)).into()
        }
    }
}

fn tests_of(file: &Path) -> BTreeSet<String> {
    tests_in(&fs::read_to_string(file).unwrap_or_default())
}

/// The functions that follow an attribute `test`, whatever attributes are between.
fn tests_in(text: &str) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            marked |= line == "#[test]" || line.starts_with("#[tokio::test");
            continue;
        }
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        if let Some(name) = function.and_then(|rest| rest.split('(').next()).filter(|_| marked) {
            tests.insert(name.to_owned());
        }
        marked = false;
    }
    tests
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}
