//! Calls in a template: macros, functions, facts of the run, and the methods of a loop.

use graphrun_core::{
    id::NodeName,
    state::{Field, Record, Type},
};
use graphrun_expressions::{facts::usage_type, problem::suggestion, typing::describe};
use minijinja::machinery::{
    Span,
    ast::{Call, CallArg, Expr},
};

use super::{
    checker::{Meaning, PromptChecker},
    expressions::{CALLER, LOOP},
    names::{FILTERS, FUNCTIONS, FactFunction},
    shapes::{any_of, is_shape, values_of_map},
};

impl PromptChecker<'_, '_> {
    pub(super) fn call(&mut self, call: &Call<'_>) -> Type {
        match &call.expr {
            Expr::Var(it) if it.id == LOOP => self.recurse(call),
            Expr::Var(it) => self.call_name(it.id, call),
            Expr::GetAttr(it) if matches!(&it.expr, Expr::Var(it) if it.id == LOOP) => {
                self.ty(&it.expr);
                self.loop_method(it.name, call, it.span())
            }
            Expr::GetAttr(it) => {
                self.arguments(&call.args);
                let of = self.ty(&it.expr);
                let message = format!("{} has no method `{}`", describe(&of), it.name);
                self.problem("GR041", it.span(), message, "no method").help =
                    Some(in_place_of_method(it.name, !call.args.is_empty()));
                Type::Any
            }
            other => {
                self.arguments(&call.args);
                let of = self.ty(other);
                let message = format!("{} is no function", describe(&of));
                self.problem("GR041", other.span(), message, "cannot be called");
                Type::Any
            }
        }
    }

    fn call_name(&mut self, name: &str, call: &Call<'_>) -> Type {
        let span = call.expr.span();
        match self.variable(name) {
            Some(Meaning::Macro(callee)) => {
                let callee = callee.clone();
                return self.call_macro(name, &callee, call, None);
            }
            Some(Meaning::Outside) => {
                self.report_outside(name, span);
                return Type::Any;
            }
            Some(Meaning::Value(ty)) if name == CALLER && *ty == Type::Any => return Type::String,
            Some(Meaning::Value(_)) if name == CALLER => {
                // Under `{% if caller %}`, which is false here.
                if !self.known.is_present(CALLER) {
                    let message = "this macro needs the block of a `call`".to_owned();
                    self.problem("GR041", span, message, "no block").help = Some(
                        "call the macro with `{% call MACRO(…) %} … {% endcall %}`".to_owned(),
                    );
                }
                return Type::String;
            }
            _ => (),
        }
        let args = self.arguments(&call.args);
        let is_value = self.variable(name).is_some() || self.scope.schema.channel(name).is_some();
        if is_value {
            let message = format!("`{name}` is a value, and no function");
            let is_macro = self.macro_names.contains(name);
            self.problem("GR041", span, message, "cannot be called").help = is_macro.then(|| {
                format!(
                    "declare the macro `{name}` once, before the `if`, with the `if` in its body"
                )
            });
            return Type::Any;
        }
        if let Some(function) = FactFunction::find(name) {
            return self.fact(function, name, call);
        }
        let known = self.problems.len();
        self.known("function", name, FUNCTIONS, span);
        if self.problems.len() > known {
            return Type::Any;
        }
        let what = format!("the function `{name}`");
        let source = |args: &str| format!("{name}{}", if args.is_empty() { "()" } else { args });
        self.try_with_arguments(source, &what, None, &call.args, &args, span);
        match name {
            "dict" => dictionary(&call.args, &args),
            _ => Type::List(Type::INT.into()),
        }
    }

    fn loop_method(&mut self, name: &str, call: &Call<'_>, span: Span) -> Type {
        let args = self.arguments(&call.args);
        let is_plain = call.args.iter().all(|it| matches!(it, CallArg::Pos(_)));
        match name {
            "cycle" | "changed" if call.args.is_empty() || !is_plain => {
                let purpose = if name == "cycle" { "choose from" } else { "compare" };
                let message = format!("`loop.{name}` takes the values to {purpose}");
                self.problem("GR041", span, message, "without a value");
                Type::Any
            }
            "cycle" => any_of(args),
            "changed" => Type::Bool,
            _ => {
                let message = format!("`loop` has no method `{name}`");
                self.problem("GR041", span, message, "no method").help =
                    Some("use a filter: `… | trim`".to_owned());
                Type::Any
            }
        }
    }

    /// Returns a call of a function for facts of the run.
    fn fact(&mut self, function: FactFunction, name: &str, call: &Call<'_>) -> Type {
        let node = match (function.takes_node(), call.args.as_slice()) {
            (false, []) => None,
            (true, [CallArg::Pos(Expr::Const(it))]) if it.value.as_str().is_some() => {
                it.value.as_str()
            }
            (takes_node, _) => {
                let (what, form) = if takes_node {
                    ("the name of a node, in quotes", "\"node\"")
                } else {
                    ("nothing", "")
                };
                let message = format!("`{name}` takes {what}");
                self.problem("GR041", call.expr.span(), message, "here").help =
                    Some(format!("write `{name}({form})`"));
                return Type::Any;
            }
        };
        if let Some(node) = node.filter(|it| !self.scope.nodes.contains(*it)) {
            let help = suggestion(node, self.scope.nodes.iter().map(NodeName::as_str));
            let message = format!("there is no node `{node}`");
            self.problem("GR010", call.expr.span(), message, "no such node").help = help;
        }
        match function {
            FactFunction::Now => {
                self.facts.time = true;
                Type::String
            }
            FactFunction::Visits => Type::INT,
            FactFunction::Usage => {
                self.facts.usage_of.extend(node.and_then(|it| NodeName::parse_path(it).ok()));
                usage_type()
            }
        }
    }

    /// Returns the types of arguments.
    pub(super) fn arguments(&mut self, arguments: &[CallArg<'_>]) -> Vec<Type> {
        let mut types = Vec::new();
        for argument in arguments {
            types.push(match argument {
                CallArg::Pos(it)
                | CallArg::Kwarg(_, it)
                | CallArg::PosSplat(it)
                | CallArg::KwargSplat(it) => self.present(it),
            });
        }
        types
    }
}

/// Returns the type of `dict(…)`: a copy of a mapping with further values.
fn dictionary(args: &[CallArg<'_>], types: &[Type]) -> Type {
    let mut fields: Vec<Field> = Vec::new();
    let mut rest = None;
    for (arg, ty) in args.iter().zip(types) {
        match (arg, ty.required()) {
            (CallArg::Kwarg(name, _), _) => {
                fields.retain(|it| it.name != *name);
                fields.push(Field::new(*name, ty.clone()));
            }
            (_, Type::Record(record)) if !is_shape(ty) => {
                let more =
                    record.fields.iter().filter(|it| fields.iter().all(|to| to.name != it.name));
                let more: Vec<Field> = more.cloned().collect();
                fields.extend(more);
            }
            (_, other) => rest = Some(values_of_map(other)),
        }
    }
    match rest {
        None => Type::Record(Record { name: None, fields, is_closed: true }.into()),
        Some(rest) => {
            let values = fields.into_iter().map(|it| it.ty).chain([rest]);
            Type::Map(any_of(values).into())
        }
    }
}

/// Returns the advice for a method of another language: the filter, the test or the operator that does the same.
fn in_place_of_method(method: &str, has_arguments: bool) -> String {
    let arguments = if has_arguments { "(…)" } else { "" };
    let filter = match method {
        "len" | "size" => "length",
        "strip" => "trim",
        "splitlines" => "lines",
        "toString" | "to_string" => "string",
        "toUpperCase" | "to_uppercase" => "upper",
        "toLowerCase" | "to_lowercase" => "lower",
        "reversed" => "reverse",
        "sorted" => "sort",
        other => other,
    };
    if FILTERS.contains(&filter) {
        return format!("use the filter of that purpose: `… | {filter}{arguments}`");
    }
    let form = match method {
        "startswith" | "startsWith" | "starts_with" => "… is startingwith(…)",
        "endswith" | "endsWith" | "ends_with" => "… is endingwith(…)",
        "contains" | "includes" | "has_key" => "… in …",
        "append" | "push" | "extend" | "concat" => "… + […]",
        "get" => "…[KEY] | default(…)",
        "keys" => "… | list",
        "values" => "… | items | map(attribute=1)",
        _ => {
            let help = "values have no methods; filters stand behind a bar";
            return suggestion(method, FILTERS.iter().copied())
                .filter(|it| it.starts_with("did you mean"))
                .map_or_else(|| format!("{help}: `… | FILTER`"), |near| format!("{help}; {near}"));
        }
    };
    format!("write `{form}`")
}
