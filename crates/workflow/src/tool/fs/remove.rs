//! `fs.rm`: removes a file, or a link itself.

use std::path::Path;

use graphrun_guard::beneath::Folder;
use graphrun_sandbox::remove_files;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ChangeOutput, refused, writing_tool};
use crate::tool::{BuiltIn, Make, Needs, ToolError};

pub(super) const TOOL: BuiltIn = BuiltIn {
    name: "fs.rm",
    about: "Removes a file of the folder of the node. Of a link it removes the link itself.",
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

fn remove(root: &Path, input: &Remove) -> Result<ChangeOutput, ToolError> {
    let Remove { path } = input;
    let is_file_or_link =
        |it: Folder| it.has_file(path.as_ref()) || it.link_target(path.as_ref()).is_ok();
    if !Folder::open(root).is_ok_and(is_file_or_link) {
        return Err(ToolError::permanent(format!("there is no file `{path}`")));
    }
    remove_files(root, std::slice::from_ref(path)).map_err(|error| refused(path, &error))?;
    Ok(ChangeOutput { path: path.clone(), bytes: 0 })
}
