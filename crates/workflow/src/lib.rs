//! The YAML format of workflows: read with spans, lowered by hand, and checked against the types
//! before anything runs.
//!
//! Start with [`load`]. A file passes through these modules, in the order that `lower` names:
//! - `source`: the file as a tree of values with their places, and the diagnostics about it;
//! - `format`: the keys, for the reader and for editors;
//! - `sections`: the models, agents, sandboxes and other parts that nodes name;
//! - `lower::draft` and `edge::draft`: the nodes and edges with their names resolved, by `node::policies`, `edge::fan` and `edge::then`;
//! - `flow`: the data flow over the draft;
//! - `node`: the keys, expressions and prompts of each node, checked with the data flow;
//! - [`Workflow`], which becomes a [`Graph`](graphrun_core::graph::Graph).
//!
//! ```
//! use std::{path::Path, sync::Arc};
//!
//! use graphrun_core::diagnostic::SourceFile;
//! use graphrun_workflow::{Registry, parse};
//!
//! let text = "
//! graphrun: 1
//! name: greetings
//! state: { names: [string] }
//! input: names
//! start: each
//! nodes:
//!   each: { map: { over: nmes, do: greet }, then: end }
//!   greet: { node: greet }
//! ";
//! let file = Arc::new(SourceFile { name: "greetings.yaml".into(), text: text.to_owned() });
//! // `graphrun_nodes::registry` has all built-in kinds of nodes.
//! let diagnostics = parse(file, Path::new(""), &Registry::new()).unwrap_err();
//! assert!(diagnostics.to_string().contains("nmes"));
//! ```

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

// From the text of a file to its workflow.
mod definition;
mod edge;
mod flow;
mod format;
mod lower;
mod node;
mod sections;
mod source;

// What Rust code adds to the format.
pub mod kind;
mod registry;
pub mod tool;

// For editors and tests.
pub mod case_file;
mod layout;
mod outline;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use graphrun_core::diagnostic::{Diagnostics, SourceFile};
pub use graphrun_expressions::{
    EvaluateError, Expression, ExpressionError, ExpressionView, Function, QuotedText, facts::Fact,
    quoted_texts,
};
use graphrun_guard::{
    beneath::{read_named, without_mark},
    data_limit::DataLimit,
};
pub use graphrun_prompts::{Prompt, PromptError, PromptView};
use thiserror::Error;

pub use self::{
    definition::{
        Caching, Defaults, LockFileUse, NodeDefinition, NodeFactory, SandboxSettings, Workflow,
    },
    format::{cases_json_schema, json_schema},
    layout::{FileKind, format_text},
    node::structure::{
        Custom, CustomSettings, EnterNode, LeaveNode, Map, MapSettings, NestedUse, Parallel, Use,
    },
    outline::{Outline, Part, ScalarText, Slot, Step},
    registry::Registry,
    sections::{
        agents::OnOverflow,
        approval::Approval,
        folders::{FolderDefinition, FolderRequest, FolderRequestError},
        hosts::{
            CommandShape, HostAccess, HostPermission, HostRefusal, HostSettings, HostUse,
            parse_shape,
        },
        mcp::{
            LockedServer, LockedTool, McpLock, McpPlace, McpServer, ResourcePattern, mcp_servers,
        },
        memory,
        program::{Program, ProgramPlace, ProgramProtocol, ProgramSandbox},
        reports::ReportFile,
        types::{check_field_name, check_type_name},
    },
    source::files::{Buffers, source_paths},
};
use self::{
    lower::used::{Chain, WholeSize},
    source::{files::SourceFolder, prompts::PromptFiles, report::Report},
};

/// A workflow cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the workflow `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file has errors.
    #[error("the workflow is not valid")]
    Invalid(Diagnostics),
}

/// Reads and checks a workflow and its prompts; the diagnostics of a success are warnings.
///
/// Paths in it start at its folder, or at the one above, and lead to regular files beneath its
/// project: the nearest folder from there upwards with a `graphrun.toml` or a `.git`, or else its
/// own ([`Project`](graphrun_guard::beneath::Project)).
///
/// # Errors
///
/// Fails when the file cannot be read, and with every diagnostic when one of them is an error.
pub fn load(path: &Path, registry: &Registry) -> Result<(Workflow, Diagnostics), LoadError> {
    let text = read_named(path, DataLimit::FileBytes)
        .map_err(|error| LoadError::Read { path: path.to_owned(), source: error.into() })?;
    let text = without_mark(text);
    let file = Arc::new(SourceFile { name: path.display().to_string(), text });
    let folder = path.parent().unwrap_or(Path::new(""));
    parse(file, folder, registry).map_err(LoadError::Invalid)
}

/// Checks the text of a workflow; the diagnostics of a success are warnings.
///
/// # Errors
///
/// Fails with every diagnostic when one of them is an error.
pub fn parse(
    file: Arc<SourceFile>,
    folder: &Path,
    registry: &Registry,
) -> Result<(Workflow, Diagnostics), Diagnostics> {
    match survey(file, folder, registry, &Buffers::default()) {
        (Some(workflow), diagnostics) => diagnostics.or_ok(workflow),
        (None, diagnostics) => Err(diagnostics),
    }
}

/// Like [`parse`], but returns the workflow as far as it is valid, with errors or not: for an
/// editor.
///
/// The texts of open buffers replace the files on the disk.
pub fn survey(
    file: Arc<SourceFile>,
    folder: &Path,
    registry: &Registry,
    buffers: &Buffers,
) -> (Option<Workflow>, Diagnostics) {
    let name = file.name.clone();
    let size = WholeSize::default();
    let folder = SourceFolder::of(folder, buffers.clone());
    survey_within(file, folder, &Chain::new(Path::new(&name), &size, registry))
}

/// Like [`survey`], for a workflow that may be used by another one.
fn survey_within(
    file: Arc<SourceFile>,
    folder: SourceFolder,
    chain: &Chain<'_>,
) -> (Option<Workflow>, Diagnostics) {
    let mut report = Report::new(file);
    let Some(root) = source::reader::read(&mut report) else {
        return (None, report.into_diagnostics());
    };
    let prompts = PromptFiles::new(folder);
    let workflow = lower::lower(&mut report, &root, prompts, chain);
    (workflow, report.into_diagnostics())
}
