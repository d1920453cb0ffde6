//! `--set FIELD=JSON` and `--clear FIELD`: values for channels, from the command line.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde_json::Value;

use super::keys::redact_given;
use crate::{
    cli::{error::CliError, output::json::not_json},
    diagnostic::did_you_mean,
    id::ChannelName,
    state::{Channel, Schema, read_json},
};

/// The flags that change fields.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub(crate) struct SetArgs {
    /// The value of a field, as JSON: a text needs quotes, as in 'title="x"'
    #[arg(long, value_name = "FIELD=JSON")]
    set: Vec<SetFlag>,
    /// A field to clear
    #[arg(long, value_name = "FIELD")]
    clear: Vec<String>,
}

/// One `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetFlag {
    field: String,
    text: String,
}

/// How a value is checked: as the whole value of a channel, or as an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetKind {
    /// The value replaces that of the channel.
    Whole,
    /// The value goes through the reducer of the channel.
    Write,
}

impl fmt::Display for SetFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.field, self.text)
    }
}

impl FromStr for SetFlag {
    type Err = &'static str;

    fn from_str(flag: &str) -> Result<Self, Self::Err> {
        let (field, text) = flag.split_once('=').ok_or("expected FIELD=JSON")?;
        Ok(Self { field: field.trim().to_owned(), text: text.to_owned() })
    }
}

impl SetArgs {
    /// Returns flags that set fields and clear none.
    pub(crate) fn of(set: Vec<SetFlag>) -> Self {
        Self { set, clear: Vec::new() }
    }

    /// Returns whether nothing changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.clear.is_empty()
    }

    /// Reads the flags by the types of the fields; none means a cleared field.
    ///
    /// # Errors
    ///
    /// Fails with all problems.
    pub(crate) fn read(
        &self,
        schema: &Schema,
        kind: SetKind,
    ) -> Result<BTreeMap<ChannelName, Option<Value>>, CliError> {
        let mut values = BTreeMap::new();
        let mut problems = Vec::new();
        let set = self.set.iter().map(|it| (&it.field, Some(it.text.as_str())));
        for (field, text) in set.chain(self.clear.iter().map(|it| (it, None))) {
            let Some(channel) = schema.channel(field) else {
                problems.push(unknown(field, schema));
                continue;
            };
            let value = match text.map(|it| parse(channel, it, kind)) {
                None => None,
                Some(Ok(mut value)) => {
                    redact_given(field, &mut value);
                    Some(value)
                }
                Some(Err(misfits)) => {
                    problems.extend(misfits.into_iter().map(|it| format!("`{field}`: {it}")));
                    continue;
                }
            };
            if values.insert(channel.name().clone(), value).is_some() {
                problems.push(format!("`{field}` is given twice"));
            }
        }
        if problems.is_empty() {
            return Ok(values);
        }
        let message = "the values do not fit the state; nothing was changed";
        Err(CliError::usage(message).with_problems(problems))
    }
}

fn parse(channel: &Channel, text: &str, kind: SetKind) -> Result<Value, Vec<String>> {
    let value = read_json(text).map_err(|error| {
        vec![if error.is_limit() {
            error.to_string()
        } else {
            format!("{}; a text needs quotes, as in `\"text\"`", not_json(text, &error))
        }]
    })?;
    match kind {
        SetKind::Whole => channel.check_whole(&value)?,
        SetKind::Write => channel.check(&value)?,
    }
    Ok(value)
}

fn unknown(field: &str, schema: &Schema) -> String {
    let names = schema.channels().iter().map(|it| it.name().as_str());
    match did_you_mean(field, names) {
        Some(name) => format!("there is no field `{field}`; did you mean `{name}`?"),
        None => format!("there is no field `{field}`"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{cli::output::terminal::Paint, state::Reducer};

    fn schema() -> Schema {
        let channel = |name: &str, schema: Value, reducer| {
            Channel::new(ChannelName::parse(name).unwrap(), schema, reducer).unwrap()
        };
        let texts = json!({"type": "array", "items": {"type": "string"}});
        Schema::new([
            channel("brief", json!({"type": "string"}), Reducer::Replace),
            channel("notes", texts, Reducer::Append),
        ])
        .unwrap()
    }

    fn args(set: &[&str], clear: &[&str]) -> SetArgs {
        SetArgs {
            set: set.iter().map(|it| it.parse().unwrap()).collect(),
            clear: clear.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    #[test]
    fn a_value_is_whole_or_something_to_append() {
        let notes = args(&["notes=\"a\""], &["brief"]);
        let read = notes.read(&schema(), SetKind::Write).unwrap();
        let told: Vec<_> =
            read.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        assert_eq!(told, [("brief", None), ("notes", Some(json!("a")))]);
        assert!(notes.read(&schema(), SetKind::Whole).is_err());
        assert!(args(&["notes=[\"a\"]"], &[]).read(&schema(), SetKind::Whole).is_ok());
    }

    #[test]
    fn all_mistakes_of_set_flags_are_reported_together() {
        let wrong = args(&["brif=\"x\"", "brief=x", "notes=[1]", "notes=[]"], &["notes", "zzzzzz"]);
        let error = wrong.read(&schema(), SetKind::Whole).unwrap_err();
        insta::assert_snapshot!(error.draw(Paint::new(false), 100));
    }
}
