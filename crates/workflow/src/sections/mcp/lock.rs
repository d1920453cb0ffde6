//! The lock file: the tools and prompts of the servers, as a person has read them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use graphrun_core::state::validator_for;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the lock file.
const LOCK_VERSION: u32 = 1;

/// The content of a lock file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpLock {
    /// The version of the form.
    pub v: u32,
    /// The servers, by their names in the workflow.
    pub servers: BTreeMap<String, LockedServer>,
}

/// A server in a lock file: with its command, or with its address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedServer {
    /// Its command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whether it has resources.
    pub resources: bool,
    /// Its tools, by their own names.
    pub tools: BTreeMap<String, LockedTool>,
    /// The prompts that the workflow names, by their own names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prompts: BTreeMap<String, LockedTool>,
}

/// A tool or a prompt in a lock file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedTool {
    /// Its description, which models read.
    pub about: String,
    /// The JSON Schema of its arguments.
    pub input: Value,
    /// The JSON Schema of its result; without one the result is a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

impl McpLock {
    /// Makes the content of a lock file.
    pub fn new(servers: BTreeMap<String, LockedServer>) -> Self {
        Self { v: LOCK_VERSION, servers }
    }

    /// Returns the path of the lock file of a workflow: `review.mcp.lock` beside `review.yaml`.
    pub fn path(workflow: &Path) -> PathBuf {
        workflow.with_extension("mcp.lock")
    }

    /// Reads the content of a lock file.
    ///
    /// # Errors
    ///
    /// Fails when it is not valid, or of another version.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lock: Self = serde_json::from_str(text).map_err(|it| it.to_string())?;
        if lock.v != LOCK_VERSION {
            return Err(format!("its version is {}", lock.v));
        }
        for (server, parts) in &lock.servers {
            for (name, part) in parts.tools.iter().chain(&parts.prompts) {
                part.check().map_err(|it| format!("of `{server}.{name}`, {it}"))?;
            }
        }
        Ok(lock)
    }
}

impl LockedTool {
    /// Checks the schemas.
    ///
    /// # Errors
    ///
    /// Fails when the arguments are no object, or a schema is invalid.
    pub fn check(&self) -> Result<(), String> {
        if self.input["type"] != "object" {
            return Err("its arguments are not an object".to_owned());
        }
        for (what, schema) in [("arguments", Some(&self.input)), ("result", self.output.as_ref())] {
            if let Some(Err(error)) = schema.map(validator_for) {
                return Err(format!("the schema of its {what} is invalid: {error}"));
            }
        }
        Ok(())
    }
}
