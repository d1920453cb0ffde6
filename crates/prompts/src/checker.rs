//! Walks the tree of a template and checks names, fields, enum values and unassigned fields.
//!
//! It reports only certain mistakes: a value of an unknown type is compatible with everything.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Range,
    rc::Rc,
};

use graphrun_core::{
    graph::FactNeeds,
    id::NodeName,
    state::{Schema, Type},
    words::count,
};
use graphrun_expressions::{
    flow::{
        guarantee::{Guarantee, Guarantees},
        written::{AssignedFields, Presence},
    },
    item::names_of_item,
    problem::Problem,
    typing::{describe, null},
};
use minijinja::machinery::{
    Span,
    ast::{AutoEscape, Expr, ForLoop, Stmt},
    parse,
};

use super::{
    TEMPLATE,
    expressions::{LOOP, loop_type},
    guards::path_of,
    macros::{Callee, Declaration},
    metered::is_end,
    set_under::SetUnder,
    shapes::{bounded, either, items_of, tuple_items},
    tried::OperationResults,
    variables::{Variable, Variables},
};

/// The scope of a prompt.
#[derive(Clone, Copy, Debug)]
pub struct PromptScope<'a> {
    /// The fields of the state.
    pub schema: &'a Schema,
    /// The channels that are assigned at this point.
    pub written: &'a AssignedFields,
    /// The nodes whose visits and usage can be read.
    pub nodes: &'a BTreeSet<NodeName>,
    /// The node that renders it; a report belongs to none.
    pub node: Option<&'a NodeName>,
    /// Whether the node has a bound.
    pub bounded: bool,
    /// The name and the type of the item that is dispatched to the node.
    pub item: Option<(&'a str, &'a Type)>,
    /// Whether an unknown name may be the name of an item.
    pub any_item: bool,
    /// The guarantees before the prompt.
    pub known: &'a Guarantees,
}

/// Returns the problems of a prompt, and the facts that a run must save for it.
pub(super) fn check(text: &str, scope: PromptScope<'_>) -> (Vec<Problem>, FactNeeds) {
    // A text that does not parse was refused when the prompt was compiled.
    let Ok(template) = parse(text, TEMPLATE, minijinja::syntax::SyntaxConfig::default()) else {
        return Default::default();
    };
    let given = names_of_item(scope.item, scope.schema);
    // Only the body of a loop that calls itself sees the values around.
    let variables = Variables::new(given, text.contains("recursive"));
    let mut checker = PromptChecker {
        text,
        scope,
        variables,
        frames: Vec::new(),
        loops: Vec::new(),
        known: scope.known.clone(),
        set_under: SetUnder::default(),
        macros: Vec::new(),
        macro_names: BTreeSet::new(),
        called: HashSet::new(),
        open: Vec::new(),
        checked: HashSet::new(),
        bodies: 0,
        statements: 0,
        depth: 0,
        problems: Vec::new(),
        missed: Vec::new(),
        facts: FactNeeds::default(),
        tried: OperationResults::default(),
    };
    checker.statement(&template);
    checker.check_uncalled(0);
    let mut spans = HashSet::new();
    let mut problems = checker.problems;
    // The body of a macro is checked for each of its calls.
    problems.retain(|it| spans.insert((it.code, it.range.clone())));
    (problems, checker.facts)
}

#[derive(Clone)]
pub(super) enum Meaning<'t> {
    Value(Type),
    Macro(Callee<'t>),
    /// A name outside of the macro that reads it.
    Outside,
}

pub(super) struct PromptChecker<'a, 't> {
    /// The text of the template.
    pub(super) text: &'t str,
    pub(super) scope: PromptScope<'a>,
    /// The item of the task, and the names that the template has defined.
    pub(super) variables: Variables<'t>,
    /// Where the variables of each open loop, `with` or macro begin.
    pub(super) frames: Vec<usize>,
    /// The open loops of this macro, or of the template.
    pub(super) loops: Vec<&'t ForLoop<'t>>,
    /// What an enclosing condition has proved.
    pub(super) known: Guarantees,
    /// The names that have a value if a condition has an outcome.
    pub(super) set_under: SetUnder,
    /// The macros that can be called here.
    pub(super) macros: Vec<Declaration<'t>>,
    /// The names of all macros so far.
    pub(super) macro_names: BTreeSet<&'t str>,
    /// The macros whose bodies were checked.
    pub(super) called: HashSet<*const ()>,
    /// The macros whose bodies are being checked.
    pub(super) open: Vec<*const ()>,
    /// The bodies of macros and loops that were checked, each with the types that it was checked with.
    pub(super) checked: HashSet<String>,
    /// How many bodies of macros and loops were checked for a call.
    pub(super) bodies: usize,
    /// How many statements were checked.
    pub(super) statements: usize,
    /// How many blocks and expressions are open.
    pub(super) depth: usize,
    pub(super) problems: Vec<Problem>,
    /// The fields that were reported as unassigned; one guard may cover all places.
    pub(super) missed: Vec<String>,
    pub(super) facts: FactNeeds,
    pub(super) tried: OperationResults,
}

impl<'t> PromptChecker<'_, 't> {
    pub(super) fn body(&mut self, statements: &'t [Stmt<'t>]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    /// Runs a check. Its names and its knowledge end with it.
    pub(super) fn frame(&mut self, check: impl FnOnce(&mut Self)) {
        let outside = self.variables.count();
        let macros = self.macros.len();
        let known = self.known.clone();
        let set_under = self.set_under.clone();
        self.frames.push(outside);
        check(self);
        self.check_uncalled(macros);
        self.frames.pop();
        self.variables.split_off(outside);
        (self.known, self.set_under) = (known, set_under);
    }

    fn statement(&mut self, statement: &'t Stmt<'t>) {
        self.statements += 1;
        self.depth += 1;
        self.statement_within(statement);
        self.depth -= 1;
    }

    fn statement_within(&mut self, statement: &'t Stmt<'t>) {
        match statement {
            Stmt::Template(it) => self.body(&it.children),
            Stmt::EmitRaw(it) => self.raw(it.raw, it.span()),
            Stmt::EmitExpr(it) => {
                // Written out, an absent end of a list is `none`.
                let ty = if is_end(&it.expr) { self.ty(&it.expr) } else { self.present(&it.expr) };
                self.printed(&ty, it.expr.span());
            }
            Stmt::IfCond(it) => {
                self.condition(&it.expr);
                self.check_constant(&it.expr);
                let set = self.branches(
                    Some(&it.expr),
                    |checker| checker.body(&it.true_body),
                    |checker| checker.body(&it.false_body),
                );
                self.remember(&it.expr, set);
            }
            Stmt::ForLoop(it) => self.for_loop(it),
            Stmt::WithBlock(it) => self.frame(|checker| {
                for (target, value) in &it.assignments {
                    checker.assign(target, value);
                }
                checker.body(&it.body);
            }),
            Stmt::Set(it) => self.assign(&it.target, &it.expr),
            // The names of these blocks are visible after them.
            Stmt::SetBlock(it) => {
                self.body(&it.body);
                let ty = it.filter.as_ref().map_or(Type::String, |it| self.value(it));
                self.bind_target(&it.target, ty);
            }
            Stmt::AutoEscape(it) => {
                self.auto_escape(it);
                self.body(&it.body);
            }
            Stmt::FilterBlock(it) => {
                self.body(&it.body);
                self.present(&it.filter);
            }
            Stmt::Macro(it) => self.declare(it),
            Stmt::CallBlock(it) => self.call_block(it),
            Stmt::Do(it) => drop(self.call(&it.call)),
            Stmt::Block(it) => self.stands_alone(it.span(), "block"),
            Stmt::Import(it) => self.stands_alone(it.span(), "import"),
            Stmt::FromImport(it) => self.stands_alone(it.span(), "from … import"),
            Stmt::Extends(it) => self.stands_alone(it.span(), "extends"),
            Stmt::Include(it) => self.stands_alone(it.span(), "include"),
        }
    }

    /// Checks two branches, one of which is rendered. A name that one of them sets is visible after both. Returns these
    /// names; those that have a value after one branch only, with whether it is the first one.
    fn branches(
        &mut self,
        condition: Option<&Expr<'_>>,
        one: impl FnOnce(&mut Self),
        other: impl FnOnce(&mut Self),
    ) -> Vec<(String, Option<bool>)> {
        let known = self.known.clone();
        let set_under = self.set_under.clone();
        let one = self.branch(condition, true, one);
        self.known.clone_from(&known);
        self.set_under.clone_from(&set_under);
        let other = self.branch(condition, false, other);
        (self.known, self.set_under) = (known, set_under);
        let mut set = Vec::new();
        let names: BTreeSet<String> = one.keys().chain(other.keys()).cloned().collect();
        for name in names {
            let mut after = |branch: &BTreeMap<String, Rc<Variable<'t>>>, outcome: bool| {
                if let Some(set) = branch.get(&name) {
                    return set.meaning.clone();
                }
                let mut meaning = Meaning::Value(Type::Any);
                // The condition may have proved a value that this branch leaves as it is.
                self.knowing(condition, outcome, |it| meaning = it.meaning_outside(&name));
                meaning
            };
            let is_value = |meaning: &Meaning<'t>| match meaning {
                Meaning::Value(ty) => !matches!(ty, Type::Optional(_)),
                Meaning::Macro(_) | Meaning::Outside => false,
            };
            let after_one = after(&one, true);
            let after_other = after(&other, false);
            let has_value = (is_value(&after_one), is_value(&after_other));
            let only = (has_value.0 != has_value.1).then_some(has_value.0);
            set.push((name.clone(), only));
            let meaning = match (after_one, after_other) {
                (Meaning::Value(one), Meaning::Value(other)) => Meaning::Value(either(one, other)),
                (Meaning::Macro(one), Meaning::Macro(other)) if one.is(&other) => {
                    Meaning::Macro(one)
                }
                _ => Meaning::Value(null()),
            };
            self.bind(&name, meaning);
        }
        set
    }

    /// Checks a branch. Returns the names that it sets, each with its last meaning.
    fn branch(
        &mut self,
        condition: Option<&Expr<'_>>,
        outcome: bool,
        check: impl FnOnce(&mut Self),
    ) -> BTreeMap<String, Rc<Variable<'t>>> {
        let outside = self.variables.count();
        let macros = self.macros.len();
        self.knowing(condition, outcome, |checker| {
            check(checker);
            checker.check_uncalled(macros);
        });
        let set = self.variables.split_off(outside);
        set.into_iter().map(|it| (it.name.clone(), it)).collect()
    }

    /// Returns the meaning of a name that a branch does not set.
    fn meaning_outside(&self, name: &str) -> Meaning<'t> {
        let is_proved = self.known.is_present(name) || self.set_under.has_value(name);
        match self.variable(name) {
            Some(Meaning::Value(ty)) if is_proved => return Meaning::Value(ty.required().clone()),
            Some(meaning) => return meaning.clone(),
            None => (),
        }
        Meaning::Value(match self.look_up(name) {
            Some((ty, _)) if is_proved => ty.required().clone(),
            Some((ty, Presence::Always)) => ty,
            Some((Type::Any, _)) | None => null(),
            Some((ty, _)) => ty.optional(),
        })
    }

    fn for_loop(&mut self, it: &'t ForLoop<'t>) {
        let iterated = self.present(&it.iter);
        let item = self.looped_over(&iterated, it.iter.span());
        // A key of the mapping that is looped over.
        let is_mapping = matches!(iterated.required(), Type::Map(_));
        let key = match (&it.target, path_of(&it.iter)) {
            (Expr::Var(key), Some(path)) if is_mapping => {
                Some(Guarantee::HasKey(format!("{path}[{}]", key.id)))
            }
            _ => None,
        };
        self.loop_body(it, item, key, true);
        self.branches(None, |checker| checker.body(&it.else_body), |_| ());
    }

    /// Returns the type of the items of a loop, a problem if there are none.
    pub(super) fn looped_over(&mut self, iterated: &Type, span: Span) -> Type {
        if super::expressions::is_single(iterated.required()) {
            let message = format!("{} cannot be looped over", describe(iterated));
            self.problem("GR022", span, message, "no list");
            return Type::Any;
        }
        items_of(iterated).unwrap_or(Type::Any)
    }

    /// Checks the body of a loop over items of a type.
    pub(super) fn loop_body(
        &mut self,
        it: &'t ForLoop<'t>,
        item: Type,
        key: Option<Guarantee>,
        is_filtered: bool,
    ) {
        self.frame(|checker| {
            let loop_type = loop_type(&item);
            let is_sure = !matches!(item, Type::Optional(_));
            checker.bind_target(&it.target, item);
            checker.known.extend(key);
            let body = |checker: &mut Self| {
                checker.bind(LOOP, Meaning::Value(loop_type));
                checker.known.extend(is_sure.then_some(Guarantee::LoopHasItems));
                checker.loops.push(it);
                checker.body(&it.body);
                checker.loops.pop();
            };
            match it.filter_expr.as_ref().filter(|_| is_filtered) {
                Some(filter) => {
                    checker.condition(filter);
                    checker.check_constant(filter);
                    checker.knowing(filter, true, body);
                }
                None => body(checker),
            }
        });
    }

    /// Gives a name a meaning, and forgets the knowledge of its former value.
    pub(super) fn bind(&mut self, name: &str, meaning: Meaning<'t>) {
        self.forget(name);
        self.variables.bind(name, meaning);
    }

    /// Forgets the knowledge of the value of a name.
    pub(super) fn forget(&mut self, name: &str) {
        let proved = self.set_under.forget(name);
        self.known.extend(proved);
        self.known.forget(|path| names_in(path).any(|it| it == name));
    }

    fn assign(&mut self, target: &Expr<'_>, value: &Expr<'_>) {
        let ty = self.value(value);
        self.bind_target(target, ty);
    }

    /// Gives the names of a target the types of the parts of a value.
    pub(super) fn bind_target(&mut self, target: &Expr<'_>, ty: Type) {
        let targets = match target {
            Expr::Var(it) => return self.bind(it.id, Meaning::Value(bounded(ty))),
            Expr::List(it) => &it.items,
            Expr::Tuple(it) => &it.items,
            other => {
                let message = "a prompt cannot change a part of a value".to_owned();
                self.problem("GR040", other.span(), message, "not in a prompt").help =
                    Some("set a name: `{% set name = … %}`".to_owned());
                return;
            }
        };
        if matches!(ty, Type::Optional(_)) {
            let message = "this may be absent, and has no items then".to_owned();
            self.problem("GR026", target.span(), message, "may be absent");
        }
        let parts: Option<Vec<Type>> = match (tuple_items(ty.required()), ty.required()) {
            (Some(items), _) if items.len() == targets.len() => {
                Some(items.into_iter().cloned().collect())
            }
            (None, Type::Any) => None,
            (items, of) => {
                let (message, help) = match (items, of) {
                    (Some(items), _) => {
                        let message = format!(
                            "{} has {}, not {}",
                            describe(of),
                            count(items.len() as u64, "item"),
                            targets.len()
                        );
                        (message, "write a name for each item")
                    }
                    (None, Type::List(_)) => (
                        format!("{} has any number of items", describe(of)),
                        "give the list one name, and read its items by their number: `pair[0]`",
                    ),
                    _ => (
                        format!("{} is one value", describe(of)),
                        "write `… | items` to loop over the keys and values of a record or a map",
                    ),
                };
                self.problem("GR022", target.span(), message, "several names").help =
                    Some(help.to_owned());
                None
            }
        };
        let parts = parts.unwrap_or_else(|| vec![Type::Any; targets.len()]);
        for (target, part) in targets.iter().zip(parts) {
            self.bind_target(target, part);
        }
    }

    fn auto_escape(&mut self, it: &AutoEscape<'_>) {
        let is_known = match &it.enabled {
            Expr::Const(it) => {
                matches!(it.value.as_str(), None | Some("html" | "none"))
            }
            _ => false,
        };
        if !is_known {
            let message = "a prompt is escaped by `true` or not, by `false`".to_owned();
            self.problem("GR040", it.enabled.span(), message, "here");
        }
    }

    /// Runs a check with the knowledge that a condition, if there is one, has this outcome.
    pub(super) fn knowing<'c>(
        &mut self,
        condition: impl Into<Option<&'c Expr<'c>>>,
        outcome: bool,
        then: impl FnOnce(&mut Self),
    ) {
        let before = self.known.count();
        let around = self.set_under.depth();
        let mut learned = Vec::new();
        if let Some(condition) = condition.into() {
            self.learn(condition, outcome, &mut learned);
            self.set_under.enter(condition, outcome);
        }
        self.known.extend(learned);
        then(self);
        self.known.truncate(before);
        self.set_under.leave(around);
    }

    fn stands_alone(&mut self, span: Span, what: &str) {
        let message = format!("a prompt cannot use other files; there is no `{what}`");
        self.problem("GR040", span, message, "not in a prompt");
    }

    pub(super) fn problem(
        &mut self,
        code: &'static str,
        span: Span,
        message: String,
        label: impl Into<String>,
    ) -> &mut Problem {
        let at = self.problems.len();
        self.problems.push(Problem::new(code, bytes(span), message, label));
        &mut self.problems[at]
    }
}

/// Returns the names with which a path or a condition begins, or which it contains as keys. Those behind a point are parts.
pub(super) fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let mut before = None;
    text.split_inclusive(|it: char| !it.is_alphanumeric() && it != '_').filter_map(move |word| {
        let name = word.trim_end_matches(|it: char| !it.is_alphanumeric() && it != '_');
        let is_part = before == Some('.');
        before = word.chars().next_back();
        (!name.is_empty() && !is_part).then_some(name)
    })
}

fn bytes(span: Span) -> Range<usize> {
    span.start_offset as usize..span.end_offset as usize
}

#[cfg(test)]
mod tests {
    use super::names_in;

    #[test]
    fn a_part_of_a_value_is_no_name() {
        let names = |text| names_in(text).collect::<Vec<_>>();
        assert_eq!(names("a.b[c.d][0].e"), ["a", "c", "0"]);
        assert_eq!(names("(a_1 | first).b"), ["a_1", "first"]);
        assert_eq!(names("(a && not b.c)"), ["a", "not", "b"]);
        assert_eq!(names(""), [""; 0]);
    }
}
