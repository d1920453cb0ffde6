//! The input of a run: `-i KEY=VALUE`, `-i KEY=@file`, `-i @file.json`, parsed by the types of the
//! fields. The file `-` is stdin.
//!
//! All mistakes are reported together, before the run starts.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Read},
    path::Path,
    str::FromStr,
    sync::Arc,
};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Map, Value, json};

use super::keys::redact_given;
use crate::{
    beneath::{open_given, without_mark},
    cli::{
        error::CliError,
        output::{json::not_json, words::quoted_list},
    },
    data_limit::DataLimit,
    diagnostic::did_you_mean,
    id::ChannelName,
    models::Attachment,
    state::{Channel, Compact, Schema, Type, Update, read_json, read_json_fields},
    workflow::kind::file_type,
};

/// One `-i` of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InputFlag {
    /// `KEY=VALUE`: the text is parsed by the type of the field.
    Text { key: String, text: String },
    /// `KEY=@PATH`: as above, with the text in a file. A field of the type `file` or `[file]` gets the file itself.
    File { key: String, path: String },
    /// `@PATH`: a JSON object of fields.
    Fields { path: String },
}

impl FromStr for InputFlag {
    type Err = String;

    fn from_str(flag: &str) -> Result<Self, Self::Err> {
        if let Some(path) = flag.strip_prefix('@') {
            return match path {
                "" => Err("a path must follow `@`".to_owned()),
                path => Ok(Self::Fields { path: path.to_owned() }),
            };
        }
        let (key, text) =
            flag.split_once('=').ok_or("expected KEY=VALUE, KEY=@FILE or @FILE.json")?;
        let key = key.trim().to_owned();
        if key.is_empty() {
            return Err("there is no field name before `=`".to_owned());
        }
        Ok(match text.strip_prefix('@') {
            Some("") => {
                return Err("a path must follow `@`; for the text `@`, write `@@`".to_owned());
            }
            // A text may begin with `@`, too.
            Some(literal) if literal.starts_with('@') => {
                Self::Text { key, text: literal.to_owned() }
            }
            Some(path) => Self::File { key, path: path.to_owned() },
            None => Self::Text { key, text: text.to_owned() },
        })
    }
}

/// Reads the flags as the input of a workflow.
///
/// # Errors
///
/// Fails with all mistakes: unreadable files; unknown, duplicate or missing fields; values that do
/// not match the type of their field.
pub(crate) fn read(
    flags: &[InputFlag],
    schema: &Schema,
    input: &[ChannelName],
) -> Result<Update, CliError> {
    let values = BTreeMap::new();
    let problems = Vec::new();
    let mut reading =
        InputReader { schema, input, values, problems, has_read_stdin: false, bytes: 0 };
    for flag in flags {
        match flag {
            InputFlag::Text { key, text } => reading.text(key, text),
            InputFlag::File { key, path } => reading.file_of_field(key, path),
            InputFlag::Fields { path } => reading.fields(path),
        }
    }
    reading.finish().map_err(|problems| {
        CliError::usage("the input does not fit the workflow; nothing was started")
            .with_problems(problems)
            .with_help(
                "give a field with `-i KEY=VALUE` or `-i KEY=@FILE`, several with `-i @FILE.json`",
            )
    })
}

/// Reads fields as the input of a workflow.
///
/// # Errors
///
/// Fails with all mistakes, as [`read`] does.
pub(crate) fn of_fields(
    fields: &Map<String, Value>,
    schema: &Schema,
    input: &[ChannelName],
) -> Result<Update, Vec<String>> {
    let values = BTreeMap::new();
    let problems = Vec::new();
    let mut reading =
        InputReader { schema, input, values, problems, has_read_stdin: false, bytes: 0 };
    for (key, value) in fields {
        if let Some(channel) = reading.channel(key) {
            reading.put(&channel, Some(value.clone()));
        }
    }
    reading.finish()
}

/// The input read so far, and its problems.
struct InputReader<'a> {
    schema: &'a Schema,
    input: &'a [ChannelName],
    /// `None` for a given field that cannot be read: it is not missing.
    values: BTreeMap<ChannelName, Option<Value>>,
    problems: Vec<String>,
    has_read_stdin: bool,
    /// The number of bytes read from files and stdin so far.
    bytes: u64,
}

/// The fields of a JSON object in order, because a map would hide duplicate names.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<_, Compact>()? {
                    fields.push((name, value.into_value()));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

impl InputReader<'_> {
    fn file_of_field(&mut self, key: &str, path: &str) {
        let Some(channel) = self.channel(key) else { return };
        match channel.ty().required() {
            ty if *ty == file_type() => {
                let file = self.attachment(key, path);
                self.put(&channel, file);
            }
            Type::List(item) if *item.required() == file_type() => {
                let file = self.attachment(key, path);
                // Each flag adds a file.
                match self.values.get_mut(channel.name()) {
                    Some(Some(Value::Array(files))) => files.extend(file),
                    // The one before cannot be read, which is reported.
                    Some(None) => {}
                    _ => self.put(&channel, file.map(|it| json!([it]))),
                }
            }
            Type::List(_) if is_of_lines(path) => {
                let list = self.file(path).and_then(|it| self.lines(path, &it));
                self.put(&channel, list);
            }
            _ => match self.file(path) {
                Some(text) => self.text(key, &text),
                None => self.put(&channel, None),
            },
        }
    }

    /// Reads a list with an item in each line that is not empty.
    fn lines(&mut self, path: &str, text: &str) -> Option<Value> {
        let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
        let items: Result<Vec<Value>, String> = lines
            .map(|(line, number)| {
                let refused =
                    |error| format!("`{path}`, line {number}: {}", not_json(line, &error));
                read_json(line).map_err(refused)
            })
            .collect();
        items.map_err(|it| self.problems.push(it)).ok().map(Value::Array)
    }

    fn attachment(&mut self, key: &str, path: &str) -> Option<Value> {
        let content = self.content(path)?;
        match Attachment::of_file(path, &content) {
            Ok(file) => Some(file.to_value()),
            Err(error) => {
                self.problems.push(format!("`{key}`: {error}"));
                None
            }
        }
    }

    fn text(&mut self, key: &str, text: &str) {
        let Some(channel) = self.channel(key) else { return };
        let value = read_text(channel.ty(), text)
            .map_err(|problem| self.problems.push(format!("`{key}`: {problem}")));
        self.put(&channel, value.ok());
    }

    fn fields(&mut self, path: &str) {
        let Some(text) = self.file(path) else { return };
        match read_json_fields(&text) {
            Ok(Fields(fields)) => {
                for (key, value) in fields {
                    if let Some(channel) = self.channel(&key) {
                        self.put(&channel, Some(value));
                    }
                }
            }
            Err(error) if error.is_limit() => self.problems.push(format!("`{path}`: {error}")),
            Err(error) => {
                self.problems.push(format!("`{path}` is not a JSON object of fields: {error}"));
            }
        }
    }

    /// Returns the text of a file, without the byte order mark of some editors.
    fn file(&mut self, path: &str) -> Option<String> {
        match String::from_utf8(self.content(path)?) {
            Ok(text) => Some(without_mark(text)),
            Err(error) => {
                let error = error.utf8_error();
                self.problems.push(format!("cannot read `{path}`: it is not UTF-8: {error}"));
                None
            }
        }
    }

    fn content(&mut self, path: &str) -> Option<Vec<u8>> {
        let read = match path {
            "-" if self.has_read_stdin => Err(io::Error::other("stdin can be read once only")),
            "-" => {
                self.has_read_stdin = true;
                self.read(io::stdin().lock())
            }
            path => {
                open_given(Path::new(path)).map_err(io::Error::from).and_then(|it| self.read(it))
            }
        };
        read.map_err(|error| self.problems.push(format!("cannot read `{path}`: {error}"))).ok()
    }

    /// Reads up to the limit of the whole input, since some sources never end.
    fn read(&mut self, from: impl Read) -> io::Result<Vec<u8>> {
        let limit = DataLimit::InputBytes;
        let left = limit.value().saturating_sub(self.bytes);
        let mut bytes = Vec::new();
        from.take(left.saturating_add(1)).read_to_end(&mut bytes)?;
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        limit.check(self.bytes).map_err(|reached| {
            io::Error::new(io::ErrorKind::FileTooLarge, format!("the input is {reached}"))
        })?;
        Ok(bytes)
    }

    /// Returns the input field of that name.
    fn channel(&mut self, key: &str) -> Option<Channel> {
        if self.input.iter().any(|it| it.as_str() == key) {
            return self.schema.channel(key).cloned();
        }
        let names: Vec<&str> = self.input.iter().map(ChannelName::as_str).collect();
        let hint = match did_you_mean(key, names.iter().copied()) {
            Some(name) => format!("; did you mean `{name}`?"),
            None if names.is_empty() => "; the workflow takes no input".to_owned(),
            None => format!("; the workflow takes {}", quoted_list(&names)),
        };
        self.problems.push(format!("`{key}` is not an input of the workflow{hint}"));
        None
    }

    fn put(&mut self, channel: &Channel, mut value: Option<Value>) {
        let name = channel.name();
        if let Some(value) = &mut value {
            redact_given(name.as_str(), value);
        }
        if let Some(Err(misfits)) = value.as_ref().map(|it| channel.check(it)) {
            self.problems.extend(misfits.into_iter().map(|it| format!("`{name}`: {it}")));
        }
        if self.values.insert(name.clone(), value).is_some() {
            self.problems.push(format!("`{name}` is given twice"));
        }
    }

    fn finish(mut self) -> Result<Update, Vec<String>> {
        for name in self.input {
            let channel = self.schema.channel(name.as_str());
            let channel = channel.filter(|it| it.is_needed_as_input());
            if let Some(channel) = channel
                && !self.values.contains_key(name)
            {
                self.problems
                    .push(format!("`{name}` is missing (it is {})", article(channel.ty())));
            }
        }
        if self.problems.is_empty() {
            let writes = self.values.into_iter();
            let writes = writes.filter_map(|(name, value)| Some((name, Arc::new(value?))));
            return Ok(Update { writes: writes.collect(), ..Update::default() });
        }
        Err(self.problems)
    }
}

/// Returns whether each line of a file is an item of a list.
fn is_of_lines(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|it| it == "jsonl")
}

/// Parses a text as a value of a type.
fn read_text(ty: &Type, text: &str) -> Result<Value, String> {
    match ty.required() {
        Type::String => Ok(Value::from(text)),
        // The check of the field validates them.
        Type::Date | Type::Duration => Ok(Value::from(text.trim())),
        Type::Enum(values) => {
            let text = text.trim();
            if values.iter().any(|it| it == text) {
                return Ok(Value::from(text));
            }
            let hint = did_you_mean(text, values.iter().map(String::as_str))
                .map(|it| format!("; did you mean `{it}`?"));
            Err(format!("`{text}` is not one of {}{}", values.join(", "), hint.unwrap_or_default()))
        }
        other => read_json(text).map_err(|error| {
            if error.is_limit() {
                return error.to_string();
            }
            let expected = article(other);
            let found = not_json(text, &error);
            format!("it is {expected}, as in `{}`; {found}", example(other))
        }),
    }
}

/// Returns an example of a value that is written as JSON.
fn example(ty: &Type) -> &'static str {
    match ty.required() {
        Type::Bool => "true",
        Type::Int(_) => "3",
        Type::Float(_) => "0.5",
        Type::List(_) => "[…]",
        Type::Map(_) | Type::Record(_) => "{…}",
        _ => "\"text\"",
    }
}

fn article(ty: &Type) -> String {
    match ty.required() {
        Type::List(item) => format!("a list of {item}"),
        Type::Int(_) => "a whole number (int)".to_owned(),
        Type::Float(_) => "a number (float)".to_owned(),
        Type::String => "a text (string)".to_owned(),
        Type::Any => "any JSON value".to_owned(),
        other => format!("of type {other}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{cli::output::terminal::Paint, state::Reducer};

    fn schema() -> (Schema, Vec<ChannelName>) {
        let fields = [
            ("brief", json!({"type": "string"})),
            ("rounds", json!({"type": "integer", "minimum": 1})),
            ("mode", json!({"enum": ["quick", "thorough"]})),
            ("tags", json!({"type": "array", "items": {"type": "string"}})),
            ("note", json!({"type": ["string", "null"]})),
        ];
        let names: Vec<ChannelName> =
            fields.iter().map(|(name, _)| ChannelName::parse(name).unwrap()).collect();
        let channels = fields.into_iter().zip(&names).map(|((_, schema), name)| {
            Channel::new(name.clone(), schema, Reducer::Replace).unwrap()
        });
        (Schema::new(channels).unwrap(), names)
    }

    fn read_flags(flags: &[&str]) -> Result<Value, String> {
        let (schema, input) = schema();
        let flags: Vec<InputFlag> = flags.iter().map(|it| it.parse().unwrap()).collect();
        match read(&flags, &schema, &input) {
            Ok(update) => {
                let writes = update.writes.into_iter();
                let writes = writes.map(|(name, value)| (name.to_string(), Value::clone(&value)));
                Ok(writes.collect::<Map<_, _>>().into())
            }
            Err(error) => Err(error.draw(Paint::new(false), 80)),
        }
    }

    #[test]
    fn values_are_read_by_the_type_of_their_field() {
        let read = read_flags(&["brief=3", "rounds=3", "mode=quick", r#"tags=["a"]"#, "note=null"]);
        let expected =
            json!({"brief": "3", "rounds": 3, "mode": "quick", "tags": ["a"], "note": "null"});
        assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn a_file_of_lines_is_a_list() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tags.jsonl");
        let flags = ["brief=x", "rounds=1", "mode=quick", &format!("tags=@{}", path.display())];
        fs::write(&path, "\u{feff}\"a\"\n\n  \"b\"\r\n").unwrap();
        assert_eq!(read_flags(&flags).unwrap()["tags"], json!(["a", "b"]));
        for (text, expected) in [
            ("\"a\"\nb\n", "tags.jsonl`, line 2: expected JSON, found: `b`"),
            ("\"a\"\n2\n", "`tags`: /1: 2 is not of type \"string\""),
        ] {
            fs::write(&path, text).unwrap();
            let error = read_flags(&flags).unwrap_err();
            assert!(error.contains(expected) && !error.contains("missing"), "{error}");
        }
    }

    #[test]
    fn all_mistakes_are_reported_together() {
        let error = read_flags(&[
            "brif=x",
            "rounds=many",
            "mode=quik",
            "tags=[1]",
            "rounds=0",
            "note=@/no/such/file",
            "colour=red",
        ]);
        insta::assert_snapshot!(error.unwrap_err());
    }

    #[test]
    fn a_field_whose_file_cannot_be_read_is_not_missing_as_well() {
        let flags = ["brief=@/no/such/file", "rounds=1", "mode=quick", "tags=[]"];
        let error = read_flags(&flags).unwrap_err();
        assert!(
            error.contains("cannot read `/no/such/file`") && !error.contains("missing"),
            "{error}"
        );
    }

    #[test]
    fn texts_and_objects_can_come_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let brief = folder.path().join("brief.md");
        let fields = folder.path().join("fields.json");
        fs::write(&brief, "line one\nline two\n").unwrap();
        fs::write(&fields, r#"{"rounds": 2, "mode": "thorough", "tags": []}"#).unwrap();
        let flags = [format!("brief=@{}", brief.display()), format!("@{}", fields.display())];
        let read = read_flags(&flags.each_ref().map(String::as_str)).unwrap();
        let expected = json!({
            "brief": "line one\nline two\n", "rounds": 2, "mode": "thorough", "tags": [],
        });
        assert_eq!(read, expected);
    }

    #[test]
    fn a_file_may_begin_with_a_bom_and_has_each_field_once() {
        let folder = tempfile::tempdir().unwrap();
        let fields = folder.path().join("fields.json");
        let read = |text: &str| {
            fs::write(&fields, text).unwrap();
            read_flags(&[&format!("@{}", fields.display())])
        };
        let all = r#""rounds": 2, "mode": "quick", "tags": []"#;
        let marked = read(&format!("\u{feff}{{\"brief\": \"x\", {all}}}"));
        assert_eq!(marked.unwrap()["brief"], "x");
        let twice = read(&format!(r#"{{"brief": "x", {all}, "brief": "y"}}"#)).unwrap_err();
        assert!(twice.contains("  - `brief` is given twice\n"), "{twice}");
        let list = read("[1]").unwrap_err();
        assert!(list.contains("is not a JSON object of fields: invalid type: sequence"), "{list}");
    }

    #[test]
    fn a_text_may_begin_with_the_sign_for_files() {
        let flag: InputFlag = "brief=@@home".parse().unwrap();
        assert_eq!(flag, InputFlag::Text { key: "brief".into(), text: "@home".into() });
        assert!("brief".parse::<InputFlag>().is_err());
        assert!("=x".parse::<InputFlag>().is_err());
        assert!("@".parse::<InputFlag>().is_err());
    }

    #[test]
    fn an_input_without_an_end_is_refused_at_its_limit() {
        let (schema, input) = schema();
        let values = BTreeMap::new();
        let problems = Vec::new();
        let mut reading = InputReader {
            schema: &schema,
            input: &input,
            values,
            problems,
            has_read_stdin: false,
            bytes: 0,
        };
        assert_eq!(reading.read(&b"text"[..]).unwrap(), b"text");
        let error = reading.read(io::repeat(b'x')).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("GRAPHRUN_LIMIT_INPUT_BYTES"), "{error}");
        assert_eq!(reading.bytes, DataLimit::InputBytes.value() + 1);
        // All inputs together have one limit.
        assert!(reading.read(&b"text"[..]).is_err());
    }

    #[test]
    fn values_that_are_too_deep_or_would_lose_digits_are_refused() {
        let deep = format!("tags={}{}", "[".repeat(127), "]".repeat(127));
        let flags = ["brief=x", "rounds=18446744073709551616", "mode=quick", &deep];
        let error = read_flags(&flags).unwrap_err();
        assert!(error.contains("`rounds`: the whole number 18446744073709551616"), "{error}");
        assert!(
            error.contains("`tags`: it is larger than the limit `value_depth` of 64"),
            "{error}"
        );
        let error = read_flags(&["brief=x", "rounds=9007199254740993.0", "mode=quick", "tags=[]"]);
        assert!(error.unwrap_err().contains("may have lost digits"));
    }
}
