//! Limits on the size of data, so that no file, value or answer can use up memory or time.
//!
//! [`DataLimit`] lists them. Each has a name, a default, and a value for this process, which a program may set once with
//! [`set_data_limits`] before it loads anything. They belong to the process and not to a workflow: a workflow is not
//! trusted to raise them.

use std::{collections::BTreeMap, fmt, sync::OnceLock};

use thiserror::Error;

/// A limit on the size of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataLimit {
    /// Bytes of a workflow file or of another file that belongs to it.
    FileBytes,
    /// Bytes of a file that a model is sent.
    AttachmentBytes,
    /// Nodes of a YAML document after its aliases are expanded.
    YamlNodes,
    /// Nodes of a JSON Schema after its references are followed.
    SchemaNodes,
    /// Nodes of a workflow and of the workflows that it uses.
    GraphNodes,
    /// Steps that the evaluation of one expression takes.
    ExpressionSteps,
    /// Memory for the values that the evaluation of one expression makes, in bytes as [`Self::ValueMemory`] counts them.
    ExpressionMemory,
    /// Instructions that the rendering of one template takes.
    TemplateSteps,
    /// Bytes of a rendered template.
    TemplateBytes,
    /// Bytes of an input, from a file, a flag or standard input.
    InputBytes,
    /// Lists and records inside each other in one value.
    ValueDepth,
    /// Memory for one value while it is saved, in bytes: 72 for each part, 192 more for a record, 32 more for each of
    /// its fields, and 32 and four times its length more for a text.
    ValueMemory,
    /// Memory for the state of a run, and for what one step writes, in bytes as [`Self::ValueMemory`] counts them.
    StateMemory,
    /// Items of one `map`.
    MapItems,
}

impl DataLimit {
    /// All limits.
    pub const ALL: [Self; 14] = [
        Self::FileBytes,
        Self::AttachmentBytes,
        Self::YamlNodes,
        Self::SchemaNodes,
        Self::GraphNodes,
        Self::ExpressionSteps,
        Self::ExpressionMemory,
        Self::TemplateSteps,
        Self::TemplateBytes,
        Self::InputBytes,
        Self::ValueDepth,
        Self::ValueMemory,
        Self::StateMemory,
        Self::MapItems,
    ];

    /// Returns its name in settings and messages.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns its value where nothing is set.
    pub fn default_value(self) -> u64 {
        self.row().1
    }

    /// Returns the highest value that it can be set to.
    pub fn highest_value(self) -> u64 {
        match self {
            // Readers of JSON stop at 128, and a saved value stands inside other records.
            Self::ValueDepth => 96,
            _ => u64::MAX,
        }
    }

    /// Returns its value in this process.
    pub fn value(self) -> u64 {
        let set = SET.get().and_then(|it| it.get(&self));
        set.copied().unwrap_or_else(|| self.default_value())
    }

    /// Returns the variable of the environment from which the program reads its value.
    pub fn variable(self) -> String {
        format!("GRAPHRUN_LIMIT_{}", self.name().to_ascii_uppercase())
    }

    /// Checks an amount against the limit of this process.
    ///
    /// # Errors
    ///
    /// Fails when the amount is larger than the limit.
    ///
    /// ```
    /// use graphrun_guard::data_limit::DataLimit;
    ///
    /// assert!(DataLimit::ValueDepth.check(64).is_ok());
    /// assert!(DataLimit::ValueDepth.check(65).is_err());
    /// ```
    pub fn check(self, amount: u64) -> Result<(), DataLimitReached> {
        let max = self.value();
        if amount <= max { Ok(()) } else { Err(DataLimitReached { limit: self, max }) }
    }

    #[rustfmt::skip] // a line for each
    fn row(self) -> (&'static str, u64) {
        match self {
            Self::FileBytes => ("file_bytes", 1 << 20),
            Self::AttachmentBytes => ("attachment_bytes", 16 << 20),
            Self::YamlNodes => ("yaml_nodes", 50_000),
            Self::SchemaNodes => ("schema_nodes", 100_000),
            Self::GraphNodes => ("graph_nodes", 20_000),
            Self::ExpressionSteps => ("expression_steps", 5_000_000),
            Self::ExpressionMemory => ("expression_memory", 32 << 20),
            Self::TemplateSteps => ("template_steps", 5_000_000),
            Self::TemplateBytes => ("template_bytes", 16 << 20),
            Self::InputBytes => ("input_bytes", 64 << 20),
            Self::ValueDepth => ("value_depth", 64),
            Self::ValueMemory => ("value_memory", 176 << 20),
            Self::StateMemory => ("state_memory", 176 << 20),
            Self::MapItems => ("map_items", 300_000),
        }
    }
}

impl fmt::Display for DataLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Data is larger than a limit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("larger than the limit `{limit}` of {max}; to raise it, set {}", limit.variable())]
pub struct DataLimitReached {
    /// The limit.
    pub limit: DataLimit,
    /// Its value.
    pub max: u64,
}

/// The values that were set for this process.
static SET: OnceLock<BTreeMap<DataLimit, u64>> = OnceLock::new();

/// Sets the limits of this process. Those that are not named keep their defaults.
///
/// # Errors
///
/// Fails when the limits were set before, and when a value is 0 or above the highest one.
pub fn set_data_limits(values: BTreeMap<DataLimit, u64>) -> Result<(), SetDataLimitsError> {
    for (limit, value) in &values {
        if *value == 0 || *value > limit.highest_value() {
            return Err(SetDataLimitsError::Value { limit: *limit, value: *value });
        }
    }
    SET.set(values).map_err(|_| SetDataLimitsError::SetBefore)
}

/// The limits of this process cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SetDataLimitsError {
    /// They were set before.
    #[error("the limits of this process were set before")]
    SetBefore,
    /// A value is out of range.
    #[error("the limit `{limit}` cannot be {value}: it is between 1 and {}", limit.highest_value())]
    Value {
        /// The limit.
        limit: DataLimit,
        /// The value.
        value: u64,
    },
}
