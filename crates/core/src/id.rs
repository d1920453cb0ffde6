//! Names and identifiers that all modules share.

use std::{
    borrow::{Borrow, Cow},
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
    time::UNIX_EPOCH,
};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;
use ulid::Ulid;

/// The maximum length of the name of a node, a channel or a run.
const NAME_LENGTH_MAX: usize = 64;
/// The maximum depth of workflows that use each other.
pub const SCOPE_DEPTH_MAX: usize = 8;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident($text:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name($text);

        impl $name {
            /// Parses a name: a letter or `_`, followed by letters, digits, `_` or `-`.
            ///
            /// # Errors
            ///
            /// Returns the reason if the text is not a name.
            pub fn parse(name: &str) -> Result<Self, NameError> {
                check_name(name).map(|()| Self(name.into()))
            }

            /// Parses a name, or a path with the names of used workflows and a name in the last
            /// one, separated by `.`: `review.lint`.
            ///
            /// # Errors
            ///
            /// Returns the reason if the text is not such a path.
            pub fn parse_path(path: &str) -> Result<Self, NameError> {
                if path.split('.').count() > SCOPE_DEPTH_MAX + 1 {
                    return Err(NameError::TooDeep(path.to_owned()));
                }
                path.split('.').try_for_each(check_name).map(|()| Self(path.into()))
            }

            /// Returns the name of this one in a workflow that uses its workflow as `scope`.
            #[must_use]
            pub fn within(&self, scope: &NodeName) -> Self {
                Self(format!("{scope}.{self}").into())
            }

            /// Returns the used workflow that contains it, such as `a.b` for `a.b.c`.
            pub fn scope(&self) -> Option<&str> {
                self.0.rsplit_once('.').map(|(scope, _)| scope)
            }

            /// Returns the name within a used workflow, if it is in that workflow or in one used
            /// there.
            pub fn strip_scope(&self, scope: &str) -> Option<&str> {
                self.0.strip_prefix(scope)?.strip_prefix('.')
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                // A node of a nested run has a path through all runs around it, which may be longer than one that authors write.
                let path = String::deserialize(deserializer)?;
                let checked = path.split('.').try_for_each(check_name);
                checked.map(|()| Self(path.into())).map_err(serde::de::Error::custom)
            }
        }
    };
}

name! {
    /// The name of a node, unique within its graph.
    NodeName(Arc<str>)
}
name! {
    /// The name of a state channel, unique within its schema.
    ChannelName(Text)
}

impl ChannelName {
    /// Parses the name of a field of the program, as [`ChannelName::parse`], without a copy of it.
    ///
    /// # Errors
    ///
    /// Returns the reason if the text is not a name.
    pub fn parse_static(name: &'static str) -> Result<Self, NameError> {
        check_name(name).map(|()| Self(Text::Static(name)))
    }
}

/// The text of a name: one of the program, or one that the clones of the name share.
#[derive(Clone)]
enum Text {
    Static(&'static str),
    Shared(Arc<str>),
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Static(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text {}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Shared(text.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl JsonSchema for Text {
    fn schema_name() -> Cow<'static, str> {
        str::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        str::json_schema(generator)
    }

    fn inline_schema() -> bool {
        str::inline_schema()
    }
}

/// The id of a run; by default 26 characters (a ULID) that sort by the time the run began.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct RunId(Arc<str>);

/// Makes a unique id that sorts by time: a ULID.
pub fn unique_id() -> String {
    let since_epoch = UNIX_EPOCH.elapsed().unwrap_or_default();
    let ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
    Ulid::from_parts(ms, rand::random()).to_string()
}

impl RunId {
    /// Makes a new id. Ids sort by the time at which they are made.
    pub fn generate() -> Self {
        Self(unique_id().into())
    }

    /// Parses an id. The caller guarantees that it is unique.
    ///
    /// # Errors
    ///
    /// Fails if the text is empty, longer than 64 bytes, `.` or `..`, begins with `-` like an option, or has other
    /// characters than letters, digits, `_`, `-` and `.`.
    pub fn parse(id: &str) -> Result<Self, NameError> {
        let allowed = |it: char| it.is_ascii_alphanumeric() || "_-.".contains(it);
        if id.is_empty() {
            Err(NameError::Empty)
        } else if id.len() > NAME_LENGTH_MAX {
            Err(NameError::TooLong(id.to_owned()))
        } else if id.starts_with('-') {
            Err(NameError::Dash(id.to_owned()))
        } else if matches!(id, "." | "..") {
            // Runs have folders of their names.
            Err(NameError::Dots(id.to_owned()))
        } else if let Some(found) = id.chars().find(|it| !allowed(*it)) {
            Err(NameError::Character { name: id.to_owned(), found })
        } else {
            Ok(Self(id.into()))
        }
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = String::deserialize(deserializer)?;
        Self::parse(&id).map_err(serde::de::Error::custom)
    }
}

/// The number of a super-step in its run, counted from one; zero is before the first.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Step(pub u64);

impl Step {
    /// Returns the step after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A task: the `index`-th activation of the frontier of `step`.
///
/// The frontier is saved in order, so the same task has the same id when a run is resumed.
/// Ordering by `TaskId` is the order in which updates are applied.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct TaskId {
    /// The super-step of the task.
    pub step: Step,
    /// The index of its activation in the frontier of that step.
    pub index: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.step, self.index)
    }
}

/// The reason why a text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a name must not be empty")]
    Empty,
    /// The text is longer than 64 bytes.
    #[error("`{}` is longer than {NAME_LENGTH_MAX} bytes", shortened(.0))]
    TooLong(String),
    /// The path has too many workflows.
    #[error("`{0}` is more than {SCOPE_DEPTH_MAX} workflows deep")]
    TooDeep(String),
    /// It would read as an option of a command.
    #[error("a name must not begin with `-`, as `{}` does", .0.escape_debug())]
    Dash(String),
    /// It would lead to another folder.
    #[error("`{0}` is a folder, and no name")]
    Dots(String),
    /// A character is not allowed at its position.
    #[error("`{}` is not allowed in the name `{}`", found.escape_debug(), name.escape_debug())]
    Character {
        /// The whole text.
        name: String,
        /// The first invalid character.
        found: char,
    },
}

/// Returns the beginning of a text that may be of any length.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(2 * NAME_LENGTH_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

fn check_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > NAME_LENGTH_MAX {
        return Err(NameError::TooLong(name.to_owned()));
    }
    let wrong = |(at, char): &(usize, char)| {
        let ok = char.is_ascii_alphabetic()
            || *char == '_'
            || (*at > 0 && (char.is_ascii_digit() || *char == '-'));
        !ok
    };
    match name.char_indices().find(wrong) {
        Some((_, found)) => Err(NameError::Character { name: name.to_owned(), found }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_that_a_shell_and_an_expression_can_take() {
        for good in ["ba", "_x", "unit_tests", "qa-2", "A1"] {
            assert_eq!(NodeName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "1a", "-a", "a b", "a.b", "ä", &"x".repeat(65)] {
            assert!(NodeName::parse(bad).is_err(), "{bad:?} was taken for a name");
        }
    }

    #[test]
    fn a_name_of_the_program_is_the_same_as_a_parsed_one() {
        let (here, read) =
            (ChannelName::parse_static("b").unwrap(), ChannelName::parse("b").unwrap());
        assert_eq!((here.cmp(&read), &here), (Ordering::Equal, &read));
        assert!(ChannelName::parse("a").unwrap() < here && here < ChannelName::parse("c").unwrap());
        assert!(std::collections::HashSet::from([here.clone()]).contains(&read));
        assert_eq!(format!("{here:?} {here}"), format!("{read:?} {read}"));
        assert_eq!(serde_json::to_string(&here).unwrap(), "\"b\"");
        assert_eq!(ChannelName::parse_static("1b"), ChannelName::parse("1b"));
    }

    #[test]
    fn a_path_is_names_with_dots_between() {
        let lint = NodeName::parse("lint").unwrap();
        let review = NodeName::parse("review").unwrap();
        let inner = lint.within(&review);
        assert_eq!(NodeName::parse_path("review.lint"), Ok(inner.clone()));
        assert_eq!((inner.scope(), lint.scope()), (Some("review"), None));
        assert_eq!(inner.strip_scope("review"), Some("lint"));
        assert_eq!((inner.strip_scope("rev"), inner.strip_scope("review.lint")), (None, None));
        for bad in ["", ".", "a.", ".a", "a..b", "a.1", &["x"; 10].join(".")] {
            assert!(NodeName::parse_path(bad).is_err(), "{bad:?} was taken for a path");
        }
    }

    #[test]
    fn a_saved_id_of_a_run_is_checked() {
        let read = serde_json::from_str::<RunId>;
        assert_eq!(read("\"r-1\"").unwrap(), RunId::parse("r-1").unwrap());
        let error = read("\"../r\"").unwrap_err().to_string();
        assert!(error.starts_with("`/` is not allowed in the name `../r`"), "{error}");
        assert!(read("\"\"").is_err());
    }

    #[test]
    fn tasks_sort_by_step_then_by_place() {
        let task = |step, index| TaskId { step: Step(step), index };
        assert!(task(2, 9) < task(10, 0) && task(2, 0) < task(2, 1));
    }
}
