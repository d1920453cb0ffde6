use std::path::Path;

use crate::page::{self, Page};

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

fn has_anchor(target: &Path, anchor: &str) -> bool {
    anchor.is_empty()
        || target.extension().is_some_and(|it| it == "md")
            && Page::read(target).anchors().contains(anchor)
}
