//! The functions and methods of expressions: [`FUNCTIONS`]. Parser, checker, evaluation, satisfiability, editors and the
//! documentation use this list; a new function is an entry here.
//!
//! The evaluation charges the meter for each text that a function reads. A function that does more, such as comparing
//! items with each other or making a list, charges the rest. [`values`](super::values) has the larger ones.

use std::{cmp::Ordering, fmt};

use graphrun_core::state::{NumberRange, Type};
use serde_json::Value;

use super::{
    evaluate::{Arguments, Evaluated, Items},
    facts::usage_type,
    meter::ExpressionMeter,
    operators::joined,
    ranges,
    typing::describe,
    values,
};

/// A function or method of expressions.
pub struct Function {
    /// The name.
    pub name: &'static str,
    /// The effect, in one sentence.
    pub about: &'static str,
    /// A call, as an example in help texts.
    pub example: &'static str,
    /// The value of the example for the state that the documentation names, as JSON.
    pub example_value: &'static str,
    /// Its names in other languages.
    pub(super) aliases: &'static [&'static str],
    pub(super) style: Style,
    /// Those of a method begin with the value before the dot.
    pub(super) parameters: &'static [Parameter],
    /// Its type for those of the arguments.
    pub(super) result: fn(&[Type]) -> Type,
    /// The two types that a part of its value may have, in words, if no type includes both.
    pub(super) two_types: fn(&[Type]) -> Option<String>,
    /// Whether the result is a whole number from zero on, each of which is possible.
    pub(super) counts: bool,
    pub(super) value: FunctionValue,
}

/// The form of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `f(a, b)`.
    Function,
    /// `a.f(b)`.
    Method,
    /// Both; printed as a method.
    Both,
}

pub(super) struct Parameter {
    name: &'static str,
    pub(super) takes: Takes,
}

/// The arguments that a parameter takes.
pub(super) enum Takes {
    /// A value of some types.
    Value { noun: &'static str, includes: fn(&Type) -> bool },
    /// A field, which may be absent.
    Path,
    /// The name of a node, in quotes.
    NodeName,
    /// A regular expression, in quotes. It is compiled when the workflow is loaded.
    Pattern,
    /// A name for each item of the list before it.
    Variable,
    /// A condition on the item.
    Condition,
    /// An expression of the item.
    Expression,
    /// A text of the item, which names it.
    Key,
    /// A number or a text of the item, which gives its place.
    Order,
}

/// The evaluation of a function.
pub(super) enum FunctionValue {
    /// Whether the path is present. If it is true, it proves that.
    Presence,
    /// The value at the path, or the other one if it is absent.
    Default,
    /// A value of the values of the arguments.
    OfValues(fn(&Arguments<'_, '_>, &mut ExpressionMeter) -> Evaluated<Value>),
    /// A value of the items of a list. The parameters are the list, a variable, and conditions or expressions.
    OfItems(fn(Items<'_, '_>) -> Evaluated<Value>),
}

const LIST: Parameter = Parameter {
    name: "list",
    takes: Takes::Value { noun: "a list", includes: |it| matches!(it, Type::List(_)) },
};
const TEXT: Parameter =
    Parameter { name: "text", takes: Takes::Value { noun: "a text", includes: is_text } };
const TEXTS: Parameter = Parameter {
    name: "list",
    takes: Takes::Value { noun: "a list of texts", includes: |it| holds(it, is_text) },
};
const WHOLE: Parameter = Parameter {
    name: "number",
    takes: Takes::Value { noun: "a whole number", includes: |it| matches!(it, Type::Int(_)) },
};
const NUMBER: Parameter = Parameter {
    name: "number",
    takes: Takes::Value { noun: "a number", includes: Type::is_number },
};
const TEXT_OR_NUMBER: Parameter = Parameter {
    name: "value",
    takes: Takes::Value {
        noun: "a text or a number",
        includes: |it| it.is_number() || is_text(it),
    },
};
const VARIABLE: Parameter = Parameter { name: "x", takes: Takes::Variable };
const RECORD: Parameter = Parameter {
    name: "record",
    takes: Takes::Value {
        noun: "a record or a map",
        includes: |it| matches!(it, Type::Record(_) | Type::Map(_)),
    },
};
const CONDITION: Parameter = Parameter { name: "condition", takes: Takes::Condition };

/// The type of a number that counts something.
const COUNT: Type = Type::Int(NumberRange::FROM_ZERO);

fn is_text(ty: &Type) -> bool {
    matches!(ty, Type::String | Type::Enum(_) | Type::Date)
}

/// Returns whether a type is a list whose items may have some types.
fn holds(ty: &Type, includes: fn(&Type) -> bool) -> bool {
    matches!(ty, Type::List(item) if **item == Type::Any || includes(item))
}

/// Returns the type of the items of a list.
fn item_of(ty: &Type) -> Type {
    match ty {
        Type::List(item) => Type::clone(item),
        _ => Type::Any,
    }
}

impl Function {
    /// A question about values.
    const QUESTION: Self = Self {
        name: "",
        about: "",
        example: "",
        example_value: "",
        aliases: &[],
        style: Style::Method,
        parameters: &[],
        result: |_| Type::Bool,
        two_types: |_| None,
        counts: false,
        value: FunctionValue::Presence,
    };
    /// A part of a list, with the type of the list.
    const OF_LIST: Self =
        Self { parameters: &[LIST], result: |types| types[0].clone(), ..Self::QUESTION };
    /// A text of a text.
    const OF_TEXT: Self = Self { parameters: &[TEXT], result: |_| Type::String, ..Self::QUESTION };
    /// A question about the items of a list.
    const OF_ITEMS: Self = Self { parameters: &[LIST, VARIABLE, CONDITION], ..Self::QUESTION };
    /// A question about a text and a part of it.
    const OF_TEXTS: Self =
        Self { parameters: &[TEXT, Parameter { name: "part", ..TEXT }], ..Self::QUESTION };
    /// An item by the number or the text of each.
    const OF_ORDER: Self = Self {
        parameters: &[LIST, VARIABLE, Parameter { name: "key", takes: Takes::Order }],
        result: |types| item_of(&types[0]).optional(),
        ..Self::QUESTION
    };
    /// One of two numbers.
    const OF_NUMBERS: Self = Self {
        style: Style::Function,
        parameters: &[NUMBER, Parameter { name: "other", ..NUMBER }],
        ..Self::QUESTION
    };
}

/// The functions and methods, in the order of the documentation.
static FUNCTIONS: &[Function] = &[
    Function {
        name: "has",
        about: "Whether an optional or not yet written field is present; behind this guard (`has(x) && x > 3`) the field may be used.",
        example: "has(review.guidance)",
        example_value: "false",
        aliases: &["defined", "exists", "present"],
        style: Style::Function,
        parameters: &[Parameter { name: "field", takes: Takes::Path }],
        ..Function::QUESTION
    },
    Function {
        name: "orValue",
        about: "The value of a field, an item or a call, or another one if it is absent, as `has(x) ? x : other` is.",
        example: "review.guidance.orValue(\"none\")",
        example_value: r#""none""#,
        aliases: &["default", "orDefault", "coalesce", "ifNull", "or_value"],
        parameters: &[
            Parameter { name: "value", takes: Takes::Path },
            Parameter { name: "other", takes: Takes::Expression },
        ],
        result: |types| joined(types[0].required(), &types[1]).unwrap_or(Type::Any),
        two_types: |types| {
            let value = types[0].required();
            let is_one = joined(value, &types[1]).is_some();
            (!is_one).then(|| format!("either {} or {}", describe(value), describe(&types[1])))
        },
        value: FunctionValue::Default,
        ..Function::QUESTION
    },
    Function {
        name: "visits",
        about: "How often a node has run since its count was last reset.",
        example: "visits(\"sse\")",
        example_value: "2",
        style: Style::Function,
        parameters: &[Parameter { name: "node", takes: Takes::NodeName }],
        result: |_| COUNT,
        counts: true,
        value: FunctionValue::OfValues(|arguments, _| Ok(arguments.visits(0).into())),
        ..Function::QUESTION
    },
    Function {
        name: "usage",
        about: "The usage of models by one node before this step, with the fields of `usage`.",
        example: "usage(\"sse\").tokens",
        example_value: "700",
        style: Style::Function,
        parameters: &[Parameter { name: "node", takes: Takes::NodeName }],
        result: |_| usage_type(),
        value: FunctionValue::OfValues(|arguments, _| {
            Ok(arguments.facts().usage_of(arguments.node_name(0)))
        }),
        ..Function::QUESTION
    },
    Function {
        name: "now",
        about: "When the step began, as a text such as `2026-01-31T08:30:00Z`; the same if the step runs again.",
        example: "now()",
        example_value: r#""2026-01-31T08:30:00Z""#,
        aliases: &["today", "date", "timestamp"],
        style: Style::Function,
        result: |_| Type::String,
        value: FunctionValue::OfValues(|arguments, _| Ok(arguments.facts().now())),
        ..Function::QUESTION
    },
    Function {
        name: "size",
        about: "The number of items, characters or fields; also written as `size(items)`.",
        example: "items.size()",
        example_value: "2",
        aliases: &["len", "length", "count"],
        style: Style::Both,
        parameters: &[Parameter {
            name: "list",
            takes: Takes::Value {
                noun: "a list, a text, a record or a map",
                includes: |ty| {
                    matches!(
                        ty,
                        Type::List(_)
                            | Type::Map(_)
                            | Type::Record(_)
                            | Type::String
                            | Type::Enum(_)
                    )
                },
            },
        }],
        result: |types| Type::Int(values::size_range(&types[0])),
        two_types: |_| None,
        counts: true,
        value: FunctionValue::OfValues(|arguments, _| {
            Ok(Value::from(match arguments.value(0) {
                Value::Array(items) => items.len(),
                Value::Object(_) => arguments.keys(0)?.count(),
                _ => arguments.text(0)?.chars().count(),
            }))
        }),
    },
    Function {
        name: "exists",
        about: "Whether the condition holds for an item.",
        example: "items.exists(item, item.done)",
        example_value: "true",
        aliases: &["any", "some"],
        value: FunctionValue::OfItems(|mut items| {
            while let Some((_, holds)) = items.next_condition()? {
                if holds {
                    return Ok(true.into());
                }
            }
            Ok(false.into())
        }),
        ..Function::OF_ITEMS
    },
    Function {
        name: "all",
        about: "Whether the condition holds for all items.",
        example: "items.all(item, item.done)",
        example_value: "false",
        aliases: &["every"],
        value: FunctionValue::OfItems(|mut items| {
            while let Some((_, holds)) = items.next_condition()? {
                if !holds {
                    return Ok(false.into());
                }
            }
            Ok(true.into())
        }),
        ..Function::OF_ITEMS
    },
    Function {
        name: "exists_one",
        about: "Whether the condition holds for exactly one item.",
        example: "items.exists_one(item, item.done)",
        example_value: "true",
        value: FunctionValue::OfItems(|mut items| {
            let mut found = 0;
            while let Some((_, holds)) = items.next_condition()? {
                found += usize::from(holds);
            }
            Ok((found == 1).into())
        }),
        ..Function::OF_ITEMS
    },
    Function {
        name: "filter",
        about: "The items for which the condition holds.",
        example: "items.filter(item, item.done)",
        example_value: r#"[{"title": "plan", "done": true}]"#,
        // The checker narrows the type of the items to what the condition proves of them.
        result: |types| Type::List(Box::new(types[2].clone())),
        value: FunctionValue::OfItems(|mut items| {
            let mut kept = Vec::new();
            while let Some((item, holds)) = items.next_condition()? {
                if holds {
                    kept.push(items.copy(item)?);
                }
            }
            Ok(kept.into())
        }),
        ..Function::OF_ITEMS
    },
    Function {
        name: "map",
        about: "The value of the expression for each item.",
        example: "items.map(item, item.title)",
        example_value: r#"["plan", "draft 2"]"#,
        parameters: &[LIST, VARIABLE, Parameter { name: "expression", takes: Takes::Expression }],
        result: |types| Type::List(Box::new(types[2].clone())),
        value: FunctionValue::OfItems(|mut items| {
            let mut made = Vec::new();
            while let Some((_, value)) = items.next_value()? {
                made.push(value);
            }
            Ok(made.into())
        }),
        ..Function::QUESTION
    },
    Function {
        name: "contains",
        about: "Whether the part is in the text.",
        example: "title.contains(\"RE\")",
        example_value: "true",
        value: FunctionValue::OfValues(|arguments, _| {
            Ok(arguments.text(0)?.contains(arguments.text(1)?).into())
        }),
        ..Function::OF_TEXTS
    },
    Function {
        name: "startsWith",
        about: "Whether the text begins with the part.",
        example: "title.startsWith(\"CORE\")",
        example_value: "true",
        value: FunctionValue::OfValues(|arguments, _| {
            Ok(arguments.text(0)?.starts_with(arguments.text(1)?).into())
        }),
        ..Function::OF_TEXTS
    },
    Function {
        name: "endsWith",
        about: "Whether the text ends with the part.",
        example: "title.endsWith(\"-\")",
        example_value: "false",
        value: FunctionValue::OfValues(|arguments, _| {
            Ok(arguments.text(0)?.ends_with(arguments.text(1)?).into())
        }),
        ..Function::OF_TEXTS
    },
    Function {
        name: "matches",
        about: "Whether a part of the text matches the regular expression, in linear time.",
        example: "title.matches(\"^[A-Z]+-[0-9]+$\")",
        example_value: "true",
        parameters: &[TEXT, Parameter { name: "pattern", takes: Takes::Pattern }],
        value: FunctionValue::OfValues(|arguments, meter| {
            let text = arguments.text(0)?;
            let pattern = arguments.pattern(1);
            meter.steps(pattern.steps(text))?;
            Ok(pattern.regex.is_match(text).into())
        }),
        ..Function::QUESTION
    },
    Function {
        name: "groups",
        about: "The groups of the first match: a record of texts if the groups have names, otherwise a list; absent without a match. A group that took no part is an empty text.",
        example: "title.groups(\"^(?<key>[A-Z]+)-[0-9]+$\").key.orValue(\"none\")",
        example_value: r#""CORE""#,
        aliases: &["captures", "extract"],
        parameters: &[TEXT, Parameter { name: "pattern", takes: Takes::Pattern }],
        result: |types| types[1].clone().optional(),
        value: FunctionValue::OfValues(|arguments, meter| {
            values::groups(arguments.text(0)?, arguments.pattern(1), meter)
        }),
        ..Function::QUESTION
    },
    Function {
        name: "split",
        about: "The parts of the text between the separators; the characters if the separator is empty.",
        example: "title.split(\"-\")",
        example_value: r#"["CORE", "7"]"#,
        parameters: &[TEXT, Parameter { name: "separator", ..TEXT }],
        result: |_| Type::List(Box::new(Type::String)),
        value: FunctionValue::OfValues(|arguments, meter| {
            values::split(arguments.text(0)?, arguments.text(1)?, meter)
        }),
        ..Function::QUESTION
    },
    Function {
        name: "trim",
        about: "The text without white space at its ends.",
        example: "\" a b\\n\".trim()",
        example_value: r#""a b""#,
        aliases: &["strip"],
        value: FunctionValue::OfValues(|arguments, meter| {
            values::text(arguments.text(0)?.trim(), meter)
        }),
        ..Function::OF_TEXT
    },
    Function {
        name: "lower",
        about: "The text in lower-case letters.",
        example: "title.lower()",
        example_value: r#""core-7""#,
        aliases: &["lowerAscii", "toLowerCase", "lowercase", "downcase"],
        value: FunctionValue::OfValues(|arguments, meter| {
            values::text(&arguments.text(0)?.to_lowercase(), meter)
        }),
        ..Function::OF_TEXT
    },
    Function {
        name: "upper",
        about: "The text in upper-case letters.",
        example: "\"done\".upper()",
        example_value: r#""DONE""#,
        aliases: &["upperAscii", "toUpperCase", "uppercase", "upcase"],
        value: FunctionValue::OfValues(|arguments, meter| {
            values::text(&arguments.text(0)?.to_uppercase(), meter)
        }),
        ..Function::OF_TEXT
    },
    Function {
        name: "replace",
        about: "The text with another one in place of each occurrence of a part.",
        example: "title.replace(\"-\", \" \")",
        example_value: r#""CORE 7""#,
        aliases: &["replaceAll", "sub", "gsub"],
        parameters: &[
            TEXT,
            Parameter { name: "part", ..TEXT },
            Parameter { name: "other", ..TEXT },
        ],
        value: FunctionValue::OfValues(|arguments, meter| {
            values::replace(arguments.text(0)?, arguments.text(1)?, arguments.text(2)?, meter)
        }),
        ..Function::OF_TEXT
    },
    Function {
        name: "join",
        about: "The texts of the list as one, with the separator between them.",
        example: "items.map(item, item.title).join(\", \")",
        example_value: r#""plan, draft 2""#,
        aliases: &["concat"],
        parameters: &[TEXTS, Parameter { name: "separator", ..TEXT }],
        result: |_| Type::String,
        value: FunctionValue::OfValues(|arguments, meter| {
            values::join(arguments.list(0)?, arguments.text(1)?, meter)
        }),
        ..Function::QUESTION
    },
    Function {
        name: "first",
        about: "The first item, the same as `items[0]`; absent if the list is empty.",
        example: "items.first().title.orValue(\"none\")",
        example_value: r#""plan""#,
        result: |types| item_of(&types[0]).optional(),
        value: FunctionValue::OfValues(|arguments, meter| {
            values::item(arguments.list(0)?.first(), meter)
        }),
        ..Function::OF_LIST
    },
    Function {
        name: "last",
        about: "The last item; absent if the list is empty.",
        example: "has(items.last()) && items.last().done",
        example_value: "false",
        result: |types| item_of(&types[0]).optional(),
        value: FunctionValue::OfValues(|arguments, meter| {
            values::item(arguments.list(0)?.last(), meter)
        }),
        ..Function::OF_LIST
    },
    Function {
        name: "slice",
        about: "The items from one number up to, and without, another; of a text, the characters. Both count from zero and may lie beyond the ends.",
        example: "items.slice(0, 1)",
        example_value: r#"[{"title": "plan", "done": true}]"#,
        aliases: &["substring", "take", "substr"],
        parameters: &[
            Parameter {
                name: "list",
                takes: Takes::Value {
                    noun: "a list or a text",
                    includes: |it| matches!(it, Type::List(_)) || is_text(it),
                },
            },
            Parameter { name: "from", ..WHOLE },
            Parameter { name: "to", ..WHOLE },
        ],
        result: |types| if is_text(&types[0]) { Type::String } else { types[0].clone() },
        value: FunctionValue::OfValues(|arguments, meter| {
            values::slice(arguments.value(0), arguments.whole(1)?..arguments.whole(2)?, meter)
        }),
        ..Function::QUESTION
    },
    Function {
        name: "flatten",
        about: "The items of all lists in the list.",
        example: "items.map(item, item.title.split(\" \")).flatten()",
        example_value: r#"["plan", "draft", "2"]"#,
        aliases: &["flat", "flatMap"],
        parameters: &[Parameter {
            name: "list",
            takes: Takes::Value {
                noun: "a list of lists",
                includes: |value| holds(value, |it| matches!(it, Type::List(_))),
            },
        }],
        result: |types| match item_of(&types[0]) {
            Type::Any => Type::List(Box::new(Type::Any)),
            list => list,
        },
        value: FunctionValue::OfValues(|arguments, meter| {
            values::flatten(arguments.list(0)?, meter)
        }),
        ..Function::QUESTION
    },
    Function {
        name: "sort",
        about: "The numbers or texts in ascending order.",
        example: "items.map(item, item.title).sort()",
        example_value: r#"["draft 2", "plan"]"#,
        aliases: &["sorted", "order"],
        parameters: &[Parameter {
            name: "list",
            takes: Takes::Value {
                noun: "a list of numbers or texts",
                includes: |value| holds(value, |it| it.is_number() || is_text(it)),
            },
        }],
        value: FunctionValue::OfValues(|arguments, meter| values::sort(arguments.list(0)?, meter)),
        ..Function::OF_LIST
    },
    Function {
        name: "sortBy",
        about: "The items in ascending order of a number or a text of each; equal ones keep their order.",
        example: "items.sortBy(item, item.title).map(item, item.title)",
        example_value: r#"["draft 2", "plan"]"#,
        aliases: &["sort_by", "orderBy", "order_by"],
        parameters: &[LIST, VARIABLE, Parameter { name: "key", takes: Takes::Order }],
        value: FunctionValue::OfItems(|mut items| {
            let mut keyed = Vec::new();
            while let Some((item, key)) = items.next_value()? {
                keyed.push((key, items.copy(item)?));
            }
            items.sorted(keyed)
        }),
        ..Function::OF_LIST
    },
    Function {
        name: "minBy",
        about: "The item with the smallest number or text, the first of equal ones; absent if the list is empty.",
        example: "items.minBy(item, item.title).title.orValue(\"none\")",
        example_value: r#""draft 2""#,
        aliases: &["min_by"],
        value: FunctionValue::OfItems(|items| items.extreme(Ordering::Less)),
        ..Function::OF_ORDER
    },
    Function {
        name: "maxBy",
        about: "The item with the largest number or text, the first of equal ones; absent if the list is empty.",
        example: "items.size() > 0 && items.maxBy(item, item.title).done",
        example_value: "true",
        aliases: &["max_by"],
        value: FunctionValue::OfItems(|items| items.extreme(Ordering::Greater)),
        ..Function::OF_ORDER
    },
    Function {
        name: "reverse",
        about: "The items from the last to the first.",
        example: "[1, 2, 3].reverse()",
        example_value: "[3, 2, 1]",
        aliases: &["reversed"],
        value: FunctionValue::OfValues(|arguments, meter| {
            values::reverse(arguments.list(0)?, meter)
        }),
        ..Function::OF_LIST
    },
    Function {
        name: "distinct",
        about: "The items without repetitions, each at its first place.",
        example: "[2, 1, 2].distinct()",
        example_value: "[2, 1]",
        aliases: &["unique", "uniq", "dedup"],
        value: FunctionValue::OfValues(|arguments, meter| {
            values::distinct(arguments.list(0)?, meter)
        }),
        ..Function::OF_LIST
    },
    Function {
        name: "sum",
        about: "The sum of the numbers; 0 of an empty list.",
        example: "items.map(item, item.title.size()).sum()",
        example_value: "11",
        aliases: &["total"],
        parameters: &[Parameter {
            name: "list",
            takes: Takes::Value {
                noun: "a list of numbers",
                includes: |it| holds(it, Type::is_number),
            },
        }],
        result: |types| ranges::sum(&item_of(&types[0])),
        value: FunctionValue::OfValues(|arguments, meter| {
            values::sum(arguments.list(0)?, arguments.arithmetic(), meter)
        }),
        ..Function::QUESTION
    },
    Function {
        name: "min",
        about: "The smaller of two numbers, which keeps a number below a limit.",
        example: "min(items.size(), 10)",
        example_value: "2",
        aliases: &["least"],
        result: |types| ranges::smaller(&types[0], &types[1]),
        value: FunctionValue::OfValues(|arguments, _| arguments.nearest(Ordering::Less)),
        ..Function::OF_NUMBERS
    },
    Function {
        name: "max",
        about: "The larger of two numbers, which keeps a number above a limit.",
        example: "max(items.size(), 3)",
        example_value: "3",
        aliases: &["greatest"],
        result: |types| ranges::larger(&types[0], &types[1]),
        value: FunctionValue::OfValues(|arguments, _| arguments.nearest(Ordering::Greater)),
        ..Function::OF_NUMBERS
    },
    Function {
        name: "toMap",
        about: "A map from a text of each item to a value of it; the last of equal texts wins.",
        example: "items.toMap(item, item.title, item.done)",
        example_value: r#"{"plan": true, "draft 2": false}"#,
        aliases: &["to_map", "associate", "groupBy", "index_by"],
        parameters: &[
            LIST,
            VARIABLE,
            Parameter { name: "key", takes: Takes::Key },
            Parameter { name: "value", takes: Takes::Expression },
        ],
        result: |types| Type::Map(Box::new(types[3].clone())),
        value: FunctionValue::OfItems(|mut items| {
            let mut made = serde_json::Map::new();
            while let Some((key, value)) = items.next_pair()? {
                made.insert(key, value);
            }
            Ok(made.into())
        }),
        ..Function::QUESTION
    },
    Function {
        name: "keys",
        about: "The keys of a map, or the names of the fields of a record, sorted.",
        example: "items.toMap(item, item.title, item).keys()",
        example_value: r#"["draft 2", "plan"]"#,
        parameters: &[Parameter { name: "map", ..RECORD }],
        result: |_| Type::List(Box::new(Type::String)),
        value: FunctionValue::OfValues(|arguments, meter| values::keys(arguments.keys(0)?, meter)),
        ..Function::QUESTION
    },
    Function {
        name: "merge",
        about: "The fields of both records or maps, at any depth; where both have one, that of the argument.",
        example: "items.toMap(item, item.title, 1).merge({ other: 2 })",
        example_value: r#"{"plan": 1, "draft 2": 1, "other": 2}"#,
        aliases: &["update", "assign", "extend"],
        parameters: &[RECORD, Parameter { name: "changes", ..RECORD }],
        result: |types| values::merged_type(&types[0], &types[1]).unwrap_or(Type::Any),
        two_types: |types| Some(values::merged_type(&types[0], &types[1]).err()?.to_string()),
        value: FunctionValue::OfValues(|arguments, meter| {
            arguments.fields(1)?;
            values::merge(arguments.fields(0)?, arguments.value(1), meter)
        }),
        ..Function::QUESTION
    },
    Function {
        name: "string",
        about: "The text of a number, a bool or another simple value.",
        example: "string(items.size())",
        example_value: r#""2""#,
        aliases: &["str", "text", "toString"],
        style: Style::Function,
        parameters: &[Parameter {
            name: "value",
            takes: Takes::Value {
                noun: "a simple value",
                includes: |it| {
                    it.is_number() || is_text(it) || matches!(it, Type::Bool | Type::Duration)
                },
            },
        }],
        result: |_| Type::String,
        value: FunctionValue::OfValues(|arguments, meter| {
            values::string(arguments.value(0), meter)
        }),
        ..Function::QUESTION
    },
    Function {
        name: "int",
        about: "The whole number that a text shows, absent if it shows none; of a number, the part before the point.",
        example: "int(title.slice(5, 6)).orValue(0)",
        example_value: "7",
        aliases: &["parseInt", "number", "toInt"],
        style: Style::Function,
        parameters: &[TEXT_OR_NUMBER],
        result: |types| match &types[0] {
            Type::Any => Type::Any,
            number if number.is_number() => ranges::whole_part(number),
            _ => Type::INT.optional(),
        },
        value: FunctionValue::OfValues(|arguments, _| values::int(arguments.value(0))),
        ..Function::QUESTION
    },
    Function {
        name: "float",
        about: "The number with a fraction that a text shows, absent if it shows none; of a whole number, the same number. `float(a) / b` keeps the fraction.",
        example: "float(items.size()) / 2",
        example_value: "1.0",
        aliases: &["double", "toFloat", "parseFloat"],
        style: Style::Function,
        parameters: &[TEXT_OR_NUMBER],
        result: |types| match types[0].range() {
            Some(range) => Type::Float(range),
            None if types[0] == Type::Any => Type::Any,
            None => Type::FLOAT.optional(),
        },
        value: FunctionValue::OfValues(|arguments, _| values::float(arguments.value(0))),
        ..Function::QUESTION
    },
];

impl Function {
    /// Returns all functions and methods, in the order of the documentation.
    pub fn all() -> &'static [Self] {
        FUNCTIONS
    }

    /// Returns the name as the start of a call behind a dot, or without one for a function.
    pub fn opening(&self) -> String {
        let is_whole = self.is_method() && self.parameters.len() == 1;
        format!("{}({}", self.name, if is_whole { ")" } else { "" })
    }

    /// Returns whether it is called as a method.
    pub fn is_method(&self) -> bool {
        self.style != Style::Function
    }

    /// Returns whether its first argument, or the value before the dot, may have this type.
    pub fn takes(&self, ty: &Type) -> bool {
        let includes = |includes: fn(&Type) -> bool| *ty == Type::Any || includes(ty);
        let first = self.parameters.first().map(|it| &it.takes);
        matches!(first, Some(Takes::Value { includes: it, .. }) if includes(*it))
    }

    /// Returns whether its argument is the name of a node, in quotes.
    pub fn takes_node_name(&self) -> bool {
        self.parameters.iter().any(|it| matches!(it.takes, Takes::NodeName))
    }

    /// Returns whether it gives facts of the run, so that prompts have it, too.
    pub fn gives_facts(&self) -> bool {
        self.style == Style::Function
            && self.parameters.iter().all(|it| matches!(it.takes, Takes::NodeName))
    }

    /// Returns whether it binds a name to each item of the list before the dot.
    pub fn binds_item(&self) -> bool {
        self.parameters.iter().any(|it| matches!(it.takes, Takes::Variable))
    }

    /// Returns whether it has a value for an absent one.
    pub fn is_default(&self) -> bool {
        matches!(self.value, FunctionValue::Default)
    }

    /// Returns whether it asks for the presence of its argument, a path.
    pub(super) fn is_presence(&self) -> bool {
        matches!(self.value, FunctionValue::Presence)
    }
}

impl Takes {
    pub(super) fn noun(&self) -> &'static str {
        match self {
            Self::Value { noun, .. } => noun,
            Self::Path => "one field or item",
            Self::NodeName => "the name of a node, in quotes",
            Self::Pattern => "a pattern, in quotes",
            Self::Variable => "a name",
            Self::Condition => "a condition",
            Self::Expression => "an expression",
            Self::Key => "a text of the item",
            Self::Order => "a number or a text of the item",
        }
    }

    /// Returns whether every evaluation of the function evaluates the argument, and needs its value.
    pub(super) fn is_always_evaluated(&self) -> bool {
        !matches!(self, Self::Path | Self::Condition | Self::Expression | Self::Key | Self::Order)
    }
}

/// The form of a call, such as `text.contains(part)`.
impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&str> = self.parameters.iter().map(|it| it.name).collect();
        if self.is_method() {
            write!(f, "{}.", names.remove(0))?;
        }
        write!(f, "{}({})", self.name, names.join(", "))
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({})", self.name)
    }
}
