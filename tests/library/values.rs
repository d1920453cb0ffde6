//! Values that cross the border between Rust and JSON: numbers, answers, inputs and messages.

use super::*;

#[tokio::test]
async fn numbers_that_json_does_not_have_fail_and_name_their_field() {
    #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    struct Score {
        #[serde(default)]
        score: f64,
        best: Option<f32>,
    }
    async fn compute() -> Result<Score, NodeError> {
        Ok(Score { score: 1.0, best: Some(f32::INFINITY) })
    }
    let graph = GraphBuilder::new::<Score>("score").node("a", compute);
    let graph = graph.edge(START, "a").edge("a", END).compile().unwrap();
    let causes = |error: &dyn std::error::Error| graphrun::graph::with_causes(error);
    let error = graph.invoke::<Score>(&Score::default()).await.unwrap_err();
    let written = causes(&error);
    assert!(written.contains("`best`: the number inf cannot be written as JSON"), "{written}");
    let input = Score { score: f64::NAN, best: None };
    let given = causes(&graph.invoke::<Score>(&input).await.unwrap_err());
    assert!(given.contains("`score`: the number NaN cannot be written as JSON"), "{given}");
}

#[tokio::test]
async fn an_accepted_answer_can_be_read() {
    async fn asks(ctx: NodeContext) -> Result<Log, NodeError> {
        let level: u8 = ctx.ask(Question::new("level", "Which level?"))?;
        let share: Vec<f32> = ctx.ask(Question::new("share", "Which shares?"))?;
        Ok(logged(format!("{level} {share:?}")))
    }
    let graph = board().node("asks", asks).edge(START, "asks").edge("asks", END);
    let engine = Engine::new(graph.compile().unwrap());
    let paused = engine.run(&()).await.unwrap();
    let paused = engine.resume(&paused.run).answer("level", 7.0).await.unwrap();
    let share = serde_json::json!([0.5, 1e300]);
    let error = engine.resume(&paused.run).answer("share", share).await.unwrap_err();
    let error = graphrun::graph::with_causes(&error);
    assert!(error.contains("is greater than the maximum"), "{error}");
    let end = engine.resume(&paused.run).answer("share", serde_json::json!([0.5, 1])).await;
    assert_eq!(end.unwrap().output::<Board>().unwrap().log, ["7 [0.5, 1.0]"]);
}

#[tokio::test]
async fn an_unknown_field_of_the_input_is_refused() {
    let graph = board().node("a", nothing).edge(START, "a").edge("a", END).compile().unwrap();
    let input = serde_json::json!({"topic": "bridges", "topc": 1});
    let error = graph.invoke::<Board>(&input).await.unwrap_err().to_string();
    assert!(error.contains("`topc`"), "{error}");
}

#[tokio::test]
async fn the_text_of_an_error_names_its_cause() {
    let graph = board().node("a", nothing).edge(START, "a").edge("a", END).compile().unwrap();
    let told = async |input: serde_json::Value| {
        graph.invoke::<Board>(&input).await.unwrap_err().to_string()
    };
    let input = told(serde_json::json!({"topic": 7})).await;
    assert!(input.contains("`topic`") && input.contains("7 is not of"), "{input}");
    let fields = told(serde_json::json!([1])).await;
    assert!(fields.starts_with("the input is not a struct of channels: "), "{fields}");
    let output = graph.invoke::<Vec<u8>>(&serde_json::json!({})).await.unwrap_err().to_string();
    assert!(output.contains("another form than the output: "), "{output}");
}

#[tokio::test]
async fn messages_are_removed_by_their_ids() {
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Chat {
        #[serde(default)]
        #[schemars(extend("x-merge" = "messages"))]
        messages: Vec<Line>,
    }
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Line {
        id: Option<String>,
        text: Option<String>,
        #[serde(default)]
        remove: bool,
    }
    let chat = |write: serde_json::Value| {
        let node = move || {
            let write = write.clone();
            async move { Ok::<_, NodeError>(write) }
        };
        let graph = GraphBuilder::new::<Chat>("chat").node("a", node);
        graph.edge(START, "a").edge("a", END).compile().unwrap()
    };
    let ids = async |write: serde_json::Value| {
        let input = serde_json::json!({"messages": [{"text": "a"}, {"text": "b"}]});
        let end = chat(serde_json::json!({"messages": write})).invoke::<Chat>(&input).await?;
        Ok::<_, RunError>(end.messages.into_iter().filter_map(|it| it.id).collect::<Vec<_>>())
    };
    let remove = |id: &str| serde_json::json!({"id": id, "remove": true});
    assert_eq!(ids(remove("m1")).await.unwrap(), ["m2"]);
    assert_eq!(ids(remove("unknown")).await.unwrap(), ["m1", "m2"]);
    let anew = serde_json::json!([remove("__remove_all__"), {"text": "c"}]);
    assert_eq!(ids(anew).await.unwrap(), ["m3"]);
    let error = ids(serde_json::json!({"remove": true})).await.unwrap_err();
    let error = graphrun::graph::with_causes(&error);
    assert!(error.contains("a removal needs the `id` of a message"), "{error}");
}
