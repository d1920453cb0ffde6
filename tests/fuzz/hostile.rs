//! Workflows that were made to keep a reader busy, or to break it.
//!
//! `tests/fuzz.rs` loads each; `benches/check.rs` measures how long that takes.

use std::fmt::Write;

/// How large a file may be, less a little for what stands around.
const SIZE: usize = (1 << 20) - 2_000;
const DEPTH: usize = 10_000;

/// The name and the text of each.
pub fn inputs() -> Vec<(String, String)> {
    let mut inputs: Vec<(&str, String)> = vec![
        ("1 MB of [", "[".repeat(SIZE)),
        ("1 MB of {", "{".repeat(SIZE)),
        ("1 MB of [{", "[{".repeat(SIZE / 2)),
        ("1 MB of ? ", "? ".repeat(SIZE / 2)),
        ("1 MB of - ", "- ".repeat(SIZE / 2)),
        ("1 MB of &a ", "&a ".repeat(SIZE / 3)),
        ("1 MB of *a ", format!("a: &a x\nb: [{}]", "*a,".repeat(SIZE / 3))),
        ("1 MB of !!", "!!".repeat(SIZE / 2)),
        ("1 MB of quotes", "\"".repeat(SIZE)),
        ("1 MB of tabs", "\t".repeat(SIZE)),
        ("1 MB of lines", "\n".repeat(SIZE)),
        ("1 MB of #", "#".repeat(SIZE)),
        ("1 MB of one line", format!("graphrun: 1\nname: {}", "x".repeat(SIZE))),
        ("1 MB of text in quotes", format!("graphrun: 1\nname: \"{}\"", "x ".repeat(SIZE / 2))),
        ("1 MB of a block", format!("graphrun: 1\nabout: |\n{}", "  x y z\n".repeat(SIZE / 8))),
        ("1 MB of ä", "ä".repeat(SIZE / 2)),
        ("a: 10,000 deep", "a: ".repeat(DEPTH)),
        ("{a: 10,000 deep", "{a: ".repeat(DEPTH)),
        ("lists 10,000 deep", format!("{}x{}", "[".repeat(DEPTH), "]".repeat(DEPTH))),
        ("lines 1,400 deep", steps(1_400)),
        ("aliases of aliases", laughs()),
        ("aliases of a long list", aliases()),
        ("10,000 keys", keys(|at| format!("key_{at}: 1\n"))),
        ("10,000 equal keys", keys(|_| "name: x\n".to_owned())),
        ("10,000 fields", with_state(&keys(|at| format!("  f{at}: string\n")))),
        ("10,000 equal fields", with_state(&keys(|_| "  f: string\n".to_owned()))),
        ("10,000 types of types", types()),
        ("10,000 nodes in a row", row(DEPTH)),
        ("10,000 equal nodes", with_nodes(&keys(|_| "  a: { set: {}, then: end }\n".to_owned()))),
        ("10,000 cases", cases()),
        ("40 nodes that lead to all", dense(40, "end")),
        ("40 nodes that lead to all, used up in many ways", dense(40, "a")),
        ("10 parallels of 30", parallels(10, 30)),
        ("conditions over 40 bools", bools(40)),
    ];
    for (name, part, end) in [
        ("(", "(", ")"),
        ("!", "!", ""),
        ("-", "-", ""),
        ("[", "[", "]"),
        ("a.exists(x, ", "a.exists(x, ", ")"),
        ("true ? true : ", "true ? true : ", ""),
        ("size()", "", ".size()"),
        ("fields", "", ".x"),
        ("+ 1", "", " + 1"),
        ("&& true", "", " && true"),
        ("|| yes", "", " || yes"),
        ("== 1", "", " == 1"),
    ] {
        for (times, size) in [(DEPTH, "10,000"), (SIZE / (part.len() + end.len()), "1 MB")] {
            let source = format!("{}1{}", part.repeat(times), end.repeat(times));
            inputs.push((leak(format!("{size} of the expression {name}")), condition(&source)));
        }
    }
    for (name, part, end) in [
        ("{% if %}", "{% if brief %}", "{% endif %}"),
        ("{% if %} without end", "{% if brief %}", ""),
        ("{% for %}", "{% for x in brief %}", "{% endfor %}"),
        ("{% elif %}", "", "{% elif brief %}"),
        ("{{ brief }}", "{{ brief }}", ""),
        ("{{ other }}", "{{ other }}", ""),
        ("{% set %}", "{% set x = 1 %}", ""),
        ("{{", "{{", ""),
    ] {
        for (times, size) in [(DEPTH, "10,000"), (SIZE / (part.len() + end.len()), "1 MB")] {
            let text = match name {
                "{% elif %}" => format!("{{% if brief %}}{}{{% endif %}}", end.repeat(times)),
                _ => format!("{}x{}", part.repeat(times), end.repeat(times)),
            };
            inputs.push((leak(format!("{size} of the prompt {name}")), with_prompt(&text)));
        }
    }
    for (name, part, end) in [
        ("(", "(", ")"),
        ("[", "[", "]"),
        ("not", "not ", ""),
        ("-", "-", ""),
        ("fields", "", ".x"),
        ("items", "", "[0]"),
        ("filters", "", "|upper"),
        ("tests", "", " is defined"),
        ("calls", "", "()"),
        ("+ 1", "", " + 1"),
        ("~ x", "", " ~ brief"),
        ("and x", "", " and brief"),
        ("if x", "", " if brief else brief"),
        ("< x", "", " < brief"),
    ] {
        for (times, size) in [(DEPTH, "10,000"), (SIZE / (part.len() + end.len()), "1 MB")] {
            let text = format!("{{{{ {}brief{} }}}}", part.repeat(times), end.repeat(times));
            inputs.push((leak(format!("{size} of {name} in a prompt")), with_prompt(&text)));
        }
    }
    inputs.into_iter().map(|(name, text)| (name.to_owned(), text)).collect()
}

/// Workflows in which very many nodes meet in one super-step.
pub fn crowded() -> Vec<(String, String)> {
    let all = [
        ("200 nodes that lead to all", dense(200, "end")),
        ("20 parallels of 100", parallels(20, 100)),
    ];
    all.into_iter().map(|(name, text)| (name.to_owned(), text)).collect()
}

fn leak(name: String) -> &'static str {
    Box::leak(name.into_boxed_str())
}

fn keys(line: impl Fn(usize) -> String) -> String {
    (0..DEPTH).map(line).collect()
}

/// A mapping in a mapping, each on a separate line.
fn steps(depth: usize) -> String {
    (0..depth).fold(String::new(), |text, at| text + &" ".repeat(at) + "a:\n")
}

/// Aliases of aliases, ten times ten times ten.
fn laughs() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for at in 1..12 {
        let items = [format!("*a{}", at - 1).as_str(); 10].join(", ");
        writeln!(text, "a{at}: &a{at} [{items}]").expect("writes to a text never fail");
    }
    text
}

fn aliases() -> String {
    format!("a: &a [{}]\n{}", "x, ".repeat(20_000), "b: [*a, *a, *a]\n".repeat(5_000))
}

fn with_state(fields: &str) -> String {
    format!(
        "graphrun: 1\nname: x\nstate:\n{fields}start: n\nnodes:\n  n: {{ set: {{}}, then: end }}\n"
    )
}

fn with_nodes(nodes: &str) -> String {
    format!("graphrun: 1\nname: x\nstate: {{ brief: string }}\nstart: a\nnodes:\n{nodes}")
}

fn types() -> String {
    let types = keys(|at| format!("  t{}: {{ a: t{at}, b: t{at} }}\n", at + 1));
    format!("graphrun: 1\nname: x\ntypes:\n  t0: int\n{types}{}", "state: { a: t10000 }\n")
}

fn row(nodes: usize) -> String {
    let node = |at| format!("  n{at}: {{ set: {{}}, then: n{} }}\n", at + 1);
    let nodes: String = (0..nodes).map(node).collect();
    with_nodes(&format!("  a: {{ set: {{}}, then: n0 }}\n{nodes}"))
}

/// Each node leads to all others, and where it is used up to another; two write one field.
fn dense(nodes: usize, exhausted: &str) -> String {
    let names: Vec<String> = (0..nodes).map(|at| format!("n{at}")).collect();
    let all = names.join(", ");
    let node = |node: &String| {
        let set = if node == "n1" || node == "n2" { "brief: '\"x\"'" } else { "" };
        format!(
            "  {node}: {{ set: {{ {set} }}, max_visits: 2, exhausted: {exhausted}, then: [{all}] }}\n"
        )
    };
    let nodes: String = names.iter().map(node).collect();
    with_nodes(&format!("  a: {{ set: {{}}, max_visits: 1, exhausted: end, then: n0 }}\n{nodes}"))
}

/// Each `parallel` leads to the next.
fn parallels(stages: usize, branches: usize) -> String {
    let mut text = "  a: { set: {}, then: p0 }\n".to_owned();
    for at in 0..stages {
        let names: Vec<String> = (0..branches).map(|it| format!("b{at}_{it}")).collect();
        let next = if at + 1 == stages { "end".to_owned() } else { format!("p{}", at + 1) };
        writeln!(text, "  p{at}: {{ parallel: [{}], then: s{at} }}", names.join(", "))
            .expect("writes to a text never fail");
        writeln!(text, "  s{at}: {{ set: {{}}, then: {next} }}")
            .expect("writes to a text never fail");
        text.extend(names.iter().map(|it| format!("  {it}: {{ set: {{}} }}\n")));
    }
    with_nodes(&text)
}

fn cases() -> String {
    let cases = keys(|at| format!("      - {{ when: count == {at}, to: end }}\n"));
    format!(
        "graphrun: 1\nname: x\nstate: {{ count: int }}\ninput: count\nstart: a\nnodes:\n  a:\n    \
         set: {{}}\n    then:\n{cases}      - {{ to: end }}\n"
    )
}

/// Conditions whose worlds are many: each says that two bools differ.
fn bools(count: usize) -> String {
    let names: Vec<String> = (0..count).map(|at| format!("b{at}")).collect();
    let fields = format!("  {}: bool\n", names.join(": bool\n  "));
    let differ: Vec<String> =
        names.windows(2).map(|it| format!("{} != {}", it[0], it[1])).collect();
    let either: Vec<String> = names.windows(3).map(|it| format!("({})", it.join(" || "))).collect();
    format!(
        "graphrun: 1\nname: x\nstate:\n{fields}input: [{}]\nstart: a\nnodes:\n  a:\n    set: {{}}\n    \
         then:\n      - {{ when: \"{}\", to: end }}\n      - {{ when: \"{}\", to: end }}\n      - {{ to: end }}\n",
        names.join(", "),
        differ.join(" && "),
        either.join(" && "),
    )
}

fn condition(source: &str) -> String {
    format!(
        "graphrun: 1\nname: x\nstate: {{ a: [int], yes: bool }}\ninput: [a, yes]\nstart: n\nnodes:\n  n:\n    \
         set: {{}}\n    then:\n      - {{ when: \"{source}\", to: end }}\n      - {{ to: end }}\n"
    )
}

fn with_prompt(text: &str) -> String {
    format!(
        "graphrun: 1\nname: x\nstate: {{ brief: string }}\ninput: brief\nmodels: {{ m: a/b }}\n\
         agents: {{ x: {{ model: m }} }}\nstart: a\nnodes:\n  a: {{ agent: x, prompt: {{ text: \"{text}\" }}, \
         writes: brief, then: end }}\n"
    )
}
