//! Random templates: each that loads is rendered in every state.
//!
//! An expression is generated for a kind of value, and now and then for another kind, so that many templates load and
//! many have a mistake. Divisors, counts and values of the type `json` are left out: they may fail in a run.

use proptest::prelude::ProptestConfig;

use super::{Choices, failure, problems, schema, states};

/// The templates of a test run. `PROPTEST_CASES` makes more.
const TEMPLATES: u64 = 400;

/// What an expression is generated for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SampleKind {
    Text,
    Number,
    Texts,
    Story,
    Stories,
    Tree,
    Pairs,
    Sizes,
}

const KINDS: [SampleKind; 8] = [
    SampleKind::Text,
    SampleKind::Number,
    SampleKind::Texts,
    SampleKind::Story,
    SampleKind::Stories,
    SampleKind::Tree,
    SampleKind::Pairs,
    SampleKind::Sizes,
];

struct Generator {
    choices: Choices,
    /// The names that the template has set so far, each with its kind.
    names: Vec<(String, SampleKind)>,
    /// The macros that it has declared, each with the kinds of its arguments.
    macros: Vec<(String, Vec<SampleKind>)>,
    /// The conditions so far, some of which stand in the template twice.
    conditions: Vec<String>,
}

impl Generator {
    fn chance(&mut self, of: usize) -> bool {
        self.choices.below(of) == 0
    }

    fn kind(&mut self) -> SampleKind {
        KINDS[self.choices.below(KINDS.len())]
    }

    /// Returns a name of a kind, or any name.
    fn name(&mut self, kind: SampleKind) -> Option<String> {
        let any = self.chance(12);
        let names = self.names.iter().filter(|it| any || it.1 == kind);
        let names: Vec<String> = names.map(|it| it.0.clone()).collect();
        (!names.is_empty()).then(|| names[self.choices.below(names.len())].clone())
    }

    /// Returns an expression that begins with a name, or stands in brackets.
    fn term(&mut self, kind: SampleKind, depth: usize) -> String {
        let text = self.expression(kind, depth);
        let is_plain = text.chars().all(|it| it.is_alphanumeric() || "._[]".contains(it));
        if is_plain { text } else { format!("({text})") }
    }

    fn expression(&mut self, kind: SampleKind, depth: usize) -> String {
        let kind = if self.chance(25) { self.kind() } else { kind };
        if !self.chance(3)
            && let Some(name) = self.name(kind)
        {
            return name;
        }
        if depth == 0 {
            return self.leaf(kind);
        }
        let depth = depth - 1;
        match self.choices.below(8) {
            0 => {
                let (a, c, b) =
                    (self.term(kind, depth), self.condition(depth), self.term(kind, depth));
                if self.chance(4) { format!("{a} if {c}") } else { format!("{a} if {c} else {b}") }
            }
            1 => format!("{} or {}", self.term(kind, depth), self.term(kind, depth)),
            2 => format!("{} | default({})", self.term(kind, depth), self.expression(kind, depth)),
            3 => format!("{} and {}", self.term(kind, depth), self.term(kind, depth)),
            _ => self.operation(kind, depth),
        }
    }

    fn leaf(&mut self, kind: SampleKind) -> String {
        let leaves: &[&str] = match kind {
            SampleKind::Text => &[
                "brief",
                "note",
                "level",
                "'a'",
                "story.title",
                "story.note",
                "story.owner.name",
                "story.owner.mail",
                "tree.name",
                "story.level",
                "size",
                "'12'",
            ],
            SampleKind::Number => &[
                "count",
                "share",
                "1",
                "-2",
                "1.5",
                "story.points",
                "loop.index",
                "flag",
                "scores.k",
                "marks[0]",
            ],
            SampleKind::Texts => {
                &["texts", "tags", "['a', 'b']", "story.labels", "[]", "[note, 'a']", "sizes"]
            }
            SampleKind::Story => &["story", "stories[0]", "loop.nextitem", "loop.previtem"],
            SampleKind::Stories => &["stories", "[story]", "[story, story]", "[]"],
            SampleKind::Tree => &["tree", "tree.children[0]"],
            SampleKind::Pairs => &[
                "[(1, 'a')]",
                "sizes | items",
                "mails | items",
                "[('x', 2), ('y', 3)]",
                "[[1, 2]]",
                "stories | groupby('level')",
            ],
            SampleKind::Sizes => &[
                "sizes",
                "mails",
                "scores",
                "{'k': 1}",
                "{'k': 1, 'k': 'a'}",
                "dict(k=1)",
                "story",
            ],
        };
        self.choices.one(leaves).to_owned()
    }

    fn operation(&mut self, kind: SampleKind, depth: usize) -> String {
        match kind {
            SampleKind::Text => self.text(depth),
            SampleKind::Number => self.number(depth),
            SampleKind::Texts => self.texts(depth),
            SampleKind::Story => {
                let end = self.choices.one(&["first", "last", "max(attribute='points')", "random"]);
                let stories = self.term(SampleKind::Stories, depth);
                match self.choices.below(3) {
                    0 => format!("{stories}[-1]"),
                    1 => format!("({stories} | {end})"),
                    _ => self.leaf(kind),
                }
            }
            SampleKind::Stories => {
                let part =
                    self.choices.one(&["points", "title", "note", "owner.name", "level", "nosuch"]);
                let filter = self.choices.one(&[
                    "sort(attribute=",
                    "unique(attribute=",
                    "selectattr(",
                    "rejectattr(",
                ]);
                match self.choices.below(4) {
                    0 => format!("{} + {}", self.term(kind, depth), self.term(kind, depth)),
                    1 => format!("{}[1:]", self.term(kind, depth)),
                    2 => format!("{} | reverse | list", self.term(kind, depth)),
                    _ => format!("{} | {filter}'{part}')", self.term(kind, depth)),
                }
            }
            SampleKind::Tree => format!("{}.children[0]", self.term(kind, depth)),
            SampleKind::Pairs => match self.choices.below(6) {
                5 => {
                    let filter = self.choices.one(&["selectattr", "rejectattr"]);
                    let part = self.choices.one(&["0", "'1'", "1", "'grouper'", "'list'"]);
                    let test = self.choices.one(&["", ", 'none'", ", 'defined'"]);
                    format!("{} | {filter}({part}{test})", self.term(kind, depth))
                }
                0 => format!("{} | items", self.term(SampleKind::Sizes, depth)),
                1 => format!("{} | dictsort", self.term(SampleKind::Sizes, depth)),
                2 => format!(
                    "{} | zip({})",
                    self.term(SampleKind::Texts, depth),
                    self.expression(SampleKind::Stories, depth)
                ),
                3 => format!(
                    "{} | groupby('{}')",
                    self.term(SampleKind::Stories, depth),
                    self.choices.one(&["level", "note", "owner.name"])
                ),
                _ => format!("{} | batch(2)", self.term(SampleKind::Texts, depth)),
            },
            SampleKind::Sizes => match self.choices.below(3) {
                1 => format!(
                    "{{'k': {}, 'k': {}}}",
                    self.expression(SampleKind::Text, depth),
                    self.expression(SampleKind::Number, depth)
                ),
                0 => format!(
                    "{{'k': {}, 'l': {}}}",
                    self.expression(SampleKind::Number, depth),
                    self.expression(SampleKind::Text, depth)
                ),
                _ => format!("dict(k={})", self.expression(SampleKind::Number, depth)),
            },
        }
    }

    fn texts(&mut self, depth: usize) -> String {
        let part = self.choices.one(&["title", "note", "owner.name", "level", "owner", "nosuch"]);
        let filter = self.choices.one(&[
            "sort",
            "unique",
            "reverse",
            "list",
            "select",
            "map('upper')",
            "map('trim')",
        ]);
        match self.choices.below(10) {
            8 => format!(
                "{} | sum(attribute='labels', start={})",
                self.term(SampleKind::Stories, depth),
                self.start(depth)
            ),
            9 => format!(
                "{} | {}('{part}', '{}') | map(attribute='{part}')",
                self.term(SampleKind::Stories, depth),
                self.choices.one(&["selectattr", "rejectattr"]),
                self.choices.one(&["none", "string", "defined"])
            ),
            0 => format!(
                "{} + {}",
                self.term(SampleKind::Texts, depth),
                self.term(SampleKind::Texts, depth)
            ),
            1 => format!("{} | map(attribute='{part}')", self.term(SampleKind::Stories, depth)),
            2 => format!(
                "{} | selectattr('{part}') | map(attribute='{part}')",
                self.term(SampleKind::Stories, depth)
            ),
            3 => format!(
                "{} | map(attribute='{part}', default='-')",
                self.term(SampleKind::Stories, depth)
            ),
            4 => format!("{}[1:]", self.term(SampleKind::Texts, depth)),
            5 => format!("{} | split", self.term(SampleKind::Text, depth)),
            6 => format!(
                "{} | chain({})",
                self.term(SampleKind::Texts, depth),
                self.expression(SampleKind::Texts, depth)
            ),
            _ => format!("{} | {filter}", self.term(SampleKind::Texts, depth)),
        }
    }

    fn text(&mut self, depth: usize) -> String {
        let filter = self.choices.one(&[
            "upper",
            "trim",
            "title",
            "replace('a', 'b')",
            "string",
            "indent(2)",
            "first",
            "last",
            "tojson",
        ]);
        match self.choices.below(11) {
            9 => {
                let part = self.choices.one(&["title", "level"]);
                let start = self.start(depth);
                let stories = self.term(SampleKind::Stories, depth);
                format!("{stories} | sum(attribute='{part}', start={start})")
            }
            10 => {
                let part = self.choices.one(&["grouper", "list", "nosuch"]);
                format!("({} | first).{part}", self.term(SampleKind::Pairs, depth))
            }
            0 => format!(
                "{} ~ {}",
                self.term(SampleKind::Text, depth),
                self.term(SampleKind::Number, depth)
            ),
            1 => format!(
                "{} + {}",
                self.term(SampleKind::Text, depth),
                self.term(SampleKind::Text, depth)
            ),
            2 => format!("{} | join(', ')", self.term(SampleKind::Texts, depth)),
            3 => {
                let part = self.choices.one(&["title", "note", "level", "owner.name", "nosuch"]);
                format!("{}.{part}", self.term(SampleKind::Story, depth))
            }
            4 => {
                let part = self.choices.one(&["1:", ":1", "2:", "0:3:2"]);
                format!("{}[{part}]", self.term(SampleKind::Text, depth))
            }
            5 => self.called(depth).unwrap_or_else(|| "'a'".to_owned()),
            6 => format!("{}.name", self.term(SampleKind::Tree, depth)),
            7 => format!(
                "{}[{}]",
                self.term(SampleKind::Texts, depth),
                self.choices.one(&["0", "-1", "count"])
            ),
            _ => format!("{} | {filter}", self.term(SampleKind::Text, depth)),
        }
    }

    fn number(&mut self, depth: usize) -> String {
        let filter = self.choices.one(&["abs", "round", "int", "float"]);
        match self.choices.below(11) {
            8 => format!(
                "{} | {}",
                self.term(SampleKind::Text, depth),
                self.choices.one(&["int", "float"])
            ),
            9 => {
                let marks = self.choices.one(&["marks", "numbers", "marks | list"]);
                let test = self.choices.one(&["select", "reject('none')", "select('integer')"]);
                format!("{marks} | {test} | sum(start={})", self.start(depth))
            }
            10 => format!(
                "{} | sum(attribute='points', start={})",
                self.term(SampleKind::Stories, depth),
                self.start(depth)
            ),
            0 => format!(
                "{} + {}",
                self.term(SampleKind::Number, depth),
                self.term(SampleKind::Number, depth)
            ),
            1 => format!("{} | length", self.term(SampleKind::Texts, depth)),
            2 => format!("{}.points", self.term(SampleKind::Story, depth)),
            3 => format!(
                "{} | sum(attribute='{}')",
                self.term(SampleKind::Stories, depth),
                self.choices.one(&["points", "title"])
            ),
            4 => format!("{}['k']", self.term(SampleKind::Sizes, depth)),
            5 => format!("{} | length", self.term(SampleKind::Stories, depth)),
            6 => format!(
                "{} | int(default={})",
                self.term(SampleKind::Text, depth),
                self.expression(SampleKind::Number, depth)
            ),
            _ => format!("{} | {filter}", self.term(SampleKind::Number, depth)),
        }
    }

    /// Returns the value that a sum begins with.
    fn start(&mut self, depth: usize) -> String {
        let kind = [SampleKind::Number, SampleKind::Text, SampleKind::Texts][self.choices.below(3)];
        if self.chance(4) {
            return self.choices.one(&["none", "true", "[]", "''", "[1]"]).to_owned();
        }
        self.expression(kind, depth)
    }

    fn called(&mut self, depth: usize) -> Option<String> {
        if self.macros.is_empty() {
            return None;
        }
        let (name, kinds) = self.macros[self.choices.below(self.macros.len())].clone();
        let mut args: Vec<String> = kinds.iter().map(|it| self.expression(*it, depth)).collect();
        if self.chance(12) {
            args.pop();
        }
        Some(format!("{name}({})", args.join(", ")))
    }

    fn condition(&mut self, depth: usize) -> String {
        let kind = self.kind();
        let term = self.term(kind, 0);
        match self.choices.below(13) {
            11 => {
                let list = self.term(SampleKind::Texts, 0);
                match self.choices.below(5) {
                    0 => format!("[] != {list}"),
                    1 => format!("not ({list} == [])"),
                    2 => format!("{list} == []"),
                    3 => format!("{list} is ne([])"),
                    _ => format!("{list} != []"),
                }
            }
            12 => format!("{} == 'l'", self.term(SampleKind::Text, depth)),
            0 => format!("{term} is defined"),
            1 => format!("{term} is not none"),
            2 => format!("not {term}"),
            3 => self
                .choices
                .one(&["loop.last", "not loop.last", "not loop.first", "flag", "caller"])
                .to_owned(),
            4 if depth > 0 => format!("{} and {}", self.condition(0), self.condition(0)),
            5 if depth > 0 => format!("{} or {}", self.condition(0), self.condition(0)),
            6 => format!(
                "{} == {}",
                self.term(SampleKind::Text, depth),
                self.term(SampleKind::Text, 0)
            ),
            7 => format!("{} > 1", self.term(SampleKind::Number, depth)),
            8 => format!("'k' in {}", self.term(SampleKind::Sizes, 0)),
            9 if self.chance(2) => {
                self.choices.one(&["marks | length > 1", "'k' in scores", "marks"]).to_owned()
            }
            9 => format!("{} | length > 1", self.term(SampleKind::Stories, 0)),
            _ => term,
        }
    }

    fn condition_or_earlier(&mut self) -> String {
        if !self.conditions.is_empty() && self.chance(2) {
            return self.conditions[self.choices.below(self.conditions.len())].clone();
        }
        let condition = self.condition(1);
        self.conditions.push(condition.clone());
        condition
    }

    /// Returns a name that is new, or hides another one.
    fn new_name(&mut self, kind: SampleKind) -> String {
        let name = self.choices.one(&["x", "y", "z", "note", "story", "texts"]).to_owned();
        self.names.push((name.clone(), kind));
        name
    }

    fn body(&mut self, depth: usize) -> String {
        let count = 1 + self.choices.below(2);
        (0..count).map(|_| self.statement(depth)).collect()
    }

    /// Returns a body whose names are not known after it.
    fn block(&mut self, depth: usize) -> String {
        let names = self.names.len();
        let macros = self.macros.len();
        let body = self.body(depth);
        if !self.chance(4) {
            self.names.truncate(names);
            self.macros.truncate(macros);
        }
        body
    }

    /// Returns a part of a value, in a condition that may prove that it is there.
    fn guarded_part(&mut self) -> String {
        let map = self.choices.one(&["sizes", "scores"]);
        let list = self.choices.one(&["numbers", "marks"]);
        let (guard, part) = match self.choices.below(11) {
            8 => {
                let texts = self.choices.one(&["tags", "texts", "sizes", "(texts | reverse)"]);
                let filter =
                    self.choices.one(&["list", "sort", "unique", "reverse", "map('trim')"]);
                let end = self.choices.one(&["first", "last"]);
                let texts = format!("{{{{ ({texts} | {filter} | {end}) | upper }}}}");
                let guard = self.condition(0);
                return format!("{{% if {guard} %}}{texts}{{% endif %}}");
            }
            9 => {
                let texts =
                    self.choices.one(&["tags", "texts", "(tags | list)", "(tags | default)"]);
                let compared = self.choices.one(&["!= []", "is not none", "| length > 0", "!= ''"]);
                let filter =
                    self.choices.one(&["list", "sort", "unique", "reverse", "map('trim')"]);
                return format!(
                    "{{% if {texts} {compared} %}}{{{{ ({texts} | {filter} | first) | upper }}}}{{% endif %}}"
                );
            }
            10 => {
                let pairs = self.term(SampleKind::Pairs, 1);
                let part = self.choices.one(&["grouper", "list", "[0]", "[1]"]);
                let part = if part.starts_with('[') { part.to_owned() } else { format!(".{part}") };
                let operation = self.choices.one(&["| upper", "+ 1", "| length + 1", ""]);
                return format!(
                    "{{% for g in {pairs} %}}{{{{ g{part} {operation} }}}}{{% endfor %}}"
                );
            }
            0 => (format!("'k' in {map}"), format!("{map}.k")),
            1 => (format!("{map}.k"), format!("{map}['k']")),
            2 => (format!("'k' in {map} and {map}.k is defined"), format!("{map}.k")),
            3 => (list.to_owned(), format!("{list}[0]")),
            4 => (format!("{list} | length > 1"), format!("{list}[1]")),
            5 => (format!("{list} | length"), format!("({list} | last)")),
            6 => (format!("1 in {list}"), format!("{list}[1]")),
            _ => return format!("{{% for k in {map} %}}{{{{ {map}[k] + 1 }}}}{{% endfor %}}"),
        };
        format!("{{% if {guard} %}}{{{{ {part} + 1 }}}}{{% endif %}}")
    }

    fn statement(&mut self, depth: usize) -> String {
        let kind = self.kind();
        if depth == 0 {
            return format!("{{{{ {} }}}}", self.expression(kind, 1));
        }
        let depth = depth - 1;
        match self.choices.below(13) {
            12 => self.guarded_part(),
            0 => {
                let condition = self.condition_or_earlier();
                let then = self.block(depth);
                let otherwise = self.block(depth);
                if self.chance(2) {
                    format!("{{% if {condition} %}}{then}{{% endif %}}")
                } else {
                    format!("{{% if {condition} %}}{then}{{% else %}}{otherwise}{{% endif %}}")
                }
            }
            1 => {
                let value = self.expression(kind, 2);
                format!("{{% set {} = {value} %}}", self.new_name(kind))
            }
            2 => {
                let (a, b) =
                    (self.expression(SampleKind::Text, 1), self.expression(SampleKind::Number, 1));
                let (first, second) =
                    (self.new_name(SampleKind::Text), self.new_name(SampleKind::Number));
                format!("{{% set {first}, {second} = {a}, {b} %}}")
            }
            3 => {
                let pairs = self.term(SampleKind::Pairs, 1);
                let names = self.names.len();
                let a = self.new_name(SampleKind::Text);
                let b = self.new_name(SampleKind::Number);
                let body = self.block(depth);
                self.names.truncate(names);
                format!("{{% for {a}, {b} in {pairs} %}}{body}{{% endfor %}}")
            }
            4 => {
                let name = format!("m{}", self.macros.len());
                let kind = self.kind();
                let other = self.kind();
                let names = std::mem::take(&mut self.names);
                self.names = vec![("p".to_owned(), kind), ("q".to_owned(), other)];
                let body = self.body(depth);
                self.names = names;
                let body = if self.chance(3) { format!("{body}{{{{ caller(q) }}}}") } else { body };
                let default = self.leaf(other);
                let default = if self.chance(2) { format!("={default}") } else { String::new() };
                self.macros.push((name.clone(), vec![kind, other]));
                format!("{{% macro {name}(p, q{default}) %}}{body}{{% endmacro %}}")
            }
            5 => {
                let Some(call) = self.called(1) else { return "text".to_owned() };
                self.names.push(("c".to_owned(), kind));
                let body = self.block(depth);
                self.names.retain(|it| it.0 != "c");
                format!("{{% call(c) {call} %}}{body}{{% endcall %}}")
            }
            6 => {
                self.names.push(("t".to_owned(), SampleKind::Tree));
                let body = self.block(depth);
                let children = self.expression(SampleKind::Tree, 0);
                self.names.retain(|it| it.0 != "t");
                let tree = self.choices.one(&["tree.children", "[tree]", "stories"]);
                format!(
                    "{{% for t in {tree} recursive %}}{body}{{{{ loop(t.children) }}}}{{{{ {children} }}}}{{% endfor %}}"
                )
            }
            7 => {
                let body = self.body(depth);
                let name = self.new_name(SampleKind::Text);
                format!("{{% set {name} %}}{body}{{% endset %}}")
            }
            8 | 9 => {
                let (of, kind) = if self.chance(2) {
                    (SampleKind::Stories, SampleKind::Story)
                } else {
                    (SampleKind::Texts, SampleKind::Text)
                };
                let list = self.term(of, 1);
                let names = self.names.len();
                let name = self.new_name(kind);
                let filter = if self.chance(3) {
                    format!(" if {}", self.condition(1))
                } else {
                    String::new()
                };
                let body = self.block(depth);
                let other = self.block(0);
                self.names.truncate(names);
                format!(
                    "{{% for {name} in {list}{filter} %}}{body}{{% else %}}{other}{{% endfor %}}"
                )
            }
            _ => format!("{{{{ {} }}}}", self.expression(kind, 2)),
        }
    }
}

/// Failures that depend on how deep or large a value is.
fn is_excepted(reason: &str) -> bool {
    ["recursion limit", "a limit is reached", "nested deeper"].iter().any(|it| reason.contains(it))
}

#[test]
fn a_random_template_that_loads_is_rendered_in_every_state() {
    let schema = schema();
    let states = states(&schema, 20);
    let mut accepted = 0;
    let mut failed = Vec::new();
    // `PROPTEST_CASES` makes more of them.
    let count = TEMPLATES.max(ProptestConfig::default().cases.into());
    for seed in 0..count {
        let choices = Choices(seed * 7919);
        let (names, macros, conditions) = Default::default();
        let mut generator = Generator { choices, names, macros, conditions };
        let template = generator.body(3);
        if !problems(&schema, &template).is_empty() {
            continue;
        }
        accepted += 1;
        let reason = failure(&states, &template);
        failed.extend(reason.filter(|it| !is_excepted(it)).map(|it| format!("{template}\n  {it}")));
    }
    failed.sort_by_key(String::len);
    let shown = failed.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(failed.is_empty(), "{} of {accepted} fail:\n{shown}", failed.len());
    assert!(accepted > count / 10, "{accepted} accepted");
}
