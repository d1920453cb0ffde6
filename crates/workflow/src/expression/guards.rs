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
use crate::{via, visited};

impl ExpressionChecker<'_> {
    /// Checks a part that is evaluated only if a condition has this outcome.
    pub(super) fn knowing<T>(
        &mut self,
        condition: &Node,
        outcome: bool,
        check: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let (present, ranges) = (self.present.len(), self.ranges.len());
        self.learn(condition, outcome);
        self.learn_ranges(condition, outcome);
        let checked = check(self);
        self.present.truncate(present);
        self.ranges.truncate(ranges);
        checked
    }

    /// Records the ranges of numbers once the condition has this outcome.
    pub(super) fn learn_ranges(&mut self, condition: &Node, outcome: bool) {
        // A proved comparison has been evaluated, so the ranges hold that were known there.
        let (types, mut learned) = (&self.types_here, Vec::new());
        let mut excluded = Vec::new();
        let ty = |of: &Node| types.get(&(of.range.start, of.range.end)).map(Type::required);
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
        self.ranges.extend(learned.into_iter().filter(|(_, it)| *it != NumberRange::ALL));
        self.exclude(&excluded);
    }

    /// Records the ranges of whole numbers, each of which is not one number. Only a number at an end of a range narrows it,
    /// and the next one may be excluded, too.
    fn exclude(&mut self, excluded: &[(String, NumberRange, f64)]) {
        for _ in excluded {
            for (text, range, value) in excluded {
                let known = self.ranges.iter().filter(|(it, _)| it == text).map(|it| it.1);
                let range = known.fold(*range, |range, it| range.common(it).unwrap_or(range));
                let rest = ranges::without(range, *value);
                if rest != range {
                    self.ranges.push((text.clone(), rest));
                }
            }
        }
    }

    /// Returns the type of the items of a list for which a condition holds. `variable` is the name of an item in it.
    pub(super) fn items_with(&mut self, condition: &Node, variable: &Node, item: &Type) -> Type {
        let NodeKind::Variable(name) = &variable.kind else { return item.clone() };
        self.knowing(condition, true, |it| {
            let ranges = it.ranges.iter().map(|(path, range)| (path.as_str(), Some(*range)));
            let present = it.present.iter().map(|path| (path.as_str(), None));
            let facts = present.chain(ranges).filter_map(|(path, range)| {
                let names = path.strip_prefix(name.as_str())?;
                let names = names.strip_prefix('.').or_else(|| names.is_empty().then_some(""))?;
                Some((names, range))
            });
            facts.fold(item.clone(), |ty, (names, range)| with_fact(&ty, names, range))
        })
    }

    /// Records the paths that are present once the condition has this outcome.
    pub(super) fn learn(&mut self, condition: &Node, outcome: bool) {
        known::learn(condition, outcome, &mut |proved| match proved {
            Proof::Present(path) => {
                let mut part = Some(path);
                while let Some(node) = part {
                    self.present.extend(node.span());
                    self.present.extend(size_of_groups(node));
                    part = node.container();
                }
            }
            Proof::Compared { path, to, is_equal } => {
                self.present.extend(via::learned(&path, to, is_equal));
            }
            Proof::Ordered { left, operator, right } => {
                self.learn_index(left, operator, right);
                self.learn_index(right, operator.turned(), left);
            }
            Proof::Unequal { .. } => (),
            Proof::Sized { list, number, fulfils } => {
                let known = sizes::known(&self.present, &list.to_string());
                self.learn_size(list, sizes::least(known, number, fulfils));
            }
            Proof::Contained { item, within } => {
                if !matches!(self.noted(within), Some(Type::Map(_))) {
                    self.learn_size(within, 1);
                } else if !self.is_map_with_nulls(within) {
                    self.present.push(print::item_of(within, item));
                }
            }
            Proof::Decided { condition, holds } => {
                let path = condition.path().filter(|_| holds);
                let shown = path.iter().zip(self.scope.written.success());
                let shown = shown.flat_map(|(path, it)| it.shown_by_bool(path));
                self.present.extend(shown.map(str::to_owned));
            }
            Proof::Numbered { value, fulfils } => {
                let path = value.path();
                let shown = path.iter().zip(self.scope.written.success());
                let shown = shown.flat_map(|(path, it)| it.shown_by_code(path, fulfils));
                self.present.extend(shown.map(str::to_owned));
            }
            Proof::Visited { node, fulfils } => {
                let is_own = self.scope.written.is_at(node);
                self.present.extend(visited::mark(node, visited::least(is_own, fulfils)));
            }
        });
    }

    /// Records that a list has at least so many items. They are there for certain unless they may be null.
    fn learn_size(&mut self, list: &Node, least: i64) {
        let ty = self.noted(list);
        if matches!(ty, Some(Type::List(item)) if !matches!(**item, Type::Optional(_))) {
            self.present.extend(sizes::mark(&list.to_string(), least));
        }
    }

    /// Records the item of a list whose number is below the size of the list.
    fn learn_index(&mut self, index: &Node, operator: Operator, size: &Node) {
        let NodeKind::Call(Function { name: "size", .. }, arguments) = &size.kind else { return };
        let Some(list) = arguments.first().filter(|_| operator == Operator::Less) else { return };
        let index_type = self.types_here.get(&(index.range.start, index.range.end));
        let is_counted = index_type
            .is_some_and(|it| matches!(it, Type::Int(it) if it.min.is_some_and(|it| it >= 0.0)));
        if is_counted
            && matches!(self.noted(list), Some(Type::List(it)) if !matches!(**it, Type::Optional(_)))
        {
            self.present.push(print::item_of(list, index));
        }
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
            ("sort" | "distinct" | "slice", [list, ..]) => self.learn_filtered(list, variable),
            _ => (),
        }
    }

    /// Returns the type of a part that has been checked, without null.
    fn noted(&self, part: &Node) -> Option<&Type> {
        self.types.get(&(part.range.start, part.range.end)).map(Type::required)
    }

    /// Returns whether a part is a map that may have a key whose value is null.
    pub(super) fn is_map_with_nulls(&self, part: &Node) -> bool {
        matches!(self.noted(part), Some(Type::Map(it)) if matches!(**it, Type::Optional(_)))
    }
}

/// Returns the mark of the groups of a pattern in a list, which are all there if the pattern matches.
fn size_of_groups(node: &Node) -> Option<String> {
    let NodeKind::Call(Function { name: "groups", .. }, arguments) = &node.kind else {
        return None;
    };
    let NodeKind::Pattern(pattern) = &arguments.get(1)?.kind else { return None };
    let is_list = matches!(pattern.groups_type(), Type::List(_));
    let count = i64::try_from(pattern.regex.captures_len() - 1).ok()?;
    sizes::mark(&node.to_string(), count).filter(|_| is_list)
}

/// Returns the type of values whose part at this path is present, and in a range if there is one.
fn with_fact(ty: &Type, path: &str, range: Option<NumberRange>) -> Type {
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
    let part = with_fact(&record.fields[at].ty, rest, range);
    if part == record.fields[at].ty {
        return ty.clone();
    }
    // The named type has fields of other types.
    let mut record = Record { name: None, ..Record::clone(record) };
    record.fields[at].ty = part;
    let narrowed = Type::Record(record.into());
    if matches!(ty, Type::Optional(_)) { narrowed.optional() } else { narrowed }
}
