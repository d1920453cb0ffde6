//! The names that a text mentions, each with the path of its declaration in the workflow.
//!
//! A field of a record is declared where its type is written: in the state, or in a named type. The path follows from the outline
//! alone, so it is known in a file with mistakes, too.

use std::{ops::Range, path::PathBuf};

use super::{
    expressions::{
        ExpectedKind, binding_of, binds_next, expected_in, is_word, trailing_chain, variables,
        without_texts,
    },
    grammar::{Role, role},
    templates::{Code, codes},
    workspace::DocumentView,
};
use crate::workflow::{Part, QuotedText, ScalarText, Step, quoted_texts, source_paths};

/// The most types between a field and one of its parts.
const TYPES_MAX: usize = 16;

/// A name in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mention {
    /// The path of the declaration.
    pub(super) declared: Vec<Step>,
    /// The bytes of the name in the text.
    pub(super) range: Range<usize>,
}

/// What the place of a text says about the names in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    /// A text that binds the item of a `map`.
    pub(super) bound: String,
    /// The declaration of the field that the value is for.
    target: Option<Vec<Step>>,
}

/// Returns the path of an entry of a section.
pub(super) fn entry(section: &str, name: &str) -> Vec<Step> {
    vec![Step::Key(section.to_owned()), Step::Key(name.to_owned())]
}

/// Returns the section that declares the names of a role.
pub(super) fn section_of(role: Role) -> Option<&'static str> {
    Some(match role {
        Role::Node | Role::Target => "nodes",
        Role::Field | Role::Path => "state",
        Role::Agent => "agents",
        Role::Model => "models",
        Role::Sandbox => "sandboxes",
        Role::Folder => "folders",
        Role::Tier => "memory",
        Role::Tool => "tools",
        Role::Type => "types",
        Role::Prompt
        | Role::Expression
        | Role::Template
        | Role::Value
        | Role::State
        | Role::SchemaFile
        | Role::Workflow
        | Role::Recording
        | Role::Data
        | Role::Word => return None,
    })
}

impl DocumentView<'_> {
    /// Returns the context of a value of the workflow.
    pub(super) fn context_of(&self, path: &[Step]) -> Context {
        let is_field = self.grammar.key_role(path) == Some(Role::Field);
        let target = match path.last() {
            Some(Step::Key(name)) if is_field => Some(entry("state", name)),
            _ => None,
        };
        Context { bound: self.items_of(path), target }
    }

    /// Returns the prompts in files, as the workflow names them, each once, with the path of its name. An agent without `prompt`
    /// has the file with the name of its node.
    pub(super) fn prompts(&self) -> Vec<(PathBuf, Vec<Step>)> {
        let key = |name: &str| Step::Key(name.to_owned());
        let mut found: Vec<(PathBuf, Vec<Step>)> = Vec::new();
        for part in self.outline.parts() {
            let named = value_of(part, self.text).map(|it| it.1);
            let named =
                named.filter(|_| self.grammar.at(&part.path).and_then(role) == Some(Role::Prompt));
            let default = match part.path.as_slice() {
                [nodes, Step::Key(node), last]
                    if *nodes == key("nodes") && *last == key("agent") =>
                {
                    let at = vec![nodes.clone(), key(node), key("prompt")];
                    let is_omitted = self.outline.part(&at).is_none();
                    is_omitted.then(|| (format!("prompts/{node}.md"), at))
                }
                _ => None,
            };
            let named = named.map(|it| (it.to_owned(), part.path.clone()));
            for (path, at) in named.into_iter().chain(default) {
                if !found.iter().any(|(it, _)| it.as_os_str() == path.as_str()) {
                    found.push((path.into(), at));
                }
            }
        }
        found
    }

    /// Returns the files that its prompts may be.
    pub(super) fn prompt_files(&self) -> Vec<PathBuf> {
        let Some(folder) = self.folder() else { return Vec::new() };
        self.prompts().iter().flat_map(|(path, _)| source_paths(folder, path)).collect()
    }

    /// Returns the names in a scalar of this file with a role, with their places in the file.
    pub(super) fn mentions_in(
        &self,
        role: Role,
        scalar: Range<usize>,
        context: &Context,
    ) -> Vec<Mention> {
        let Some(scalar) = ScalarText::of(self.text, scalar) else { return Vec::new() };
        let found = self.mentions(role, scalar.text(), context).into_iter();
        found.map(|it| Mention { range: scalar.in_file(&it.range), ..it }).collect()
    }

    /// Returns the names in a text with a role, which is a value without its quotes, or a prompt.
    pub(super) fn mentions(&self, role: Role, text: &str, context: &Context) -> Vec<Mention> {
        match role {
            Role::Expression => self.in_expression(text, context),
            Role::Template => {
                let mut found = Vec::new();
                let mut context = Context { target: None, ..context.clone() };
                // Text behind an open mark may be no code.
                for Code { range: code, .. } in codes(text).into_iter().filter(|it| it.is_closed) {
                    let inner = self.in_expression(&text[code.clone()], &context);
                    found.extend(inner.into_iter().map(|it| it.moved(code.start)));
                    // A loop binds its variable for the code after it.
                    context.bound.push_str(&text[code]);
                    context.bound.push(' ');
                }
                found
            }
            Role::Type => type_name(text)
                .map(|range| Mention { declared: entry("types", &text[range.clone()]), range })
                .into_iter()
                .collect(),
            Role::Sandbox if self.outline.under(&["hosts", text]).is_some() => {
                vec![Mention { declared: entry("hosts", text), range: 0..text.len() }]
            }
            role => {
                let declared = section_of(role).map(|it| entry(it, text));
                declared
                    .map(|it| Mention { declared: it, range: 0..text.len() })
                    .into_iter()
                    .collect()
            }
        }
    }

    /// Returns the path of the declaration of the field at the end of a chain such as `tasks[0].title`, after a text that may
    /// bind names. A variable has that of its list.
    pub(super) fn declared_field(&self, chain: &str, before: &str) -> Option<Vec<Step>> {
        let mut names = chain.split('.').map(|it| it.split('[').next().unwrap_or_default());
        let first = names.next().filter(|it| !it.is_empty())?;
        let root = match binding_of(first, before) {
            Some((list, before)) => self.declared_field(list, before)?,
            None => entry("state", first),
        };
        names.try_fold(root, |of, name| self.declared_part(&of, name))
    }

    /// Returns the path of the declaration of a field of a record, or of the items of a list of records.
    pub(super) fn declared_part(&self, of: &[Step], name: &str) -> Option<Vec<Step>> {
        let mut path = of.to_vec();
        for _ in 0..TYPES_MAX {
            let below = |step: Step| [&path[..], &[step]].concat();
            // The long form of a field.
            let ty = below(Step::Key("type".to_owned()));
            let field = below(Step::Key(name.to_owned()));
            let items = below(Step::Item(0));
            if self.outline.part(&ty).is_some() {
                path = ty;
            } else if self.outline.part(&field).is_some() {
                return Some(field);
            } else if self.outline.part(&items).is_some() {
                path = items;
            } else {
                let text = self.text.get(self.outline.part(&path)?.value.clone()?)?;
                let named = type_name(text).map(|it| entry("types", &text[it]));
                path = named.filter(|it| self.outline.part(it).is_some())?;
            }
        }
        None
    }

    /// Returns whether a key declares a field of a record.
    pub(super) fn declares_part(&self, path: &[Step]) -> bool {
        let [Step::Key(section), _, .., Step::Key(_)] = path else { return false };
        let outer = &path[..path.len() - 1];
        let has_long_form = self.outline.part(&[outer, &[Step::Key("type".into())]].concat());
        path.len() > 2
            && matches!(section.as_str(), "state" | "types")
            && has_long_form.is_none()
            && self.grammar.at(path).and_then(role) == Some(Role::Type)
    }

    /// Returns the path of the declaration of a field in the default of another one, if a key is such a field.
    pub(super) fn declared_in_default(&self, path: &[Step]) -> Option<Vec<Step>> {
        let at = path.iter().position(|it| *it == Step::Key("default".to_owned()))?;
        let field = &path[..at];
        let inside = &path[at + 1..];
        self.outline.part(&[field, &[Step::Key("type".to_owned())]].concat())?;
        inside.last()?;
        inside.iter().try_fold(field.to_vec(), |of, step| match step {
            Step::Key(name) => self.declared_part(&of, name),
            Step::Item(_) => Some(of),
        })
    }

    /// Returns the fields and nodes that an expression names.
    fn in_expression(&self, text: &str, context: &Context) -> Vec<Mention> {
        let texts: Vec<QuotedText> = quoted_texts(text).collect();
        let mut found = Vec::new();
        for quoted in texts.iter().filter(|it| expected_in(text, it) == ExpectedKind::Node) {
            // The name of a node of a used workflow begins with that of the node that uses it.
            let inside = quoted.inside();
            let name = text[inside.clone()].split('.').next().unwrap_or_default();
            let range = inside.start..inside.start + name.len();
            found.push(Mention { declared: entry("nodes", name), range });
        }
        let is_code = |word: &Range<usize>| texts.iter().all(|it| !it.range.contains(&word.start));
        for word in words(text).filter(is_code) {
            let declared = self.named_by(text, &word, context);
            found.extend(declared.map(|declared| Mention { declared, range: word }));
        }
        found.sort_by_key(|it| it.range.start);
        found
    }

    /// Returns the path of the declaration of a word in the code of an expression, if it is the name of something.
    fn named_by(
        &self,
        expression: &str,
        word: &Range<usize>,
        context: &Context,
    ) -> Option<Vec<Step>> {
        let name = &expression[word.clone()];
        let inside = &expression[..word.start];
        let behind = &expression[word.end..];
        let before = format!("{}{inside}", context.bound);
        let is_number = name.starts_with(|it: char| it.is_ascii_digit());
        if is_number || behind.starts_with('(') || binds_next(&before) {
            return None;
        }
        if behind.trim_start().starts_with(':') && inside.trim_end().ends_with(['{', ',']) {
            return self.declared_part(&self.record_around(inside, context)?, name);
        }
        if behind.trim_start().starts_with('{') && self.outline.under(&["types", name]).is_some() {
            return Some(entry("types", name));
        }
        let Some(of) = inside.strip_suffix('.') else {
            let is_variable = variables(&before).contains(&name);
            return (!is_variable).then(|| entry("state", name));
        };
        let chain = trailing_chain(of);
        let start = before.len() - 1 - chain.len();
        self.declared_part(&self.declared_field(chain, &before[..start])?, name)
    }

    /// Returns the path of the type of the record whose field begins behind a text.
    fn record_around(&self, before: &str, context: &Context) -> Option<Vec<Step>> {
        let mut open: Vec<Option<Vec<Step>>> = Vec::new();
        for (at, char) in without_texts(before).char_indices() {
            match char {
                '(' => open.push(None),
                '{' | '[' => {
                    let outer = before[..at].trim_end();
                    let around = || open.last().cloned().unwrap_or_else(|| context.target.clone());
                    let last_word =
                        |text: &str| words(text).last().filter(|it| it.end == text.len());
                    open.push(match outer.strip_suffix(':').map(str::trim_end) {
                        Some(field) => last_word(field)
                            .and_then(|it| self.declared_part(&around()?, &field[it])),
                        None => match last_word(outer) {
                            Some(it) => Some(entry("types", &outer[it])),
                            None => around(),
                        },
                    });
                }
                ')' | '}' | ']' => drop(open.pop()),
                _ => (),
            }
        }
        open.pop().flatten()
    }
}

impl Mention {
    /// The same in a text in which this one begins at an offset.
    pub(super) fn moved(self, by: usize) -> Self {
        let Self { declared, range } = self;
        Self { declared, range: range.start + by..range.end + by }
    }
}

/// Returns the text of a part and its place.
pub(super) fn value_of<'t>(part: &Part, text: &'t str) -> Option<(Range<usize>, &'t str)> {
    let range = part.value.clone()?;
    Some((range.clone(), text.get(range)?))
}

/// Returns the named type in the short notation of a type, such as `[Task?]`. The values of an enum are no types.
pub(super) fn type_name(notation: &str) -> Option<Range<usize>> {
    let mut rest = notation.trim_start();
    loop {
        let inner = match rest.strip_prefix('[') {
            Some(item) => item,
            None => match rest.strip_prefix("map[") {
                Some(map) => map.split_once(',')?.1,
                None => break,
            },
        };
        rest = inner.trim_start();
    }
    let name = rest.split(['?', ']', '[', ',']).next()?.trim_end();
    let start = notation.len() - rest.len();
    (!name.is_empty() && name.chars().all(is_word)).then(|| start..start + name.len())
}

/// Returns the words of a text that could be names.
pub(super) fn words(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(is_word)?;
        let end = start + text[start..].find(|it| !is_word(it)).unwrap_or(text.len() - start);
        at = end;
        Some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lsp::workspace::Workspace, workflow::Registry};

    const TEXT: &str = "graphrun: 1
types: { Task: { title: string, by: { name: string } } }
state:
  a: { b: string, notes: [{ text: string }] }
  tasks: [Task]
  best: { type: \"Task?\", default: null }
";

    /// Returns the names that a text mentions, each with the keys of its declaration.
    fn names(role: Role, text: &str, bound: &str) -> Vec<String> {
        let mut workspace = Workspace::new(Registry::new());
        workspace.set("file:///w.yaml".to_owned(), 1, TEXT.to_owned());
        let view = workspace.view("file:///w.yaml").unwrap();
        let target = Some(entry("state", "best"));
        let context = Context { bound: bound.to_owned(), target };
        let shown = |mention: Mention| {
            let keys = mention.declared.iter().filter_map(|step| match step {
                Step::Key(key) => Some(key.as_str()),
                Step::Item(_) => None,
            });
            let path = keys.collect::<Vec<_>>().join(".");
            let word = &text[mention.range];
            assert!(path.ends_with(word), "{path} {word}");
            path
        };
        view.mentions(role, text, &context).into_iter().map(shown).collect()
    }

    #[test]
    fn an_expression_names_fields_and_nodes_but_not_its_variables() {
        let text = "a.b == \"a\" && xs.exists(x, x.a == c) && visits(\"n\") > 1";
        assert_eq!(
            names(Role::Expression, text, ""),
            ["state.a", "state.a.b", "state.xs", "state.c", "nodes.n"]
        );
        assert_eq!(
            names(Role::Expression, "T{ a: b, c: d }", ""),
            ["state.T", "state.b", "state.d"]
        );
        assert_eq!(names(Role::Expression, "item.x", "for item in y "), [""; 0]);
    }

    #[test]
    fn a_field_of_a_record_is_declared_in_its_type() {
        let expression = |text| names(Role::Expression, text, "for task in tasks ");
        assert_eq!(expression("task.title"), ["types.Task.title"]);
        assert_eq!(expression("task.by.name"), ["types.Task.by", "types.Task.by.name"]);
        assert_eq!(expression("best.title"), ["state.best", "types.Task.title"]);
        assert_eq!(expression("tasks[0].title"), ["state.tasks", "types.Task.title"]);
        assert_eq!(
            expression("tasks.all(it, it.by.name == it.title)")[1..],
            ["types.Task.by", "types.Task.by.name", "types.Task.title"]
        );
        assert_eq!(
            expression("a.notes[1].text"),
            ["state.a", "state.a.notes", "state.a.notes.text"]
        );
        assert_eq!(
            expression("[Task{ title: task.title, by: { name: 'x' } }]"),
            [
                "types.Task",
                "types.Task.title",
                "types.Task.title",
                "types.Task.by",
                "types.Task.by.name"
            ]
        );
        assert_eq!(expression("{ title: 'x' }"), ["types.Task.title"]);
        // The type of a call is unknown.
        assert_eq!(expression("tasks.first().title"), ["state.tasks"]);
    }

    #[test]
    fn a_text_in_quotes_names_a_node_where_a_node_is_meant() {
        let expression = |text| names(Role::Expression, text, "");
        assert_eq!(expression(r#"b != "say \"a\" now" || a == 'it\'s a'"#), ["state.b", "state.a"]);
        assert_eq!(expression("via.node == \"n\" && b == \"n\"")[1..], ["nodes.n", "state.b"]);
        assert_eq!(expression("'n' != via.node")[..1], ["nodes.n"]);
        let found = expression("via.node in ['n', 'm-1']");
        assert_eq!(found[found.len() - 2..], ["nodes.n", "nodes.m-1"]);
        assert_eq!(expression("visits('n.inner')"), ["nodes.n"]);
    }

    #[test]
    fn the_values_of_an_enum_are_no_types() {
        let ty = |text| names(Role::Type, text, "");
        assert_eq!(ty("open | closed"), [""; 0]);
        for notation in ["Task", "Task?", "[Task]?", "[ [Task?] ]", "map[string, [Task]]"] {
            assert_eq!(ty(notation), ["types.Task"], "{notation}");
        }
        assert_eq!(ty("[Task | other]"), [""; 0]);
        assert_eq!(ty("{ a: Task }"), [""; 0]);
    }

    #[test]
    fn only_the_code_of_a_template_names_fields() {
        let text = "a {{ a }} {# a #} {% for b in a.c %}{{ b }}{{ d | join(e) }}{% endfor %}";
        let found = names(Role::Template, text, "");
        let count = |name: &str| found.iter().filter(|it| *it == name).count();
        assert_eq!((count("state.a"), count("state.b")), (2, 0), "{found:?}");
        assert_eq!((count("state.d"), count("state.e")), (1, 1), "{found:?}");
        let text = "{% raw %}{{ a }}{% endraw %}{{ a }}{{ '}} a' ~ c }}";
        assert_eq!(names(Role::Template, text, ""), ["state.a", "state.c"]);
        let text = "{% for task in tasks %}{{ task.title }}{% endfor %}{{ a.b }}";
        let found = names(Role::Template, text, "");
        assert!(found.contains(&"types.Task.title".to_owned()), "{found:?}");
        assert!(found.contains(&"state.a.b".to_owned()), "{found:?}");
    }
}
