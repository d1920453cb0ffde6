use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use graphrun::{
    compile::compile,
    diagnostic::{Diagnostics, SourceFile},
    nodes::{Services, factory},
    registry,
    workflow::parse,
};
use tempfile::TempDir;

use crate::docs::page::{self, Block};

/// A folder with the files that a page has named so far.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(TempDir::new().unwrap());
        fs::write(folder.path("graphrun.toml"), "").unwrap();
        copy(Path::new("docs/codes/acceptance"), &folder.path("codes/acceptance"));
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn add(&self, block: &Block<'_>) {
        if let Some(name) = block.file {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), block.code).unwrap();
        }
    }
}

/// The errors and warnings of a workflow, as `graphrun validate --strict` counts them.
fn diagnostics(text: &str, folder: &Path) -> Diagnostics {
    let file = Arc::new(SourceFile { name: "example.yaml".into(), text: text.to_owned() });
    let (workflow, mut warnings) = match parse(file, folder, &registry()) {
        Ok(loaded) => loaded,
        Err(errors) => return errors,
    };
    let mut made = workflow.into_graph(&factory(Services::offline(), registry()));
    warnings.extend(made.diagnostics);
    made.diagnostics = warnings;
    match compile(made) {
        Ok(graph) => graph.warnings().clone(),
        Err(errors) => errors,
    }
}

fn is_workflow(block: &Block<'_>) -> bool {
    block.language == "yaml" && block.code.lines().any(|it| it.starts_with("graphrun: 1"))
}

fn holds_cases(block: &Block<'_>) -> bool {
    block.language == "yaml" && block.code.starts_with("graphrun_test: 1")
}

#[test]
fn every_workflow_on_a_page_loads_without_a_warning() {
    let mut count = 0;
    for page in page::all().iter().filter(|it| !it.is_of_a_code()) {
        let folder = Folder::new();
        // A workflow may need the lock file behind it.
        page.blocks().iter().filter(|it| it.language == "json").for_each(|it| folder.add(it));
        for block in page.blocks() {
            folder.add(&block);
            if is_workflow(&block) {
                let found = diagnostics(block.code, folder.0.path());
                assert!(found.is_empty(), "{}:\n{}\n{found}", page.path.display(), block.code);
                count += 1;
            }
        }
    }
    assert!(count > 20, "only {count}");
}

#[test]
fn every_test_case_on_a_page_passes() {
    let mut count = 0;
    for page in page::all().iter().filter(|it| !it.is_of_a_code()) {
        let folder = Folder::new();
        for block in page.blocks() {
            folder.add(&block);
            if holds_cases(&block) {
                let cases = block
                    .file
                    .map_or_else(|| beside_our_workflows(&folder, &block), |it| folder.path(it));
                let ended = Command::new(env!("CARGO_BIN_EXE_graphrun"))
                    .arg("test")
                    .arg(cases)
                    .output()
                    .unwrap();
                let text =
                    String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
                assert!(ended.status.success(), "{}:\n{text}", page.path.display());
                count += 1;
            }
        }
    }
    assert!(count >= 4, "only {count}");
}

/// A block without a name tests a workflow of the folder `graphs`.
fn beside_our_workflows(folder: &Folder, block: &Block<'_>) -> PathBuf {
    for source in ["graphs", "prompts"] {
        copy(Path::new(source), &folder.path(source));
    }
    let path = folder.path("graphs/page.test.yaml");
    fs::write(&path, block.code).unwrap();
    path
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
