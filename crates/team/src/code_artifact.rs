//! The code that the engineer writes: whole files, checked before use.

use std::collections::BTreeSet;

use graphrun_core::state::{Choice, LenientFields, ReadLeniently, Reader};
use graphrun_nodes::TestResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const CONTENT_CHARACTERS_MIN: usize = 10;
const DESCRIPTION_CHARACTERS_MAX: usize = 200;

/// All files of a project, as one attempt wrote them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CodeArtifact {
    /// CODE- and three digits.
    #[schemars(regex(pattern = "^CODE-[0-9]{3}$"))]
    pub artifact_id: String,
    /// Every file of the project, each complete.
    #[schemars(length(min = 1))]
    pub files: Vec<CodeFile>,
    /// The paths of the files that implement the project.
    #[schemars(extend("readOnly" = true))]
    pub implementation_files: Vec<String>,
    /// The paths of the files with tests.
    #[schemars(extend("readOnly" = true))]
    pub test_files: Vec<String>,
    /// The ids of the stories that the files name, sorted, each once.
    #[schemars(extend("readOnly" = true))]
    pub stories_covered: Vec<String>,
    /// The number of this attempt in its round, from 1 to 3 with the usual bound; none until it was
    /// tested.
    #[schemars(extend("readOnly" = true), range(min = 1))]
    pub attempt_number: Option<u32>,
    /// The result of the test runner; none until it was tested.
    #[schemars(extend("readOnly" = true))]
    pub test_result: Option<TestResult>,
}

/// One file of a project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CodeFile {
    /// The path relative to the project's root, with forward slashes.
    pub file_path: String,
    /// The purpose of the file.
    pub file_type: FileType,
    /// The complete file, never a diff and never with omitted parts.
    #[schemars(length(min = 10))]
    pub content: String,
    /// The content in one sentence of at most 200 characters.
    #[schemars(length(max = 200))]
    pub description: String,
    /// The ids of the stories that it implements.
    pub story_ids: Vec<String>,
}

/// The purpose of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileType {
    /// It implements the project.
    #[default]
    Implementation,
    /// It contains tests.
    Test,
    /// It configures a tool.
    Config,
    /// It migrates stored data.
    Migration,
}

impl CodeArtifact {
    /// Makes an untested artifact, with its computed fields.
    pub fn new(artifact_id: String, files: Vec<CodeFile>) -> Self {
        let paths = |wanted: FileType| {
            let typed = files.iter().filter(|file| file.file_type == wanted);
            typed.map(|file| file.file_path.clone()).collect()
        };
        let stories: BTreeSet<&String> = files.iter().flat_map(|file| &file.story_ids).collect();
        Self {
            implementation_files: paths(FileType::Implementation),
            test_files: paths(FileType::Test),
            stories_covered: stories.into_iter().cloned().collect(),
            attempt_number: None,
            test_result: None,
            artifact_id,
            files,
        }
    }

    /// Returns the artifact with the test result of this attempt.
    #[must_use]
    pub fn tested(self, attempt_number: u32, test_result: TestResult) -> Self {
        Self { attempt_number: Some(attempt_number), test_result: Some(test_result), ..self }
    }
}

impl ReadLeniently for CodeArtifact {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        reader.object(answer, |artifact| {
            artifact.drop_claims(&[
                "implementation_files",
                "test_files",
                "stories_covered",
                "attempt_number",
                "test_result",
            ]);
            let artifact_id = artifact.required_text("artifact_id").trim().to_owned();
            if !artifact_id.is_empty() && !is_artifact_id(&artifact_id) {
                artifact
                    .refuse("artifact_id", &format!("CODE- and three digits, got {artifact_id:?}"));
            }
            let files = artifact.required_list("files");
            refuse_repeated_paths(&files, artifact);
            Self::new(artifact_id, files)
        })
    }
}

impl ReadLeniently for CodeFile {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        reader.object(answer, |file| {
            let read = Self {
                file_path: file.required_text("file_path").trim().to_owned(),
                file_type: file.required_choice("file_type"),
                content: file.text("content"),
                description: file.text("description"),
                story_ids: file.texts("story_ids"),
            };
            if let Some(fault) = path_fault(&read.file_path) {
                file.refuse("file_path", fault);
            }
            let content_length = read.content.chars().count();
            if content_length < CONTENT_CHARACTERS_MIN {
                let rule =
                    format!("at least {CONTENT_CHARACTERS_MIN} characters, got {content_length}");
                file.refuse("content", &rule);
            }
            if is_diff(&read.content) {
                file.refuse("content", "the complete file is required, got a diff");
            }
            let description_length = read.description.chars().count();
            if description_length > DESCRIPTION_CHARACTERS_MAX {
                let rule = format!(
                    "at most {DESCRIPTION_CHARACTERS_MAX} characters, got {description_length}"
                );
                file.refuse("description", &rule);
            }
            read
        })
    }
}

impl Choice for FileType {
    const WORDS: &'static [&'static str] = &["implementation", "test", "config", "migration"];
}

fn is_artifact_id(text: &str) -> bool {
    let digits = text.strip_prefix("CODE-").unwrap_or_default();
    digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns why a path is not valid in the project. The sandbox has the full rules for files on a
/// disk; these are the rules that help a model.
fn path_fault(path: &str) -> Option<&'static str> {
    let has_drive = path.as_bytes().get(1) == Some(&b':');
    if path.starts_with(['/', '~']) || has_drive {
        Some("a path relative to the project's root is required, got an absolute one")
    } else if path.contains('\\') {
        Some("forward slashes are required")
    } else if path.chars().any(char::is_control) {
        Some("control characters are not allowed")
    } else if path.split('/').any(|segment| segment == "..") {
        Some("a path inside the project is required, without ..")
    } else if path.ends_with('/') {
        Some("a file is required, got a folder")
    } else {
        None
    }
}

/// Returns whether the content is a patch instead of a file. It checks only the first lines,
/// because a test may quote a diff further down.
fn is_diff(content: &str) -> bool {
    let mut lines = content.lines().skip_while(|line| line.trim().is_empty());
    let first = lines.next().unwrap_or_default();
    let second = lines.next().unwrap_or_default();
    ["diff --git ", "@@ -", "*** Begin Patch", "Index: "]
        .iter()
        .any(|start| first.starts_with(start))
        || (first.starts_with("--- ") && second.starts_with("+++ "))
}

fn refuse_repeated_paths(files: &[CodeFile], artifact: &mut LenientFields<'_>) {
    let mut seen = BTreeSet::new();
    for (place, file) in files.iter().enumerate() {
        if !file.file_path.is_empty() && !seen.insert(&file.file_path) {
            artifact.refuse(&format!("files[{place}].file_path"), "another file has the same path");
        }
    }
}
