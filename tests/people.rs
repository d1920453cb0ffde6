//! People and runs, through the public API: parallel questions, deadlines, breakpoints.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::{
    disturbed::Disturbed,
    team::{Noted, Nothing, Team, compiled, name, notes},
};
use graphrun::{
    checkpoint::{
        CheckpointError, Checkpointer, Message, Outcome, QuestionOutcome, RunHistory as _,
        RunInbox as _, RunInfo, RunJournal as _, asked_questions,
    },
    engine::{
        Answers, ClosedReason, Engine, RunEnd, RunError, ShutdownHandle, machine::Breakpoints,
    },
    event::{Event, EventSink, RunEvent, Status},
    graph::{
        Catch, Dispatch, ErrorKind, GraphBuilder, IntoNode, Node, NodeContext, NodeError, Policies,
        Question, START, Target, node_fn,
    },
    id::{ChannelName, RunId},
    state::Update,
    storage::InMemoryStorage,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

/// Notes its name and the person's answer.
fn asks(patience: Option<Duration>) -> impl Node {
    node_fn(move |_: Nothing, ctx: NodeContext| async move {
        let mut question = Question::new("go", "Go on?").with_schema(json!({"type": "boolean"}));
        question.deadline = patience.map(|it| Timestamp::now() + it);
        let answer: bool = ctx.ask(question)?;
        Ok::<_, NodeError>(Noted { notes: vec![format!("{} {answer}", ctx.node)] })
    })
}

/// Notes its name after a while.
fn works(time: Duration) -> impl Node {
    node_fn(move |_: Nothing, ctx: NodeContext| async move {
        sleep(time).await;
        Ok::<_, NodeError>(Noted { notes: vec![ctx.node.to_string()] })
    })
}

fn notes_its_name() -> impl Node {
    works(Duration::ZERO)
}

fn late_to(node: &str) -> Policies {
    let catch = vec![Catch { kind: Some(ErrorKind::Timeout), to: Target::Node(name(node)) }];
    Policies { catch, ..Policies::default() }
}

/// A run and its storage.
struct Place {
    storage: Arc<InMemoryStorage>,
    engine: Engine,
    run: RunId,
}

impl Place {
    fn new(builder: GraphBuilder) -> Self {
        Self::with_breakpoints(builder, Breakpoints::default())
    }

    fn with_breakpoints(builder: GraphBuilder, pauses: Breakpoints) -> Self {
        let storage = Arc::new(InMemoryStorage::default());
        let engine = Engine::new(compiled(builder))
            .with_storage(Arc::clone(&storage) as Arc<dyn Checkpointer>);
        Self { storage, engine: engine.with_breakpoints(pauses), run: RunId::parse("r").unwrap() }
    }

    async fn start(&self) -> RunEnd {
        let info = RunInfo { id: self.run.clone(), ..RunInfo::new("people") };
        let (input, events, stop) =
            (Update::default(), EventSink::default(), ShutdownHandle::default());
        self.engine
            .run(input)
            .with_info(info)
            .with_events(events)
            .with_shutdown(&stop)
            .await
            .unwrap()
    }

    async fn answer(&self, answers: &[(&str, Value)]) -> Result<RunEnd, RunError> {
        let answers = answers.iter().map(|(key, answer)| ((*key).to_owned(), answer.clone()));
        let by_name: BTreeMap<String, Value> = answers.collect();
        let answers = Answers { by_name, by: Some("ann".to_owned()) };
        self.engine.resume(&self.run).with_answers(answers).await
    }

    async fn records(&self) -> Vec<(String, &'static str)> {
        let records = self.storage.records(&self.run).await.unwrap();
        let word = |outcome: &Outcome| match outcome {
            Outcome::Finished { .. } => "finished",
            Outcome::Undecided { .. } => "undecided",
            Outcome::Caught { .. } => "caught",
            Outcome::Skipped { .. } => "skipped",
            Outcome::Failed { .. } => "failed",
            Outcome::Retrying { .. } => "retrying",
            Outcome::TimerSet { .. } => "timer_set",
            Outcome::Aborted => "aborted",
            Outcome::MemoSaved { .. } => "memo_saved",
            Outcome::Asked { .. } => "asked",
            Outcome::Answered { .. } => "answered",
        };
        records.iter().map(|it| (it.node.to_string(), word(&it.outcome))).collect()
    }
}

fn keys(end: &RunEnd) -> Vec<&str> {
    end.questions.iter().map(|it| it.name.as_str()).collect()
}

fn three_reviewers() -> GraphBuilder {
    GraphBuilder::new::<Team>("map")
        .node("plan", notes_its_name())
        .node("review", asks(None))
        .node("sum", notes_its_name())
        .edge(START, "plan")
        .route("plan", ["review"], |_: &Nothing| {
            let send = |it: u32| Dispatch::new(name("review"), json!(it));
            (0..3).map(send).collect::<Vec<_>>()
        })
        .edge(["review"], "sum")
}

#[tokio::test]
async fn questions_of_one_node_have_separate_answers() {
    let place = Place::new(three_reviewers());
    let end = place.start().await;
    assert_eq!((end.status, keys(&end)), (Status::Paused, vec!["go@2.0", "go@2.1", "go@2.2"]));

    let Err(RunError::UnknownQuestion { open, .. }) = place.answer(&[("go", json!(true))]).await
    else {
        panic!("three questions have that key")
    };
    assert_eq!(open, ["go@2.0", "go@2.1", "go@2.2"]);

    let end = place.answer(&[("go@2.1", json!(false))]).await.unwrap();
    assert_eq!(keys(&end), ["go@2.0", "go@2.2"], "the others keep their names");
    let by_key = place.answer(&[("go", json!(true))]).await.unwrap_err();
    let RunError::UnknownQuestion { open, .. } = by_key else { panic!("{by_key}") };
    assert_eq!(open, ["go@2.0", "go@2.2"], "they are open, though another of this key is not");
    let Err(RunError::Closed { closed, .. }) = place.answer(&[("go@2.1", json!(true))]).await
    else {
        panic!("it was answered")
    };
    let ClosedReason::Answered { by, at } = closed else { panic!("{closed:?}") };
    assert!(by.as_deref() == Some("ann") && at.parse::<Timestamp>().is_ok());

    let end = place.answer(&[("go@2.2", json!(true)), ("go@2.0", json!(true))]).await.unwrap();
    let expected = ["plan", "review true", "review false", "review true", "sum"];
    assert_eq!((end.status, notes(&end.state)), (Status::Done, expected.map(str::to_owned).into()));
}

#[tokio::test]
async fn one_invalid_answer_refuses_all() {
    let place = Place::new(three_reviewers());
    place.start().await;
    let before = place.storage.journal(&place.run).await.unwrap();
    let both = [("go@2.0", json!(true)), ("go@2.1", json!("yes"))];
    let Err(RunError::WrongAnswer { name, problems }) = place.answer(&both).await else {
        panic!("a text is no bool")
    };
    assert_eq!((name.as_str(), problems.len()), ("go@2.1", 1));
    assert_eq!(place.storage.journal(&place.run).await.unwrap(), before);
}

#[tokio::test]
async fn an_answer_belongs_to_the_entry_that_asked() {
    let place = Place::new(three_reviewers());
    place.start().await;
    place.answer(&[("go@2.1", json!(true))]).await.unwrap();
    let journal = place.storage.journal(&place.run).await.unwrap();
    let asked_in = |index: u32| {
        let asks = |logged: &&graphrun::checkpoint::JournalEntry| {
            let is_it = |record: &graphrun::checkpoint::TaskRecord| {
                record.task.index == index && matches!(record.outcome, Outcome::Asked { .. })
            };
            logged.entry.records.iter().any(is_it)
        };
        journal.iter().find(asks).unwrap().hash
    };
    let asked = asked_questions(&journal);
    let [open, answered, _] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!((&open.outcome, open.hash), (&QuestionOutcome::Open, asked_in(0)));
    let QuestionOutcome::Answered { by, to, .. } = &answered.outcome else {
        panic!("{answered:?}")
    };
    assert_eq!((by.as_deref(), *to), (Some("ann"), Some(asked_in(1))));
}

#[tokio::test]
async fn a_deadline_is_set_once_and_outlives_processes() {
    let hour = Duration::from_secs(3600);
    let place = Place::new(
        GraphBuilder::new::<Team>("ask").node("help", asks(Some(hour))).edge(START, "help"),
    );
    let deadline = place.start().await.questions[0].question.deadline.unwrap();
    for _ in 0..2 {
        let end = place.answer(&[]).await.unwrap();
        assert_eq!(end.questions[0].question.deadline, Some(deadline));
    }
    let end = place.answer(&[("go", json!(true))]).await.unwrap();
    assert_eq!(end.status, Status::Done);
}

#[tokio::test]
async fn an_expired_question_refuses_answers_and_can_be_caught() {
    let asks_briefly = || asks(Some(Duration::from_millis(1)));
    let place = Place::new(
        GraphBuilder::new::<Team>("late")
            .node("help", asks_briefly().with_policies(late_to("flush")))
            .node("other", asks(None))
            .node("flush", notes_its_name())
            .edge(START, "help")
            .edge(START, "other")
            .edge("help", "end"),
    );
    let end = place.start().await;
    assert_eq!(keys(&end), ["go@1.0", "go@1.1"]);
    sleep(Duration::from_millis(5)).await;
    let late = place.answer(&[("go@1.0", json!(true))]).await.unwrap_err();
    assert!(matches!(late, RunError::Closed { closed: ClosedReason::Late { .. }, .. }), "{late:?}");

    // The other question does not change, and can be answered in the same call.
    let end = place.answer(&[("go@1.1", json!(true))]).await.unwrap();
    assert_eq!(
        (end.status, notes(&end.state)),
        (Status::Done, vec!["other true".into(), "flush".into()])
    );
    let after = place.answer(&[("go@1.0", json!(true))]).await.unwrap_err();
    assert!(
        matches!(after, RunError::Closed { closed: ClosedReason::Late { .. }, .. }),
        "{after:?}"
    );
}

#[tokio::test]
async fn an_uncaught_deadline_fails_the_run_and_resume_asks_again() {
    let visits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&visits);
    let help = node_fn(move |_: Nothing, ctx: NodeContext| {
        let counted = Arc::clone(&counted);
        async move {
            // The first question has no time left; later ones have plenty.
            let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
            let patience = Duration::from_millis(if first { 1 } else { 3_600_000 });
            let question = Question::new("go", "Go on?").with_deadline(Timestamp::now() + patience);
            let _: Value = ctx.ask(question)?;
            Ok::<_, NodeError>(Noted { notes: vec!["helped".into()] })
        }
    });
    let place =
        Place::new(GraphBuilder::new::<Team>("late").node("help", help).edge(START, "help"));
    place.start().await;
    sleep(Duration::from_millis(5)).await;
    let end = place.answer(&[]).await.unwrap();
    let reason = end.reason.unwrap();
    assert_eq!(end.status, Status::Failed);
    assert!(reason.starts_with("`help` failed: no answer by "), "{reason}");
    let end = place.answer(&[]).await.unwrap();
    assert_eq!((end.status, keys(&end)), (Status::Paused, vec!["go"]));
    let end = place.answer(&[("go", Value::Null)]).await.unwrap();
    assert_eq!(end.status, Status::Done, "null is an answer");
}

#[tokio::test(start_paused = true)]
async fn a_running_process_handles_an_expired_question() {
    let place = Place::new(
        GraphBuilder::new::<Team>("late")
            .node("help", asks(Some(Duration::from_secs(60))).with_policies(late_to("flush")))
            .node("slow", works(Duration::from_secs(3600)))
            .node("flush", notes_its_name())
            .edge(START, "help")
            .edge(START, "slow")
            .edge("help", "end"),
    );
    let mut sink = EventSink::default();
    let mut told = sink.subscribe();
    let info = RunInfo { id: place.run.clone(), ..RunInfo::new("late") };
    let end = place.engine.run(Update::default()).with_info(info).with_events(sink).await.unwrap();
    assert_eq!(
        (end.status, notes(&end.state)),
        (Status::Done, vec!["slow".into(), "flush".into()])
    );
    let mut ends = Vec::new();
    while let Some(stamped) = told.recv().await {
        match stamped.event {
            Event::TaskFailed { node, kind, .. } => ends.push(format!("{node} {kind}")),
            Event::TaskFinished { node, .. } => ends.push(node.to_string()),
            _ => (),
        }
    }
    assert_eq!(ends, ["help timeout", "slow", "flush"], "it did not wait for `slow`");
}

fn diamond() -> GraphBuilder {
    GraphBuilder::new::<Team>("diamond")
        .node("plan", notes_its_name())
        .node("left", notes_its_name())
        .node("right", notes_its_name())
        .node("never", notes_its_name())
        .node("sum", notes_its_name())
        .edge(START, "plan")
        .when("never", "false", |_: &Team| false)
        .edge("plan", "left")
        .edge("plan", "right")
        .edge("plan", "never")
        .edge(["left", "right", "never"], "sum")
}

fn before(nodes: &[&str]) -> Breakpoints {
    Breakpoints { before: nodes.iter().map(|it| name(it)).collect(), ..Breakpoints::default() }
}

fn after(nodes: &[&str]) -> Breakpoints {
    Breakpoints { after: nodes.iter().map(|it| name(it)).collect(), ..Breakpoints::default() }
}

/// Returns the notes and the reason at each stop until the run ends.
async fn rests(pauses: Breakpoints) -> Vec<(Vec<String>, String)> {
    let place = Place::with_breakpoints(diamond(), pauses);
    let mut end = place.start().await;
    let mut rests = Vec::new();
    while end.status == Status::Paused {
        rests.push((notes(&end.state), end.reason.unwrap_or_default()));
        end = place.answer(&[]).await.unwrap();
    }
    assert_eq!(end.status, Status::Done);
    assert_eq!(notes(&end.state), ["plan", "left", "right", "sum"]);
    rests
}

#[tokio::test]
async fn a_breakpoint_stops_the_whole_step() {
    let reason = "breakpoint before `left`".to_owned();
    assert_eq!(rests(before(&["left"])).await, [(vec!["plan".to_owned()], reason)]);
    let first = rests(before(&["plan"])).await;
    assert_eq!(first, [(Vec::new(), "breakpoint before `plan`".to_owned())]);
    let both = rests(after(&["right", "left"])).await;
    let done = ["plan", "left", "right"].map(str::to_owned).to_vec();
    assert_eq!(both, [(done, "breakpoint after `left`, `right`".to_owned())]);
}

#[tokio::test]
async fn a_report_before_a_breakpoint_is_saved_once() {
    let started = Policies { emits: Some("started".to_owned()), ..Policies::default() };
    let graph = || {
        GraphBuilder::new::<Team>("reports")
            .node("plan", notes_its_name().with_policies(started.clone()))
            .edge(START, "plan")
    };
    for pauses in [Breakpoints::default(), before(&["plan"])] {
        let is_paused = !pauses.is_empty();
        let place = Place::with_breakpoints(graph(), pauses);
        let end = place.start().await;
        let first = place.storage.journal(&place.run).await.unwrap().remove(0);
        let status = first.entry.run_status.as_ref().map(|it| it.status);
        if is_paused {
            // A crash between both would leave a run that looks unfinished.
            assert_eq!((end.status, status), (Status::Paused, Some(Status::Paused)));
            place.answer(&[]).await.unwrap();
        }
        let events = place.storage.events(&place.run, 0).await.unwrap();
        let is_report = |it: &&RunEvent| matches!(it.event, Event::TaskEmitted { .. });
        assert_eq!(events.iter().filter(is_report).count(), 1, "{events:?}");
        assert!(first.entry.events.iter().filter(is_report).count() == 1, "{first:?}");
    }
}

#[tokio::test]
async fn skipped_nodes_and_the_end_are_no_breakpoints() {
    assert_eq!(rests(before(&["never"])).await, []);
    assert_eq!(rests(after(&["never"])).await, []);
    assert_eq!(rests(after(&["sum"])).await, [], "nothing is left to pause before");
}

#[tokio::test]
async fn no_task_after_a_breakpoint_has_begun() {
    let place = Place::with_breakpoints(diamond(), before(&["right"]));
    place.start().await;
    assert_eq!(place.records().await, [("plan".to_owned(), "finished")]);
}

/// The process dies as soon as the caller knows that the answer was accepted.
#[tokio::test]
async fn an_accepted_answer_is_saved() {
    let place = Place::new(
        GraphBuilder::new::<Team>("one")
            .node("asks", asks(None))
            .edge(START, "asks")
            .edge("asks", "end"),
    );
    place.start().await;
    // The lease, and the entry with which the run continues.
    let dying = Disturbed::dying_after(2, Arc::clone(&place.storage) as Arc<dyn Checkpointer>);
    let engine = place.engine.clone().with_storage(Arc::new(dying));
    drop(engine.resume(&place.run).answer("go", true).start().await.unwrap());
    let records = [("asks".to_owned(), "asked"), ("asks".to_owned(), "answered")];
    assert_eq!(place.records().await, records);
}

/// Three steps of a second each, and an inbox.
fn patient() -> GraphBuilder {
    GraphBuilder::new::<Team>("patient")
        .inbox("notes")
        .node("one", works(Duration::from_secs(1)))
        .node("two", works(Duration::from_secs(1)))
        .node("three", works(Duration::from_secs(1)))
        .edge(START, "one")
        .edge("one", "two")
        .edge("two", "three")
}

fn message(text: &str) -> Message {
    Message::new(ChannelName::parse("notes").unwrap(), json!(text), Some("ann".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_running_workflow_processes_messages_between_steps() {
    let place = Place::new(patient());
    let say = async {
        sleep(Duration::from_millis(1500)).await;
        for text in ["faster", "shorter"] {
            place.storage.post(&place.run, &message(text)).await.unwrap();
        }
        // A message of another type is dropped, and the run continues.
        let wrong = Message { value: json!(7), ..message("") };
        place.storage.post(&place.run, &wrong).await.unwrap();
    };
    let (end, ()) = tokio::join!(place.start(), say);
    assert_eq!(notes(&end.state), ["one", "two", "faster", "shorter", "three"]);
    assert_eq!(
        (end.status, end.position.step.0),
        (Status::Done, 4),
        "taking messages in is a separate step"
    );
    let events = place.storage.events(&place.run, 0).await.unwrap();
    let said: Vec<bool> = events
        .iter()
        .filter_map(|event| match &event.event {
            Event::MessageReceived { to, by, problem } => {
                assert_eq!((to.as_str(), by.as_deref()), ("notes", Some("ann")));
                Some(problem.is_none())
            }
            _ => None,
        })
        .collect();
    assert_eq!(said, [true, true, false]);
}

/// Each message is processed once, no matter at which write the process dies.
#[tokio::test(start_paused = true)]
async fn a_crash_neither_loses_nor_repeats_a_message() {
    let mut crashes = 0;
    for writes in 1..30 {
        let storage: Arc<dyn Checkpointer> = Arc::new(InMemoryStorage::default());
        let dying = Arc::new(Disturbed::dying_after(writes, Arc::clone(&storage)));
        let info = RunInfo::new("patient");
        let run = info.id.clone();
        let events = EventSink::default();
        let stop = ShutdownHandle::default();
        let engine = Engine::new(compiled(patient())).with_storage(dying);
        let say = async {
            sleep(Duration::from_millis(500)).await;
            storage.post(&run, &message("faster")).await.unwrap();
        };
        let (end, ()) = tokio::join!(
            engine
                .run(Update::default())
                .with_info(info)
                .with_events(events.clone())
                .with_shutdown(&stop),
            say
        );
        let end = match end {
            Ok(end) => end,
            Err(error) => {
                assert!(matches!(error, RunError::Checkpoint(CheckpointError::Storage { .. })));
                crashes += 1;
                let engine = Engine::new(compiled(patient())).with_storage(Arc::clone(&storage));
                engine.resume(&run).with_events(events).with_shutdown(&stop).await.unwrap()
            }
        };
        // The step that processes the message depends on where the process died; the number of times does
        // not.
        let (heard, done): (Vec<String>, Vec<String>) =
            notes(&end.state).into_iter().partition(|it| it == "faster");
        assert_eq!(heard.len(), 1, "after {writes} writes");
        assert_eq!(done, ["one", "two", "three"], "after {writes} writes");
    }
    assert!(crashes > 3, "{crashes} crashes are too few to show anything");
}

#[tokio::test]
async fn a_stopped_run_processes_messages_before_its_next_step() {
    let place = Place::with_breakpoints(diamond().inbox("notes"), before(&["left", "sum"]));
    place.start().await;
    place.storage.post(&place.run, &message("wait")).await.unwrap();
    let end = place.answer(&[]).await.unwrap();
    assert_eq!(notes(&end.state), ["plan", "wait", "left", "right"]);
    let end = place.answer(&[]).await.unwrap();
    assert_eq!(notes(&end.state), ["plan", "wait", "left", "right", "sum"]);
}

/// Asks for a number that is not zero, under a schema that the type gives.
fn asks_for_a_divisor() -> impl Node {
    node_fn(|_: Nothing, ctx: NodeContext| async move {
        let divisor: u32 = ctx.ask(Question::new("by", "Divide by what?"))?;
        let part = 12u32.checked_div(divisor);
        let part = part.ok_or_else(|| NodeError::permanent("it divides by zero"))?;
        Ok::<_, NodeError>(Noted { notes: vec![part.to_string()] })
    })
}

#[tokio::test]
async fn an_answer_of_another_type_is_refused() {
    let graph = GraphBuilder::new::<Team>("divides").node("part", asks_for_a_divisor());
    let place = Place::new(graph.edge(START, "part"));
    place.start().await;
    for wrong in [json!("many"), json!(-1), json!(null)] {
        let refused = place.answer(&[("by", wrong)]).await;
        assert!(matches!(refused, Err(RunError::WrongAnswer { .. })), "{refused:?}");
    }
    let end = place.answer(&[("by", json!(4))]).await.unwrap();
    assert_eq!((end.status, notes(&end.state)), (Status::Done, vec!["3".to_owned()]));
}

#[tokio::test]
async fn a_new_answer_replaces_one_that_the_node_rejected() {
    let graph = GraphBuilder::new::<Team>("divides").node("part", asks_for_a_divisor());
    let place = Place::new(graph.edge(START, "part"));
    place.start().await;
    let end = place.answer(&[("by", json!(0))]).await.unwrap();
    assert_eq!(end.reason.as_deref(), Some("`part` failed: it divides by zero"));
    let wrong = place.answer(&[("by", json!("many"))]).await;
    assert!(matches!(wrong, Err(RunError::WrongAnswer { .. })), "{wrong:?}");
    // Without a new answer, the old one is used again.
    let end = place.answer(&[]).await.unwrap();
    assert_eq!(end.status, Status::Failed);

    let end = place.answer(&[("by", json!(6))]).await.unwrap();
    assert_eq!((end.status, notes(&end.state)), (Status::Done, vec!["2".to_owned()]));
    let asked = asked_questions(&place.storage.journal_without_values(&place.run).await.unwrap());
    assert_eq!(asked.len(), 1, "the question was asked once");
    let closed = place.answer(&[("by", json!(3))]).await;
    assert!(matches!(closed, Err(RunError::Closed { .. })), "{closed:?}");
}

#[tokio::test]
async fn the_end_of_a_run_has_no_private_field() {
    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    struct Drafted {
        #[schemars(extend("x-private" = true))]
        draft: Option<String>,
        text: Option<String>,
    }
    let writes = node_fn(|_: Nothing, _: NodeContext| async {
        let draft = Some("raw".to_owned());
        let text = Some("fine".to_owned());
        Ok::<_, NodeError>(Drafted { draft, text })
    });
    let place = Place::new(
        GraphBuilder::new::<Drafted>("draft").node("write", writes).edge(START, "write"),
    );
    let end = place.start().await;
    assert_eq!((end.state.get("draft"), end.state.get("text")), (None, Some(&json!("fine"))));
    let saved = place.storage.load(&place.run).await.unwrap();
    assert_eq!(saved.values.len(), 2, "nodes can use it when the run continues");
}
