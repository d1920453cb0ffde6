//! The knowledge of the checker behind a condition: the values that are present, the items of lists and maps, and the ranges
//! of numbers.

use graphrun_core::state::{NumberRange, Record, Type};

use super::{
    checker::ExpressionChecker,
    functions::Function,
    known::{self, Proof},
    print, ranges, sizes,
    syntax::{Node, NodeKind, Operator},
};
use crate::flow::guarantee::Guarantee;

impl ExpressionChecker<'_> {
    /// Checks a part that is evaluated only if a condition has this outcome.
    pub(super) fn knowing<T>(
        &mut self,
        condition: &Node,
        outcome: bool,
        check: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let before = self.known.count();
        self.learn(condition, outcome);
        self.learn_ranges(condition, outcome);
        let checked = check(self);
        self.known.truncate(before);
        checked
    }

    /// Records the ranges of numbers once the condition has this outcome.
    pub(super) fn learn_ranges(&mut self, condition: &Node, outcome: bool) {
        // A proved comparison has been evaluated, so the ranges hold that were known there.
        let types = &self.types_here;
        let mut learned = Vec::new();
        let mut excluded = Vec::new();
        let ty = |of: &Node| types.get(&of.key()).map(Type::required);
        known::learn(condition, outcome, &mut |proved| {
            let of = |node: &Node, ty: &Type, operator, than| {
                let range = ranges::compared(operator, than);
                let is_whole = matches!(ty, Type::Int(_));
                (node.to_string(), if is_whole { range.whole() } else { range.closed() })
            };
            match proved {
                Proof::Ordered { left, operator, right } => {
                    let (Some(left_type), Some(right_type)) = (ty(left), ty(right)) else { return };
                    if let (Some(left_range), Some(right_range)) =
                        (left_type.range(), right_type.range())
                    {
                        learned.push(of(left, left_type, operator, right_range));
                        learned.push(of(right, right_type, operator.turned(), left_range));
                    }
                }
                Proof::Contained { item, within } => {
                    let (Some(item_type), Some(Type::List(items))) = (ty(item), ty(within)) else {
                        return;
                    };
                    if let (Some(_), Some(range)) = (item_type.range(), items.required().range()) {
                        learned.push(of(item, item_type, Operator::Equal, range));
                    }
                }
                Proof::Unequal { left, right } => {
                    for (of, other) in [(left, right), (right, left)] {
                        if let (Some(Type::Int(range)), Some(Type::Int(only))) = (ty(of), ty(other))
                            && let Some(value) = ranges::single(*only)
                        {
                            excluded.push((of.to_string(), *range, value));
                        }
                    }
                }
                _ => (),
            }
        });
        let learned = learned.into_iter().filter(|(_, it)| *it != NumberRange::ALL);
        self.known.extend(learned.map(|(path, range)| Guarantee::InRange(path, range)));
        self.exclude(&excluded);
    }

    /// Records the ranges of whole numbers, each of which is not one number. Only a number at an end of a range narrows it,
    /// and the next one may be excluded, too.
    fn exclude(&mut self, excluded: &[(String, NumberRange, f64)]) {
        for _ in excluded {
            for (text, range, value) in excluded {
                let range = self.known.narrowed(text, *range);
                let rest = ranges::without(range, *value);
                if rest != range {
                    self.known.push(Guarantee::InRange(text.clone(), rest));
                }
            }
        }
    }

    /// Returns the type of the items of a list for which a condition holds. `variable` is the name of an item in it.
    pub(super) fn items_with(&mut self, condition: &Node, variable: &Node, item: &Type) -> Type {
        let NodeKind::Variable(name) = &variable.kind else { return item.clone() };
        self.knowing(condition, true, |checker| {
            let guarantees = checker.known.iter().filter_map(|guarantee| {
                let (path, range) = match guarantee {
                    Guarantee::Present(path) => (path, None),
                    Guarantee::InRange(path, range) => (path, Some(*range)),
                    _ => return None,
                };
                let names = path.strip_prefix(name.as_str())?;
                let names = names.strip_prefix('.').or_else(|| names.is_empty().then_some(""))?;
                Some((names, range))
            });
            guarantees.fold(item.clone(), |ty, (names, range)| with_guarantee(&ty, names, range))
        })
    }

    /// Records the paths that are present once the condition has this outcome.
    pub(super) fn learn(&mut self, condition: &Node, outcome: bool) {
        known::learn(condition, outcome, &mut |proved| match proved {
            Proof::Present(path) => {
                let mut part = Some(path);
                while let Some(node) = part {
                    self.known.extend(node.fact_path().map(Guarantee::Present));
                    self.known.extend(size_of_groups(node));
                    part = node.container();
                }
            }
            Proof::Compared { path, to, is_equal } => {
                self.known.extend(Guarantee::of_trigger(&path, to, is_equal));
            }
            Proof::Ordered { left, operator, right } => {
                self.learn_index(left, operator, right);
                self.learn_index(right, operator.turned(), left);
            }
            Proof::Unequal { .. } => (),
            Proof::Sized { list, number, fulfils } => {
                self.learn_size(list, number, fulfils);
            }
            Proof::Contained { item, within } => {
                if !matches!(self.noted(within), Some(Type::Map(_))) {
                    self.learn_size(within, 0, |it| it > 0);
                } else if !self.is_map_with_nulls(within) {
                    self.known.push(Guarantee::Present(print::item_of(within, item)));
                }
            }
            Proof::Decided { condition, holds } => {
                let path = condition.path().filter(|_| holds);
                let shown = path.iter().zip(self.scope.written.success());
                let shown = shown.flat_map(|(path, it)| it.shown_by_bool(path));
                self.known.extend(shown.map(|it| Guarantee::Present(it.to_owned())));
            }
            Proof::Numbered { value, fulfils } => {
                let path = value.path();
                let shown = path.iter().zip(self.scope.written.success());
                let shown = shown.flat_map(|(path, it)| it.shown_by_code(path, fulfils));
                self.known.extend(shown.map(|it| Guarantee::Present(it.to_owned())));
            }
            Proof::Visited { node, fulfils } => {
                let is_own = self.scope.written.is_at(node);
                self.known.extend(Guarantee::of_visits(node, is_own, fulfils));
            }
        });
    }

    /// Records that the size of a list fulfils a comparison. Its items are there for certain unless they may be null.
    fn learn_size(&mut self, list: &Node, number: i64, fulfils: impl Fn(i64) -> bool) {
        if self.has_sure_items(list) {
            let list = list.to_string();
            let known = self.known.least_size(&list);
            self.known.extend(Guarantee::of_size(list, known, number, fulfils));
        }
    }

    /// Records that a number is below the size of a list, whose items are there unless they may be null.
    fn learn_index(&mut self, index: &Node, operator: Operator, with: &Node) {
        let Some((list, above)) = sizes::list_above(operator, with) else { return };
        let is_whole = matches!(self.type_here(index), Some(Type::Int(_)));
        if is_whole && self.has_sure_items(list) {
            let index = match above {
                0 => index.to_string(),
                above => format!("{index} - {above}"),
            };
            self.known.push(Guarantee::below_size(&index, &list.to_string()));
        }
    }

    /// Returns whether an item of a list has a number from zero on that is below the size of the list.
    pub(super) fn is_within_size(&self, item: &Node) -> bool {
        let NodeKind::Index(list, index) = &item.kind else { return false };
        let is_counted = matches!(self.type_here(index), Some(Type::Int(NumberRange { min: Some(min), .. })) if *min >= 0.0);
        is_counted && self.has_sure_items(list) && sizes::is_below(&self.known, index, list)
    }

    /// Returns the type of a part where it has been checked.
    fn type_here(&self, part: &Node) -> Option<&Type> {
        self.types_here.get(&part.key())
    }

    /// Returns whether a part is a list without items that may be null.
    fn has_sure_items(&self, list: &Node) -> bool {
        matches!(self.noted(list), Some(Type::List(it)) if !matches!(**it, Type::Optional(_)))
    }

    /// Records what the conditions of a filter prove of the items of its list. `variable` is the name of an item here.
    pub(super) fn learn_filtered(&mut self, list: &Node, variable: &str) {
        let NodeKind::Call(function, arguments) = &list.kind else { return };
        match (function.name, arguments.as_slice()) {
            ("filter", [list, named, condition]) => {
                self.learn_filtered(list, variable);
                let NodeKind::Variable(name) = &named.kind else { return };
                let condition = condition.with_variable(name, variable);
                self.learn(&condition, true);
                self.learn_ranges(&condition, true);
            }
            // They keep items, or leave some out.
            ("sort" | "sortBy" | "reverse" | "distinct" | "slice", [list, ..]) => {
                self.learn_filtered(list, variable);
            }
            _ => (),
        }
    }

    /// Returns the type of a part that has been checked, without null.
    pub(super) fn noted(&self, part: &Node) -> Option<&Type> {
        self.types.get(&part.key()).map(Type::required)
    }

    /// Returns whether a part is a map that may have a key whose value is null.
    pub(super) fn is_map_with_nulls(&self, part: &Node) -> bool {
        matches!(self.noted(part), Some(Type::Map(it)) if matches!(**it, Type::Optional(_)))
    }
}

/// Returns the size of the list of the groups of a pattern, which are all there if the pattern matches.
fn size_of_groups(node: &Node) -> Option<Guarantee> {
    let NodeKind::Call(Function { name: "groups", .. }, arguments) = &node.kind else {
        return None;
    };
    let NodeKind::Pattern(pattern) = &arguments.get(1)?.kind else { return None };
    let is_list = matches!(pattern.groups_type(), Type::List(_));
    let count = i64::try_from(pattern.regex.captures_len() - 1).ok()?;
    is_list.then(|| Guarantee::HasItems { list: node.to_string(), least: count })
}

/// Returns the type of values whose part at this path is present, and in a range if there is one.
fn with_guarantee(ty: &Type, path: &str, range: Option<NumberRange>) -> Type {
    if path.is_empty() {
        let narrow = |of: &NumberRange| range.and_then(|it| it.common(*of)).unwrap_or(*of);
        return match ty.required() {
            Type::Int(of) => Type::Int(narrow(of)),
            Type::Float(of) => Type::Float(narrow(of)),
            other => other.clone(),
        };
    }
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let Type::Record(record) = ty.required() else { return ty.clone() };
    let Some(at) = record.fields.iter().position(|it| it.name == name) else { return ty.clone() };
    let part = with_guarantee(&record.fields[at].ty, rest, range);
    if part == record.fields[at].ty {
        return ty.clone();
    }
    // The named type has fields of other types.
    let mut record = Record { name: None, ..Record::clone(record) };
    record.fields[at].ty = part;
    let narrowed = Type::Record(record.into());
    if matches!(ty, Type::Optional(_)) { narrowed.optional() } else { narrowed }
}
