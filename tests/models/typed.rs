//! Answers of a type in the forms in which models write them, against a whole run in each protocol.

use axum::response::IntoResponse as _;
use graphrun::{
    event::{Event, EventSink, Report, Status},
    models::Protocol,
};
use serde_json::{Value, json};

use super::{bench, matrix::reply_with, peer::Peer};

/// An answer of a model, and what becomes of it.
struct Row {
    answer: &'static str,
    /// The value, or words of the failure.
    expected: Result<Value, &'static str>,
    /// Words of a warning.
    warning: Option<&'static str>,
}

fn rows() -> [Row; 8] {
    let teal = || Ok(json!({"name": "teal", "depth": 3}));
    let row = |answer, expected, warning| Row { answer, expected, warning };
    [
        row(r#"{"name": "teal", "depth": 3}"#, teal(), None),
        row("```json\n{\"name\": \"teal\", \"depth\": 3}\n```", teal(), None),
        row(r#"I choose {"name": "teal", "depth": 3}, as you asked."#, teal(), None),
        row(
            r#"{"name": "teal", "depth": 3} {"name": "dark_red", "depth": 4}"#,
            teal(),
            Some("several JSON values that differ"),
        ),
        row(r#"{"name": "Dark-Red", "depth": 3}"#, Err("name"), None),
        row(r#"{"name": "teal", "depth": "deep"}"#, Err("depth"), None),
        row(r#"{"name": "teal"}"#, Err("depth"), None),
        row(r#"{"name": "teal", "depth": 3, "mood": "calm"}"#, Err("mood"), None),
    ]
}

#[tokio::test]
async fn an_answer_of_a_type_is_read_or_repaired() {
    for protocol in Protocol::ALL {
        for Row { answer, expected, warning } in rows() {
            let name = format!("{protocol:?} {answer}");
            let peer =
                Peer::start(move |_| reply_with(*protocol, answer).to_string().into_response())
                    .await;
            let (engine, _) = bench::engine_with_type(peer.client_with(*protocol));
            let mut sink = EventSink::default();
            let mut events = sink.subscribe();
            let end = engine.run(&()).with_events(sink).await.unwrap();
            let mut warnings = Vec::new();
            let mut failures = Vec::new();
            let mut input_tokens = 0;
            while let Some(event) = events.recv().await {
                match event.event {
                    Event::TaskReported { report: Report::Warning { message }, .. } => {
                        warnings.push(message);
                    }
                    Event::TaskFailed { kind, error, .. } => failures.push((kind, error)),
                    Event::RunFinished { usage, .. } => input_tokens = usage.tokens.input_tokens,
                    _ => {}
                }
            }
            // A bad answer is sent back twice.
            let (requests, tokens) = if expected.is_ok() { (1, 11) } else { (3, 33) };
            assert_eq!(
                (peer.seen().len(), input_tokens),
                (requests, tokens),
                "{name}: {failures:?}"
            );
            match expected {
                Ok(value) => {
                    assert_eq!((end.status, end.state.get("colour")), (Status::Done, Some(&value)));
                    let found = warnings.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
                    assert_eq!(warnings.len(), usize::from(warning.is_some()), "{name}: {found}");
                    assert!(found.contains(warning.unwrap_or_default()), "{name}: {found}");
                }
                Err(words) => {
                    let [(kind, error)] = &failures[..] else { panic!("{name}: {failures:?}") };
                    assert_eq!(kind, "invalid_output", "{name}");
                    assert!(error.contains(words), "{name}: {error}");
                }
            }
        }
    }
}
