//! What a route proves holds in a run: random workflows whose nodes compute with guarded values. None that loads fails.

use std::fmt::Write;

use graphrun::{engine::Engine, event::Status, state::Update};
use serde_json::json;

use crate::support::loaded;

const WORKFLOWS: u64 = 1_500;

/// Conditions, each with an update that it guards.
const GUARDS: &[(&str, &str)] = &[
    ("a < 6", "a: a + 1"),
    ("6 > a", "a: a + 1"),
    ("!(a >= 6)", "b: a + 1"),
    ("a <= 4", "a: a + 2"),
    ("a < xs.size()", "b: xs[a]"),
    ("xs.size() - 1 >= a", "b: xs[a]"),
    ("a > 0", "a: a - 1"),
    ("a >= 2", "b: a - 2"),
    ("a == 3", "a: a * 2"),
    ("a < b", "a: a + 1"),
    ("a < b", "b: b - 1"),
    ("a < top.n", "a: a + 1"),
    ("top.n < 6", "top: '{ n: top.n + 1 }'"),
    ("top.n > 0", "a: top.n - 1"),
    ("b > 0", "b: b - 1"),
    ("xs.size() > 0", "a: xs[0]"),
    ("xs != []", "a: xs.last()"),
    ("xs.size() >= 1", "b: xs.first()"),
    ("xs.size() > 1", "b: xs[1]"),
    ("xs.size() != 0", "a: xs[0]"),
    ("3 in xs", "a: xs[0]"),
    ("\"k\" in m", "a: m.k"),
    ("has(m.k)", "b: m.k"),
    ("\"k\" in gaps", "b: gaps.k"),
    ("has(gaps.k)", "b: gaps.k"),
];

/// Updates that need no guard, and may end one.
const UPDATES: &[&str] = &[
    "done: true",
    "done: true",
    "done: true",
    "done: true",
    "a: b",
    "b: a",
    "top: '{ n: b }'",
    "top: '{ n: 6 }'",
    "xs: '[]'",
    "xs: '[a, b]'",
    "m: '{}'",
    "m: '{ k: a }'",
    "gaps: '{ k: null }'",
    "gaps: '{ k: b }'",
];

/// Choices that are the same in each run.
struct Choices(u64);

impl Choices {
    fn below(&mut self, end: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap()
    }

    fn one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.below(of.len())]
    }

    /// A condition that implies the guard, or is near to it.
    fn condition(&mut self, guard: &str) -> String {
        let other = GUARDS[self.below(GUARDS.len())].0;
        match self.below(8) {
            0 => format!("{guard} && {other}"),
            1 => format!("{other} && ({guard})"),
            2 => format!("!(!({guard}) || {other})"),
            3 => format!("{guard} || {other}"),
            4 => other.to_owned(),
            _ => guard.to_owned(),
        }
    }

    /// A way to the next node under a condition, and to another one otherwise.
    fn guarded(&mut self, guard: &str, next: &str, other: &str) -> String {
        let condition = self.condition(guard);
        match self.below(4) {
            0 => format!("{{ match: '{condition}', to: {{ true: {next}, false: {other} }} }}"),
            1 => format!("[{{ when: '!({condition})', to: {other} }}, {{ to: {next} }}]"),
            2 => format!(
                "[{{ when: done, to: {other} }}, {{ when: '{condition}', to: {next} }}, {{ to: end }}]"
            ),
            _ => format!("[{{ when: '{condition}', to: {next} }}, {{ to: {other} }}]"),
        }
    }

    /// A workflow in which a route guards a node: at once, behind other nodes, in a loop or beside another branch.
    fn workflow(&mut self) -> String {
        let (guard, assignment) = GUARDS[self.below(GUARDS.len())];
        let update = |it: &mut Self| it.one(UPDATES);
        let other = self.one(&["end", "aside", "between", "use"]);
        let next = self.one(&["between", "between", "use", "split"]);
        let first = self.guarded(guard, next, other);
        let between = self.one(&["use", "use", "use", "[use, aside]", "again"]);
        let used = self.one(&["end", "end", "again", "aside", "between"]);
        let again = self.guarded(guard, "use", "first");
        let aside = self.one(&["end", "end", "again", "join"]);
        let nodes = [
            format!("first: {{ set: {{ {} }}, then: {first}", update(self)),
            format!("between: {{ set: {{ {} }}, then: {between}", update(self)),
            format!("split: {{ set: {{ {} }}, then: [between, aside]", update(self)),
            format!("use: {{ set: {{ {assignment} }}, then: {used}"),
            format!("again: {{ set: {{ {} }}, then: {again}", update(self)),
            format!("aside: {{ set: {{ {} }}, then: {aside}", update(self)),
            format!("join: {{ set: {{ {} }}, then: end", update(self)),
        ];
        let names = ["first", "between", "split", "use", "again", "aside", "join"];
        // Nodes that nothing leads to are left out.
        let mut reached = vec!["first"];
        let mut at = 0;
        while let Some(name) = reached.get(at) {
            let node = nodes[names.iter().position(|it| it == name).unwrap()].as_str();
            let then = node.split_once("then:").unwrap().1;
            let words: Vec<&str> = then.split(|it: char| !it.is_alphabetic()).collect();
            for name in names.iter().filter(|it| words.contains(it)) {
                if !reached.contains(name) {
                    reached.push(name);
                }
            }
            at += 1;
        }
        let mut text = "graphrun: 1\nname: guarded\ntypes: { Level: { type: int, min: 0, max: 6 }, Top: { n: Level } }\n\
                        state:\n  a: Level\n  b: Level\n  top: Top\n  xs: '[Level]'\n  m: 'map[string, Level]'\n  gaps: \
                        'map[string, Level?]'\n  done: { type: bool, default: false }\ninput: [a, b, top, xs, m, gaps]\n\
                        start: first\nlimits: { steps: 40 }\nnodes:\n"
            .to_owned();
        for name in reached {
            let node = &nodes[names.iter().position(|it| *it == name).unwrap()];
            writeln!(text, "  {node}, max_visits: 3, exhausted: end }}").unwrap();
        }
        text
    }
}

#[tokio::test]
async fn a_loaded_workflow_computes_no_absent_or_invalid_value() {
    let inputs = [
        json!({"a": 0, "b": 0, "top": {"n": 0}, "xs": [], "m": {}, "gaps": {}}),
        json!({"a": 6, "b": 6, "top": {"n": 6}, "xs": [3], "m": {"k": 6}, "gaps": {"k": null}}),
        json!({"a": 3, "b": 6, "top": {"n": 0}, "xs": [3, 6], "m": {"k": 0}, "gaps": {"k": 1}}),
        json!({"a": 5, "b": 1, "top": {"n": 5}, "xs": [0, 1, 2], "m": {}, "gaps": {"k": null}}),
    ];
    let mut loaded_workflows = 0;
    let mut runs = 0;
    for seed in 0..WORKFLOWS {
        let text = Choices(seed).workflow();
        let Some(graph) = loaded(&text) else { continue };
        loaded_workflows += 1;
        for input in &inputs {
            let input = Update::of(input).unwrap();
            let end = Engine::new(graph.clone()).run(input.clone()).await.unwrap();
            assert_ne!(end.status, Status::Failed, "{:?} {input:?}\n{text}", end.reason);
            runs += 1;
        }
    }
    assert!(loaded_workflows > 200, "{loaded_workflows} workflows load, with {runs} runs");
}
