//! The names and values that the nodes of a workflow are read with: those of the whole workflow, and
//! those of one node.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{
    diagnostic::Diagnostic,
    graph::TriggerKind,
    id::{ChannelName, NodeName},
    state::{Schema, Type},
};
use graphrun_expressions::{
    ExpressionScope,
    flow::{
        Flow,
        guarantee::{Guarantee, Guarantees},
        written::AssignedFields,
    },
    item::names_of_item,
    problem::Problem,
};
use graphrun_prompts::PromptScope;

use super::{declarations::Declarations, used::DeclaredLimits};
use crate::{
    Defaults, Expression, Prompt, Registry, Workflow,
    node::structure::{ITEMS, Item, MapList, READS_OF_ITEMS, read_of_item},
    sections::Sections,
    source::{
        prompts::{LoadedPrompt, PromptFiles},
        reader::{Data, Yaml},
        report::{DIAGNOSTICS_MAX, Report},
    },
};

/// The section under which the fields of the state are noted that an expression or a prompt reads.
pub(crate) const FIELDS: &str = "state";

/// All that nodes refer to. Nothing changes it while they are read.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) registry: Registry,
    pub(crate) prompts: PromptFiles,
    pub(crate) schema: Schema,
    pub(crate) declarations: Declarations,
    pub(crate) sections: Sections,
    pub(crate) defaults: Defaults,
    pub(crate) flow: Flow,
    /// The types of records that have a name.
    pub(crate) types: BTreeMap<String, Type>,
    /// The used workflows, by the node that uses them.
    pub(crate) loaded: BTreeMap<NodeName, Workflow>,
    /// The nodes that have visits and usage in a run: those of the file, and those of used workflows by their full names.
    pub(crate) nodes: BTreeSet<NodeName>,
    /// The limits that each run of the workflow has.
    pub(crate) limits: DeclaredLimits,
    /// The list of each `map`.
    pub(crate) maps: BTreeMap<NodeName, MapList>,
    /// The fields whose declaration has a reported mistake.
    pub(crate) incomplete_fields: BTreeSet<ChannelName>,
}

/// A node while it is read, with the names that its expressions and prompts may use.
#[derive(Clone, Debug)]
pub(crate) struct NodeScope<'e> {
    pub(crate) env: &'e Environment,
    pub(crate) name: &'e NodeName,
    /// Its item, if it runs for each item of a list.
    pub(crate) item: Option<&'e Item>,
    /// Whether it may have an item with an unknown name.
    any_item: bool,
    /// What the flow of the workflow, routes and `when` have proved. Facts about a field end when the node writes it.
    pub(crate) known: Guarantees,
}

/// The place where an expression is evaluated, and its purpose.
#[derive(Clone, Debug)]
pub(crate) struct ExpressionUse<'t> {
    /// The fields that are assigned there.
    written: AssignedFields,
    ty: Option<&'t Type>,
    variable: Option<(&'t str, &'t Type)>,
    names_output: bool,
    is_field: bool,
}

impl<'t> ExpressionUse<'t> {
    /// Any value, where these fields are assigned.
    pub(crate) fn at(written: AssignedFields) -> Self {
        Self { written, ty: None, variable: None, names_output: false, is_field: false }
    }

    /// The value is used as one of this type.
    pub(crate) fn of_type(self, ty: &'t Type) -> Self {
        Self { ty: Some(ty), ..self }
    }

    /// There is a variable besides the fields of the state.
    pub(crate) fn with_variable(self, name: &'t str, ty: &'t Type) -> Self {
        Self { variable: Some((name, ty)), ..self }
    }

    /// The expression may name `output.dir`.
    pub(crate) fn with_output_dir(self) -> Self {
        Self { names_output: true, ..self }
    }

    /// The expression is the name of a field, and no other is allowed.
    pub(crate) fn that_is_a_field(self) -> Self {
        Self { is_field: true, ..self }
    }
}

impl<'e> NodeScope<'e> {
    pub(crate) fn of(env: &'e Environment, name: &'e NodeName) -> Self {
        let item = env.maps.values().find(|it| it.node.as_ref() == Some(name)).map(|it| &it.item);
        let any_item = match item {
            Some(item) => item.has_invalid_name,
            None => env.declarations.may_have_an_item(name),
        };
        let possible = env.flow.triggers(name);
        // Nothing leads to the node if a name elsewhere is misspelt.
        let is_known = !possible.is_empty();
        let excluded = TriggerKind::ALL.into_iter().filter(|it| is_known && !possible.contains(it));
        let mut known: Guarantees = excluded.map(Guarantee::NotReachedBy).collect();
        known.extend(env.flow.proved_before(name).iter().cloned());
        known.extend(env.limits.known(&env.schema));
        Self { env, name, item, any_item, known }
    }

    /// The scope of the routes behind the node: it knows no value that the node may have changed.
    pub(crate) fn behind(mut self) -> Self {
        let flow = &self.env.flow;
        let before = flow.proved_before(self.name);
        let after = flow.proved_after(self.name);
        self.known.retain(|it| after.contains(it) || !before.contains(it));
        self
    }

    /// The scope of the list of a `map`, which is read before its items are known.
    pub(crate) fn of_list(env: &'e Environment, name: &'e NodeName) -> Self {
        Self { item: None, any_item: false, ..Self::of(env, name) }
    }

    /// The scope of an expression of a `map` over one of its items.
    pub(crate) fn of_item(env: &'e Environment, name: &'e NodeName, item: &'e Item) -> Self {
        Self {
            env,
            name,
            item: Some(item),
            any_item: item.has_invalid_name,
            known: Guarantees::NONE,
        }
    }

    fn item(&self) -> Option<(&str, &Type)> {
        self.item.map(|it| (it.name.as_str(), &it.ty))
    }

    /// Returns the use of an expression that is evaluated when the node starts.
    pub(crate) fn before<'t>(&self) -> ExpressionUse<'t> {
        ExpressionUse::at(self.env.flow.before(self.name))
    }

    /// Returns the use of an expression that is evaluated when the node has finished.
    pub(crate) fn after<'t>(&self) -> ExpressionUse<'t> {
        ExpressionUse::at(self.env.flow.after(self.name))
    }

    /// Compiles an expression that is evaluated when the node starts.
    pub(crate) fn expression(&self, report: &mut Report, yaml: &Yaml) -> Option<Expression> {
        self.expression_for(report, yaml, self.before())
    }

    /// Compiles an expression for a use.
    pub(crate) fn expression_for(
        &self,
        report: &mut Report,
        yaml: &Yaml,
        expected: ExpressionUse<'_>,
    ) -> Option<Expression> {
        let Some(text) = yaml.text() else {
            let diagnostic = report.of_wrong_kind(yaml, "an expression", "a text");
            let help = match &yaml.data {
                Data::Map(_) => {
                    Some("a record is an expression in quotes: `'{ field: value }'`".to_owned())
                }
                Data::List(items) => {
                    let list = self.list_text(items);
                    Some(format!("a list is an expression in quotes: `'{list}'`"))
                }
                Data::Null => {
                    Some("the absent value is an expression in quotes: `\"null\"`".to_owned())
                }
                Data::Scalar { .. } => None,
            };
            let help = help.or(diagnostic.help.clone());
            report.push(Diagnostic { help, ..diagnostic });
            return None;
        };
        let assigned = expected.written.clone();
        let is_field = expected.is_field;
        let is_for_text = expected.ty.is_some_and(is_text);
        let (expression, problems) = match self.compile(text, expected) {
            Ok(expression) => {
                let problems = expression.constant_parts();
                report.references.add_facts(expression.facts());
                for field in expression.reads() {
                    self.reads_field(report, field.as_str(), &assigned);
                }
                for name in expression.named_types() {
                    report.references.add("types", name);
                }
                let reads_item = expression.facts().item_index || expression.reads_item();
                if self.item.is_some() && reads_item {
                    report.references.add(ITEMS, self.name.as_str());
                }
                (Some(expression), problems)
            }
            Err(problems) => (None, problems),
        };
        for mut problem in problems {
            let is_text = is_for_text || matches!(yaml.data, Data::Scalar { plain: false, .. });
            let is_word = problem.code == "GR021" && problem.range == (0..text.len());
            // Words without a symbol between them.
            let is_sentence = problem.code == "GR020"
                && problem.help.is_none()
                && text.chars().all(|it| it.is_alphanumeric() || " ,.!?-'".contains(it));
            // The quotes of YAML are no quotes of the expression.
            if is_text && (is_word || is_sentence) {
                let help = format!("a text needs quotes within those of YAML: `'\"{text}\"'`");
                // A near name is more probable.
                let meant = problem.help.take();
                let meant = meant.filter(|it| !it.starts_with("there is: "));
                problem.help = Some(meant.unwrap_or(help));
            }
            if is_field && problem.code == "GR026" {
                let computed = format!("has({text}) ? {text} : …");
                let help = format!(
                    "give `{text}` a default, or name a field that `set` computes as `{computed}`"
                );
                problem.help = Some(help);
            }
            let range = yaml.within(&report.file.text, &problem.range);
            let span = report.span(&range);
            report.push_problem(problem, span);
        }
        expression
    }

    /// Notes that an expression or a prompt of the node reads a field, where these fields are assigned.
    fn reads_field(&self, report: &mut Report, field: &str, assigned: &AssignedFields) {
        report.references.add(FIELDS, field);
        if self.item.is_some() {
            report.references.add(READS_OF_ITEMS, &read_of_item(self.name, field));
        }
        if assigned.is_brought(field) {
            report.references.add_assigned_field(self.name, field);
        }
    }

    /// Returns a list of YAML as an expression.
    fn list_text(&self, items: &[Yaml]) -> String {
        let item = |yaml: &Yaml| {
            let text = yaml.text().unwrap_or("…");
            let is_value = text.parse::<f64>().is_ok() || matches!(text, "true" | "false" | "…");
            let is_field = self.env.schema.channel(text).is_some();
            if is_value || is_field { text.to_owned() } else { format!("\"{text}\"") }
        };
        format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(", "))
    }

    /// Compiles the text of an expression, without a report.
    pub(crate) fn compile(
        &self,
        text: &str,
        expected: ExpressionUse<'_>,
    ) -> Result<Expression, Vec<Problem>> {
        let ExpressionUse { written, ty, variable, names_output, is_field: _ } = expected;
        let scope = ExpressionScope {
            schema: &self.env.schema,
            written: &written,
            nodes: &self.env.nodes,
            item: self.item(),
            variable,
            any_item: self.any_item,
            known: &self.known,
            output: names_output,
            types: &self.env.types,
            expected: ty,
        };
        Expression::compile(text, scope)
    }

    /// Checks a prompt against the values that the node gets, on any visit or on all but the first.
    pub(crate) fn check_prompt(
        &self,
        report: &mut Report,
        loaded: &LoadedPrompt,
        is_repeated: bool,
        bounded: bool,
    ) {
        let Environment { flow, schema, .. } = self.env;
        let node = self.name;
        let any_item = self.any_item;
        let item = self.item();
        let mut known = self.known.clone();
        if is_repeated {
            known.extend(Guarantee::of_visits(node.as_str(), true, |it| it > 1));
        }
        let assigned = flow.before(node);
        for name in loaded.prompt.variables() {
            self.reads_field(report, name, &assigned);
        }
        let names = names_of_item(item, schema);
        if names.iter().any(|(name, _)| loaded.prompt.variables().contains(name)) {
            report.references.add(ITEMS, node.as_str());
        }
        let nodes = &self.env.nodes;
        let scope = PromptScope {
            schema,
            written: &assigned,
            nodes,
            node: Some(node),
            bounded,
            item,
            any_item,
            known: &known,
        };
        check_prompt_in(report, loaded, scope);
    }

    /// Returns the prompt for the node.
    pub(crate) fn finish_prompt(&self, loaded: LoadedPrompt) -> Prompt {
        loaded.prompt.for_item(self.item.map(|it| (it.name.as_str(), &it.ty)))
    }
}

/// Returns whether a value of a type, or an item of it, is a text.
fn is_text(ty: &Type) -> bool {
    match ty.required() {
        Type::String | Type::Enum(_) => true,
        Type::List(item) => is_text(item),
        _ => false,
    }
}

/// Checks a prompt in a scope.
pub(crate) fn check_prompt_in(report: &mut Report, loaded: &LoadedPrompt, scope: PromptScope<'_>) {
    // Finding one place takes time proportional to the text, and more diagnostics are not reported
    // anyway.
    let (problems, facts) = loaded.prompt.check(scope);
    report.references.add_facts(&facts);
    for problem in problems.into_iter().take(DIAGNOSTICS_MAX) {
        let span = loaded.span(report, &problem);
        report.push_problem(problem, span);
    }
}
