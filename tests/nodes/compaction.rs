//! Conversations that get shorter: `compact` of a history, and the node `compact`.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use graphrun::{
    compile::compile,
    diagnostic::SourceFile,
    engine::Engine,
    event::{EventSink, MessagePart, Status},
    models::{ChatModel, ChatReply, ChatRequest, ModelError, Role, TokenUsage},
    nodes::{ModelSource, Services, factory},
    registry,
    state::Update,
    workflow::parse,
};
use serde_json::{Value, json};

use super::{
    Ended,
    fallback::{Models, Reply, models, says},
    run_with, services,
};

/// Each turn has about 200 tokens, so the third visit finds more than 400.
const TALK: &str = "
graphrun: 1
name: w
state:
  question: string
  answer: string
  chat: { type: [message], merge: messages }
input: question
models: { m: [lab/a, lab/b] }
agents: { a: { model: m, system: { text: Be brief. }, max_tokens: 50 } }
start: a
nodes:
  a:
    agent: a
    prompt: { text: '{{ question }} ({{ visit }})' }
    history: { field: chat, compact: { to: 300, over: 400, keep: 1 } }
    writes: answer
    max_visits: 4
    exhausted: end
    then: a
";

/// Compacts a conversation that is the input.
const NODE: &str = "
graphrun: 1
name: w
state: { chat: { type: [message], merge: messages } }
input: chat
models: { m: [lab/a, lab/b] }
agents: { a: { model: m } }
start: shrink
nodes:
  shrink: { compact: { field: chat, agent: a, to: 300, keep: 1 }, then: end }
";

async fn run(text: &str, input: Value, models: Models) -> (Ended, Vec<ChatRequest>) {
    let asked = Arc::clone(&models.asked);
    let services = Services { models: Arc::new(models), ..services() };
    let ended = run_with(text, input, services, registry()).await;
    let asked = asked.lock().unwrap().iter().map(|it| it.1.clone()).collect();
    (ended, asked)
}

async fn talk(text: &str, replies: Vec<Reply>) -> (Ended, Vec<ChatRequest>) {
    run(text, json!({"question": "q".repeat(700)}), models([("lab/a", replies)])).await
}

fn is_summary(request: &ChatRequest) -> bool {
    request.messages[0].content.starts_with("You summarise conversations.")
}

fn contents(ended: &Ended) -> Vec<(String, String)> {
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    let chat = ended.state("chat").as_array().unwrap();
    chat.iter().map(|it| (text(&it["id"]), text(&it["content"]))).collect()
}

#[tokio::test]
async fn older_turns_become_a_summary_before_the_answer() {
    let replies = ["one", "two", "They said one.", "three", " They said more. ", "four"];
    let (ended, asked) = talk(TALK, replies.map(says).to_vec()).await;
    assert_eq!(ended.state("answer"), &json!("four"), "{}", ended.reason());
    let summaries: Vec<bool> = asked.iter().map(is_summary).collect();
    assert_eq!(summaries, [false, false, true, false, true, false]);

    let question = |visit: u32| format!("{} ({visit})", "q".repeat(700));
    let request = &asked[2];
    assert_eq!((request.caller.as_str(), request.settings.max_tokens), ("a", None));
    let prompt = &request.messages[1].content;
    assert!(prompt.contains("in at most 75 words"), "{prompt}");
    let turn = format!("<conversation>\nuser:\n{}\n\nassistant:\none\n</conv", question(1));
    assert!(prompt.contains(&turn), "the last turn is no part of it: {prompt}");

    // A summary and a question would be two messages of the user in a row, which some providers refuse.
    let sent: Vec<(Role, String)> =
        asked[3].messages.iter().map(|it| (it.role, it.content.clone())).collect();
    let first = format!("Summary of 2 earlier messages:\n\nThey said one.\n\n{}", question(2));
    let expected = [
        (Role::System, "Be brief.".to_owned()),
        (Role::User, first),
        (Role::Assistant, "two".to_owned()),
        (Role::User, question(3)),
    ];
    assert_eq!(sent, expected);

    let summary = "Summary of 3 earlier messages:\n\nThey said more.".to_owned();
    let kept = [question(3), "three".to_owned(), question(4), "four".to_owned()];
    let expected: Vec<String> = [summary].into_iter().chain(kept).collect();
    let (ids, texts): (Vec<String>, Vec<String>) = contents(&ended).into_iter().unzip();
    assert_eq!(texts, expected);
    assert_eq!(ids, ["m1", "m5", "m6", "m7", "m8"]);
    let note = "`chat` is compacted: a summary takes the place of 2 messages, about";
    assert!(ended.told().contains(note), "{}", ended.told());
}

#[tokio::test]
async fn a_task_that_runs_again_asks_for_no_second_summary() {
    let gone = || Err(ModelError::Transient { after: None, message: "gone".into() });
    let text =
        TALK.replace("max_visits: 4", "max_visits: 3\n    retry: { attempts: 2, initial: 1ms }");
    let text = text.replace("[lab/a, lab/b]", "lab/a");
    let replies = vec![says("one"), says("two"), says("They said one."), gone(), says("three")];
    let (ended, asked) = talk(&text, replies).await;
    assert_eq!(ended.state("answer"), &json!("three"), "{}", ended.reason());
    assert_eq!(asked.iter().filter(|it| is_summary(it)).count(), 1);
    assert_eq!(asked[3].messages, asked[4].messages, "both attempts have the same summary");
    assert_eq!(contents(&ended).len(), 5);
}

/// A conversation of three turns, of which the last has no answer.
fn chat() -> Value {
    let message = |id: &str, role: &str, letter: &str| json!({"id": id, "role": role, "content": letter.repeat(700)});
    let turns = [
        ("k1", "user", "a"),
        ("k2", "assistant", "b"),
        ("k3", "user", "c"),
        ("k4", "assistant", "d"),
        ("k5", "user", "e"),
    ];
    turns.map(|(id, role, letter)| message(id, role, letter)).to_vec().into()
}

#[tokio::test]
async fn a_node_compacts_a_conversation_once_it_is_too_long() {
    let input = json!({"chat": chat()});
    let (ended, asked) = run(NODE, input.clone(), models([("lab/a", vec![says("s")])])).await;
    assert_eq!(ended.end.status, Status::Done, "{}", ended.reason());
    let expected = [
        ("k1".to_owned(), "Summary of 4 earlier messages:\n\ns".to_owned()),
        ("k5".to_owned(), "e".repeat(700)),
    ];
    assert_eq!((contents(&ended), asked.len()), (expected.to_vec(), 1));

    let longer = NODE.replace("to: 300", "to: 300, over: 1_000");
    let (ended, asked) = run(&longer, input, models([("lab/a", vec![says("s")])])).await;
    assert_eq!((ended.state("chat"), asked.len()), (&chat(), 0), "{}", ended.reason());
}

#[tokio::test]
async fn a_summary_that_is_too_long_is_truncated() {
    let (ended, _) =
        run(NODE, json!({"chat": chat()}), models([("lab/a", vec![says(&"s".repeat(9_000))])]))
            .await;
    let (_, summary) = &contents(&ended)[0];
    // The last turn has 200 of the 300 tokens.
    let most = format!("\n\n{}… (8650 more characters)", "s".repeat(350));
    assert!(summary.ends_with(&most), "{summary}");
    assert!(ended.told().contains("the summary has more than 100 tokens"), "{}", ended.told());
}

#[tokio::test]
async fn the_next_model_of_the_list_writes_the_summary() {
    let busy = || Err(ModelError::Overloaded { after: None, message: "busy".into() });
    let both = models([("lab/a", vec![busy()]), ("lab/b", vec![says("s")])]);
    let (ended, asked) = run(NODE, json!({"chat": chat()}), both).await;
    assert_eq!((contents(&ended).len(), asked.len()), (2, 2), "{}", ended.reason());
    assert_ne!(asked[0].key, asked[1].key);

    let both = models([("lab/a", vec![busy()]), ("lab/b", vec![busy()])]);
    let (ended, _) = run(NODE, json!({"chat": chat()}), both).await;
    assert_eq!((ended.end.status, ended.state("chat")), (Status::Failed, &chat()));
}

#[tokio::test]
async fn a_conversation_that_is_too_long_for_its_summary_is_cut() {
    let usage = TokenUsage::default();
    let too_long = Err(ModelError::ContextOverflow { message: "9 > 8".into(), usage });
    let mut chat = chat();
    chat[1]["content"] = "b".repeat(9_000).into();
    let replies = models([("lab/a", vec![too_long, says("s")])]);
    let (ended, asked) = run(NODE, json!({"chat": chat}), replies).await;
    assert_eq!((contents(&ended).len(), asked.len()), (2, 2), "{}", ended.reason());
    assert!(ended.told().contains("of `chat[1].content`"), "{}", ended.told());
}

#[test]
fn a_compaction_that_cannot_work_is_refused() {
    let diagnostics = |text: &str| {
        let file = SourceFile { name: "w.yaml".into(), text: text.to_owned() };
        let parsed = parse(Arc::new(file), Path::new("tests/nodes"), &registry());
        parsed.map(drop).map_err(|it| it.to_string())
    };
    assert_eq!((diagnostics(TALK), diagnostics(NODE)), (Ok(()), Ok(())));
    let own = "{ type: [{ role: user | assistant, content: string }], merge: append }";
    let program =
        "{ a: { command: [codex], protocol: codex, in: h } }\nhosts: { h: { allow: [codex] } }";
    for (text, from, to, expected) in [
        (TALK, "over: 400", "over: 200", "`over`"),
        (TALK, "to: 300, ", "", "`to`"),
        (TALK, "keep: 1", "keep: 0", "`keep`"),
        (TALK, "keep: 1", "keeep: 1", "did you mean `keep`"),
        (TALK, "field: chat,", "field: chat, last: 4,", "`last` would leave the summary out"),
        (TALK, "{ type: [message], merge: messages }", own, "`chat` cannot be compacted"),
        (NODE, "{ type: [message], merge: messages }", own, "`chat` cannot be compacted"),
        (NODE, "agent: a, ", "", "`agent`"),
        (NODE, "agent: a,", "agent: b,", "`b`"),
        (NODE, "{ a: { model: m } }", program, "a model writes the summary"),
    ] {
        let changed = text.replace(from, to);
        assert_ne!(changed, text, "{from}");
        let found = diagnostics(&changed).unwrap_err();
        assert!(found.contains(expected), "{to}: {found}");
    }
}

/// A model that has its answers in pieces.
#[derive(Clone, Debug)]
struct InPieces;

#[async_trait]
impl ChatModel for InPieces {
    async fn chat(&self, request: &ChatRequest) -> Reply {
        let text = if is_summary(request) { "summary " } else { "answer " };
        request.deltas.send(MessagePart::Text, text);
        request.deltas.end();
        Ok(ChatReply { text: text.to_owned(), ..ChatReply::default() })
    }

    fn name(&self) -> &'static str {
        "lab/a"
    }
}

impl ModelSource for InPieces {
    fn model(&self, _: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::new(self.clone()))
    }
}

#[tokio::test]
async fn the_pieces_of_a_summary_are_not_shown_as_an_answer() {
    let text = TALK
        .replace("input: question", "input: [question, chat]")
        .replace("max_visits: 4", "max_visits: 1");
    let file = Arc::new(SourceFile { name: "w.yaml".into(), text });
    let (workflow, _) = parse(file, Path::new("tests/nodes"), &registry()).unwrap();
    let services = Services { models: Arc::new(InPieces), ..services() };
    let graph = compile(workflow.into_graph(&factory(services, registry()))).unwrap();
    let mut sink = EventSink::default();
    let mut deltas = sink.subscribe_deltas();
    let input = Update::of(&json!({"question": "Why?", "chat": chat()})).unwrap();
    let end = Engine::new(graph).run(input).with_events(sink).await.unwrap();
    assert_eq!(end.state.get("answer"), Some(&json!("answer ")), "{end:?}");
    assert_eq!(
        end.state.get("chat").unwrap()[0]["content"],
        "Summary of 4 earlier messages:\n\nsummary"
    );
    let mut shown = String::new();
    while let Some(delta) = deltas.recv().await {
        shown += &delta.text;
    }
    assert_eq!(shown, "answer ");
}
