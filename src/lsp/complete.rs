//! Completion: the items that are valid at the cursor.

use std::{fs, path::Path};

use serde_json::Value;

use super::{
    cases,
    expressions::{ExpectedKind, OF_PROMPTS, is_word, type_of, variables, wanted},
    grammar::{self, Role},
    positions::LineIndex,
    protocol::{CompletionItem, ItemKind, TextEdit},
    templates::code_at,
    workspace::{DocumentView, Workspace},
};
use crate::{
    state::Type,
    workflow::{Fact, Function, Outline, Registry, ScalarText, Slot, Step, source_paths},
};

/// The maximum number of suggested files, and the maximum depth of folders searched for them.
const FILES_MAX: usize = 500;
const DEPTH_MAX: usize = 4;

/// Returns all valid items; the editor filters them by the typed text.
pub(super) fn complete(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    at: usize,
) -> Vec<CompletionItem> {
    let written = Document { text: view.text, lines: &view.lines };
    if let Some((owner, path)) = workspace.owner(view) {
        let mut offers = Offers::new(&owner, written, at, at);
        offers.template(&path, 0);
        return offers.items;
    }
    let mut slot = Outline::slot(view.text, at);
    // The quote before an incomplete key is no part of it.
    if view.text[slot.start..at].starts_with(['"', '\'']) {
        slot.start += 1;
    }
    let Some(schema) = view.grammar.at(&slot.path) else { return Vec::new() };
    if view.is_cases {
        let workflow = workspace.tested(view);
        // Without its workflow, a file has its own keys.
        let names = workflow.as_ref().unwrap_or(view);
        let mut offers = Offers::new(names, written, slot.start, at);
        offers.of_cases(view, &slot, schema);
        return offers.items;
    }
    let mut offers = Offers::new(view, written, slot.start, at);
    if slot.takes_key {
        offers.keys(&slot, schema);
    }
    if slot.takes_value {
        offers.values(&slot, schema);
    }
    offers.items
}

/// The document with the cursor.
#[derive(Clone, Copy)]
struct Document<'v> {
    text: &'v str,
    lines: &'v LineIndex<'v>,
}

struct Offers<'v, 'w> {
    /// The workflow.
    view: &'v DocumentView<'w>,
    /// The workflow, or a prompt of it.
    written: Document<'v>,
    /// The start of the typed text, and the cursor.
    start: usize,
    at: usize,
    /// The end of the text that an item replaces.
    end: usize,
    items: Vec<CompletionItem>,
}

/// An expression up to the cursor.
struct TypedCode<'s> {
    scalar: &'s ScalarText,
    /// Where it begins in the scalar.
    start: usize,
    /// The code before it, which may bind names.
    before: String,
    is_template: bool,
}

impl<'v, 'w> Offers<'v, 'w> {
    fn new(view: &'v DocumentView<'w>, written: Document<'v>, start: usize, at: usize) -> Self {
        Self { view, written, start, at, end: at, items: Vec::new() }
    }

    /// Sets the end of the key under the cursor, and returns the text that an item needs behind it.
    fn end_key(&mut self, slot: &Slot) -> &'static str {
        let rest = &self.written.text[self.at..];
        let behind = rest.trim_start_matches(|it: char| is_word(it) || matches!(it, '-' | '.'));
        let end = self.written.text.len() - behind.len();
        let quote = self.written.text[..slot.start].chars().next_back();
        let quote = quote.filter(|it| matches!(it, '"' | '\''));
        let is_key = match quote {
            Some(quote) => behind.starts_with(quote),
            None => behind.trim_start_matches(' ').starts_with(':'),
        };
        self.end = if is_key { end } else { self.at };
        match quote {
            _ if is_key => "",
            Some('"') => "\": ",
            Some(_) => "': ",
            None => ": ",
        }
    }

    /// Adds the items of a place in a file of test cases; `self.view` is the workflow under test.
    fn of_cases(&mut self, file: &DocumentView<'_>, slot: &Slot, schema: &Value) {
        if slot.takes_key {
            let below = file.outline.below(&slot.path);
            let others =
                below.filter(|outer| outer.key.as_ref().is_some_and(|it| it.start != slot.start));
            let present: Vec<&str> = others.filter_map(|it| it.name()).collect();
            let colon = self.end_key(slot);
            match schema.get("propertyNames").and_then(grammar::role) {
                Some(Role::Node) => self.nodes_of_run(file, colon, &present),
                Some(Role::Path) => self.fields(colon, &present),
                Some(Role::Field) => {
                    let allowed = allowed_fields(file, &slot.path);
                    let before = self.items.len();
                    self.fields(colon, &present);
                    let fits = |item: &CompletionItem| {
                        allowed.as_ref().is_none_or(|all| all.contains(&item.label))
                    };
                    let fields = self.items.split_off(before);
                    self.items.extend(fields.into_iter().filter(fits));
                }
                _ => (),
            }
            if grammar::role(schema) == Some(Role::Data)
                && let Some(Type::Record(record)) =
                    cases::data_type(file, &slot.path).map(|it| item_of(&it).required().clone())
            {
                for field in record.fields.iter().filter(|it| !present.contains(&it.name.as_str()))
                {
                    let item = self.add(&field.name, ItemKind::Field);
                    item.text_edit.new_text += colon;
                    item.detail = Some(field.ty.to_string());
                }
            }
            for (key, schema) in grammar::keys(schema).filter(|it| !present.contains(&it.0)) {
                let item = self.add(key, ItemKind::Property);
                item.text_edit.new_text += colon;
                item.documentation = grammar::about(schema).map(|it| it.to_owned().into());
            }
        }
        self.end = self.at;
        if slot.takes_value {
            let from = self.items.len();
            match grammar::role(schema) {
                Some(Role::Node) => {
                    self.nodes_of_run(file, "", &[]);
                    self.words(schema);
                }
                Some(Role::Field) => self.fields("", &[]),
                Some(Role::Tool) => {
                    self.words(schema);
                    self.declared("tools");
                }
                Some(Role::Data) => {
                    match cases::data_type(file, &slot.path).as_ref().map(item_of) {
                        Some(Type::Bool) => {
                            self.add("true", ItemKind::Value);
                            self.add("false", ItemKind::Value);
                        }
                        Some(ty) => {
                            for value in values(ty) {
                                self.add(&value, ItemKind::EnumMember);
                            }
                        }
                        None => (),
                    }
                }
                _ => self.words(schema),
            }
            self.separate(slot, from);
        }
    }

    /// Adds the nodes of a run, those of used workflows among them.
    fn nodes_of_run(&mut self, file: &DocumentView<'_>, behind: &str, present: &[&str]) {
        let Some(tested) = file.tested else { return };
        let view = self.view;
        for node in tested.nodes.keys().filter(|it| !present.contains(&it.as_str())) {
            let item = self.add(node, ItemKind::Function);
            item.text_edit.new_text += behind;
            item.detail = view.headline(node);
            item.documentation = view.about_node(node).map(Into::into);
        }
    }

    /// Adds the space that is missing directly after the colon of a key.
    fn separate(&mut self, slot: &Slot, from: usize) {
        if !slot.takes_key && self.written.text[..slot.start].ends_with(':') {
            for item in &mut self.items[from..] {
                item.text_edit.new_text.insert(0, ' ');
            }
        }
    }

    fn keys(&mut self, slot: &Slot, schema: &Value) {
        let present: Vec<&str> = self
            .view
            .outline
            .below(&slot.path)
            .filter(|it| it.key.as_ref().is_some_and(|key| key.start != slot.start))
            .filter_map(|it| it.name())
            .collect();
        let colon = self.end_key(slot);
        match schema.get("propertyNames").and_then(grammar::role) {
            Some(Role::Field) => self.fields(colon, &present),
            Some(Role::Value) => {
                let (_, route) = slot.path.split_last().unwrap_or((&Step::Item(0), &[]));
                for value in self.matched(route) {
                    if !present.contains(&value.as_str()) {
                        self.add(&value, ItemKind::EnumMember).text_edit.new_text += colon;
                    }
                }
            }
            _ => {
                for (key, schema) in grammar::keys(schema) {
                    if present.contains(&key)
                        || !is_of_kind(self.view.registry, key, &slot.path, &present)
                    {
                        continue;
                    }
                    let item = self.add(key, ItemKind::Property);
                    item.text_edit.new_text += colon;
                    item.documentation = grammar::about(schema).map(|it| it.to_owned().into());
                }
            }
        }
    }

    fn values(&mut self, slot: &Slot, schema: &Value) {
        self.end = self.at;
        let from = self.items.len();
        match grammar::role(schema) {
            Some(Role::Node) => self.nodes(),
            Some(Role::Target) => {
                self.nodes();
                self.add("end", ItemKind::Value).detail = Some("the run is done".into());
                self.add("fail", ItemKind::Value).detail = Some("the run has failed".into());
            }
            Some(Role::Field) => self.fields("", &[]),
            Some(Role::Agent) => self.declared("agents"),
            Some(Role::Model) => self.declared("models"),
            Some(Role::Sandbox) => {
                self.declared("sandboxes");
                self.declared("hosts");
            }
            Some(Role::Folder) => self.declared("folders"),
            Some(Role::Tier) => self.declared("memory"),
            Some(Role::Prompt) => self.prompts(),
            Some(Role::Expression) => {
                if let Some(scalar) = ScalarText::of(self.written.text, slot.start..self.at) {
                    let (start, before, is_template) = (0, String::new(), false);
                    let code = TypedCode { scalar: &scalar, start, before, is_template };
                    self.expression(&slot.path, &code);
                }
            }
            Some(Role::Template) => self.template(&slot.path, slot.start),
            Some(Role::State) => {
                for state in self.view.registry.states() {
                    self.add(state, ItemKind::Class);
                }
            }
            Some(Role::Type) => {
                for word in grammar::words(schema) {
                    self.add(&word, ItemKind::Class);
                }
                self.declared("types");
            }
            Some(Role::Tool) => {
                self.words(schema);
                self.declared("tools");
            }
            Some(
                Role::Value
                | Role::SchemaFile
                | Role::Word
                | Role::Workflow
                | Role::Recording
                | Role::Path
                | Role::Data,
            )
            | None => self.words(schema),
        }
        self.separate(slot, from);
    }

    fn nodes(&mut self) {
        let view = self.view;
        for node in view.names("nodes") {
            let item = self.add(node, ItemKind::Function);
            item.detail = view.headline(node);
            item.documentation = view.about_node(node).map(Into::into);
        }
    }

    fn fields(&mut self, behind: &str, present: &[&str]) {
        let Some(state) = self.view.state else { return };
        for channel in state.channels() {
            let name = channel.name().as_str();
            if present.contains(&name) {
                continue;
            }
            let documentation = self.view.about_field(name, "").map(Into::into);
            let item = self.add(name, ItemKind::Field);
            item.text_edit.new_text += behind;
            item.detail = Some(channel.ty().to_string());
            item.documentation = documentation;
        }
    }

    fn declared(&mut self, section: &str) {
        let view = self.view;
        for name in view.names(section) {
            let documentation = view.about_declared(section, name).map(Into::into);
            self.add(name, ItemKind::Class).documentation = documentation;
        }
    }

    /// Adds the words that a schema lists.
    fn words(&mut self, schema: &Value) {
        for word in grammar::words(schema) {
            let about = grammar::about_word(schema, &word);
            self.add(&word, ItemKind::Value).documentation = about.map(|it| it.to_owned().into());
        }
    }

    fn prompts(&mut self) {
        let Some(folder) = self.view.folder() else { return };
        let typed = &self.written.text[self.start..self.at];
        let (typed_folder, _) = typed.rsplit_once('/').unwrap_or(("prompts", ""));
        let mut found = Vec::new();
        let relative = Path::new(typed_folder);
        if relative.components().all(|it| matches!(it, std::path::Component::Normal(_))) {
            for path in source_paths(folder, relative) {
                files(&path, typed_folder, 0, &mut found);
            }
        }
        found.sort();
        found.dedup();
        for path in found {
            self.add(&path, ItemKind::File);
        }
    }

    /// Adds the items of the code at the cursor in a template that starts at an offset.
    fn template(&mut self, path: &[Step], start: usize) {
        let Some(scalar) = ScalarText::of(self.written.text, start..self.at) else { return };
        let text = scalar.text();
        let Some((before, code)) = code_at(text, text.len()) else { return };
        let (start, is_template) = (code.start, true);
        self.expression(path, &TypedCode { scalar: &scalar, start, before, is_template });
    }

    /// Adds names, fields and values for an expression.
    fn expression(&mut self, path: &[Step], code: &TypedCode<'_>) {
        let TypedCode { scalar, start: begin, ref before, is_template } = *code;
        let typed = &scalar.text()[begin..];
        let (wanted, start) = wanted(typed);
        self.start = scalar.in_file(&(begin + start..begin + start)).start;
        let bound = format!("{}{before}{typed}", self.view.items_of(path));
        let ty = |chain| self.view.state.and_then(|it| type_of(chain, &bound, it));
        match wanted {
            ExpectedKind::ValueOf(of) => {
                for value in ty(of).as_ref().map(values).unwrap_or_default() {
                    self.add(&value, ItemKind::EnumMember);
                }
            }
            ExpectedKind::Node => {
                self.nodes();
                for node in self.view.inner_nodes {
                    self.add(node, ItemKind::Function);
                }
            }
            ExpectedKind::MemberOf(of) => {
                if let Some(ty) = ty(of) {
                    self.members(&ty, is_template);
                }
            }
            ExpectedKind::Name(compared) => {
                let quote = if scalar.quote() == Some('"') { '\'' } else { '"' };
                match compared.and_then(ty) {
                    Some(Type::Bool) => {
                        self.add("true", ItemKind::Value);
                        self.add("false", ItemKind::Value);
                    }
                    Some(ty) => {
                        for value in values(&ty) {
                            self.add(&format!("{quote}{value}{quote}"), ItemKind::EnumMember);
                        }
                    }
                    None => (),
                }
                for variable in variables(&bound) {
                    self.add(variable, ItemKind::Variable);
                }
                self.fields("", &[]);
                for fact in Fact::all() {
                    self.add(fact.name, ItemKind::Variable).detail = Some(fact.about.to_owned());
                }
                if is_template {
                    for (name, about) in OF_PROMPTS {
                        self.add(name, ItemKind::Variable).detail = Some((*about).to_owned());
                    }
                    self.functions(Function::gives_facts);
                } else {
                    self.functions(|it| !it.is_method());
                }
            }
            ExpectedKind::Nothing => (),
        }
    }

    fn members(&mut self, ty: &Type, is_template: bool) {
        if let Type::Record(record) = ty.required() {
            for field in &record.fields {
                self.add(&field.name, ItemKind::Field).detail = Some(field.ty.to_string());
            }
        }
        if !is_template {
            let may_be_absent = matches!(ty, Type::Optional(_));
            self.functions(|it| {
                it.is_method() && (it.takes(ty.required()) || may_be_absent && it.is_default())
            });
        }
    }

    fn functions(&mut self, fits: impl Fn(&Function) -> bool) {
        for function in Function::all().iter().filter(|it| fits(it)) {
            let item = self.add(&function.opening(), ItemKind::Function);
            item.detail = Some(function.to_string());
            item.documentation = Some(function.about.to_owned().into());
        }
    }

    /// Returns the values that a route can match.
    fn matched(&self, route: &[Step]) -> Vec<String> {
        let subject = [route, &[Step::Key("match".to_owned())]].concat();
        let subject = self.view.outline.part(&subject).and_then(|it| it.value.clone());
        let subject = subject.and_then(|it| self.view.text.get(it));
        let ty = subject.zip(self.view.state).and_then(|(it, state)| type_of(it.trim(), "", state));
        match ty {
            Some(Type::Bool) => vec!["true".to_owned(), "false".to_owned()],
            Some(ty) => values(&ty),
            None => Vec::new(),
        }
    }

    fn add(&mut self, label: &str, kind: ItemKind) -> &mut CompletionItem {
        let at = self.items.len();
        let range = self.written.lines.range(&(self.start..self.end));
        self.items.push(CompletionItem {
            label: label.to_owned(),
            kind: kind as u8,
            detail: None,
            documentation: None,
            filter_text: label.to_owned(),
            sort_text: format!("{at:04}"),
            text_edit: TextEdit { range, new_text: label.to_owned() },
        });
        &mut self.items[at]
    }
}

/// Returns the fields that fit as keys at the end of a path: those that a node writes, or the input; `None` if all do.
fn allowed_fields(file: &DocumentView<'_>, path: &[Step]) -> Option<Vec<String>> {
    let tested = file.tested?;
    if let Some(node) = cases::answering(file, path) {
        return tested.nodes.get(node)?.clone();
    }
    let is_input = path.last() == Some(&Step::Key("input".to_owned()));
    is_input.then(|| tested.input.clone())
}

/// Returns the type of the items, because one item of a list may be written without the list.
fn item_of(ty: &Type) -> &Type {
    match ty.required() {
        Type::List(item) => item,
        other => other,
    }
}

/// Returns the values of an enum.
fn values(ty: &Type) -> Vec<String> {
    match ty.required() {
        Type::Enum(values) => values.clone(),
        _ => Vec::new(),
    }
}

/// Returns whether a node with these keys accepts a key; keys of another kind are invalid.
fn is_of_kind(registry: &Registry, key: &str, path: &[Step], present: &[&str]) -> bool {
    let is_node = path.len() == 2 && path[0] == Step::Key("nodes".to_owned());
    let kind = registry.kinds().iter().find(|it| present.contains(&it.key()));
    let (true, Some(kind)) = (is_node, kind) else { return true };
    kind.takes(key) || !registry.kinds().iter().any(|it| it.takes(key))
}

/// Collects the files in a folder and its subfolders, with their paths as a workflow writes them.
fn files(folder: &Path, relative: &str, depth: usize, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|it| !it.starts_with('.')) else { continue };
        let path = entry.path();
        let relative = format!("{relative}/{name}");
        if found.len() >= FILES_MAX {
            return;
        }
        if path.is_file() {
            found.push(relative);
        } else if depth < DEPTH_MAX {
            files(&path, &relative, depth + 1, found);
        }
    }
}
