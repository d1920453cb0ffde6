use std::{fs, path::Path};

use crate::docs::page::{self, Page};

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for page in page::all() {
        let folder = page.path.parent().unwrap();
        for link in page.links() {
            if link.starts_with("https://") || link.starts_with("http://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.path.clone() } else { folder.join(file) };
            if !target.exists() || !has_anchor(&target, anchor) {
                broken.push(format!("{}: {link}", page.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// mdBook copies nothing but the folder `docs`, and turns each `README.md` into an `index.html`.
#[test]
fn links_of_the_book_stay_in_the_book() {
    let book = fs::canonicalize("docs").unwrap();
    let mut outside = Vec::new();
    for page in page::all().iter().filter(|it| it.path.starts_with("docs")) {
        let folder = page.path.parent().unwrap();
        let included = page.text.split_once("{{#include ").and_then(|(_, it)| it.split_once(':'));
        if let Some((path, _)) = included {
            assert!(folder.join(path).exists(), "{} includes no file", page.path.display());
            continue;
        }
        for link in page.links().iter().filter(|it| !it.contains("://") && !it.starts_with('#')) {
            let target = folder.join(link.split('#').next().unwrap_or_default());
            let is_inside = target.canonicalize().is_ok_and(|it| it.starts_with(&book));
            let is_index = target.ends_with("README.md") && !page.path.ends_with("SUMMARY.md");
            if !is_inside || is_index {
                outside.push(format!("{}: {link}", page.path.display()));
            }
        }
    }
    assert!(outside.is_empty(), "links out of the book:\n{}", outside.join("\n"));
}

fn has_anchor(target: &Path, anchor: &str) -> bool {
    anchor.is_empty()
        || target.extension().is_some_and(|it| it == "md")
            && Page::read(target).anchors().contains(anchor)
}

/// Pages name places in the source as `crates/engine/src/driver.rs` or `tests/storage`.
#[test]
fn every_path_in_a_sentence_exists() {
    let folders = ["crates/", "src/", "tests/", "docs/", "graphs/", "examples/", "scripts/"];
    let mut missing = Vec::new();
    for page in page::all() {
        for code in page.inline_code() {
            let path = code.split("::").next().unwrap_or_default();
            let is_path = folders.iter().any(|it| path.starts_with(it));
            if is_path && !path.contains([' ', '*', '@', '<']) && !Path::new(path).exists() {
                missing.push(format!("{}: {path}", page.path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "there is no such file:\n{}", missing.join("\n"));
}
