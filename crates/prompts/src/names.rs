//! The filters, tests and functions of a prompt.

/// Every filter of minijinja's default set.
pub(super) const FILTERS: &[&str] = &[
    "abs",
    "attr",
    "batch",
    "bool",
    "capitalize",
    "chain",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "first",
    "float",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "pprint",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "split",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "unique",
    "upper",
    "zip",
];

/// Every test of minijinja's default set that is a word.
pub(super) const TESTS: &[&str] = &[
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "int",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "safe",
    "sameas",
    "sequence",
    "startingwith",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];

/// The functions of a prompt: those that every template has, and those for facts of the run.
pub(super) const FUNCTIONS: &[&str] = &["dict", "now", "range", "usage", "visits"];

/// The functions of a prompt for facts of the run.
#[derive(Clone, Copy, Debug)]
pub(super) enum FactFunction {
    Now,
    Usage,
    Visits,
}

impl FactFunction {
    pub(super) fn find(name: &str) -> Option<Self> {
        Some(match name {
            "now" => Self::Now,
            "usage" => Self::Usage,
            "visits" => Self::Visits,
            _ => return None,
        })
    }

    pub(super) fn takes_node(self) -> bool {
        !matches!(self, Self::Now)
    }
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    #[test]
    fn every_name_is_known_to_the_engine_that_renders() {
        let environment = super::super::environment();
        let knows = |test: &str, name: &str| {
            let expression = format!("name is {test}");
            let asked = environment.compile_expression(&expression).unwrap();
            asked.eval(context! { name }).unwrap().is_true()
        };
        for name in FILTERS {
            assert!(knows("filter", name), "there is no filter `{name}`");
        }
        for name in TESTS {
            assert!(knows("test", name), "there is no test `{name}`");
        }
        let globals: Vec<&str> = environment.globals().map(|(name, _)| name).collect();
        let is_fact = |it: &&&str| FactFunction::find(it).is_some();
        let (facts, own): (Vec<&str>, Vec<&str>) = FUNCTIONS.iter().partition(is_fact);
        assert_eq!((globals, facts), (own, vec!["now", "usage", "visits"]));
    }
}
