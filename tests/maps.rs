//! The items of a map: what follows when people change a run of which some items have not ended.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use graphrun::{
    engine::machine::ReviseError,
    graph::{Catch, ItemPolicy, Policies, Schedule, Target},
    prelude::*,
    state::Update,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Sums {
    #[serde(default)]
    hint: String,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    log: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Log {
    log: Vec<String>,
}

/// A map over the numbers below four. The third item fails until it is repaired, the fourth one as well if it has a
/// kind that a route catches.
fn engine(fourth: Option<ErrorKind>) -> (Engine, Arc<AtomicBool>) {
    let repaired = Arc::new(AtomicBool::new(false));
    let is_repaired = Arc::clone(&repaired);
    let work = move |Item(number): Item<u64>| {
        let is_repaired = is_repaired.load(Ordering::SeqCst);
        async move {
            match (number, fourth) {
                (2, _) if !is_repaired => Err(NodeError::permanent("broken")),
                (3, Some(kind)) => Err(Failure::new(kind, "caught").into()),
                _ => Ok(Log { log: vec![number.to_string()] }),
            }
        }
    };
    let catch = fourth.map(|kind| Catch { kind: Some(kind), to: Target::End });
    let policies = Policies {
        schedule: Schedule { items: Some(ItemPolicy::default()), ..Schedule::default() },
        catch: catch.into_iter().collect(),
        ..Policies::default()
    };
    let graph = GraphBuilder::new::<Sums>("map")
        .node("work", work.with_policies(policies))
        .node("then", |sums: Sums| async move {
            Ok::<_, NodeError>(Log { log: vec![format!("then after {}", sums.log.len())] })
        })
        .route(START, ["work"], |_: &Sums| [0, 1, 2, 3].map(|it| dispatch("work", &it)))
        .edge("work", "then")
        .edge("then", END)
        .compile()
        .unwrap_or_else(|it| panic!("{it}"));
    (Engine::new(graph).with_storage(Arc::new(InMemoryStorage::default())), repaired)
}

fn hint() -> Update {
    Update::of(&json!({"hint": "try the other one"})).unwrap()
}

#[tokio::test]
async fn a_change_amid_a_partly_failed_map_lets_then_follow_once() {
    let (engine, repaired) = engine(None);
    let end = engine.run(&Sums::default()).await.unwrap();
    assert_eq!(end.status, Status::Failed, "{:?}", end.reason);
    let position = engine.update(&end.run, hint(), None).await.unwrap();
    let next: Vec<&str> = position.frontier.iter().map(|it| it.node.as_str()).collect();
    assert_eq!(next, ["work"], "only the item that failed, and `then` waits for it");
    repaired.store(true, Ordering::SeqCst);
    let end = engine.resume(&end.run).await.unwrap();
    let log = end.output::<Sums>().unwrap().log;
    assert_eq!(log, ["0", "1", "3", "2", "then after 4"]);
}

#[tokio::test]
async fn a_change_in_place_of_the_failed_item_ends_the_map() {
    let (engine, _) = engine(None);
    let end = engine.run(&Sums::default()).await.unwrap();
    let update = Update::of(&json!({"log": ["by hand"]})).unwrap();
    engine.update(&end.run, update, Some(&NodeName::parse("work").unwrap())).await.unwrap();
    let end = engine.resume(&end.run).await.unwrap();
    let log = end.output::<Sums>().unwrap().log;
    assert_eq!(log, ["0", "1", "by hand", "3", "then after 4"]);
}

#[tokio::test]
async fn a_change_is_refused_while_a_caught_item_waits_for_the_others() {
    let (engine, repaired) = engine(Some(ErrorKind::Refused));
    let end = engine.run(&Sums::default()).await.unwrap();
    assert_eq!(end.status, Status::Failed);
    let refused = engine.update(&end.run, hint(), None).await.unwrap_err();
    let RunError::Revise(ReviseError::OpenMap { node }) = &refused else { panic!("{refused:?}") };
    assert_eq!(node.as_str(), "work");
    repaired.store(true, Ordering::SeqCst);
    let end = engine.retry(&end.run).await.unwrap();
    assert_eq!(
        end.output::<Sums>().unwrap().log,
        ["0", "1", "2"],
        "the caught item led to the end"
    );
}
