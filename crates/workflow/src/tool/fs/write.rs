//! `fs.write`: writes a text file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{write_one, writing_tool};
use crate::tool::{BuiltIn, Make, Needs};

pub(super) const TOOL: BuiltIn = BuiltIn {
    name: "fs.write",
    about: "Writes a whole text file of the folder of the node; a file of this path is replaced.",
    needs: Needs::Folder,
    make: Make::OfFiles(|_| {
        writing_tool(&TOOL, |root, input: &Write| {
            write_one(root, &input.path, input.content.clone())
        })
    }),
};

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Write {
    /// The file, below the folder.
    path: String,
    /// The complete content, at most 1 MiB.
    content: String,
}
