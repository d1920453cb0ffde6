//! Mistakes inside a text: an expression, or a prompt.

use std::ops::Range;

use graphrun_core::diagnostic::did_you_mean;

use crate::flow::written::AssignmentGap;

/// A mistake inside an expression or a prompt, placed relative to that text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The code of the diagnostic, such as `GR041`.
    pub code: &'static str,
    /// The bytes within the text.
    pub range: Range<usize>,
    /// The mistake.
    pub message: String,
    /// The text at the place.
    pub label: String,
    /// How to mend it.
    pub help: Option<String>,
    /// The path that causes the problem, if there is one.
    pub gap: Option<Box<AssignmentGap>>,
    /// Whether the workflow loads in spite of it.
    pub is_warning: bool,
}

impl Problem {
    /// Makes a mistake at some bytes of the text.
    pub fn new(
        code: &'static str,
        range: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Self {
        Self {
            code,
            range,
            message: message.into(),
            label: label.into(),
            help: None,
            gap: None,
            is_warning: false,
        }
    }

    /// Makes a warning of it.
    #[must_use]
    pub fn warning(mut self) -> Self {
        self.is_warning = true;
        self
    }

    /// Adds how to mend it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// "did you mean …?", or the list of known names; `None` if there are none.
pub fn suggestion<'n>(word: &str, known: impl IntoIterator<Item = &'n str>) -> Option<String> {
    const SHOWN_MAX: usize = 20;
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(near) = did_you_mean(word, known.iter().copied()) {
        return Some(format!("did you mean `{near}`?"));
    }
    let shown = known.iter().take(SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    match known.len() {
        0 => None,
        1..=SHOWN_MAX => Some(format!("there is: {shown}")),
        _ => Some(format!("there is: {shown}, …")),
    }
}
