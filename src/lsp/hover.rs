//! The text of a hover: a description of the name under the pointer.

use std::ops::Range;

use graphrun_core::words::quoted_list;
use serde_json::Value;

use super::{
    cases,
    expressions::{ExpectedKind, OF_PROMPTS, chain_at, function, quoted_at, type_of},
    grammar::{self, Role},
    protocol::Hover,
    templates::code_at,
    workspace::{DocumentView, Spot, Workspace},
};
use crate::{
    state::{Field, Type},
    workflow::{Fact, ScalarText, Step, source_paths},
};

/// Returns the description of the name at an offset.
pub(super) fn hover(workspace: &Workspace, view: &DocumentView<'_>, at: usize) -> Option<Hover> {
    if let Some((owner, path)) = workspace.owner(view) {
        let (range, text) = CodeAt::in_template(view.text, at)?.about(&owner, &path)?;
        let range = view.lines.range(&range);
        return Some(Hover { contents: text.into(), range });
    }
    let spot = view.spot(at)?;
    if view.is_cases {
        return cases::hover(workspace, view, &spot);
    }
    let scalar = ScalarText::of(view.text, spot.range.clone())?;
    let word = scalar.text();
    let inside = scalar.in_text(at);
    let (range, text) = match spot.role {
        Some(Role::Expression) => CodeAt::in_expression(word, inside).about(view, &spot.path)?,
        Some(Role::Template) => CodeAt::in_template(word, inside)?.about(view, &spot.path)?,
        Some(role) => (0..word.len(), about(view, role, word, &spot)?),
        None => (0..word.len(), about_key(view, &spot)?),
    };
    let range = view.lines.range(&scalar.in_file(&range));
    Some(Hover { contents: text.into(), range })
}

/// Returns the description of a word that names something.
fn about(view: &DocumentView<'_>, role: Role, word: &str, spot: &Spot) -> Option<String> {
    match role {
        Role::Node | Role::Target => view.about_node(word),
        Role::Field => view.about_field(word, ""),
        Role::Agent => view.about_declared("agents", word),
        Role::Model => view.about_declared("models", word),
        Role::Sandbox => {
            view.about_declared("sandboxes", word).or_else(|| view.about_declared("hosts", word))
        }
        Role::Folder => view.about_declared("folders", word),
        Role::Tier => view.about_declared("memory", word),
        Role::Prompt => {
            let found = source_paths(view.folder()?, word.as_ref());
            let found = found.iter().find(|it| it.is_file());
            Some(match found {
                Some(path) => format!("prompt `{}`", path.display()),
                None => "there is no such file".to_owned(),
            })
        }
        Role::Value => {
            let (_, outer) = spot.path.split_last()?;
            let (_, route) = outer.split_last()?;
            let subject: Vec<Step> = [route, &[Step::Key("match".to_owned())]].concat();
            let subject = view.outline.part(&subject)?.value.clone()?;
            let subject = view.text.get(subject)?;
            Some(format!("if `{subject}` is `{word}`"))
        }
        Role::State => {
            let state = view.registry.schema(word)?;
            let fields =
                state.channels().iter().map(|it| format!("- `{}`: `{}`", it.name(), it.ty()));
            Some(format!("**{word}**\n\n{}", fields.collect::<Vec<_>>().join("\n")))
        }
        Role::Type => view.about_declared("types", word),
        Role::Tool | Role::Word => {
            let schema = view.grammar.at(&spot.path).unwrap_or(&Value::Null);
            let Some(about) = grammar::about_word(schema, word) else {
                return view.about_declared("tools", word);
            };
            Some(format!("**{word}**\n\n{about}"))
        }
        Role::Expression
        | Role::Template
        | Role::SchemaFile
        | Role::Workflow
        | Role::Recording
        | Role::Path
        | Role::Data => None,
    }
}

fn about_key(view: &DocumentView<'_>, spot: &Spot) -> Option<String> {
    let key = spot.path.iter().rev().find_map(|step| match step {
        Step::Key(key) => Some(key),
        Step::Item(_) => None,
    })?;
    Some(format!("**{key}**\n\n{}", view.grammar.about_key(&spot.path)?))
}

/// A position in the expression of a text.
struct CodeAt<'a> {
    /// The code before the expression, which may bind names.
    before: String,
    expression: &'a str,
    /// The offset of the expression in the text.
    start: usize,
    /// The offset in the expression.
    at: usize,
}

impl<'a> CodeAt<'a> {
    fn in_expression(expression: &'a str, at: usize) -> Self {
        Self { before: String::new(), expression, start: 0, at }
    }

    /// Returns the expression of a template around an offset.
    fn in_template(text: &'a str, at: usize) -> Option<Self> {
        let (before, range) = code_at(text, at)?;
        let start = range.start;
        Some(Self { before, expression: &text[range], start, at: at - start })
    }

    /// Returns the range in the text, and the description, of the name there.
    fn about(&self, view: &DocumentView<'_>, path: &[Step]) -> Option<(Range<usize>, String)> {
        let (Range { start, end }, text) = self.about_name(view, path)?;
        Some((self.start + start..self.start + end, text))
    }

    /// Returns the range in the expression, and the description, of the name there.
    fn about_name(&self, view: &DocumentView<'_>, path: &[Step]) -> Option<(Range<usize>, String)> {
        let expression = self.expression;
        let items = view.items_of(path);
        let text_before =
            |name: &Range<usize>| format!("{items}{}{}", self.before, &expression[..name.start]);
        if let Some((range, wanted)) = quoted_at(expression, self.at) {
            let word = &expression[range.clone()];
            return match wanted {
                ExpectedKind::Node => Some((range, view.about_node(word)?)),
                ExpectedKind::ValueOf(of) => {
                    let ty = type_of(of, &text_before(&range), view.state?)?;
                    Some((range, format!("a value of `{of}`: `{ty}`")))
                }
                ExpectedKind::MemberOf(_) | ExpectedKind::Name(_) | ExpectedKind::Nothing => None,
            };
        }
        let range = chain_at(expression, self.at)?;
        let chain = &expression[range.clone()];
        let before = text_before(&range);
        let about_call = || {
            let name = chain.rsplit('.').next()?;
            let function = function(name).filter(|_| expression[range.end..].starts_with('('))?;
            Some(format!("**{function}**\n\n{}\n\nexample: `{}`", function.about, function.example))
        };
        let about_name = || {
            let of_prompts = || OF_PROMPTS.iter().find(|(name, _)| *name == chain).copied();
            let (name, about) =
                Fact::find(chain).map(|it| (it.name, it.about)).or_else(of_prompts)?;
            Some(format!("**{name}**\n\n{about}"))
        };
        let text = about_call().or_else(|| view.about_field(chain, &before)).or_else(about_name)?;
        Some((range, text))
    }
}

impl DocumentView<'_> {
    /// Returns the description of a field such as `review.verdict`, after a text that may bind
    /// names.
    pub(super) fn about_field(&self, chain: &str, before: &str) -> Option<String> {
        let ty = type_of(chain, before, self.state?)?;
        let mut parts = vec![format!("**{chain}**: `{ty}`")];
        if let Type::Record(record) = ty.required() {
            let field = |it: &Field| format!("- `{}`: `{}`", it.name, it.ty);
            parts.push(record.fields.iter().map(field).collect::<Vec<_>>().join("\n"));
        }
        if let Some(channel) = self.state?.channel(chain) {
            let about = channel.schema().get("description").and_then(Value::as_str);
            parts.extend(about.map(str::to_owned));
            let reducer = channel.reducer();
            if !reducer.is_replace() {
                parts.push(format!("reducer `{reducer}`: {}", reducer.about()));
            }
            parts.extend(channel.default().map(|it| format!("starts as `{it}`")));
            if let writers @ [_, ..] = self.writers(chain).as_slice() {
                parts.push(format!("written by {}", quoted_list(writers)));
            }
        }
        Some(parts.join("\n\n"))
    }
}
