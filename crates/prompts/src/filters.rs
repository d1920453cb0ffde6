//! The types of filters: the engine tries each on samples, and this file has the types of the results.

use graphrun_core::state::Type;
use graphrun_expressions::{
    flow::written::Presence,
    typing::{describe, null},
};
use minijinja::machinery::{
    Span,
    ast::{CallArg, Expr, Filter},
};

use super::{
    checker::PromptChecker,
    expressions::{absent_at_times, is_single},
    guards::number_of,
    names::FILTERS,
    operations::{TestedOperand, TypedExpression},
    shapes::{
        alternatives, any_of, either, group, is_shape, items_of, of_any_length, present, tuple,
        tuple_items, values_of_map, with_part,
    },
    tried::OPERANDS,
};

/// The filters that make an empty list of one.
const STAYS_EMPTY: [&str; 12] = [
    "batch",
    "groupby",
    "list",
    "map",
    "reject",
    "rejectattr",
    "reverse",
    "select",
    "selectattr",
    "sort",
    "unique",
    "zip",
];

/// A filter with the types of its value and its arguments.
#[derive(Clone, Copy)]
struct Application<'e> {
    name: &'e str,
    input: &'e Type,
    args: &'e [CallArg<'e>],
    types: &'e [Type],
    span: Span,
}

impl<'e> Application<'e> {
    fn positional(&self, at: usize) -> Option<(&'e Expr<'e>, &'e Type)> {
        let all = self.args.iter().zip(self.types);
        let mut positional = all.filter_map(|(arg, ty)| match arg {
            CallArg::Pos(it) => Some((it, ty)),
            _ => None,
        });
        positional.nth(at)
    }

    fn named(&self, name: &str) -> Option<(&'e Expr<'e>, &'e Type)> {
        // The last value of a repeated argument counts.
        self.args.iter().zip(self.types).rev().find_map(|(arg, ty)| match arg {
            CallArg::Kwarg(key, it) if *key == name => Some((it, ty)),
            _ => None,
        })
    }

    /// Returns the argument that names a part of the items, and whether a filter of this name needs it.
    fn attribute(&self) -> Option<&'e Expr<'e>> {
        let at = match self.name {
            "selectattr" | "rejectattr" | "groupby" | "sum" => Some(0),
            "join" => Some(1),
            "map" | "sort" | "unique" | "min" | "max" => None,
            _ => return None,
        };
        let named = self.named("attribute").map(|it| it.0);
        named.or_else(|| at.and_then(|at| self.positional(at)).map(|it| it.0))
    }
}

impl PromptChecker<'_, '_> {
    pub(super) fn filter(&mut self, it: &Filter<'_>, span: Span) -> Type {
        let known = self.problems.len();
        self.known("filter", it.name, FILTERS, span);
        let types = self.arguments(&it.args);
        let fallback = matches!(it.name, "default" | "d");
        let input = match &it.expr {
            Some(of) => self.maybe_undefined(of, fallback),
            // The block of a `{% filter %}`.
            None => Type::String,
        };
        let of = Application { name: it.name, input: &input, args: &it.args, types: &types, span };
        let item = items_of(&input).unwrap_or(Type::Any);
        if it.name == "join" && is_single(input.required()) {
            let message = format!("{} is no list that can be joined", describe(&input));
            self.problem("GR022", span, message, "no list");
        }
        let path = of.attribute().and_then(|it| self.attribute_path(it));
        let part = path.as_ref().map(|path| self.part(&item, path, span));
        if it.name == "format" && !matches!(it.expr, Some(Expr::Const(_)) | None) {
            let message = "the text of `format` is no literal".to_owned();
            self.problem("GR022", span, message, "fails at times").help =
                Some("write it in quotes, or add texts with `~`".to_owned());
        }
        if it.name == "join" && matches!(part.as_ref().unwrap_or(&item), Type::Optional(_)) {
            let message = "an item may be absent, and has no text then".to_owned();
            self.problem("GR026", span, message, "may be absent").help =
                Some("leave it out first: `… | select | join(…)`".to_owned());
        }
        let mut tried = Type::Any;
        if self.problems.len() == known {
            let first = TestedOperand { expression: it.expr.as_ref(), ty: &input };
            let what = format!("the filter `{}`", it.name);
            let source = |args: &str| format!("a | {}{args}", it.name);
            tried = self.try_with_arguments(source, &what, first, &it.args, &types, span);
            self.advise(it, known);
        }
        if fallback {
            return self.with_default(it, &of);
        }
        let has_items = it.expr.as_ref().is_some_and(|it| self.has_items(it));
        self.filtered(&of, path.as_deref(), part, has_items, tried)
    }

    /// Returns the type of the result of a filter.
    fn filtered(
        &mut self,
        of: &Application<'_>,
        path: Option<&str>,
        part: Option<Type>,
        has_items: bool,
        tried: Type,
    ) -> Type {
        let input = of.input.required();
        let item = items_of(input).unwrap_or(Type::Any);
        let list = |item: Type| Type::List(item.into());
        if tuple_items(input).is_some_and(|it| it.is_empty()) && STAYS_EMPTY.contains(&of.name) {
            return input.clone();
        }
        match of.name {
            "first" | "last" | "min" | "max" => {
                let items = tuple_items(input);
                let end = match (of.name, items.as_deref()) {
                    ("first", Some([first, ..])) => return Type::clone(first),
                    ("last", Some([.., last])) => return Type::clone(last),
                    (_, Some([_, ..])) => return item,
                    (_, Some([])) => return null(),
                    _ => item,
                };
                if has_items { end } else { end.optional() }
            }
            "attr" => attr(of),
            "reverse" if matches!(input, Type::String | Type::Enum(_)) => Type::String,
            "list" | "sort" | "reverse" | "unique" => list(item),
            "select" | "reject" | "selectattr" | "rejectattr" => list(selected(of, path, item)),
            "batch" | "slice" => {
                let fill = of.positional(1).map(|it| it.1.clone());
                list(list(fill.map_or(item.clone(), |fill| either(item, fill))))
            }
            "items" | "dictsort" if *input == Type::Any => Type::Any,
            "items" | "dictsort" => list(tuple(vec![Type::String, values_of_map(input)])),
            "zip" => {
                let others = of.types.iter().map(|it| items_of(it).unwrap_or(Type::Any));
                list(tuple([item].into_iter().chain(others).collect()))
            }
            "chain" => chained(of),
            "groupby" => {
                let key = part.unwrap_or_else(absent_at_times);
                list(group(with_fallback(key, of.named("default")), list(item)))
            }
            "map" => self.mapped(of, part, &item),
            "split" | "lines" => list(Type::String),
            "sum" => summed(of, part.as_ref().unwrap_or(&item), &tried),
            "int" | "float" => {
                let number = if of.name == "int" { Type::INT } else { Type::FLOAT };
                let default = of.named("default").or_else(|| of.positional(0));
                match input {
                    Type::Bool | Type::Int(_) | Type::Float(_) => number,
                    _ => default.map_or(number.clone(), |it| either(number, it.1.clone())),
                }
            }
            "length" | "count" => Type::INT,
            "bool" => Type::Bool,
            "abs" | "round" => tried,
            // It shows a file without its content.
            "tojson" => Type::String,
            // The others make texts.
            name => {
                let parts = part.unwrap_or(item);
                let text = if name == "join" { &parts } else { input };
                for ty in [text].into_iter().chain(of.types) {
                    self.printed(ty, of.span);
                }
                Type::String
            }
        }
    }

    /// Returns the type of `default`, which replaces an absent value, or a false one if its second argument is true.
    fn with_default(&self, it: &Filter<'_>, of: &Application<'_>) -> Type {
        let is_written = match &it.expr {
            Some(Expr::Var(it)) => self.look_up(it.id).is_none_or(|it| it.1 == Presence::Always),
            _ => true,
        };
        let is_sure = is_written && !matches!(of.input, Type::Optional(_)) && of.args.len() < 2;
        if is_sure {
            return of.input.clone();
        }
        let default = of.types.first().cloned().unwrap_or(Type::String);
        match present(of.input) {
            Some(input) => either(input.clone(), default),
            None => default,
        }
    }

    /// Returns the path of a part of the items, which a filter takes as a text.
    fn attribute_path(&mut self, expression: &Expr<'_>) -> Option<String> {
        let number = number_of(expression).map(|it| it.to_string());
        let path = match expression {
            Expr::Const(it) => it.value.as_str().map(str::to_owned).or(number),
            _ => None,
        };
        if path.is_none() {
            let message = "the name of a part is no literal".to_owned();
            self.problem("GR022", expression.span(), message, "here").help =
                Some("write it in quotes: `attribute=\"name\"`".to_owned());
        }
        path
    }

    /// Returns the type of a part of an item, such as `owner.name`. With commas, they are several parts to sort by.
    fn part(&mut self, of: &Type, paths: &str, span: Span) -> Type {
        let mut ty = Type::Any;
        for path in paths.split(',') {
            ty = of.clone();
            for name in path.trim().split('.') {
                let is_optional = matches!(ty, Type::Optional(_));
                let part = match (tuple_items(ty.required()), name.parse::<usize>(), ty.required())
                {
                    (Some(items), Ok(at), _) => {
                        items.get(at).map_or_else(null, |it| Type::clone(it))
                    }
                    (None, Ok(_), Type::List(item)) => Type::clone(item).optional(),
                    _ => self.field(&ty, name, span),
                };
                ty = if is_optional { part.optional() } else { part };
            }
        }
        ty
    }

    /// Returns the type of `map`, with a part of the items or with another filter.
    fn mapped(&mut self, of: &Application<'_>, part: Option<Type>, item: &Type) -> Type {
        if let Some(part) = part {
            return Type::List(with_fallback(part, of.named("default")).into());
        }
        let filter = of.positional(0).and_then(|(it, _)| match it {
            Expr::Const(it) => it.value.as_str(),
            _ => None,
        });
        let Some(name) = filter else { return Type::List(Type::Any.into()) };
        if matches!(item, Type::Optional(_)) && !matches!(name, "default" | "d") {
            let message = format!("an item may be absent, and `{name}` needs a value");
            self.problem("GR026", of.span, message, "may be absent").help =
                Some(format!("leave it out first: `… | select | map(\"{name}\")`"));
        }
        let args = &of.args[1..];
        let types = &of.types[1..];
        let inner = Application { name, input: item, args, types, span: of.span };
        let part = inner.attribute().and_then(|it| self.attribute_path(it));
        let ty = part.as_ref().map(|path| {
            let item = items_of(item).unwrap_or(Type::Any);
            self.part(&item, path, of.span)
        });
        let operands = args.iter().zip(types).zip(&OPERANDS[1..]);
        let texts: Vec<String> = operands
            .map(|((arg, _), name)| match arg {
                CallArg::Kwarg(key, _) => format!("{key}={name}"),
                _ => (*name).to_owned(),
            })
            .collect();
        let source = match texts.as_slice() {
            [] => format!("a | {name}"),
            texts => format!("a | {name}({})", texts.join(", ")),
        };
        let tested = args.iter().zip(types);
        let tested: Vec<_> = tested
            .map(|(arg, ty)| TypedExpression { expression: expression_of(arg), ty })
            .collect();
        let tried = self.type_of_operation(&source, item, &tested);
        let result = match name {
            "default" | "d" => {
                let default = types.first().cloned().unwrap_or(Type::String);
                either(item.required().clone(), default)
            }
            _ => self.filtered(&inner, part.as_deref(), ty, false, tried),
        };
        Type::List(result.into())
    }

    /// Advises what to write in place of a filter that fails.
    fn advise(&mut self, it: &Filter<'_>, known: usize) {
        if matches!(it.name, "int" | "float")
            && let Some(problem) = self.problems.get_mut(known)
        {
            problem.help = Some(format!("give a default: `… | {}(default=0)`", it.name));
        }
    }
}

/// Returns the type of `attr(key)`.
fn attr(of: &Application<'_>) -> Type {
    let key = of.positional(0).and_then(|(it, _)| match it {
        Expr::Const(it) => it.value.as_str(),
        _ => None,
    });
    match (key, of.input.required()) {
        (Some(key), Type::Record(_)) if !is_shape(of.input.required()) => {
            of.input.field(key).cloned().unwrap_or_else(absent_at_times)
        }
        (_, Type::Map(value)) => Type::clone(value).optional(),
        _ => absent_at_times(),
    }
}

fn expression_of<'e>(arg: &'e CallArg<'e>) -> &'e Expr<'e> {
    match arg {
        CallArg::Pos(it)
        | CallArg::Kwarg(_, it)
        | CallArg::PosSplat(it)
        | CallArg::KwargSplat(it) => it,
    }
}

/// Returns the items that pass a test. Some tests pass only present values.
fn selected(of: &Application<'_>, path: Option<&str>, item: Type) -> Type {
    let (at, keeps) = match of.name {
        "select" => (0, true),
        "reject" => (0, false),
        "selectattr" => (1, true),
        _ => (1, false),
    };
    let test = of.positional(at).map(|(it, _)| match it {
        Expr::Const(it) => it.value.as_str().unwrap_or_default(),
        _ => "",
    });
    let is_sure = match test {
        None => keeps,
        Some(test) if keeps => {
            let of_values = ["boolean", "float", "integer", "mapping", "number", "string"];
            matches!(test, "defined" | "false" | "true") || of_values.contains(&test)
        }
        Some(test) => matches!(test, "none" | "undefined"),
    };
    match (is_sure, path) {
        (false, _) => item,
        (true, None) => item.required().clone(),
        (true, Some(path)) => with_part(item.required(), path),
    }
}

/// Returns the type of `sum`, which adds the items to its start. `tried` is the type of the sum of samples.
fn summed(of: &Application<'_>, item: &Type, tried: &Type) -> Type {
    let start = of.named("start").or_else(|| of.positional(1));
    // No start is zero, and null is none.
    let start = match start.map(|it| it.1) {
        None => Type::INT,
        Some(ty @ Type::Optional(_)) => {
            present(ty).map_or(Type::INT, |it| either(of_any_length(it), Type::INT))
        }
        Some(start) => of_any_length(start),
    };
    if tuple_items(of.input.required()).is_some_and(|it| it.is_empty()) {
        return start;
    }
    if *tried == Type::Any {
        let is_number = [&start, item].into_iter().all(|it| is_number(it.required()));
        return if is_number { Type::FLOAT } else { Type::Any };
    }
    // Without items, it is the start. The samples do not show the types of the items of lists.
    let is_list = |it: &&Type| matches!(it, Type::List(_));
    let (lists, others): (Vec<&Type>, Vec<&Type>) =
        alternatives(tried).into_iter().partition(is_list);
    let items = (!lists.is_empty()).then(|| of_any_length(item));
    any_of(others.into_iter().cloned().chain([start]).chain(items))
}

/// Returns the type of `chain`: mappings together, or lists.
fn chained(of: &Application<'_>) -> Type {
    let all: Vec<&Type> = [of.input].into_iter().chain(of.types).map(Type::required).collect();
    let is_mapping = |it: &&Type| matches!(it, Type::Map(_) | Type::Record(_)) && !is_shape(it);
    if all.iter().all(is_mapping) {
        return Type::Map(any_of(all.into_iter().map(values_of_map)).into());
    }
    let is_empty = |it: &&Type| tuple_items(it).is_some_and(|it| it.is_empty());
    let items = all.into_iter().filter(|it| !is_empty(it));
    let item = items.map(|it| items_of(it).unwrap_or(Type::Any)).reduce(either);
    item.map_or_else(|| tuple(Vec::new()), |it| Type::List(it.into()))
}

/// Returns the type of a part with the `default` of a filter.
fn with_fallback(part: Type, default: Option<(&Expr<'_>, &Type)>) -> Type {
    match default {
        Some((_, default)) => either(part.required().clone(), default.clone()),
        None => part,
    }
}

fn is_number(ty: &Type) -> bool {
    alternatives(ty).into_iter().all(Type::is_number)
}
