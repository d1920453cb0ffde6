//! Inputs that are small and stand for much: each a set of files and a command.

use std::fmt::Write;

/// What must come of a bomb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// An error that names this limit.
    Limit(&'static str),
    /// An error that contains this text.
    Refused(&'static str),
    /// A result.
    Done,
    /// A result or an error, as long as there is one.
    Answer,
}

/// A part of a list as JSON, by its number.
type Part = fn(usize) -> String;

/// Files that may use up memory or time, and the command that reads them.
#[derive(Clone, Debug)]
pub(crate) struct Bomb {
    /// Its name, which begins with its kind.
    pub(crate) name: String,
    /// The names and the texts of its files.
    pub(crate) files: Vec<(String, String)>,
    /// A list in `list.json`: the number of its parts, and each by its number.
    pub(crate) list: Option<(usize, Part)>,
    /// The arguments of the program.
    pub(crate) command: Vec<&'static str>,
    /// What must come of it.
    pub(crate) expected: Expected,
}

const VALIDATE: &[&str] = &["validate", "w.yaml"];
const EXECUTE: &[&str] = &["execute", "w.yaml", "--db", "memory:"];

/// All bombs.
pub(crate) fn bombs() -> Vec<Bomb> {
    [yaml(), schemas(), expressions(), templates(), structures(), loops(), inputs()].concat()
}

fn bomb(name: &str, text: String, command: &[&'static str], expected: Expected) -> Bomb {
    let files = vec![("w.yaml".to_owned(), text)];
    Bomb { name: name.to_owned(), files, list: None, command: command.to_vec(), expected }
}

/// Lines that are made by a function of their numbers.
fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).fold(String::new(), |mut text, at| {
        writeln!(text, "{}", line(at)).expect("a text takes any line");
        text
    })
}

fn with_state(state: &str) -> String {
    format!(
        "graphrun: 1\nname: bomb\nstate:\n{state}start: n\nnodes:\n  n: {{ set: {{}}, then: end }}\n"
    )
}

/// Aliases that each repeat the one before, in a file that is a workflow otherwise.
fn laughs(levels: usize, width: usize, key: bool) -> String {
    let items = |name: &str| {
        let item = |at| if key { format!("k{at}: {name}") } else { name.to_owned() };
        let items: Vec<String> = (0..width).map(item).collect();
        let (open, close) = if key { ("{ ", " }") } else { ("[", "]") };
        format!("{open}{}{close}", items.join(", "))
    };
    with_state(&lines(levels, |at| {
        let before = if at == 0 { "x".to_owned() } else { format!("*a{}", at - 1) };
        format!("  a{at}: {{ type: json, default: &a{at} {} }}", items(&before))
    }))
}

fn yaml() -> Vec<Bomb> {
    let nodes = Expected::Limit("yaml_nodes");
    let bytes = Expected::Limit("file_bytes");
    let mut bombs = Vec::new();
    for (levels, width) in [(20, 2), (13, 3), (9, 5), (6, 10), (4, 40), (3, 300)] {
        for key in [false, true] {
            let name = format!("yaml: {levels} levels of {width} aliases, of keys: {key}");
            bombs.push(bomb(&name, laughs(levels, width, key), VALIDATE, nodes));
        }
    }
    let deep = lines(40, |at| {
        let before = if at == 0 { "x".to_owned() } else { format!("*a{}", at - 1) };
        format!(
            "  a{at}: {{ type: json, default: &a{at} {}{before}{} }}",
            "[".repeat(20),
            "]".repeat(20)
        )
    });
    let long = "x".repeat(500_000);
    let many = |name: &str, first: &str| {
        let text = with_state(&format!(
            "  a: {{ type: json, default: &a {first} }}\n{}",
            lines(5_000, |at| format!("  b{at}: {{ type: json, default: *a }}"))
        ));
        bomb(name, text, VALIDATE, bytes)
    };
    bombs.push(bomb(
        "yaml: aliases of aliases, deep",
        with_state(&deep),
        VALIDATE,
        Expected::Refused("nested deeper"),
    ));
    bombs.push(many("yaml: aliases of a long text", &long));
    bombs.push(many("yaml: aliases of a long key", &format!("{{ {long}: 1 }}")));
    bombs.push(bomb("yaml: a file of 3 MB", "# \n".repeat(1_000_000), VALIDATE, bytes));
    let device = Expected::Refused("not a regular file");
    bombs.push(bomb("yaml: a file without end", String::new(), &["validate", "/dev/zero"], device));
    for part in ["[", "{", "- ", "? ", "a: ", "&a ", "!!", "\"", "[{", "\t", "{a: "] {
        let text = part.repeat(1_000_000 / part.len());
        bombs.push(bomb(
            &format!("yaml: 1 MB of {part:?}"),
            text,
            VALIDATE,
            Expected::Refused("GR00"),
        ));
    }
    let names = |at| format!("  a{at}: {{ set: {{}}, then: b{at} }}");
    let unknown = format!(
        "graphrun: 1\nname: x\nstate: {{ a: int }}\nstart: a0\nnodes:\n{}",
        lines(6_000, names)
    );
    bombs.push(bomb("yaml: 6,000 unknown names", unknown, VALIDATE, Expected::Refused("GR010")));
    let mut cases = bomb(
        "yaml: aliases in a file of cases",
        with_state("  a: int\n"),
        &["test", "w.test.yaml"],
        nodes,
    );
    let text = lines(8, |at| {
        let before = if at == 0 { "x".to_owned() } else { format!("*a{}", at - 1) };
        format!("a{at}: &a{at} [{}]", vec![before; 10].join(", "))
    });
    cases.files.push(("w.test.yaml".to_owned(), format!("graphrun_test: 1\n{text}")));
    bombs.push(cases);
    bombs
}

/// A workflow with a field whose type is the schema in `s.json`.
fn with_schema(name: &str, schema: String, expected: Expected) -> Bomb {
    let text = with_state("  a: { schema: s.json }\n");
    let mut bomb = bomb(&format!("schema: {name}"), text, VALIDATE, expected);
    bomb.files.push(("s.json".to_owned(), schema));
    bomb
}

fn definitions(count: usize, definition: impl Fn(usize) -> String) -> String {
    let all: Vec<String> = (0..count).map(|at| format!("\"d{at}\": {}", definition(at))).collect();
    format!("{{\"$ref\": \"#/$defs/d0\", \"$defs\": {{{}}}}}", all.join(", "))
}

fn schemas() -> Vec<Bomb> {
    let nodes = Expected::Limit("schema_nodes");
    let next = |at: usize| format!("{{\"$ref\": \"#/$defs/d{}\"}}", at + 1);
    let mut bombs = Vec::new();
    for (name, before, between, after) in [
        ("properties", "\"properties\": {\"a\": ", ", \"b\": ", "}"),
        (
            "required properties",
            "\"required\": [\"a\", \"b\"], \"type\": \"object\", \"properties\": {\"a\": ",
            ", \"b\": ",
            "}",
        ),
        ("patternProperties", "\"patternProperties\": {\"a\": ", ", \"b\": ", "}"),
        ("dependentSchemas", "\"dependentSchemas\": {\"a\": ", ", \"b\": ", "}"),
        ("allOf", "\"allOf\": [", ", ", "]"),
        ("anyOf", "\"anyOf\": [", ", ", "]"),
        ("oneOf", "\"oneOf\": [", ", ", "]"),
        ("prefixItems", "\"prefixItems\": [", ", ", "]"),
        ("if and then", "\"if\": ", ", \"then\": ", ""),
        ("not and items", "\"not\": ", ", \"items\": ", ""),
    ] {
        let tower = definitions(50, |at| {
            let next = if at == 49 { "true".to_owned() } else { next(at) };
            format!("{{{before}{next}{between}{next}{after}}}")
        });
        bombs.push(with_schema(&format!("a tower of {name}"), tower, nodes));
    }
    let chain = definitions(5_000, |at| format!("{{\"items\": {}}}", next(at)));
    bombs.push(with_schema("a chain of 5,000", chain, nodes));
    let numbers: Vec<String> = (0..150_000).map(|it| it.to_string()).collect();
    bombs.push(with_schema(
        "an enum of 150,000",
        format!("{{\"enum\": [{}]}}", numbers.join(",")),
        nodes,
    ));
    for pattern in
        ["(a{1000}){1000}", "((a{100}){100}){100}", "\\\\w{900}\\\\w{900}", "(x{900}|y{900}){900}"]
    {
        bombs.push(with_schema(
            &format!("the pattern {pattern}"),
            format!("{{\"type\": \"string\", \"pattern\": \"{pattern}\"}}"),
            nodes,
        ));
    }
    let all = |count: usize| {
        let refers: Vec<String> =
            (0..count).map(|to| format!("\"p{to}\": {{\"$ref\": \"#/$defs/d{to}\"}}")).collect();
        definitions(count, |_| {
            format!("{{\"type\": \"object\", \"properties\": {{{}}}}}", refers.join(", "))
        })
    };
    bombs.push(with_schema("30 definitions that refer to all", all(30), Expected::Answer));
    bombs.push(with_schema(
        "a reference to itself",
        "{\"$ref\": \"#\"}".to_owned(),
        Expected::Answer,
    ));
    bombs.push(with_schema(
        "allOf itself",
        "{\"allOf\": [{\"$ref\": \"#\"}]}".to_owned(),
        Expected::Answer,
    ));
    let text = with_state(&lines(3_000, |at| format!("  a{at}: {{ schema: s.json }}")));
    let mut copies = bomb("schema: 3,000 fields of one file", text, VALIDATE, nodes);
    let fields: Vec<String> =
        (0..100).map(|at| format!("\"f{at}\": {{\"type\": \"string\"}}")).collect();
    copies
        .files
        .push(("s.json".to_owned(), format!("{{\"properties\": {{{}}}}}", fields.join(", "))));
    bombs.push(copies);
    let mut large = with_schema(
        "a file of 3 MB",
        format!("{{\"a\": \"{}\"}}", "x".repeat(3_000_000)),
        Expected::Limit("file_bytes"),
    );
    large.command = VALIDATE.to_vec();
    bombs.push(large);
    let types = lines(40, |at| format!("  t{}: {{ a: t{at}, b: t{at} }}", at + 1));
    let text = format!(
        "graphrun: 1\nname: x\ntypes:\n  t0: int\n{types}state: {{ a: t40 }}\nstart: n\nnodes:\n  n: {{ set: {{}}, then: end }}\n"
    );
    bombs.push(bomb("schema: types of types", text, VALIDATE, nodes));
    bombs
}

/// A run that computes a field from a list of 2,000 numbers and a text of 100,000 characters.
fn with_expression(source: &str, expected: Expected) -> Bomb {
    let list = vec!["7"; 2_000].join(", ");
    let text = format!(
        "graphrun: 1\nname: bomb\nstate:\n  l: {{ type: \"[int]\", default: [{list}] }}\n  t: {{ type: string, default: \"{}\" }}\n  \
         out: json\nstart: n\nnodes:\n  n: {{ set: {{ out: '{source}' }}, then: end }}\n",
        "a".repeat(100_000)
    );
    bomb(&format!("expression: {source:.60}"), text, EXECUTE, expected)
}

/// Inputs of many small parts, of which those within the limits are no bombs.
fn inputs() -> Vec<Bomb> {
    let memory = Expected::Limit("value_memory");
    let inputs: [(&str, usize, Part, Expected); 9] = [
        ("numbers", 300_000, |at| at.to_string(), Expected::Done),
        ("texts", 300_000, |at| format!("\"item {at}\""), Expected::Done),
        (
            "records",
            300_000,
            |at| format!("{{\"id\": {at}, \"name\": \"item {at}\"}}"),
            Expected::Done,
        ),
        ("numbers", 5_000_000, |_| "1".to_owned(), memory),
        ("lists", 5_000_000, |_| "[]".to_owned(), memory),
        ("records", 5_000_000, |_| "{}".to_owned(), memory),
        ("long texts", 60, |_| format!("\"{}\"", "x".repeat(1_000_000)), memory),
        (
            "longer texts",
            70,
            |_| format!("\"{}\"", "x".repeat(1_000_000)),
            Expected::Limit("input_bytes"),
        ),
        ("deep lists", 10, |_| "[".repeat(100_000), Expected::Limit("value_depth")),
    ];
    inputs
        .into_iter()
        .map(|(name, count, part, expected)| {
            let text = "graphrun: 1\nname: x\nstate: { xs: [json], n: { type: int, default: 0 } }\ninput: xs\nstart: n\nnodes:\n  \
                        n: { set: { n: size(xs) }, then: end }\n";
            let command = &["execute", "w.yaml", "-i", "xs=@list.json"];
            let mut bomb = bomb(&format!("input: {count} {name}"), text.to_owned(), command, expected);
            bomb.list = Some((count, part));
            bomb
        })
        .collect()
}

/// Runs whose state doubles at each step, until it reaches a limit.
fn loops() -> Vec<Bomb> {
    let numbers = ("[int]", "[1, 2, 3, 4]");
    let records = ("[{ id: int }]", "[{ id: 1 }]");
    let large = ("[{ a: int, b: int, c: string, d: int }]", "[{ a: 1, b: 2, c: x, d: 4 }]");
    let texts = ("[string]", "[abc]");
    let text = ("string", "xxxxxxxx");
    let mut bombs = Vec::new();
    for (ty, default) in [numbers, records, large, texts, text] {
        let mut ways = vec![("s + s", "")];
        if ty != text.0 {
            ways.push(("s", ", merge: append"));
        }
        for (expression, merge) in ways {
            let file = format!(
                "graphrun: 1\nname: doubles\nstate: {{ s: {{ type: {ty}, default: {default}{merge} }} }}\nstart: n\nnodes:\n  \
                 n: {{ set: {{ s: '{expression}' }}, max_visits: 60, exhausted: end, then: n }}\n"
            );
            let name = format!("loop: {expression}, {ty}");
            bombs.push(bomb(
                &name,
                file,
                &["execute", "w.yaml"],
                Expected::Limit("expression_memory"),
            ));
        }
    }
    bombs
}

fn expressions() -> Vec<Bomb> {
    let steps = Expected::Limit("expression_steps");
    let bytes = Expected::Limit("expression_memory");
    let doubled = (0..24).fold("t".to_owned(), |it, at| match at {
        0 => format!("[{it}].map(x, x + x)"),
        _ => format!("{it}.map(x, x + x)"),
    });
    let joined = (0..24).fold("[l]".to_owned(), |it, _| format!("{it}.map(x, x + x)"));
    let mut bombs: Vec<Bomb> = [
        ("l.map(a, l.map(b, l.map(c, 1))).size()", Expected::Refused("limit `expression_")),
        ("l.map(a, l.map(b, a + b)).size()", Expected::Refused("limit `expression_")),
        ("l.exists(a, l.exists(b, l.exists(c, a + b + c < 0)))", steps),
        ("l.all(a, l.all(b, a == b))", steps),
        ("l.filter(a, l.exists_one(b, a != b)).size()", steps),
        ("l.all(a, l == l)", Expected::Answer),
        ("l.all(a, !(8 in l))", Expected::Answer),
        ("l.all(a, l.all(b, !(8 in l)))", steps),
        ("l.all(a, t == t + \"\")", Expected::Refused("limit `expression_")),
        ("l.all(a, t.size() > 0)", steps),
        ("l.all(a, !t.contains(\"b\"))", steps),
        ("l.all(a, !t.matches(\"(x+x+)+y\"))", steps),
        ("l.map(a, t + t).size()", bytes),
        ("l.map(a, [t]).size()", bytes),
        ("l.map(a, l).size()", bytes),
        ("l.map(a, l + l).size()", bytes),
        (&doubled, bytes),
        (&joined, bytes),
    ]
    .into_iter()
    .map(|(source, expected)| with_expression(source, expected))
    .collect();
    for (name, part) in [("&&", "b0 != b1"), ("||", "b0 == b1")] {
        let terms: Vec<String> = (0..39)
            .map(|at| part.replace("b1", &format!("b{}", at + 1)).replace("b0", &format!("b{at}")))
            .collect();
        let fields = lines(40, |at| format!("  b{at}: {{ type: bool, default: false }}"));
        let text = format!(
            "graphrun: 1\nname: x\nstate:\n{fields}start: a\nnodes:\n  a:\n    set: {{}}\n    then:\n      - {{ when: \"{}\", to: end }}\n      - {{ to: fail }}\n",
            terms.join(&format!(" {name} "))
        );
        for command in [VALIDATE, &["plan", "w.yaml"], &["test", "--explore", "w.yaml"]] {
            bombs.push(bomb(
                &format!("expression: 40 bools with {name}, {}", command[0]),
                text.clone(),
                command,
                Expected::Answer,
            ));
        }
    }
    let values: Vec<String> = (0..10_000).map(|it| format!("v{it}")).collect();
    let targets: Vec<String> = values.iter().map(|it| format!("{it}: end")).collect();
    let text = format!(
        "graphrun: 1\nname: x\nstate: {{ e: {{ type: \"{}\", default: v1 }} }}\nstart: a\nnodes:\n  a:\n    set: {{}}\n    then: {{ match: e, to: {{ {} }} }}\n",
        values.join(" | "),
        targets.join(", ")
    );
    for command in [VALIDATE, &["plan", "w.yaml"], &["graph", "w.yaml"]] {
        bombs.push(bomb(
            &format!("expression: an enum of 10,000, {}", command[0]),
            text.clone(),
            command,
            Expected::Answer,
        ));
    }
    bombs
}

/// A run that asks a question.
fn with_template(template: &str, expected: Expected) -> Bomb {
    let text = format!(
        "graphrun: 1\nname: bomb\nstate: {{ answer: string }}\nstart: n\nnodes:\n  n:\n    ask: |\n      {template}\n    writes: answer\n    then: end\n"
    );
    bomb(&format!("template: {template:.60}"), text, EXECUTE, expected)
}

fn templates() -> Vec<Bomb> {
    let limit = Expected::Refused("limit `template_");
    let doubled = format!("{{% set a = \"x\" %}}{}", "{% set a = a ~ a %}".repeat(40));
    let added = format!("{{% set a = \"x\" %}}{}", "{% set a = a + a %}".repeat(40));
    let captured =
        format!("{{% set a = \"x\" %}}{}", "{% set a %}{{ a }}{{ a }}{% endset %}".repeat(40));
    let replaced =
        format!("{{% set a = \"xx\" %}}{}", "{% set a = a | replace(\"x\", \"xx\") %}".repeat(40));
    let joined = format!("{{% set a = \"xx\" %}}{}", "{% set a = a | list | join(a) %}".repeat(10));
    let listed = format!("{{% set a = [1] %}}{}", "{% set a = a + a %}".repeat(60));
    let shared = format!("{{% set a = [1] %}}{}{{{{ a }}}}", "{% set a = [a, a] %}".repeat(60));
    let deep = format!("{{% set a = [1] %}}{}{{{{ a }}}}", "{% set a = [a] %}".repeat(5_000));
    let loops = format!("{}x{}", "{% for i in range(90000) %}".repeat(4), "{% endfor %}".repeat(4));
    let mut bombs: Vec<Bomb> = [
        &doubled, &added, &captured, &replaced, &joined, &listed, &shared, &loops,
        "{{ \"x\" * 99000000 }}",
        "{{ \"x\" * 99000000 ~ \"x\" * 99000000 }}",
        "{% set a = \"x\" * 99000 %}{{ a | replace(\"\", a) }}",
        "{{ ([1] * 9000) | join(\"x\" * 99000) }}",
        "{{ \"x\" | indent(2000000000, true) }}",
        "{{ [1] | batch(2000000000, 1) }}",
        "{{ [1] | slice(2000000000) }}",
        "{{ \"%2000000000d\" | format(1) }}",
        "{{ \"%.2000000000f\" | format(1.0) }}",
        "{{ range(99000) | list | select(\"in\", range(99000) | list) | list }}",
        "{{ range(99000) | select(\"in\", range(99000) | list) | list }}",
        "{% for i in range(99000) %}{{ range(99000) | sum }}{% endfor %}",
        "{% for i in range(99000) %}{{ (\"x\" * 99000) | length }}{% endfor %}",
        "{% for i in range(99000) %}{% if \"x\" * 99000 == \"y\" %}{% endif %}{% endfor %}",
        "{% macro m() %}{% for i in range(9000) %}{{ range(9000) }}{% endfor %}{% endmacro %}{{ m() }}",
        "{% for i in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}",
    ]
    .into_iter()
    .map(|it| with_template(it, limit))
    .collect();
    if let Some(recursive) = bombs.last_mut() {
        recursive.expected = Expected::Refused("limit");
    }
    bombs.push(with_template(&deep, Expected::Refused("nested deeper")));
    bombs.push(with_template(
        "{% set n = namespace(a=1) %}{% set n.a = n %}{{ n }}",
        Expected::Refused("GR041"),
    ));
    bombs.push(with_template(
        "{{ (\"%s\" * 99000) | format(\"x\" * 99000) }}",
        Expected::Refused("is no literal"),
    ));
    bombs.push(with_template(
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        Expected::Refused("calls itself"),
    ));
    let macros: Vec<String> =
        (0..3_000).map(|it| format!("{{% macro m{it}(x) %}}{{% endmacro %}}")).collect();
    let macros = macros.concat();
    bombs.push(with_template(&format!("{macros}Which?"), Expected::Answer));
    bombs
}

fn structures() -> Vec<Bomb> {
    let head = "graphrun: 1\nname: x\nstate: { a: int }\n";
    let row = |count: usize| {
        format!(
            "{head}start: n0\nnodes:\n{}  n{count}: {{ set: {{}}, then: end }}\n",
            lines(count, |at| format!("  n{at}: {{ set: {{}}, then: n{} }}", at + 1))
        )
    };
    let mut bombs = Vec::new();
    for command in [VALIDATE, &["plan", "w.yaml"]] {
        bombs.push(bomb(
            &format!("structure: 2,000 nodes in a row, {}", command[0]),
            row(2_000),
            command,
            Expected::Answer,
        ));
    }
    bombs.push(bomb(
        "structure: 30,000 nodes in a row",
        row(30_000),
        VALIDATE,
        Expected::Refused("limit `"),
    ));
    let all: Vec<String> = (0..60).map(|at| format!("n{at}")).collect();
    let dense = format!(
        "{head}start: n0\nnodes:\n{}",
        lines(60, |at| format!(
            "  n{at}: {{ set: {{}}, max_visits: 2, exhausted: end, then: [{}] }}",
            all.join(", ")
        ))
    );
    bombs.push(bomb("structure: 60 nodes that lead to all", dense, VALIDATE, Expected::Answer));
    let tower = |at: usize| {
        format!(
            "{head}start: x\nnodes:\n  x: {{ use: {{ workflow: w{at}.yaml }}, then: y }}\n  y: {{ use: {{ workflow: w{at}.yaml }}, then: end }}\n"
        )
    };
    let mut uses = bomb(
        "structure: a tower of used workflows",
        tower(1),
        VALIDATE,
        Expected::Refused("GR073"),
    );
    uses.files.extend((1..30).map(|at| (format!("w{at}.yaml"), tower(at + 1))));
    bombs.push(uses);
    let many =
        lines(60, |at| format!("  n{at}: {{ use: {{ workflow: v.yaml }}, then: n{} }}", at + 1));
    let many = format!("{head}start: n0\nnodes:\n{many}  n60: {{ set: {{}}, then: end }}\n");
    let mut uses = bomb("structure: many uses", many, VALIDATE, Expected::Limit("graph_nodes"));
    uses.files.push(("v.yaml".to_owned(), row(400)));
    bombs.push(uses);
    let itself = tower(0).replace("w0.yaml", "w.yaml");
    bombs.push(bomb(
        "structure: a workflow that uses itself",
        itself,
        VALIDATE,
        Expected::Refused("GR073"),
    ));
    bombs
}
