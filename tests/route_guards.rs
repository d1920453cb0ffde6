//! What a route proves holds in a run: random workflows whose nodes compute with guarded values. None that loads fails.

use std::{path::Path, sync::Arc};

use graphrun::{
    compile::{CompiledGraph, compile},
    diagnostic::SourceFile,
    engine::Engine,
    event::Status,
    nodes::{Services, factory},
    registry,
    state::Update,
    workflow::parse,
};
use serde_json::json;

const WORKFLOWS: u64 = 1_500;
const NODES: usize = 4;

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

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn target(&mut self) -> String {
        match self.below(NODES + 1) {
            NODES => "end".to_owned(),
            node => format!("n{node}"),
        }
    }

    fn condition(&mut self) -> String {
        let one = self.one(&[
            "a < 6",
            "a <= 4",
            "a > 0",
            "a >= 2",
            "a != 6",
            "a == 3",
            "!(a >= 6)",
            "6 > a",
            "a < b",
            "a < top.n",
            "top.n < 6",
            "top.n > a",
            "b > 0",
            "b < 6",
            "xs.size() > 0",
            "xs.size() > 1",
            "xs != []",
            "xs.size() == 0",
            "3 in xs",
            "\"k\" in m",
            "has(m.k)",
            "\"k\" in gaps",
        ]);
        match self.below(6) {
            0 => format!("{one} && {}", self.condition()),
            1 => format!("{one} || {}", self.condition()),
            2 => format!("!({one})"),
            _ => one.to_owned(),
        }
    }

    fn assignment(&mut self) -> &'static str {
        self.one(&[
            "a: a + 1",
            "a: a - 1",
            "a: a + 2",
            "a: b",
            "a: top.n + 1",
            "b: a + 1",
            "b: b - 1",
            "top: '{ n: a + 1 }'",
            "top: '{ n: b }'",
            "a: xs[0]",
            "b: xs.first()",
            "b: xs[1]",
            "a: m.k",
            "b: gaps.k",
            "xs: '[]'",
            "xs: '[a]'",
            "xs: '[a, b]'",
            "m: '{}'",
            "m: '{ k: a }'",
            "gaps: '{ k: null }'",
            "gaps: '{ k: b }'",
            "done: true",
            "done: true",
        ])
    }

    fn then(&mut self) -> String {
        match self.below(8) {
            0 => self.target(),
            1 => format!("[{}, {}]", self.target(), self.target()),
            2 => format!(
                "{{ match: '{}', to: {{ true: {}, false: {} }} }}",
                self.condition(),
                self.target(),
                self.target()
            ),
            _ => {
                let mut cases = Vec::new();
                for _ in 0..=self.below(2) {
                    let (when, to) = (self.condition(), self.target());
                    cases.push(format!("{{ when: '{when}', to: {to} }}"));
                }
                format!("[{}, {{ to: {} }}]", cases.join(", "), self.target())
            }
        }
    }

    fn workflow(&mut self) -> String {
        let mut text = "graphrun: 1\nname: guarded\ntypes: { Top: { n: { type: int, min: 0, max: 6 } } }\nstate:\n  \
                        a: { type: int, min: 0, max: 6 }\n  b: { type: int, min: 0, max: 6 }\n  top: { type: Top }\n  \
                        xs: { type: [{ type: int, min: 0, max: 6 }] }\n  m: { type: 'map[string, int]' }\n  gaps: { type: \
                        'map[string, \"int?\"]' }\n  done: { type: bool, default: false }\ninput: [a, b, top, xs, m, \
                        gaps]\nstart: n0\nlimits: { steps: 40 }\nnodes:\n"
            .replace("\"int?\"", "int?");
        for node in 0..NODES {
            let when = match self.chance(4) {
                true => format!("when: '{}', ", self.condition()),
                false => String::new(),
            };
            let (set, then) = (self.assignment(), self.then());
            text += &format!(
                "  n{node}: {{ {when}set: {{ {set} }}, max_visits: 3, exhausted: end, then: {then} }}\n"
            );
        }
        text
    }
}

/// Returns the graph of a workflow, if it loads without errors.
fn loaded(text: &str) -> Option<CompiledGraph> {
    let file = Arc::new(SourceFile { name: "guarded.yaml".into(), text: text.to_owned() });
    let (workflow, _) = parse(file, Path::new(""), &registry()).ok()?;
    compile(workflow.into_graph(&factory(Services::offline(), registry()))).ok()
}

#[tokio::test]
async fn a_workflow_that_loads_computes_no_value_that_is_absent_or_out_of_range() {
    let inputs = [
        json!({"a": 0, "b": 0, "top": {"n": 0}, "xs": [], "m": {}, "gaps": {}}),
        json!({"a": 6, "b": 6, "top": {"n": 6}, "xs": [3], "m": {"k": 6}, "gaps": {"k": null}}),
        json!({"a": 3, "b": 6, "top": {"n": 0}, "xs": [3, 6], "m": {"k": 0}, "gaps": {"k": 1}}),
        json!({"a": 5, "b": 1, "top": {"n": 5}, "xs": [0, 1, 2], "m": {}, "gaps": {"k": null}}),
    ];
    let (mut runs, mut guarded) = (0, 0);
    for seed in 0..WORKFLOWS {
        let text = Choices(seed).workflow();
        let Some(graph) = loaded(&text) else { continue };
        let is_guarded = |it: &str| text.contains(it);
        guarded +=
            u32::from(["a + ", "a - ", "xs[", "m.k }", "first()"].into_iter().any(is_guarded));
        for input in &inputs {
            let input = Update::of(input).unwrap();
            let end = Engine::new(graph.clone()).run(input.clone()).await.unwrap();
            assert_ne!(end.status, Status::Failed, "{:?} {input:?}\n{text}", end.reason);
            runs += 1;
        }
    }
    println!("{runs} runs, {guarded} workflows with guards");
    assert!(runs > 100 && guarded > 20, "{runs} runs, {guarded} workflows with guards");
}
