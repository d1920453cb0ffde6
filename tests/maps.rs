//! The items of a map: how many run at once, and what follows when people change a run of which some items have not
//! ended.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use graphrun::{
    engine::machine::ReviseError,
    graph::{
        Catch, ItemNeeds, ItemOrder, ItemPolicy, ItemReads, Policies, RouteError, RouteView,
        Schedule, Target,
    },
    id::ChannelName,
    prelude::*,
    state::{Type, Update},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Sums {
    #[serde(default)]
    hint: String,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    log: Vec<String>,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    lost: Vec<Value>,
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

/// Each number but 0 needs its half.
#[derive(Debug)]
struct AfterHalf;

impl ItemOrder for AfterHalf {
    fn needs(&self, items: &[&Value], _: &RouteView<'_>) -> Result<ItemNeeds, RouteError> {
        let half = |it: usize| if it == 0 { Vec::new() } else { vec![it / 2] };
        Ok(ItemNeeds {
            keys: items.iter().map(ToString::to_string).collect(),
            needs: (0..items.len()).map(half).collect(),
            missing: None,
        })
    }

    fn reads(&self) -> ItemReads {
        ItemReads { item: Type::INT, key: vec![Vec::new()], after: vec![Vec::new()] }
    }
}

/// In the next step the remaining items are a separate list, without the numbers and the results of the others.
#[tokio::test]
async fn a_change_is_refused_amid_a_map_whose_items_depend_on_the_others() {
    let order = Some(Arc::new(AfterHalf) as Arc<dyn ItemOrder>);
    let failed = Some(ChannelName::parse("lost").unwrap());
    let ordered = ItemPolicy { order, failed: None };
    let collecting = ItemPolicy { order: None, failed };
    for policy in [ordered, collecting] {
        let work = |Item(number): Item<u64>| async move {
            // No `failed` takes a failure of this kind.
            let failure = Failure::new(ErrorKind::Credentials, "no key");
            if number == 2 {
                Err(NodeError::from(failure))
            } else {
                Ok(Log { log: vec![number.to_string()] })
            }
        };
        let schedule = Schedule { items: Some(policy), ..Schedule::default() };
        let graph = GraphBuilder::new::<Sums>("map")
            .node("work", work.with_policies(Policies::from(schedule)))
            .route(START, ["work"], |_: &Sums| [0, 1, 2, 3].map(|it| dispatch("work", &it)))
            .edge("work", END)
            .compile()
            .unwrap_or_else(|it| panic!("{it}"));
        let engine = Engine::new(graph).with_storage(Arc::new(InMemoryStorage::default()));
        let end = engine.run(&Sums::default()).await.unwrap();
        assert_eq!(end.status, Status::Failed, "{:?}", end.reason);
        let refused = engine.update(&end.run, hint(), None).await.unwrap_err();
        let RunError::Revise(ReviseError::PartlyDone { node }) = &refused else {
            panic!("{refused:?}")
        };
        assert_eq!(node.as_str(), "work");
        // In place of the last item that has not ended, the map ends.
        let update = Update::of(&json!({"log": ["by hand"]})).unwrap();
        let work = NodeName::parse("work").unwrap();
        let position = engine.update(&end.run, update, Some(&work)).await.unwrap();
        assert!(position.frontier.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn items_that_need_others_run_as_wide_as_allowed() {
    let order = Some(Arc::new(AfterHalf) as Arc<dyn ItemOrder>);
    for (width, expected) in [(1, 1), (2, 2), (3, 3), (40, 8)] {
        // The items that run, those that have ended, and the most that ran at once.
        let items: Arc<Mutex<(u64, Vec<u64>, u64)>> = Arc::default();
        let seen = Arc::clone(&items);
        let work = move |Item(number): Item<u64>| {
            let seen = Arc::clone(&seen);
            async move {
                let begin = |(running, ended, most): &mut (u64, Vec<u64>, u64)| {
                    assert!(
                        number == 0 || ended.contains(&(number / 2)),
                        "{number} needs its half"
                    );
                    *running += 1;
                    *most = (*most).max(*running);
                };
                begin(&mut seen.lock().unwrap());
                tokio::time::sleep(Duration::from_millis(10 + number)).await;
                let (running, ended, _) = &mut *seen.lock().unwrap();
                *running -= 1;
                ended.push(number);
                Ok::<_, NodeError>(Log { log: vec![number.to_string()] })
            }
        };
        let items_of_map = Some(ItemPolicy { order: order.clone(), ..ItemPolicy::default() });
        let schedule =
            Schedule { items: items_of_map, width_max: Some(width), ..Schedule::default() };
        let graph = GraphBuilder::new::<Sums>("map")
            .node("work", work.with_policies(Policies::from(schedule)))
            .route(START, ["work"], |_: &Sums| {
                (0..16_u64).map(|it| dispatch("work", &it)).collect::<Vec<_>>()
            })
            .edge("work", END)
            .compile()
            .unwrap_or_else(|it| panic!("{it}"));
        let end = Engine::new(graph).run(&Sums::default()).await.unwrap();
        let in_order: Vec<String> = (0..16).map(|it: u64| it.to_string()).collect();
        assert_eq!(end.output::<Sums>().unwrap().log, in_order, "the results have item order");
        assert_eq!(items.lock().unwrap().2, expected, "with a width of {width}");
    }
}
