//! Every relative link of the documentation leads somewhere: to a file, and to a heading in it; and every path of the
//! repository that it names is there.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What a path of the repository begins with, as the documentation writes it.
const OURS: [&str; 8] =
    ["ctl/", "docs/", "examples/", "protocol/", "sdk/", "supervisor/", "tests/", "units/"];

/// Folders that are not ours to check.
const FOREIGN: [&str; 4] = ["target", "vendor", "node_modules", ".git"];

#[test]
fn no_link_of_the_documentation_is_dead() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut pages = Vec::new();
    find_pages(&root, &mut pages);
    assert!(pages.contains(&root.join("README.md")), "the search found no README.md");

    let mut links = 0;
    let mut dead = Vec::new();
    for page in &pages {
        let shown = page.strip_prefix(&root).unwrap().display();
        let text = fs::read_to_string(page).unwrap();
        for (line, target) in links_of(&text) {
            links += 1;
            if let Err(why) = follow(page, &target) {
                dead.push(format!("{shown}:{line}: {target} {why}"));
            }
        }
        for (line, path) in paths_of(&text).into_iter().filter(|(_, path)| !root.join(path).exists()) {
            dead.push(format!("{shown}:{line}: {path} is not there"));
        }
    }
    assert!(links > 0, "the search found no link");
    assert!(dead.is_empty(), "\n{}", dead.join("\n"));
}

#[test]
fn links_are_found_outside_of_code() {
    let page = "[a](b.md#c)\n```\n[no](no.md)\n```\nsee `[no](no.md)` and [d](../e), ![f](g.png)\n[h](https://i.example)";
    let found: Vec<_> = links_of(page).into_iter().map(|(line, target)| format!("{line} {target}")).collect();
    assert_eq!(found, ["1 b.md#c", "5 ../e", "5 g.png"]);
}

#[test]
fn paths_are_found_in_code_spans() {
    let page = "`tests/a b`, `a/tests/`, tests/no, `tests/*`\n```\n`ctl/no`\n```\n`ctl/x.rs`";
    assert_eq!(paths_of(page), [(1, "tests/a".to_owned()), (5, "ctl/x.rs".to_owned())]);
}

#[test]
fn a_headings_anchor_is_the_one_that_forges_give_it() {
    let page =
        "# plugind.toml\n```\n# no heading\n```\n## A masked /proc\n## In `Rust`, too\n## A masked /proc\n";
    let expected = ["a-masked-proc", "a-masked-proc-1", "in-rust-too", "plugindtoml"];
    assert_eq!(anchors_of(page), expected.map(str::to_owned).into());
}

fn find_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() && !FOREIGN.iter().any(|foreign| entry.file_name() == *foreign) {
            find_pages(&path, pages);
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

/// The lines outside of fenced code, with their numbers.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    page.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fence && !fenced).then_some((index + 1, line))
    })
}

/// The targets of relative links, with the numbers of their lines.
fn links_of(page: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(page) {
        // What stands between backquotes is code.
        let text: String = line.split('`').step_by(2).collect();
        for rest in text.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            if !target.contains("://") && !target.starts_with("mailto:") {
                links.push((number, target.to_owned()));
            }
        }
    }
    links
}

/// The paths of the repository in code spans, with the numbers of their lines. What has wildcards is no path.
fn paths_of(page: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for (number, line) in prose(page) {
        for span in line.split('`').skip(1).step_by(2) {
            let path = span.split_whitespace().next().unwrap_or_default();
            if OURS.iter().any(|folder| path.starts_with(folder)) && !path.contains(['*', '{', '<', '…']) {
                paths.push((number, path.to_owned()));
            }
        }
    }
    paths
}

fn follow(page: &Path, target: &str) -> Result<(), String> {
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file = if path.is_empty() { page.to_owned() } else { page.with_file_name(path) };
    if !file.exists() {
        return Err("is not there".to_owned());
    }
    match anchor {
        Some(anchor) if !anchors_of(&fs::read_to_string(&file).unwrap()).contains(anchor) => {
            Err("names no heading there".to_owned())
        }
        _ => Ok(()),
    }
}

/// The anchors of a page's headings: letters, digits, `-` and `_` in lower case, blanks as `-`, the second of a name
/// with `-1`.
fn anchors_of(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(page).filter(|(_, line)| line.starts_with('#')) {
        let name: String = line
            .trim_start_matches('#')
            .trim()
            .to_lowercase()
            .chars()
            .filter(|character| character.is_alphanumeric() || " -_".contains(*character))
            .map(|character| if character == ' ' { '-' } else { character })
            .collect();
        let numbered = (1..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|anchor| !anchors.contains(anchor));
        anchors.extend(free);
    }
    anchors
}
