//! An agent with several models: which of them is asked, and what their failures mean together.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use graphrun::{
    event::{Event, Report, Status},
    models::{ChatModel, ChatReply, ChatRequest, ModelError, TokenUsage},
    nodes::{ModelSource, Services},
    registry,
};
use serde_json::json;

use super::{Ended, run_with, services};

pub(super) type Reply = Result<ChatReply, ModelError>;

/// The requests of a run, each with the model that received it.
pub(super) type Asked = Arc<Mutex<Vec<(&'static str, ChatRequest)>>>;

/// Models by name, each with its replies in order. The last reply is repeated; without any the model cannot be connected.
#[derive(Debug, Default)]
pub(super) struct Models {
    replies: BTreeMap<&'static str, Vec<Reply>>,
    pub(super) asked: Asked,
}

#[derive(Debug)]
struct Scripted {
    name: &'static str,
    replies: Vec<Reply>,
    asked: Asked,
}

#[async_trait]
impl ChatModel for Scripted {
    async fn chat(&self, request: &ChatRequest) -> Reply {
        let mut asked = self.asked.lock().unwrap();
        let before = asked.iter().filter(|it| it.0 == self.name).count();
        asked.push((self.name, request.clone()));
        self.replies[before.min(self.replies.len() - 1)].clone()
    }

    fn name(&self) -> &'static str {
        self.name
    }
}

impl ModelSource for Models {
    fn model(&self, name: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        let known = self.replies.get_key_value(name).filter(|it| !it.1.is_empty());
        let Some((name, replies)) = known else {
            return Err(ModelError::Unavailable { message: format!("no key for {name}") });
        };
        let replies = replies.clone();
        let asked = Arc::clone(&self.asked);
        Ok(Arc::new(Scripted { name, replies, asked }))
    }
}

pub(super) fn models(replies: impl IntoIterator<Item = (&'static str, Vec<Reply>)>) -> Models {
    Models { replies: replies.into_iter().collect(), asked: Asked::default() }
}

/// Runs an agent with the models `lab/a` and `lab/b`, and returns the models that were asked.
async fn run(models: Models, node: &str) -> (Ended, Vec<&'static str>) {
    let text = format!(
        "graphrun: 1\nname: w\nstate: {{ text: string }}\nmodels: {{ m: [lab/a, lab/b] }}\nagents: {{ a: {{ \
         model: m }} }}\nstart: a\nnodes:\n  a: {{ agent: a, prompt: {{ text: What? }}, writes: text{node}, \
         then: end }}\n"
    );
    let asked = Arc::clone(&models.asked);
    let services = Services { models: Arc::new(models), ..services() };
    let ended = run_with(&text, json!({}), services, registry()).await;
    let names = asked.lock().unwrap().iter().map(|it| it.0).collect();
    (ended, names)
}

#[expect(clippy::unnecessary_wraps, reason = "stands in lists beside failures")]
pub(super) fn says(text: &str) -> Reply {
    Ok(ChatReply { text: text.into(), ..ChatReply::default() })
}

fn limited() -> Reply {
    Err(ModelError::RateLimited { after: None, message: "slow down".into() })
}

fn unauthorised() -> Reply {
    Err(ModelError::Auth { message: "wrong key".into() })
}

const RETRY: &str = ", retry: { attempts: 3, initial: 1ms }";

#[tokio::test]
async fn a_model_that_cannot_be_connected_is_skipped() {
    let only_first = models([("lab/a", vec![limited(), limited(), says("teal")])]);
    let (ended, asked) = run(only_first, RETRY).await;
    assert_eq!((ended.state("text"), asked.len()), (&json!("teal"), 3), "{}", ended.reason());

    let only_second = models([("lab/b", vec![limited(), says("teal")])]);
    let (ended, asked) = run(only_second, RETRY).await;
    assert_eq!((ended.state("text"), asked), (&json!("teal"), vec!["lab/b"; 2]));

    let (ended, asked) = run(models([]), RETRY).await;
    let reason = "`a` failed: lab/a: no key for lab/a";
    assert_eq!((ended.end.status, ended.reason(), asked.len()), (Status::Failed, reason, 0));
}

#[tokio::test]
async fn a_failure_that_may_pass_in_a_list_may_pass() {
    for last in [
        unauthorised(),
        Err(ModelError::NotFound { message: "gone".into() }),
        Err(ModelError::BadRequest { status: 400, message: "no".into() }),
        Err(ModelError::Quota { message: "empty".into() }),
    ] {
        let first = vec![limited(), says("teal")];
        let (ended, asked) =
            run(models([("lab/a", first), ("lab/b", vec![last.clone()])]), RETRY).await;
        assert_eq!(ended.state("text"), &json!("teal"), "{last:?}: {}", ended.reason());
        assert_eq!(asked, ["lab/a", "lab/b", "lab/a"], "{last:?}");
    }
    // The other way round, and to the end of the attempts.
    let both = models([("lab/a", vec![unauthorised()]), ("lab/b", vec![limited()])]);
    let (ended, asked) = run(both, RETRY).await;
    assert_eq!(asked.len(), 6);
    let reason =
        "lab/a: the provider refuses the credentials: wrong key; lab/b: the provider limits";
    assert!(ended.reason().contains(reason), "{}", ended.reason());
}

#[tokio::test]
async fn failures_that_stay_are_not_retried() {
    let both = models([("lab/a", vec![unauthorised()]), ("lab/b", vec![unauthorised()])]);
    assert_eq!(run(both, RETRY).await.1, ["lab/a", "lab/b"]);
    // An answer is an answer, also if it is a refusal.
    let usage = TokenUsage::default();
    let refused = Err(ModelError::Refused { text: "No.".into(), usage });
    let (ended, asked) =
        run(models([("lab/a", vec![limited()]), ("lab/b", vec![refused])]), RETRY).await;
    assert_eq!(asked, ["lab/a", "lab/b"]);
    assert!(ended.reason().ends_with("the model refuses to answer: No."), "{}", ended.reason());
}

#[tokio::test]
async fn a_request_that_is_too_long_falls_back_and_is_not_retried() {
    let too_long = || {
        Err(ModelError::ContextOverflow { message: "9 > 8".into(), usage: TokenUsage::default() })
    };
    let both = models([("lab/a", vec![too_long()]), ("lab/b", vec![says("teal")])]);
    let (ended, asked) = run(both, RETRY).await;
    assert_eq!((ended.state("text"), asked), (&json!("teal"), vec!["lab/a", "lab/b"]));

    let (ended, asked) = run(models([("lab/a", vec![too_long()])]), RETRY).await;
    let reason = "`a` failed: lab/a: the request is too long for the model: 9 > 8";
    assert_eq!((ended.end.status, ended.reason(), asked.len()), (Status::Failed, reason, 1));

    let caught = r#", writes: text, catch: { context_overflow: b } }
  b: { set: { text: 'has(via.error) && via.error.kind == "context_overflow" ? "caught" : "other"' }, then: end"#;
    let (ended, _) = requests(models([("lab/a", vec![too_long()])]), "", caught).await;
    assert_eq!(ended.state("text"), &json!("caught"), "{}", ended.reason());
}

#[tokio::test]
async fn an_unknown_model_falls_back() {
    let unknown = Err(ModelError::NotFound { message: "no model a".into() });
    let both = models([("lab/a", vec![unknown]), ("lab/b", vec![says("teal")])]);
    let (ended, asked) = run(both, "").await;
    assert_eq!((ended.state("text"), asked), (&json!("teal"), vec!["lab/a", "lab/b"]));
    let warnings = ended.events.iter().filter_map(|it| match &it.event {
        Event::TaskReported { report: Report::Warning { message }, .. } => Some(message.as_str()),
        _ => None,
    });
    let expected =
        "lab/a: the provider finds no such model or address: no model a; falling back to lab/b";
    assert_eq!(warnings.collect::<Vec<_>>(), [expected]);
}

#[tokio::test]
async fn each_model_of_a_list_has_its_own_idempotency_key() {
    let both = models([("lab/a", vec![limited()]), ("lab/b", vec![says("teal")])]);
    let asked = Arc::clone(&both.asked);
    run(both, "").await;
    let asked = asked.lock().unwrap();
    let keys: Vec<&str> = asked.iter().map(|it| it.1.key.as_str()).collect();
    assert!(keys[0].ends_with("/lab/a") && keys[1].ends_with("/lab/b"), "{keys:?}");
    assert_eq!(keys[0].strip_suffix("/lab/a"), keys[1].strip_suffix("/lab/b"));
}

#[tokio::test]
async fn the_timeout_of_a_node_is_the_limit_of_its_requests() {
    for (node, expected) in [(", timeout: 45m", Some(Duration::from_secs(45 * 60))), ("", None)] {
        let one = models([("lab/a", vec![says("teal")])]);
        let asked = Arc::clone(&one.asked);
        run(one, node).await;
        assert_eq!(asked.lock().unwrap()[0].1.timeout, expected);
    }
}

/// Runs an agent whose keys and whose node's keys are these, and returns the requests.
async fn requests(models: Models, agent: &str, node: &str) -> (Ended, Vec<ChatRequest>) {
    let text = format!(
        "graphrun: 1\nname: w\nstate: {{ text: string, n: {{ n: int }} }}\nagents: {{ a: {{ model: lab/a{agent} }} \
         }}\nstart: a\nnodes:\n  a: {{ agent: a, prompt: {{ text: What? }}, then: end{node} }}\n"
    );
    let asked = Arc::clone(&models.asked);
    let services = Services { models: Arc::new(models), ..services() };
    let ended = run_with(&text, json!({}), services, registry()).await;
    let asked = asked.lock().unwrap().iter().map(|it| it.1.clone()).collect();
    (ended, asked)
}

#[tokio::test]
async fn the_settings_of_a_node_are_before_those_of_its_agent() {
    let agent = ", temperature: 0.2, top_p: 0.5, stop: [A], headers: { x-a: a, x-b: a }, extra_body: { k: 1, l: 1 }";
    let node = ", writes: text, temperature: 1, seed: 7, effort: high, stop: [B, C], headers: { X-B: b }, extra_body: { l: 2 }";
    let (_, asked) = requests(models([("lab/a", vec![says("teal")])]), agent, node).await;
    let expected = json!({
        "temperature": 1.0, "top_p": 0.5, "seed": 7, "effort": "high", "stop": ["B", "C"],
        "headers": {"x-a": "a", "x-b": "b"}, "extra_body": {"k": 1, "l": 2},
    });
    assert_eq!(json!(asked[0].settings), expected);
}

#[tokio::test]
async fn an_answer_cut_at_the_limit_is_requested_with_twice_of_it() {
    let cut = || {
        let usage = TokenUsage { output_tokens: 50, calls: 1, ..TokenUsage::default() };
        Err(ModelError::Truncated { text: "te".into(), usage, tokens_max: None })
    };
    for (writes, answer) in [("text", "teal"), ("n", "{\"n\": 3}")] {
        let node = format!(", writes: {writes}, max_tokens: 50, repair: 0");
        let cut_once = models([("lab/a", vec![cut(), says(answer)])]);
        let (ended, asked) = requests(cut_once, ", max_tokens: 9", &node).await;
        assert_eq!(ended.end.status, Status::Done, "{writes}: {}", ended.reason());
        let limits: Vec<_> = asked.iter().map(|it| it.settings.max_tokens).collect();
        assert_eq!(limits, [Some(50), Some(100)], "{writes}");
        assert_ne!(asked[0].key, asked[1].key, "{writes}");
        let (ended, asked) = requests(models([("lab/a", vec![cut()])]), "", &node).await;
        assert_eq!((ended.end.status, asked.len()), (Status::Failed, 2), "{writes}");
    }
    let (ended, asked) = requests(models([("lab/a", vec![cut()])]), "", ", writes: text").await;
    assert_eq!((ended.end.status, asked.len()), (Status::Failed, 1), "without a limit of ours");
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_a_failure_of_its_model() {
    let cut = models([("lab/a", vec![says("{\"n\": ")])]);
    let (ended, _) = requests(cut, "", ", writes: n, repair: 0").await;
    let reason = "`a` failed: lab/a: the answer does not fit the request: the JSON of the answer is never closed";
    assert_eq!((ended.end.status, ended.reason()), (Status::Failed, reason));
}

/// Providers reply with their own name of the model, which several providers may have.
#[tokio::test]
async fn the_report_of_a_call_has_the_full_name_of_the_model() {
    for (reply, reported) in [
        ("a", "lab/a"),
        ("a-2026-01-01", "lab/a-2026-01-01"),
        ("lab/a", "lab/a"),
        ("", "lab/a"),
        ("recorded", "recorded"),
    ] {
        let usage = TokenUsage { input_tokens: 1, calls: 1, ..TokenUsage::default() };
        let answer = ChatReply { model: reply.into(), usage, ..says("teal").unwrap() };
        let (ended, _) = run(models([("lab/a", vec![Ok(answer)])]), "").await;
        let called = ended.events.iter().find_map(|event| match &event.event {
            Event::TaskReported { report: Report::ModelCall { model, .. }, .. } => Some(model),
            _ => None,
        });
        assert_eq!(called.map(String::as_str), Some(reported), "{reply}");
    }
}
