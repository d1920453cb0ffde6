//! The functions and methods of expressions: [`FUNCTIONS`]. Parser, checker, evaluation, satisfiability, editors and the
//! documentation use this list; a new function is an entry here.
//!
//! The evaluation charges the meter for each text that a function reads and for the memory of its result. A function
//! that does more, such as comparing items with each other, charges the rest.

use std::fmt;

use graphrun_core::state::Type;
use serde_json::Value;

use super::evaluate::{Arguments, Evaluated, Items};
use super::meter::Meter;

/// A function or method of expressions.
pub struct Function {
    /// The name.
    pub name: &'static str,
    /// The effect, in one sentence.
    pub about: &'static str,
    /// A call, as an example in help texts.
    pub example: &'static str,
    /// Its names in other languages.
    pub(super) aliases: &'static [&'static str],
    pub(super) style: Style,
    /// Those of a method begin with the value before the dot.
    pub(super) parameters: &'static [Parameter],
    /// Its type for those of the arguments.
    pub(super) result: fn(&[Type]) -> Type,
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
}

/// The evaluation of a function.
pub(super) enum FunctionValue {
    /// Whether the path is present. If it is true, it proves that.
    Presence,
    /// A value of the values of the arguments.
    OfValues(fn(&Arguments<'_, '_>, &mut Meter) -> Evaluated<Value>),
    /// A value of the items of a list. The parameters are the list, a variable, and a condition or an expression.
    OfItems(fn(Items<'_, '_>) -> Evaluated<Value>),
}

const LIST: Parameter = Parameter {
    name: "list",
    takes: Takes::Value { noun: "a list", includes: |it| matches!(it, Type::List(_)) },
};
const TEXT: Parameter = Parameter {
    name: "text",
    takes: Takes::Value {
        noun: "a text",
        includes: |it| matches!(it, Type::String | Type::Enum(_) | Type::Date),
    },
};
const VARIABLE: Parameter = Parameter { name: "x", takes: Takes::Variable };
const CONDITION: Parameter = Parameter { name: "condition", takes: Takes::Condition };

impl Function {
    /// A question about values.
    const QUESTION: Self = Self {
        name: "",
        about: "",
        example: "",
        aliases: &[],
        style: Style::Method,
        parameters: &[],
        result: |_| Type::Bool,
        counts: false,
        value: FunctionValue::Presence,
    };
    /// A question about the items of a list.
    const OF_ITEMS: Self = Self { parameters: &[LIST, VARIABLE, CONDITION], ..Self::QUESTION };
    /// A question about a text and a part of it.
    const OF_TEXTS: Self =
        Self { parameters: &[TEXT, Parameter { name: "part", ..TEXT }], ..Self::QUESTION };
}

/// The functions and methods, in the order of the documentation.
static FUNCTIONS: &[Function] = &[
    Function {
        name: "has",
        about: "Whether an optional or not yet written field is present; behind this guard (`has(x) && x > 3`) the field may be used.",
        example: "has(review.guidance)",
        aliases: &["defined", "exists", "present"],
        style: Style::Function,
        parameters: &[Parameter { name: "field", takes: Takes::Path }],
        ..Function::QUESTION
    },
    Function {
        name: "visits",
        about: "How often a node has run since its count was last reset.",
        example: "visits(\"sse\")",
        style: Style::Function,
        parameters: &[Parameter { name: "node", takes: Takes::NodeName }],
        result: |_| Type::Int,
        counts: true,
        value: FunctionValue::OfValues(|arguments, _| Ok(arguments.visits(0).into())),
        ..Function::QUESTION
    },
    Function {
        name: "size",
        about: "The number of items, characters or fields; also written as `size(items)`.",
        example: "items.size()",
        aliases: &["len", "length", "count"],
        style: Style::Both,
        parameters: &[Parameter {
            name: "list",
            takes: Takes::Value {
                noun: "a list, a text or a map",
                includes: |it| {
                    matches!(it, Type::List(_) | Type::Map(_) | Type::String | Type::Enum(_))
                },
            },
        }],
        result: |_| Type::Int,
        counts: true,
        value: FunctionValue::OfValues(|arguments, _| {
            Ok(Value::from(match arguments.value(0) {
                Value::Array(items) => items.len(),
                Value::Object(fields) => fields.len(),
                _ => arguments.text(0)?.chars().count(),
            }))
        }),
    },
    Function {
        name: "exists",
        about: "Whether the condition holds for an item.",
        example: "items.exists(item, item.done)",
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
        result: |types| Type::List(Box::new(types[1].clone())),
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
        example: "title.contains(\"draft\")",
        value: FunctionValue::OfValues(|arguments, _| {
            Ok(arguments.text(0)?.contains(arguments.text(1)?).into())
        }),
        ..Function::OF_TEXTS
    },
    Function {
        name: "startsWith",
        about: "Whether the text begins with the part.",
        example: "title.startsWith(\"draft\")",
        value: FunctionValue::OfValues(|arguments, _| {
            Ok(arguments.text(0)?.starts_with(arguments.text(1)?).into())
        }),
        ..Function::OF_TEXTS
    },
    Function {
        name: "endsWith",
        about: "Whether the text ends with the part.",
        example: "title.endsWith(\"draft\")",
        value: FunctionValue::OfValues(|arguments, _| {
            Ok(arguments.text(0)?.ends_with(arguments.text(1)?).into())
        }),
        ..Function::OF_TEXTS
    },
    Function {
        name: "matches",
        about: "Whether a part of the text matches the regular expression, in linear time.",
        example: "title.matches(\"^[A-Z]+-[0-9]+$\")",
        parameters: &[TEXT, Parameter { name: "pattern", takes: Takes::Pattern }],
        value: FunctionValue::OfValues(|arguments, meter| {
            let (text, pattern) = (arguments.text(0)?, arguments.pattern(1));
            meter.steps(pattern.steps(text))?;
            Ok(pattern.regex.is_match(text).into())
        }),
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

    /// Returns whether it binds a name to each item of the list before the dot.
    pub fn binds_item(&self) -> bool {
        self.parameters.iter().any(|it| matches!(it.takes, Takes::Variable))
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
            Self::Path => "one field",
            Self::NodeName => "the name of a node, in quotes",
            Self::Pattern => "a pattern, in quotes",
            Self::Variable => "a name",
            Self::Condition => "a condition",
            Self::Expression => "an expression",
        }
    }

    /// Whether every evaluation of the function evaluates the argument, and needs its value.
    pub(super) fn is_always_evaluated(&self) -> bool {
        !matches!(self, Self::Path | Self::Condition | Self::Expression)
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
