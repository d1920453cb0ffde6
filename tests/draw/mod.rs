//! Drawings of graphs: whole, in every form.

mod forms;
mod overlay;
mod picture;

use std::sync::Arc;

use async_trait::async_trait;

use graphrun::{
    draw::{Arrow, Charset, Drawing},
    graph::{
        Bounds, Catch, Command, Edge, ErrorKind, GraphBuilder, IntoNode, Limits, Node, NodeContext,
        NodeDescription, NodeError, Policies, Route, RouteError, RouteTarget, RouteView, START,
        Target, UncheckedGraph,
    },
    id::{ChannelName, NodeName},
    state::Schema,
};

/// A node of some kind, which is never run here.
struct Kind(&'static str);

#[async_trait]
impl Node for Kind {
    async fn run(&self, _: NodeContext) -> Result<Command, NodeError> {
        Ok(Command::default())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription { kind: self.0, ..NodeDescription::default() }
    }
}

/// A route of which only the ways are of interest.
#[derive(Debug)]
struct Ways(Vec<RouteTarget>);

impl Route for Ways {
    fn targets(&self) -> &[RouteTarget] {
        &self.0
    }

    fn reads(&self) -> Option<&[ChannelName]> {
        Some(&[])
    }

    fn decide(&self, _: &RouteView<'_>) -> Result<Vec<graphrun::graph::Transition>, RouteError> {
        Ok(Vec::new())
    }
}

fn target(name: &str) -> Target {
    match name {
        "end" => Target::End,
        "fail" => Target::Fail,
        name => Target::Node(NodeName::parse(name).unwrap()),
    }
}

fn bounded(max_visits: u32, exhausted: &str) -> Policies {
    let exhausted = Some(target(exhausted));
    Policies::from(Bounds { max_visits: Some(max_visits), exhausted, ..Bounds::default() })
}

fn builder(name: &str) -> GraphBuilder {
    GraphBuilder::with_schema(name, Schema::default())
}

/// Hands the graph over with labelled routes, which only a workflow can otherwise have.
fn drawing<const N: usize>(builder: GraphBuilder, routes: [(&str, &[(&str, &str)]); N]) -> Drawing {
    let UncheckedGraph { mut graph, diagnostics, .. } = builder.build();
    // Many of these graphs have nodes that no edge leaves, which is a warning.
    assert!(diagnostics.in_order().iter().all(|it| it.code == "GR006"), "{diagnostics:?}");
    assert!(!diagnostics.has_errors(), "{diagnostics:?}");
    for (from, ways) in routes {
        let way = |(label, to): &(&str, &str)| {
            let label = (!label.is_empty()).then(|| (*label).to_owned());
            RouteTarget { to: target(to), label }
        };
        let route = Arc::new(Ways(ways.iter().map(way).collect()));
        let from = NodeName::parse(from).unwrap();
        graph.edges.push(Edge::Route { from, route, span: None });
    }
    Drawing::of(&graph)
}

fn line() -> Drawing {
    let graph = builder("line")
        .node("write", Kind("agent"))
        .node("check", Kind("run"))
        .edge(START, "write")
        .edge("write", "check")
        .edge("check", "end");
    drawing(graph, [])
}

fn fork_and_join() -> Drawing {
    let graph = builder("fork and join")
        .node("plan", Kind("agent"))
        .node("qc", Kind("agent"))
        .node(
            "ta",
            Kind("agent").with_policies(Policies {
                catch: vec![Catch { kind: Some(ErrorKind::Timeout), to: target("fail") }],
                ..Policies::default()
            }),
        )
        .node("late", Kind("set"))
        .node("sse", Kind("agent"))
        .edge(START, "plan")
        .edge("plan", "qc")
        .edge("plan", "ta")
        .edge("qc", "late")
        .edge(["qc", "ta"], "sse")
        .edge(["sse", "late"], "done")
        .node("done", Kind("set"))
        .edge("done", "end");
    drawing(graph, [])
}

fn loop_with_bound() -> Drawing {
    let graph = builder("loop")
        .node("write", Kind("agent").with_policies(bounded(3, "give_up")))
        .node("review", Kind("agent"))
        .node("give_up", Kind("set"))
        .node(
            "poll",
            Kind("tool")
                .with_policies(Policies::from(Bounds { max_visits: Some(9), ..Bounds::default() })),
        )
        .edge(START, "write")
        .edge("write", "review")
        .edge("give_up", "fail")
        .goto("poll", ["poll", "end"]);
    drawing(graph, [("review", &[("approved", "poll"), ("rework", "write")])])
}

fn dev_team() -> Drawing {
    let catch = vec![Catch { kind: None, to: target("flush") }];
    let with_catch = |policies: Policies| Policies { catch: catch.clone(), ..policies };
    let plain = || with_catch(Policies::default());
    let bounded = |max, to| with_catch(bounded(max, to));
    let timeout = Catch { kind: Some(ErrorKind::Timeout), to: target("flush") };
    let limits = Limits { exhausted: Some(target("flush")), ..Limits::default() };
    let graph = builder("dev_team")
        .limits(limits)
        .node("ba", Kind("agent").with_policies(plain()))
        .node("qc", Kind("agent").with_policies(plain()))
        .node("ta", Kind("agent").with_policies(plain()))
        .node("sse", Kind("agent").with_policies(bounded(3, "tl")))
        .node("unit_tests", Kind("run_tests").with_policies(plain()))
        .node("tl", Kind("agent").with_policies(bounded(2, "help")))
        .node(
            "help",
            Kind("ask").with_policies(Policies { catch: vec![timeout], ..bounded(1, "flush") }),
        )
        .node("qa", Kind("agent").with_policies(bounded(4, "flush")))
        .node("architect", Kind("agent").with_policies(bounded(2, "flush")))
        .node("publish", Kind("write_files"))
        .node("flush", Kind("remember"))
        .edge(START, "ba")
        .edge("ba", "qc")
        .edge("ba", "ta")
        .edge(["qc", "ta"], "sse")
        .edge("sse", "unit_tests")
        .edge("architect", "sse")
        .edge("publish", "end")
        .edge("flush", "fail");
    drawing(
        graph,
        [
            ("unit_tests", &[("test_result.passed", "tl"), ("otherwise", "sse")]),
            ("tl", &[("approved", "qa"), ("rework", "sse"), ("stuck", "help")]),
            ("help", &[("go_on", "qa"), ("stop", "flush")]),
            ("qa", &[("pass", "publish"), ("code", "sse"), ("architectural", "architect")]),
        ],
    )
}

/// Names and labels that a careless drawing would take for something else, and a graph that does
/// not compile: it speaks of a node it has not, and has one that nothing leads to.
fn odd_names() -> Drawing {
    let long = "x".repeat(64);
    let graph = builder("a \"quoted\" | name;\u{1b}[31m #1 — schön")
        .node("graph", Kind("agent"))
        .node("end-", Kind("agent"))
        .node("subgraph", Kind("agent"))
        .node("o--o", Kind("agent"))
        .node("alone", Kind("agent"))
        .node(&long, Kind("agent"))
        .edge(START, "graph")
        .edge("graph", "end-")
        .edge("graph", "subgraph")
        .edge("graph", "o--o")
        .edge("graph", &long)
        .edge("graph", "click")
        .edge("end-", "end-");
    drawing(
        graph,
        [(
            "subgraph",
            &[
                (
                    "a == \"b\" && `c` < 3 || d[0] > {\n\t 4 }; e#35; <script>alert(1)</script>",
                    "end",
                ),
                (
                    "größer als alles, was in eine Zeile von achtzig Zeichen passt, und noch mehr",
                    "o--o",
                ),
                ("not only the label is too long for a line", &long),
                ("", "fail"),
            ],
        )],
    )
}

#[test]
fn a_line_is_listed_from_top_to_bottom() {
    insta::assert_snapshot!(line().to_listing(Charset::Unicode), @r"
    line
    └─ start → write

    write (agent)
    └─→ check

    check (run)
    └─→ end
    ");
}

#[test]
fn parallel_nodes_are_drawn_together_with_common_edges() {
    insta::assert_snapshot!(fork_and_join().to_listing(Charset::Unicode), @r"
    fork and join
    └─ start → plan

    plan (agent)
    └─→ qc ∥ ta

    qc (agent) ∥ ta (agent)
    ├─ qc: → late
    ├─ together → sse
    └─ ta: catch timeout ⇢ fail

    late (set)
    └─ with sse → done

    sse (agent)
    └─ with late → done

    done (set)
    └─→ end
    ");
}

#[test]
fn a_loop_shows_its_bound_and_where_it_leads_then() {
    insta::assert_snapshot!(loop_with_bound().to_listing(Charset::Unicode), @r"
    loop
    └─ start → write

    write (agent, ≤3)
    ├─→ review
    └─ exhausted ⇢ give_up

    give_up (set)
    └─→ fail

    review (agent)
    ├─ approved → poll
    └─ rework ↺ write (≤3)

    poll (tool, ≤9)
    ├─ goto ↺ poll (≤9)
    ├─ goto → end
    └─ exhausted ⇢ fail
    ");
}

#[test]
fn the_dev_team_is_listed() {
    insta::assert_snapshot!(dev_team().to_listing(Charset::Unicode), @r"
    dev_team
    ├─ start → ba
    ├─ limit reached ⇢ flush
    └─ any failure of architect, ba, qa and 5 more ⇢ flush

    ba (agent)
    └─→ qc ∥ ta

    qc (agent) ∥ ta (agent)
    └─ together → sse

    sse (agent, ≤3)
    ├─→ unit_tests
    └─ exhausted ⇢ tl

    unit_tests (run_tests)
    ├─ test_result.passed → tl
    └─ otherwise ↺ sse (≤3)

    tl (agent, ≤2)
    ├─ approved → qa
    ├─ rework ↺ sse (≤3)
    ├─ stuck → help
    └─ exhausted ⇢ help

    help (ask, ≤1)
    ├─ go_on → qa
    ├─ stop → flush
    ├─ exhausted ⇢ flush
    └─ catch timeout ⇢ flush

    qa (agent, ≤4)
    ├─ pass → publish
    ├─ code ↺ sse (≤3)
    ├─ architectural → architect
    └─ exhausted ⇢ flush

    architect (agent, ≤2)
    ├─↺ sse (≤3)
    └─ exhausted ⇢ flush

    publish (write_files)
    └─→ end

    flush (remember)
    └─→ fail
    ");
    insta::assert_snapshot!(dev_team().to_listing(Charset::Ascii), @r"
    dev_team
    |- start -> ba
    |- limit reached ..> flush
    `- any failure of architect, ba, qa and 5 more ..> flush

    ba (agent)
    `--> qc || ta

    qc (agent) || ta (agent)
    `- together -> sse

    sse (agent, <=3)
    |--> unit_tests
    `- exhausted ..> tl

    unit_tests (run_tests)
    |- test_result.passed -> tl
    `- otherwise ~> sse (<=3)

    tl (agent, <=2)
    |- approved -> qa
    |- rework ~> sse (<=3)
    |- stuck -> help
    `- exhausted ..> help

    help (ask, <=1)
    |- go_on -> qa
    |- stop -> flush
    |- exhausted ..> flush
    `- catch timeout ..> flush

    qa (agent, <=4)
    |- pass -> publish
    |- code ~> sse (<=3)
    |- architectural -> architect
    `- exhausted ..> flush

    architect (agent, <=2)
    |-~> sse (<=3)
    `- exhausted ..> flush

    publish (write_files)
    `--> end

    flush (remember)
    `--> fail
    ");
}

#[test]
fn odd_names_and_long_labels_are_listed_as_far_as_they_fit() {
    insta::assert_snapshot!(odd_names().to_listing(Charset::Unicode), @r#"
    a "quoted" | name;[31m #1 — schön
    └─ start → graph

    graph (agent)
    └─→ end- ∥ subgraph ∥ o--o ∥
          xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx ∥ click

    click (missing) ∥ end- (agent) ∥ subgraph (agent)
    ├─ end-: ↺ end-
    ├─ subgraph: a == "b" && `c` < 3 || d[0] > { 4 }; e#35; <script>alert(1)<… → end
    ├─ subgraph: größer als alles, was in eine Zeile von achtzig Zeichen pas… → o--o
    ├─ subgraph: not only th… → xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    └─ subgraph: → fail

    o--o (agent) ∥
        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx (agent)

    alone (agent, unreachable)
    "#);
    insta::assert_snapshot!(odd_names().to_listing(Charset::Ascii), @r#"
    a "quoted" | name;[31m #1 ? sch?n
    `- start -> graph

    graph (agent)
    `--> end- || subgraph || o--o ||
          xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx ||
          click

    click (missing) || end- (agent) || subgraph (agent)
    |- end-: ~> end-
    |- subgraph: a == "b" && `c` < 3 || d[0] > { 4 }; e#35; <script>alert(... -> end
    |- subgraph: gr??er als alles, was in eine Zeile von achtzig Zeichen... -> o--o
    |- subgraph: not only... -> xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    `- subgraph: -> fail

    o--o (agent) ||
        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx (agent)

    alone (agent, unreachable)
    "#);
}

#[test]
fn every_line_fits_a_terminal_and_ascii_is_ascii() {
    for drawing in [line(), fork_and_join(), loop_with_bound(), dev_team(), odd_names()] {
        let unicode = drawing.to_listing(Charset::Unicode);
        let ascii = drawing.to_listing(Charset::Ascii);
        assert!(ascii.is_ascii(), "{ascii}");
        // One node of these has a name of 64 characters, and stands behind that of another.
        let lines = unicode.lines().chain(ascii.lines()).filter(|it| !it.contains("… → x"));
        for line in lines.filter(|it| !it.contains("... -> x")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn a_wide_fork_takes_several_lines() {
    let names: Vec<String> = (0..12).map(|it| format!("reviewer_{it}")).collect();
    let mut graph = builder("wide").node("plan", Kind("agent")).edge(START, "plan");
    for name in &names {
        graph = graph.node(name, Kind("agent")).edge("plan", name).edge(name, "end");
    }
    insta::assert_snapshot!(drawing(graph, []).to_listing(Charset::Unicode), @r"
    wide
    └─ start → plan

    plan (agent)
    └─→ reviewer_0 ∥ reviewer_1 ∥ reviewer_2 ∥ reviewer_3 ∥ reviewer_4 ∥
          reviewer_5 ∥ reviewer_6 ∥ reviewer_7 ∥ reviewer_8 ∥ reviewer_9 ∥
          reviewer_10 ∥ reviewer_11

    reviewer_0 (agent) ∥ reviewer_1 (agent) ∥ reviewer_10 (agent) ∥
        reviewer_11 (agent) ∥ reviewer_2 (agent) ∥ reviewer_3 (agent) ∥
        reviewer_4 (agent) ∥ reviewer_5 (agent) ∥ reviewer_6 (agent) ∥
        reviewer_7 (agent) ∥ reviewer_8 (agent) ∥ reviewer_9 (agent)
    └─→ end
    ");
}

#[test]
fn only_arrows_that_close_a_loop_lead_back() {
    let drawing = dev_team();
    let backs: Vec<String> = drawing
        .arrows
        .iter()
        .filter(|it| it.back)
        .map(|it| format!("{}→{}", it.from.as_ref().unwrap(), it.to))
        .collect();
    assert_eq!(backs, ["architect→sse", "unit_tests→sse", "tl→sse", "qa→sse"]);
    // Without them every arrow leads from one layer to a later one.
    let layer =
        |name: &NodeName| drawing.nodes.iter().find(|it| it.name == *name).unwrap().layer.unwrap();
    for arrow in drawing.arrows.iter().filter(|it| !it.back) {
        if let (Some(from), Some(to)) = (&arrow.from, arrow.to.node()) {
            assert!(layer(from) < layer(to), "{arrow:?}");
        }
    }
}

#[test]
fn the_dev_team_is_a_mermaid_flowchart() {
    insta::assert_snapshot!(dev_team().to_mermaid(), @r#"
    ---
    title: "dev_team"
    ---
    flowchart TD
        run([start])
        n0["ba<br/>agent"]
        n1["qc<br/>agent"]
        n2["ta<br/>agent"]
        n3["sse ≤3<br/>agent"]
        n4["unit_tests<br/>run_tests"]
        n5["tl ≤2<br/>agent"]
        n6["help ≤1<br/>ask"]
        n7["qa ≤4<br/>agent"]
        n8["architect ≤2<br/>agent"]
        n9["publish<br/>write_files"]
        n10["flush<br/>remember"]
        finish(["end"])
        failure(["fail"])
        run --> n0
        run -.->|"limit reached<br/>any failure of architect, ba, qa and 5 more"| n10
        n0 --> n1
        n0 --> n2
        n1 -->|"join"| n3
        n2 -->|"join"| n3
        n3 --> n4
        n8 -->|"↺ ≤3"| n3
        n9 --> finish
        n10 --> failure
        n4 -->|"test_result.passed"| n5
        n4 -->|"otherwise ↺ ≤3"| n3
        n5 -->|"approved"| n7
        n5 -->|"rework ↺ ≤3"| n3
        n5 -->|"stuck"| n6
        n6 -->|"go_on"| n7
        n6 -->|"stop"| n10
        n7 -->|"pass"| n9
        n7 -->|"code ↺ ≤3"| n3
        n7 -->|"architectural"| n8
        n8 -.->|"exhausted"| n10
        n6 -.->|"exhausted<br/>catch timeout"| n10
        n7 -.->|"exhausted"| n10
        n3 -.->|"exhausted"| n5
        n5 -.->|"exhausted"| n6
    "#);
}

#[test]
fn odd_names_do_not_break_mermaid() {
    insta::assert_snapshot!(odd_names().to_mermaid(), @r#"
    ---
    title: "a \"quoted\" | name;\u001b[31m #1 — schön"
    ---
    flowchart TD
        run([start])
        n0["graph<br/>agent"]
        n1["click<br/>missing"]
        n2["end-<br/>agent"]
        n3["subgraph<br/>agent"]
        n4["o--o<br/>agent"]
        n5["xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx<br/>agent"]
        n6["alone<br/>agent"]
        finish(["end"])
        failure(["fail"])
        run --> n0
        n0 --> n2
        n0 --> n3
        n0 --> n4
        n0 --> n5
        n0 --> n1
        n2 -->|"↺"| n2
        n3 -->|"a == #34;b#34; #38;#38; #96;c#96; #60; 3 #124;#124; d[0] #62; { 4 }#59; e#35;35#59; #60;script#62;alert(1)#60;/script#62;"| finish
        n3 -->|"größer als alles, was in eine Zeile von achtzig Zeichen passt, und noch mehr"| n4
        n3 -->|"not only the label is too long for a line"| n5
        n3 --> failure
    "#);
}

#[test]
fn a_common_failure_route_is_drawn_once() {
    let caught = |to: &str| Policies {
        catch: vec![Catch { kind: None, to: target(to) }],
        ..Policies::default()
    };
    let drawn = |last: Policies| {
        let made = builder("caught")
            .node("a", Kind("agent").with_policies(caught("flush")))
            .node("b", Kind("agent").with_policies(caught("flush")))
            .node("c", Kind("agent").with_policies(caught("flush")))
            .node("flush", Kind("set").with_policies(last))
            .edge(START, "a")
            .edge("a", "b")
            .edge("b", "c")
            .edge("c", "end")
            .build();
        Drawing::of(&made.graph).to_listing(Charset::Unicode)
    };
    insta::assert_snapshot!(drawn(caught("fail")), @r"
    caught
    ├─ start → a
    └─ any other failure ⇢ flush

    a (agent)
    └─→ b

    b (agent)
    └─→ c

    c (agent)
    └─→ end

    flush (set)
    └─ catch any ⇢ fail
    ");
    // One node that catches nothing, and the arrow of all would claim too much.
    assert!(!drawn(Policies::default()).contains("any other failure"));
}

#[test]
fn a_join_of_some_nodes_shows_how_many() {
    let graph = builder("quorum")
        .node("a", Kind("agent"))
        .node("b", Kind("agent"))
        .node("c", Kind("agent"))
        .node("decide", Kind("set"))
        .edge(START, ["a", "b", "c"])
        .edge_of(2, ["a", "b", "c"], "decide")
        .edge("decide", "end");
    let drawing = drawing(graph, []);
    let listing = drawing.to_listing(Charset::Unicode);
    assert!(listing.contains("2 of them → decide"), "{listing}");
    let labels: Vec<String> = drawing.arrows.iter().filter_map(Arrow::label).collect();
    let join = "join 2 of 3";
    assert_eq!(labels, ["start", "start", "start", join, join, join]);
}
