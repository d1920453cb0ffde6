//! The codes of findings, each with a title. A code never changes its meaning.

/// A code and what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Such as `GR010`.
    pub code: &'static str,
    /// What is wrong, in a few words.
    pub title: &'static str,
}

/// Every code: 00x and 01x shape and names, 02x expressions, 03x graph, 04x prompts and safety.
pub const CODES: &[Code] = &[
    code("GR001", "the file is not the YAML that this format takes"),
    code("GR002", "a key or a name is given twice"),
    code("GR003", "a key is not known here"),
    code("GR004", "this version does not support it yet"),
    code("GR005", "a value is of the wrong kind"),
    code("GR006", "something is missing"),
    code("GR007", "a node has not exactly one kind"),
    code("GR008", "the version of the format is not known"),
    code("GR009", "a name or a value is not allowed"),
    code("GR010", "there is no such node"),
    code("GR011", "there is no such agent"),
    code("GR012", "there is no such model"),
    code("GR013", "a prompt file cannot be read"),
    code("GR014", "there is no such type, or it cannot be a state"),
    code("GR015", "there is no such sandbox"),
    code("GR016", "a name is reserved"),
    code("GR017", "there is no such kind of error"),
    code("GR018", "something is declared and never used"),
    code("GR019", "a reducer is unknown or does not fit its field"),
    code("GR020", "an expression cannot be parsed"),
    code("GR021", "there is no such field, name or function"),
    code("GR022", "types do not go together"),
    code("GR023", "a text is never a value of an enum"),
    code("GR024", "a value has no case"),
    code("GR025", "a case is never reached"),
    code("GR026", "a value may be absent"),
    code("GR030", "nothing leads to a node"),
    code("GR031", "no way leads to an end"),
    code("GR032", "a loop has no bound"),
    code("GR033", "a bound leads back into its loop"),
    code("GR034", "bounds are reset without a bound"),
    code("GR035", "a field is read that nothing has written"),
    code("GR036", "two nodes write one field in the same step"),
    code("GR037", "a join names no node, or one twice"),
    code("GR038", "a node waits for two sets of nodes"),
    code("GR039", "a branch of a parallel cannot do this"),
    code("GR040", "a prompt cannot be parsed"),
    code("GR041", "a prompt uses a name that it cannot know"),
    code("GR046", "text of the state in a command"),
    code("GR047", "a secret is written in the file"),
];

/// What a code stands for.
pub fn title(code: &str) -> Option<&'static str> {
    CODES.iter().find(|it| it.code == code).map(|it| it.title)
}

const fn code(code: &'static str, title: &'static str) -> Code {
    Code { code, title }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        assert!(CODES.windows(2).all(|pair| pair[0].code < pair[1].code));
        assert_eq!(title("GR010"), Some("there is no such node"));
        assert_eq!(title("GR999"), None);
    }
}
