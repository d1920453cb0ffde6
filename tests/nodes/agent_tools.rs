//! `agent` with `tools`: a model calls them before it answers.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use graphrun::{
    engine::Engine,
    event::{Event, Report, RunEvent, Status},
    models::{
        ChatModel, ChatReply, ChatRequest, Finish, Message, ModelError, Role, TokenUsage, ToolCall,
        ToolChoice,
    },
    nodes::{ModelSource, Services},
    registry,
    storage::InMemoryStorage,
    tool::{ToolContext, ToolError, tool_fn},
    workflow::Registry,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Ended, run_prepared, run_with, services};

pub(super) type Reply = Result<ChatReply, ModelError>;

/// Gives its replies in order, and remembers its requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Scripted {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    asked: Arc<Mutex<Vec<ChatRequest>>>,
}

impl Scripted {
    pub(super) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies = Arc::new(Mutex::new(replies.into_iter().collect()));
        Self { replies, asked: Arc::default() }
    }

    pub(super) fn asked(&self) -> Vec<ChatRequest> {
        self.asked.lock().unwrap().clone()
    }

    pub(super) fn services(&self) -> Services {
        Services { models: Arc::new(self.clone()), ..services() }
    }
}

#[async_trait]
impl ChatModel for Scripted {
    async fn chat(&self, request: &ChatRequest) -> Reply {
        check_turns(&request.messages);
        self.asked.lock().unwrap().push(request.clone());
        self.replies.lock().unwrap().pop_front().expect("asked more often than scripted")
    }

    fn name(&self) -> &'static str {
        "scripted/1"
    }
}

/// What providers reject a conversation for: each call is followed by its result, before anybody
/// says anything else, and nothing else is a result.
fn check_turns(messages: &[Message]) {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match &message.tool_call_id {
            Some(id) => {
                let at = open.iter().position(|it| it == id);
                open.remove(at.unwrap_or_else(|| panic!("{id} was not called: {messages:?}")));
            }
            None => assert!(open.is_empty(), "{open:?} have no result: {messages:?}"),
        }
        assert_eq!(message.tool_call_id.is_some(), message.role == Role::Tool);
        open.extend(message.tool_calls.iter().map(|it| it.id.as_str()));
    }
    assert!(open.is_empty(), "{open:?} have no result: {messages:?}");
}

impl ModelSource for Scripted {
    fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::new(self.clone()))
    }
}

pub(super) fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: name.into(), arguments: arguments.into(), extra: None }
}

#[expect(clippy::unnecessary_wraps, reason = "stands in lists beside failures")]
pub(super) fn calls(tool_calls: impl IntoIterator<Item = ToolCall>) -> Reply {
    Ok(ChatReply { tool_calls: tool_calls.into_iter().collect(), ..ChatReply::default() })
}

#[expect(clippy::unnecessary_wraps, reason = "stands in lists beside failures")]
pub(super) fn says(text: &str) -> Reply {
    Ok(ChatReply { text: text.into(), ..ChatReply::default() })
}

/// A workflow of one agent that answers with a sum.
struct Adder {
    models: &'static str,
    agent: &'static str,
    node: &'static str,
}

impl Default for Adder {
    fn default() -> Self {
        Self { models: "x/1", agent: "tools: math.add", node: "writes: answer" }
    }
}

impl Adder {
    fn text(&self) -> String {
        let Self { models, agent, node } = self;
        format!(
            "graphrun: 1\nname: w\ntypes: {{ Sum: {{ sum: int }} }}\nstate: {{ answer: Sum, text: string }}\nmodels: {{ m: \
             {models} }}\nagents: {{ a: {{ model: m, {agent} }} }}\nstart: a\nnodes:\n  a: {{ agent: \
             a, prompt: {{ text: What? }}, {node}, then: end }}\n"
        )
    }

    async fn run(&self, model: &Scripted) -> (Ended, Added) {
        let added = Added::default();
        let input = json!({});
        (run_with(&self.text(), input, model.services(), added.registry()).await, added)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Numbers {
    numbers: Vec<i64>,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: i64,
}

/// What the tool `math.add` was called for, by key.
#[derive(Clone, Debug, Default)]
struct Added(Arc<Mutex<Vec<String>>>);

impl Added {
    fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn registry(&self) -> Registry {
        let added = self.clone();
        let add = move |input: Numbers, ctx: ToolContext| {
            let added = added.clone();
            async move {
                added.0.lock().unwrap().push(ctx.key);
                match input.numbers.iter().sum() {
                    sum if sum > 100 => Err(ToolError::permanent(format!("{sum} is too much"))),
                    0 => Err(ToolError::transient("nothing yet")),
                    sum => Ok(Sum { sum }),
                }
            }
        };
        registry().tool(Arc::new(tool_fn("math.add", "Adds numbers.", add)))
    }
}

/// The results of calls that the model received, in the order of the conversation.
pub(super) fn told(request: &ChatRequest) -> Vec<&str> {
    let results = request.messages.iter().filter(|it| it.role == Role::Tool);
    results.map(|it| it.content.as_str()).collect()
}

const SUM: &str = r#"{"sum": 6}"#;

#[tokio::test]
async fn a_model_calls_tools_before_it_answers() {
    let one = r#"{"numbers": [1, 2]}"#;
    // Ids are left out, or used twice.
    let first = calls([call("", "math.add", one), call("", "math.add", r#"{"numbers": [3]}"#)]);
    let second = calls([call("call00001", "math.add", r#"{"numbers": [3, 3]}"#)]);
    let model = Scripted::new([first, second, says(SUM)]);
    let (ended, added) = Adder::default().run(&model).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    assert_eq!(ended.state("answer"), &json!({"sum": 6}));

    let [first, second, third] = model.asked().try_into().unwrap();
    assert_eq!((first.tools.len(), first.tools[0].name.as_str()), (1, "math.add"));
    assert_eq!(first.tools[0].description, "Adds numbers.");
    assert_eq!(first.tools[0].schema["required"], json!(["numbers"]));
    assert_eq!(choices(&model), [ToolChoice::Auto, ToolChoice::Auto, ToolChoice::Auto]);
    assert_eq!(second.messages[0], first.messages[0]);
    assert_eq!(second.messages[1].role, Role::Assistant);
    let ids: Vec<&str> =
        third.messages.iter().flat_map(|it| &it.tool_calls).map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["call00001", "call00002", "call00003"]);
    let answered: Vec<&str> =
        third.messages.iter().filter_map(|it| it.tool_call_id.as_deref()).collect();
    assert_eq!(answered, ids);
    assert_eq!(told(&third), [r#"{"sum":3}"#, r#"{"sum":3}"#, r#"{"sum":6}"#]);

    let keys = [&first.key, &second.key, &third.key];
    assert!(keys[0].ends_with("/a/0/x/1") && !keys[0].contains("tools"), "{keys:?}");
    assert_eq!(*keys[1], format!("{}/tools-1", keys[0]));
    assert_eq!(*keys[2], format!("{}/tools-2", keys[0]));
    let distinct: std::collections::BTreeSet<String> = added.keys().into_iter().collect();
    assert_eq!((added.keys().len(), distinct.len()), (3, 3), "each call has another key");
    let task = keys[0].strip_suffix("/x/1").unwrap();
    assert!(distinct.iter().all(|it| it.starts_with(task)), "{distinct:?}");
    let called = ended.events.iter().filter_map(|event| match &event.event {
        Event::TaskReported { report: Report::ToolCall { tool, input, error, .. }, .. } => {
            Some((tool.as_str(), input.as_str(), error.is_some()))
        }
        _ => None,
    });
    let called: Vec<_> = called.collect();
    assert_eq!(called.len(), 3);
    assert_eq!(called[0], ("math.add", r#"{"numbers":[1,2]}"#, false));
}

#[tokio::test]
async fn an_answer_in_plain_text_may_have_calls_before_it() {
    let model =
        Scripted::new([calls([call("x", "math.add", r#"{"numbers": [5]}"#)]), says("five")]);
    let (ended, _) = Adder { node: "writes: text", ..Adder::default() }.run(&model).await;
    assert_eq!(ended.state("text"), &json!("five"));
    assert_eq!(told(&model.asked()[1]), [r#"{"sum":5}"#]);
}

#[tokio::test]
async fn the_model_receives_every_error_of_a_call() {
    let wrong = [
        call("1", "math.ad", "{}"),
        call("2", "math.add", "one and two"),
        call("3", "math.add", r#"{"numbers": "one"}"#),
        call("4", "math.add", r#"{"numbers": [99, 2]}"#),
        call("5", "math.add", r#"{"numbers": []}"#),
        // In a code fence, as some write them.
        call("6", "math.add", "```json\n{\"numbers\": [1]}\n```"),
    ];
    let model = Scripted::new([calls(wrong), says(SUM)]);
    let (ended, added) = Adder::default().run(&model).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    let asked = model.asked();
    let told = told(&asked[1]);
    assert_eq!(told[0], "error: there is no `math.ad`, only math_add");
    assert!(told[1].starts_with("error: the arguments are not a JSON object: "), "{}", told[1]);
    assert!(
        told[2].starts_with("error: the input does not fit its schema: /numbers: "),
        "{}",
        told[2]
    );
    assert_eq!(told[3], "error: 101 is too much");
    assert_eq!(told[4], "error: nothing yet; it may work at another time");
    assert_eq!(told[5], r#"{"sum":1}"#);
    assert_eq!(added.keys().len(), 3, "what does not fit is never called");
    let reported = |it: &RunEvent| {
        matches!(&it.event, Event::TaskReported { report: Report::ToolCall { .. }, .. })
    };
    assert_eq!(ended.events.iter().filter(|it| reported(it)).count(), 6, "{}", ended.told());
}

/// Other calls of the same reply have their results, and the model sees the errors.
#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_or_hangs_harms_only_its_call() {
    let panics = |_: Numbers, _| async { panic!("out of numbers") as Result<Sum, ToolError> };
    let hangs = |_: Numbers, _| std::future::pending::<Result<Sum, ToolError>>();
    let added = Added::default();
    let registry = added
        .registry()
        .tool(Arc::new(tool_fn("math.panics", "Panics.", panics)))
        .tool(Arc::new(tool_fn("math.hangs", "Hangs.", hangs)));
    let all = ["math.hangs", "math.panics", "math.add"];
    let made = all.map(|it| call(it, it, r#"{"numbers": [6]}"#));
    let model = Scripted::new([calls(made), says(SUM)]);
    let agent = "tools: [math.add, math.panics, math.hangs], tool_timeout: 90s";
    let text = Adder { agent, ..Adder::default() }.text();
    let ended = run_with(&text, json!({}), model.services(), registry).await;
    assert_eq!(ended.state("answer"), &json!({"sum": 6}));
    let expected = [
        "error: it was stopped after 1m 30s; it may work at another time",
        "error: it panicked: out of numbers",
        r#"{"sum":6}"#,
    ];
    assert_eq!(told(&model.asked()[1]), expected);
}

#[tokio::test]
async fn rounds_are_bounded_and_then_the_model_must_answer() {
    let round =
        |number: i64| calls([call("", "math.add", &format!(r#"{{"numbers": [{number}]}}"#))]);
    let adder = Adder { agent: "tools: math.add, max_tool_rounds: 2", ..Adder::default() };
    let model = Scripted::new([round(1), round(2), says(SUM)]);
    let (ended, _) = adder.run(&model).await;
    assert_eq!(ended.state("answer"), &json!({"sum": 6}));
    assert_eq!(choices(&model), [ToolChoice::Auto, ToolChoice::Auto, ToolChoice::None]);
    assert_eq!(model.asked()[2].tools.len(), 1, "some providers require the called tools");

    // A model that still calls tools has not answered, and its calls are not made.
    let model = Scripted::new((1..=3).map(round));
    let (ended, added) = adder.run(&model).await;
    assert_eq!((ended.end.status, added.keys().len()), (Status::Failed, 2));
    let reason = "`math.add` again after its 2 rounds of tool calls";
    assert!(ended.reason().contains(reason), "{}", ended.reason());
    assert_eq!(ended.warnings(), ["scripted/1 calls `math.add` after its 2 rounds of calls"]);

    // Unless it answers beside its calls.
    let both = ChatReply { text: SUM.into(), ..round(3).unwrap() };
    let model = Scripted::new([round(1), round(2), Ok(both)]);
    let (ended, added) = adder.run(&model).await;
    assert_eq!((ended.state("answer"), added.keys().len()), (&json!({"sum": 6}), 2));
}

/// The text beside a call says what the model looks for.
#[tokio::test]
async fn a_text_beside_a_call_after_the_last_round_is_no_answer() {
    let adder = Adder {
        agent: "tools: math.add, max_tool_rounds: 1",
        node: "writes: text",
        ..Adder::default()
    };
    let round = |number: i64| {
        let calls = calls([call("", "math.add", &format!(r#"{{"numbers": [{number}]}}"#))]);
        Ok(ChatReply { text: "Let me look once more.".into(), ..calls.unwrap() })
    };
    let (ended, added) = adder.run(&Scripted::new([round(1), round(2)])).await;
    assert_eq!((ended.end.status, added.keys().len()), (Status::Failed, 1));
    let reason = "`math.add` again after its 1 rounds of tool calls";
    assert!(ended.reason().contains(reason), "{}", ended.reason());
    let (ended, _) = adder.run(&Scripted::new([round(1), says("Six.")])).await;
    assert_eq!(ended.state("text"), "Six.");
}

fn choices(model: &Scripted) -> Vec<ToolChoice> {
    model.asked().into_iter().map(|it| it.tool_choice).collect()
}

#[tokio::test]
async fn a_forced_call_is_forced_once() {
    let call = || calls([call("", "math.add", r#"{"numbers": [1]}"#)]);
    let tool = || ToolChoice::Tool("math.add".into());
    for (agent, forced) in [
        ("tools: math.add, tool_choice: required", ToolChoice::Required),
        ("tools: [{ tool: math.add }], tool_choice: math.add", tool()),
        ("tools: math.add, tool_choice: auto, parallel_tools: false", ToolChoice::Auto),
    ] {
        let model = Scripted::new([call(), call(), says(SUM)]);
        let (ended, added) = Adder { agent, ..Adder::default() }.run(&model).await;
        assert_eq!(ended.state("answer"), &json!({"sum": 6}), "{}", ended.reason());
        assert_eq!(added.keys().len(), 2, "{agent}");
        assert_eq!(choices(&model), [forced, ToolChoice::Auto, ToolChoice::Auto]);
        let parallel = model.asked()[1].settings.parallel_tools;
        assert_eq!(parallel, agent.contains("parallel").then_some(false), "{agent}");
    }
}

#[tokio::test]
async fn an_agent_with_the_choice_none_calls_no_tools() {
    let agent = "tools: math.add, tool_choice: none";
    let model = Scripted::new([says(SUM)]);
    let (ended, _) = Adder { agent, ..Adder::default() }.run(&model).await;
    assert_eq!(ended.state("answer"), &json!({"sum": 6}));
    assert_eq!(choices(&model), [ToolChoice::None]);
    assert_eq!(model.asked()[0].tools.len(), 1, "another agent may have called it");

    let model = Scripted::new([calls([call("", "math.add", r#"{"numbers": [1]}"#)])]);
    let (ended, added) = Adder { agent, ..Adder::default() }.run(&model).await;
    assert_eq!((ended.end.status, added.keys().len()), (Status::Failed, 0));
}

#[tokio::test]
async fn a_model_that_goes_in_circles_is_to_answer() {
    let same = || calls([call("", "math.add", r#"{"numbers": [1]}"#)]);
    let model = Scripted::new([same(), same(), same(), says(SUM)]);
    let (ended, added) = Adder::default().run(&model).await;
    assert_eq!(ended.state("answer"), &json!({"sum": 6}));
    assert_eq!(added.keys().len(), 2);
    let asked = model.asked();
    assert_eq!(choices(&model)[2..], [ToolChoice::Auto, ToolChoice::None]);
    assert!(told(&asked[3])[2].starts_with("error: this call was made before"));
    assert!(ended.warnings()[0].contains("repeats the same call"), "{:?}", ended.warnings());
}

#[tokio::test]
async fn not_all_of_very_many_calls_are_made_at_once() {
    let many =
        (0..20).map(|number| call("", "math.add", &format!(r#"{{"numbers": [{}]}}"#, number + 1)));
    let model = Scripted::new([calls(many), says(SUM)]);
    let (_, added) = Adder::default().run(&model).await;
    assert_eq!(added.keys().len(), 16);
    let asked = model.asked();
    let told = told(&asked[1]);
    assert_eq!((told.len(), told[15]), (20, r#"{"sum":16}"#));
    assert_eq!(told[16], "error: not more than 16 calls at once; call it again");
}

/// A call that was not made is no repetition.
#[tokio::test]
async fn very_many_calls_are_made_in_several_rounds() {
    let rest = |from: usize| {
        calls(
            (from..40)
                .map(|number| call("", "math.add", &format!(r#"{{"numbers": [{}]}}"#, number + 1))),
        )
    };
    let model = Scripted::new([rest(0), rest(16), rest(32), says(SUM)]);
    let (ended, added) = Adder::default().run(&model).await;
    assert_eq!((added.keys().len(), ended.warnings().len()), (40, 0), "{:?}", ended.warnings());
}

#[tokio::test]
async fn calls_stay_in_the_conversation_during_a_repair() {
    let model = Scripted::new([
        calls([call("", "math.add", r#"{"numbers": [1]}"#)]),
        says(r#"{"sum": "many"}"#),
        calls([call("", "math.add", r#"{"numbers": [2]}"#)]),
        says(SUM),
    ]);
    let (ended, _) = Adder::default().run(&model).await;
    assert_eq!(ended.state("answer"), &json!({"sum": 6}));
    let asked = model.asked();
    assert_eq!(
        (told(&asked[2]), told(&asked[3])),
        (vec![r#"{"sum":1}"#], vec![r#"{"sum":1}"#, r#"{"sum":2}"#])
    );
    assert_eq!(asked[3].messages.last().unwrap().role, Role::User, "{:?}", asked[3].messages);
    let keys: std::collections::BTreeSet<String> = asked.iter().map(|it| it.key.clone()).collect();
    assert_eq!(keys.len(), 4, "each request has another key: {keys:?}");
}

#[tokio::test]
async fn a_fallback_model_starts_without_the_conversation() {
    let model = Scripted::new([
        calls([call("", "math.add", r#"{"numbers": [1]}"#)]),
        Err(ModelError::Overloaded { after: None, message: "busy".into() }),
        calls([call("", "math.add", r#"{"numbers": [2]}"#)]),
        says(SUM),
    ]);
    let (ended, added) = Adder { models: "[x/1, x/2]", ..Adder::default() }.run(&model).await;
    assert_eq!(ended.state("answer"), &json!({"sum": 6}));
    assert_eq!((model.asked()[2].messages.len(), added.keys().len()), (1, 2));
}

#[tokio::test]
async fn a_fallback_model_does_not_repeat_a_call() {
    let one = || call("", "math.add", r#"{"numbers": [1]}"#);
    let spaced = call("", "math.add", r#"{ "numbers": [ 1 ] }"#);
    let model = Scripted::new([
        calls([one()]),
        Err(ModelError::Overloaded { after: None, message: "busy".into() }),
        calls([spaced]),
        calls([one()]),
        says(SUM),
    ]);
    let (ended, added) = Adder { models: "[x/1, x/2]", ..Adder::default() }.run(&model).await;
    assert_eq!(ended.state("answer"), &json!({"sum": 6}), "{}", ended.reason());
    let asked = model.asked();
    assert_eq!((told(&asked[3]), told(&asked[4])), (vec![r#"{"sum":1}"#], vec![r#"{"sum":1}"#; 2]));
    let keys = added.keys();
    assert_eq!(keys.len(), 2, "the second model has called twice: {keys:?}");
    assert_eq!(keys[1], format!("{}/2", keys[0]));
}

/// The first model fails in the first attempt, and again in the second one, where its call is a saved one.
#[tokio::test]
async fn a_fallback_model_does_not_repeat_a_saved_call() {
    let one = || calls([call("", "math.add", r#"{"numbers": [1]}"#)]);
    let busy = || Err(ModelError::Overloaded { after: None, message: "busy".into() });
    let model = Scripted::new([one(), busy(), busy(), busy(), one(), says(SUM)]);
    let node = "writes: answer, retry: { attempts: 2, initial: 1ms }";
    let adder = Adder { models: "[x/1, x/2]", node, ..Adder::default() };
    let (ended, added) = adder.run(&model).await;
    assert_eq!(ended.state("answer"), &json!({"sum": 6}), "{}", ended.reason());
    assert_eq!((model.asked().len(), added.keys().len()), (6, 1));
}

#[tokio::test]
async fn a_fallback_model_does_not_ask_about_a_rejected_call() {
    let one = || calls([call("", "math.add", r#"{"numbers": [1]}"#)]);
    let busy = Err(ModelError::Overloaded { after: None, message: "busy".into() });
    let model = Scripted::new([one(), busy, one(), says(SUM)]);
    let agent = "tools: [{ tool: math.add, approve: each }]";
    let text = Adder { models: "[x/1, x/2]", agent, ..Adder::default() }.text();
    let added = Added::default();
    let mut kept = None;
    let prepare = |engine: Engine| {
        let engine = engine.with_storage(Arc::new(InMemoryStorage::default()));
        kept.insert(engine).clone()
    };
    let folder = Path::new("tests/nodes");
    let (services, registry) = (model.services(), added.registry());
    let Ended { end, .. } =
        run_prepared(folder, &text, json!({}), services, registry, prepare).await;
    let answer = json!({"decision": "reject"});
    let resumed = kept.unwrap().resume(&end.run).answer(&end.questions[0].name, answer);
    let end = resumed.await.unwrap();
    assert_eq!(end.state.get("answer"), Some(&json!({"sum": 6})), "{:?}", end.reason);
    let asked = model.asked();
    assert_eq!((asked.len(), added.keys().len()), (4, 0));
    assert_eq!(told(&asked[3]), ["error: a person rejected this call"]);
}

#[tokio::test]
async fn a_call_is_not_made_again_by_the_next_attempt() {
    let model = Scripted::new([
        calls([
            call("", "math.add", r#"{"numbers": [1]}"#),
            call("", "math.add", r#"{"numbers": []}"#),
        ]),
        Err(ModelError::Transient { after: None, message: "gone".into() }),
        says(SUM),
    ]);
    let node = "writes: answer, retry: { attempts: 2, initial: 1ms }";
    let (ended, added) = Adder { node, ..Adder::default() }.run(&model).await;
    assert_eq!(ended.state("answer"), &json!({"sum": 6}));
    assert_eq!(model.asked().len(), 3, "the reply with the calls is saved");
    let keys = added.keys();
    // What failed for the moment only is tried again, as the same call.
    assert_eq!(keys.len(), 3, "{keys:?}");
    assert!(keys[1] == keys[2] && keys[0] != keys[1], "{keys:?}");
    assert_eq!(told(&model.asked()[2])[0], r#"{"sum":1}"#);
}

/// Adds the tool `look`, which fails at its first call, for the moment only. Counts its calls.
fn with_look(made: &Arc<AtomicUsize>) -> Registry {
    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}
    let made = Arc::clone(made);
    let look = move |_: Nothing, _: ToolContext| {
        let first = made.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if first { Err(ToolError::transient("busy")) } else { Ok("there") } }
    };
    registry().tool(Arc::new(tool_fn("look", "Looks.", look)))
}

/// The request of a saved answer contains the failure: with another result, the next attempt would not find the answer.
#[tokio::test]
async fn a_failure_that_the_model_has_answered_to_stays() {
    let made = Arc::new(AtomicUsize::new(0));
    let model = Scripted::new([
        calls([call("", "look", "{}")]),
        calls([call("", "look", "{}")]),
        Err(ModelError::Transient { after: None, message: "gone".into() }),
        says("seen"),
    ]);
    let node = "writes: text, retry: { attempts: 2, initial: 1ms }";
    let text = Adder { agent: "tools: look", node, ..Adder::default() }.text();
    let ended = run_with(&text, json!({}), model.services(), with_look(&made)).await;
    assert_eq!(ended.state("text"), &json!("seen"), "{}", ended.reason());
    let asked = model.asked();
    assert_eq!((asked.len(), made.load(Ordering::SeqCst)), (4, 2), "nothing is paid for again");
    let results = ["error: busy; it may work at another time", "there"];
    assert_eq!((told(&asked[2]), told(&asked[3])), (results.to_vec(), results.to_vec()));
}

/// Otherwise the recalled answer, whose key was removed, would lead to other calls and requests than the first one.
#[tokio::test]
async fn an_answer_has_no_key_before_it_is_used() {
    #[derive(Deserialize, JsonSchema)]
    struct Note {
        text: String,
    }
    let noted = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&noted);
    let note = move |input: Note, _: ToolContext| {
        seen.lock().unwrap().push(input.text);
        async { Ok::<_, ToolError>("noted") }
    };
    let key = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    let arguments = json!({ "text": key }).to_string();
    let gone = || ModelError::Transient { after: None, message: "gone".into() };
    let model = Scripted::new([calls([call("", "note", &arguments)]), Err(gone()), says(&key)]);
    let node = "writes: text, retry: { attempts: 2, initial: 1ms }";
    let text = Adder { agent: "tools: note", node, ..Adder::default() }.text();
    let registry = registry().tool(Arc::new(tool_fn("note", "Notes.", note)));
    let ended = run_with(&text, json!({}), model.services(), registry).await;
    assert_eq!(ended.state("text"), &json!("[redacted]"), "{}", ended.reason());
    assert_eq!(*noted.lock().unwrap(), ["[redacted]"], "the call is made once");
    let asked = model.asked();
    assert_eq!((asked.len(), &asked[1].messages), (3, &asked[2].messages));
    let warning = "a key in the answer of x/1 was removed; `[redacted]` stands for it";
    assert_eq!(ended.warnings(), [warning; 2]);
}

/// The next attempt finds the failure of the model by its request, which contains the failure of the tool.
#[tokio::test]
async fn a_failed_tool_stays_as_long_as_the_failure_of_its_model() {
    let busy = || ModelError::Overloaded { after: None, message: "busy".into() };
    let usage = TokenUsage { input_tokens: 10, calls: 1, ..TokenUsage::default() };
    let paid = ModelError::ContextOverflow { message: "9 > 8".into(), usage };
    for (failure, expected) in [(paid, 1), (busy(), 2)] {
        let made = Arc::new(AtomicUsize::new(0));
        // The second model is asked after the failure, and answers in the second attempt if the first one cannot.
        let failures = [Err(failure.clone()), Err(busy())];
        let look = calls([call("", "look", "{}")]);
        let model = Scripted::new([look].into_iter().chain(failures).chain([says("seen")]));
        let node = "writes: text, retry: { attempts: 2, initial: 1ms }";
        let models = "[x/1, x/2]";
        let text = Adder { models, agent: "tools: look", node }.text();
        let ended = run_with(&text, json!({}), model.services(), with_look(&made)).await;
        assert_eq!(ended.state("text"), &json!("seen"), "{failure}: {}", ended.reason());
        let made = made.load(Ordering::SeqCst);
        assert_eq!((model.asked().len(), made), (4, expected), "{failure}");
    }
}

#[tokio::test]
async fn a_call_that_the_provider_could_not_read_is_sent_back() {
    let broken = ChatReply {
        text: "<function=math.add{1,2}>".into(),
        finish: Finish::Other("failed_generation".into()),
        ..ChatReply::default()
    };
    let model = Scripted::new([Ok(broken), says("five")]);
    let (ended, _) = Adder { node: "writes: text", ..Adder::default() }.run(&model).await;
    assert_eq!(ended.state("text"), &json!("five"));
    let second = &model.asked()[1];
    assert_eq!(second.messages[1], Message::assistant("<function=math.add{1,2}>"));
    assert!(second.messages[2].content.starts_with("This is no call"), "{second:?}");
}

#[tokio::test]
async fn calls_of_a_round_are_parallel_and_truncated() {
    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}
    let waiting = Arc::new(AtomicUsize::new(0));
    let wait = move |_: Nothing, _: ToolContext| {
        let waiting = Arc::clone(&waiting);
        async move {
            waiting.fetch_add(1, Ordering::SeqCst);
            while waiting.load(Ordering::SeqCst) < 2 {
                tokio::task::yield_now().await;
            }
            Ok::<_, ToolError>("ä".repeat(70_000))
        }
    };
    let registry = registry().tool(Arc::new(tool_fn("wait", "Waits.", wait)));
    let both = [call("", "wait", ""), call("", "wait", "{}")];
    let model = Scripted::new([calls(both), says("done")]);
    let text = Adder { agent: "tools: wait", node: "writes: text", ..Adder::default() }.text();
    let ended = run_with(&text, json!({}), model.services(), registry).await;
    assert_eq!(ended.state("text"), &json!("done"));
    let asked = model.asked();
    let told = told(&asked[1]);
    assert!(told[0].ends_with("ä… (10000 more characters)"), "{:?}", &told[0][..40]);
    assert_eq!(told[0].chars().filter(|it| *it == 'ä').count(), 60_000);
}

#[tokio::test]
async fn a_model_asks_no_more_once_the_tokens_of_the_run_are_used_up() {
    let usage = TokenUsage { input_tokens: 10, calls: 1, ..TokenUsage::default() };
    let round = |number: u32| {
        let call = call("", "math.add", &format!(r#"{{"numbers": [{number}]}}"#));
        Ok(ChatReply { tool_calls: vec![call], usage, ..ChatReply::default() })
    };
    let model = Scripted::new((1..9).map(round));
    let added = Added::default();
    let text = Adder::default().text().replace("start: a\n", "start: a\nlimits: { tokens: 25 }\n");
    let ended = run_with(&text, json!({}), model.services(), added.registry()).await;
    assert_eq!(ended.end.status, Status::Limit, "{}", ended.reason());
    // The third call would have the tokens of the second, and the text of its result.
    let reason =
        "the limit of 25 tokens is reached: 20 are used, and the next call needs at least 15";
    assert_eq!(ended.reason(), reason);
    assert_eq!((model.asked().len(), added.keys().len()), (2, 2));
    assert!(ended.told().contains("task.aborted"));
}

#[tokio::test]
async fn a_repair_is_a_call_of_the_limit() {
    let text = Adder::default().text().replace("start: a\n", "start: a\nlimits: { calls: 1 }\n");
    let usage = TokenUsage { input_tokens: 10, calls: 1, ..TokenUsage::default() };
    let answers = ["many", r#"{"sum": 7}"#];
    let model = Scripted::new(
        answers.map(|text| Ok(ChatReply { text: text.into(), usage, ..ChatReply::default() })),
    );
    let registry = Added::default().registry();
    let ended = run_with(&text, json!({}), model.services(), registry).await;
    assert_eq!(ended.end.status, Status::Limit, "{}", ended.reason());
    assert_eq!(ended.reason(), "the limit of 1 model call is reached: the run has made 1");
    assert_eq!(model.asked().len(), 1, "the repair is not asked for");
}
