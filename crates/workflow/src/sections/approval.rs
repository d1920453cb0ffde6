//! `approve`: when a person is asked before a command runs on this machine, or before a tool is called.

use crate::source::{reader::Yaml, report::Report};

/// When a person is asked before a command or a call, the strictest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Approval {
    /// Before each call.
    #[default]
    Each,
    /// Before the first call in a run.
    Once,
    /// Never.
    Never,
}

impl Approval {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Each, Self::Once, Self::Never];

    /// Returns the word for it in a workflow.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Each => "each",
            Self::Once => "once",
            Self::Never => "never",
        }
    }

    /// Returns the approval of a word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == word)
    }
}

/// Reads `approve`.
pub(crate) fn read_approval(report: &mut Report, yaml: &Yaml) -> Option<Approval> {
    let word = report.word(yaml, "`approve`")?;
    let approval = Approval::named(&word.text);
    if approval.is_none() {
        let message = format!("`approve` is not `{}`", word.text);
        report.bad_value(&word, message, "write `each`, `once` or `never`");
    }
    approval
}
