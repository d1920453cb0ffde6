use std::{
    collections::BTreeSet,
    fmt::Write,
    path::{Path, PathBuf},
};

use graphrun::diagnostic::CODES;

use crate::docs::{
    check_generated,
    page::{self, Page},
};

#[test]
fn the_book_has_every_page_once() {
    let summary = Page::read("docs/SUMMARY.md");
    let listed: Vec<PathBuf> =
        summary.links().iter().map(|it| Path::new("docs").join(it)).collect();
    let unique: BTreeSet<&PathBuf> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    let pages = page::below(Path::new("docs"));
    let pages: BTreeSet<&PathBuf> = pages.iter().filter(|it| !it.ends_with("SUMMARY.md")).collect();
    let differing: Vec<_> = unique.symmetric_difference(&pages).collect();
    assert!(differing.is_empty(), "docs/SUMMARY.md and the folder differ in {differing:?}");
}

#[test]
fn the_book_lists_the_codes_of_the_program() {
    let summary = Page::read("docs/SUMMARY.md");
    let (before, after) = summary.text.split_once("(codes/README.md)\n").unwrap();
    let after: Vec<&str> = after.lines().skip_while(|it| it.starts_with("  - [GR")).collect();
    let mut wanted = format!("{before}(codes/README.md)\n");
    for code in CODES {
        writeln!(wanted, "  - [{code}](codes/{code}.md)", code = code.as_str()).unwrap();
    }
    wanted.push_str(&after.join("\n"));
    wanted.push('\n');
    check_generated(&summary.path, &wanted);
}
