//! What the checks find in graphs of Rust, with the codes of workflows.

use super::*;

#[test]
fn a_node_of_items_is_checked_against_what_starts_it() {
    async fn counts(_: Item<u32>) -> Result<(), NodeError> {
        Ok(())
    }
    let graph = || board().node("a", nothing).node("counts", counts).edge("counts", END);
    let by_edge = refused(graph().edge(START, "a").edge("a", "counts"));
    assert!(
        by_edge
            .contains("GR022: `counts` takes an item, and the edge from `a` starts it without one")
    );
    let by_start = refused(graph().edge(START, ["a", "counts"]).edge("a", END));
    assert!(
        by_start.contains("GR022: `counts` takes an item, and the start starts it without one")
    );
    let name = refused(graph().edge(START, "a").route("a", ["counts", END], |_: &Board| "counts"));
    assert!(name.contains("GR022"), "{name}");
    let chosen = || graph().edge(START, "a").edge("a", END);
    let by_choice = refused(chosen().goto("a", ["counts"]));
    assert!(
        by_choice.contains("GR022: `counts` takes an item, and the choice of `a` starts it"),
        "{by_choice}"
    );
    assert!(chosen().dispatches("a", ["counts"]).compile().is_ok());
    assert!(refused(chosen().dispatches("a", [END])).contains("GR016"));
    let other_type = graph().edge(START, "a");
    let other_type = other_type.route("a", ["counts"], |_: &Board| vec![dispatch("counts", "one")]);
    let found = refused(other_type);
    assert!(
        found.contains("GR022: `a` dispatches `string` to `counts`, which takes `int`"),
        "{found}"
    );
    let right = graph().edge(START, "a");
    let right = right.route("a", ["counts"], |_: &Board| vec![dispatch("counts", &1_u32)]);
    assert!(right.compile().is_ok());
}

#[test]
fn routes_and_conditions_read_only_fields_that_exist() {
    #[derive(Deserialize, JsonSchema)]
    struct Misspelt {
        topik: Option<String>,
    }
    let graph = || board().node("a", nothing).edge(START, "a");
    let routed = refused(graph().route("a", ["a", END], |it: &Misspelt| match &it.topik {
        Some(_) => END,
        None => "a",
    }));
    let expected = "GR021: the route of `a` names `topik`, which is not a field of the state\n  help: did you mean `topic`?";
    assert!(routed.starts_with(expected), "{routed}");
    let when = graph().edge("a", END).when("a", "a topic", |it: &Misspelt| it.topik.is_some());
    let when = refused(when);
    assert!(when.starts_with("GR021: the condition of `a` names `topik`"), "{when}");
}

#[test]
fn reducers_and_defaults_fit_their_fields() {
    #[derive(Serialize, JsonSchema)]
    struct Unfit {
        #[schemars(extend("x-merge" = "sum"))]
        items: Vec<i32>,
        #[schemars(extend("x-merge" = "append"))]
        word: Option<String>,
        #[serde(default)]
        #[schemars(length(min = 1))]
        title: String,
    }
    let graph = GraphBuilder::new::<Unfit>("unfit").node("a", nothing);
    insta::assert_snapshot!(refused(graph.edge(START, "a").edge("a", END)), @r#"
    GR019: `sum` needs a number, and the field `items` is `[int]`
      help: give the field another `x-merge`, or another type
    GR019: `append` needs a list, and the field `word` is `string`
      help: give the field another `x-merge`, or another type
    GR022: the default of `title` does not fit: "" is shorter than 1 character
      help: change the default, or make the field an `Option`, which has no value at the start
    "#);
}

#[test]
fn a_compiled_graph_keeps_its_warnings() {
    let graph = board().node("a", nothing).edge(START, "a").edge("a", END).compile().unwrap();
    assert!(graph.warnings().is_empty());
    let unbounded = Limits { steps: 1, ..Limits::default() };
    let two = board().node("a", nothing).node("b", nothing).limits(unbounded);
    let two = two.edge(START, "a").edge("a", "b").edge("b", END).compile().unwrap();
    assert!(two.warnings().to_string().contains("GR132"), "{}", two.warnings());
}

/// Graphs with one mistake each.
fn wrong_graphs() -> Vec<(&'static str, GraphBuilder)> {
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Draft {
        draft: String,
    }
    async fn drafts() -> Result<Draft, NodeError> {
        Ok(Draft { draft: String::new() })
    }
    async fn reads(_: Draft) -> Result<(), NodeError> {
        Ok(())
    }
    let line = || {
        let graph = board().node("a", nothing).node("b", nothing);
        graph.edge(START, "a").edge("a", "b").edge("b", END)
    };
    let clears = || {
        let graph = board().node("a", nothing).may_clear("a", ["draft"]).edge(START, "a");
        graph.route("a", [END], |_: &Draft| END)
    };
    vec![
        ("an edge to no node", line().edge("a", "c")),
        ("an edge from no node", line().edge("c", "a")),
        ("an edge back without a bound", line().edge("b", "a")),
        ("no first node", board().node("a", nothing).edge("a", END)),
        ("a dead end", line().node("c", nothing).edge("a", "c")),
        ("a node that nothing leads to", line().node("c", nothing).edge("c", END)),
        ("two nodes of one name", line().node("a", nothing)),
        ("a name that is none", line().node("not a name", nothing)),
        ("a built-in name", line().node("end", nothing)),
        ("a route to no node", line().route("a", ["c"], |_: &Board| "c")),
        ("a failure that leads to no node", line().catch("a", None, "c")),
        ("a bound of no node", line().max_visits("c", 2, END)),
        ("a reset of no node", line().resets("a", ["c"])),
        ("a clear of no field", line().clears("a", ["none"])),
        ("an input that is no field", line().input("none")),
        ("a field without a writer", line().node("c", reads).edge("a", "c").edge("c", END)),
        (
            "two writers of a field in one step",
            line()
                .node("c", drafts)
                .node("d", drafts)
                .edge("a", ["c", "d"])
                .edge("c", END)
                .edge("d", END),
        ),
        (
            "a join that may wait forever",
            board()
                .node("a", nothing)
                .node("b", nothing)
                .node("c", nothing)
                .edge(START, "a")
                .route("a", ["b", END], |_: &Board| END)
                .edge("b", END)
                .edge(["a", "b"], "c")
                .edge("c", END),
        ),
        (
            "a join of one that is no node",
            line().node("c", nothing).edge(["a", "x"], "c").edge("c", END),
        ),
        (
            "a join of more than there are",
            line().node("c", nothing).edge_of(3, ["a", "b"], "c").edge("c", END),
        ),
        (
            "bounds that lead to each other",
            line().edge("b", "a").max_visits("a", 1, "b").max_visits("b", 1, "a"),
        ),
        ("a limit below the worst case", line().limits(Limits { steps: 1, ..Limits::default() })),
        (
            "no attempts for a node",
            line().node("c", nothing.retry(0)).edge("a", "c").edge("c", END),
        ),
        (
            "no time for a node",
            line().node("c", nothing.timeout(Duration::ZERO)).edge("a", "c").edge("c", END),
        ),
        ("a choice without a declaration", line().goto("a", ["c"])),
        ("an undeclared field that may be cleared", line().may_clear("a", ["none"])),
        ("no visits for a node", line().max_visits("a", 0, END)),
        (
            "a route that reads what nothing writes",
            line().node("c", nothing).route("b", ["c"], |_: &Draft| "c").edge("c", END),
        ),
        ("a condition on what nothing writes", line().when("b", "drafted", |_: &Draft| true)),
        (
            "a route that reads what its node writes unless it is skipped",
            board()
                .node("a", drafts)
                .when("a", "a topic", |it: &Board| it.topic.is_some())
                .edge(START, "a")
                .route("a", [END], |_: &Draft| END),
        ),
        ("a route that reads what its node may clear", clears().input("draft")),
        ("a route that reads what nothing writes and its node may clear", clears()),
    ]
}

#[test]
fn wrong_graphs_in_rust_get_the_codes_of_workflows() {
    let found = wrong_graphs().into_iter().map(|(what, graph)| {
        let codes = match graph.compile() {
            Ok(graph) => graph
                .warnings()
                .in_order()
                .iter()
                .map(|it| format!("{} (warning)", it.code))
                .collect(),
            Err(it) => it.in_order().iter().map(|it| it.code.to_owned()).collect::<Vec<_>>(),
        };
        format!("{what}: {}", codes.join(" "))
    });
    let found: Vec<String> = found.collect();
    insta::assert_snapshot!(found.join("\n"), @r"
    an edge to no node: GR010
    an edge from no node: GR010
    an edge back without a bound: GR032
    no first node: GR006
    a dead end: GR006 (warning)
    a node that nothing leads to: GR030
    two nodes of one name: GR002
    a name that is none: GR009
    a built-in name: GR016
    a route to no node: GR010
    a failure that leads to no node: GR010
    a bound of no node: GR010
    a reset of no node: GR010
    a clear of no field: GR021
    an input that is no field: GR021
    a field without a writer: GR035
    two writers of a field in one step: GR036
    a join that may wait forever: GR131
    a join of one that is no node: GR010
    a join of more than there are: GR037
    bounds that lead to each other: GR033
    a limit below the worst case: GR132 (warning)
    no attempts for a node: GR005
    no time for a node: GR005
    a choice without a declaration: GR010
    an undeclared field that may be cleared: GR021
    no visits for a node: GR005
    a route that reads what nothing writes: GR035
    a condition on what nothing writes: GR035
    a route that reads what its node writes unless it is skipped: GR130
    a route that reads what its node may clear: GR130
    a route that reads what nothing writes and its node may clear: GR035
    ");
}

/// The types of one field of a node, a route or a condition, and the state as a whole.
#[test]
fn types_that_no_value_of_the_state_has_are_found() {
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Misread {
        draft: Option<u8>,
    }
    #[derive(Serialize, JsonSchema)]
    struct MisreadLog {
        log: u8,
    }
    let graph = || board().edge(START, "a").edge("a", END);
    let reads = "`a` reads `draft` as `int`, and the field is `string`";
    let all = [
        (graph().node("a", async |_: Misread| Ok::<_, NodeError>(())), reads),
        (
            graph().node(
                "a",
                subgraph(inner_of_types(), |_: Misread| Board::default(), |_: Board| ()),
            ),
            reads,
        ),
        (
            graph().node("a", async || Ok::<_, NodeError>(Misread::default())),
            "`a` writes `draft` as `int`, and the field is `string`",
        ),
        (
            graph().node("a", async || Ok::<_, NodeError>(MisreadLog { log: 1 })),
            "`a` writes `log` as `int`, and the field is `[string]`",
        ),
        (
            graph().node("a", nothing).when("a", "drafted", |_: &Misread| true),
            "the condition of `a` reads `draft` as `int`, and the field is `string`",
        ),
        (
            board().node("a", nothing).edge(START, "a").route("a", [END], |_: &Misread| END),
            "the route of `a` reads `draft` as `int`, and the field is `string`",
        ),
        (
            graph().node("a", async |_: Vec<u8>| Ok::<_, NodeError>(())),
            "`a` reads `[int]`, which is not a struct of fields",
        ),
        (
            graph().node("a", async |_: String| Ok::<_, NodeError>(())),
            "`a` reads `string`, which is not a struct of fields",
        ),
        (
            graph().node("a", async |_: Option<Topic>| Ok::<_, NodeError>(())),
            "`a` reads `Topic?`, which is not a struct of fields",
        ),
        (
            graph().node("a", async || Ok::<_, NodeError>("a text".to_owned())),
            "`a` writes `string`, which is not a struct of fields",
        ),
    ];
    for (graph, expected) in all {
        let found = refused(graph);
        assert!(found.contains("GR022") && found.contains(expected), "{expected}: {found}");
    }
}

fn inner_of_types() -> CompiledGraph {
    board().node("a", nothing).edge(START, "a").edge("a", END).compile().unwrap()
}

#[tokio::test]
async fn types_that_some_value_of_the_state_has_are_taken() {
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is of interest")]
    struct Reads {
        topic: Option<char>,
        draft: Option<serde_json::Value>,
        log: std::collections::VecDeque<std::borrow::Cow<'static, str>>,
    }
    #[derive(Serialize, JsonSchema)]
    #[serde(untagged)]
    enum Writes {
        Item { log: &'static str },
    }
    #[derive(Serialize, JsonSchema)]
    struct Item {
        log: &'static str,
    }
    let graph = board()
        .node("whole", async |_: Reads| Ok::<_, NodeError>(Writes::Item { log: "untagged" }))
        .node("item", async |_: serde_json::Value| Ok::<_, NodeError>(Some(Item { log: "item" })))
        .node("none", async || Ok::<_, NodeError>(None::<Item>))
        .edge(START, "whole")
        .edge("whole", "item")
        .edge("item", "none")
        .edge("none", END)
        .compile()
        .unwrap();
    let end: Board = graph.invoke(&Board::default()).await.unwrap();
    assert_eq!(end.log, ["untagged", "item"]);
}

#[test]
fn a_node_of_items_is_led_to_by_no_failure_bound_or_limit() {
    async fn counts(_: Item<u32>) -> Result<(), NodeError> {
        Ok(())
    }
    async fn both(_: Item<u32>, _: Item<String>) -> Result<(), NodeError> {
        Ok(())
    }
    let graph = || {
        let graph = board().node("a", nothing).node("counts", counts).edge("counts", END);
        graph.edge(START, "a").edge("a", END)
    };
    let exhausted = Some(Target::Node(NodeName::parse("counts").unwrap()));
    let all = [
        (graph().catch("a", None, "counts"), "a failure of `a` starts it without one"),
        (graph().max_visits("a", 1, "counts"), "a bound of `a` starts it without one"),
        (
            graph().limits(Limits { exhausted, ..Limits::default() }),
            "a limit of the run starts it without one",
        ),
        (
            board()
                .node("a", both)
                .route(START, ["a"], |_: &Board| dispatch("a", &1))
                .edge("a", END),
            "`a` takes an item as `int` and as `string`",
        ),
    ];
    for (graph, expected) in all {
        let found = refused(graph);
        assert!(found.contains("GR022") && found.contains(expected), "{expected}: {found}");
    }
}
