//! `fs.rm`: removes a file.

use std::path::Path;

use graphrun_guard::beneath::Folder;
use graphrun_sandbox::remove_files;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Changed, refused, writing_tool};
use crate::tool::{BuiltIn, Make, Needs, ToolError};

pub(super) const TOOL: BuiltIn = BuiltIn {
    name: "fs.rm",
    about: "Removes a file of the folder of the node.",
    needs: Needs::Folder,
    make: Make::OfFiles(|_| writing_tool(&TOOL, remove)),
};

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Remove {
    /// The file, below the folder.
    path: String,
}

fn remove(root: &Path, input: &Remove) -> Result<Changed, ToolError> {
    let Remove { path } = input;
    if !Folder::open(root).is_ok_and(|it| it.has_file(path.as_ref())) {
        return Err(ToolError::permanent(format!("there is no file `{path}`")));
    }
    remove_files(root, std::slice::from_ref(path)).map_err(|error| refused(path, &error))?;
    Ok(Changed { path: path.clone(), bytes: 0 })
}
