//! `graph-flow`: the tasks of a run read and write a shared context, one at a time.

use std::sync::Arc;

use async_trait::async_trait;
use graph_flow::{
    Context, ExecutionStatus, FanOutTask, Graph, GraphBuilder, NextAction, Result, Session, Task,
    TaskResult,
};
use tokio::task::JoinSet;

use crate::measure::{
    CHAIN, CHANNELS, DISPATCH, EDGES, Measure, RUNS, STEP_IN_MEMORY, STEP_ON_DISK, STEPS, STORY,
    TEAM, TEAM_RUNS, TEAM_SAVED, WAIT, WAITS, WIDE, WIDTH, sum_of_squares,
};

pub fn measure(measure: &Measure) {
    let counter = counter();
    measure.row(CHAIN, STEPS, || measure.busy(count(&counter, 1)));
    measure.row(WIDE, STEPS, || measure.busy(count(&counter, CHANNELS)));

    let squares = squares();
    measure.row(EDGES, WIDTH, || measure.busy(spread(&squares)));

    measure.absent(DISPATCH, "only a fixed set of tasks can run in parallel");

    let team = team();
    measure.row(TEAM, TEAM_RUNS, || {
        measure.busy(async {
            for _ in 0..TEAM_RUNS {
                let end = run(&team, Context::new(), "ba").await;
                assert_eq!(end.get("code"), Some(4));
            }
        })
    });

    let waits = Arc::new(waits());
    measure.row(WAITS, 1_000, || measure.elapsed(wait_in_many_runs(Arc::clone(&waits))));

    for row in [TEAM_SAVED, STEP_IN_MEMORY, STEP_ON_DISK] {
        measure.absent(row.name, "sessions are saved in PostgreSQL only");
    }
}

/// A task that writes to the context, and says where the run continues.
struct Step<F> {
    name: String,
    work: F,
}

#[async_trait]
impl<F: Fn(&Context) -> Result<NextAction> + Send + Sync> Task for Step<F> {
    fn id(&self) -> &str {
        &self.name
    }

    async fn run(&self, context: Context) -> Result<TaskResult> {
        Ok(TaskResult::new(None, (self.work)(&context)?))
    }
}

fn step(
    name: &str,
    work: impl Fn(&Context) -> Result<NextAction> + Send + Sync + 'static,
) -> Arc<dyn Task> {
    Arc::new(Step { name: name.to_owned(), work })
}

fn number(context: &Context, name: &str) -> u64 {
    context.get(name).unwrap_or_default()
}

/// Runs a graph to its end in one call, without storage.
async fn run(graph: &Graph, context: Context, start: &str) -> Context {
    let mut session = Session::new_from_task("run".to_owned(), start);
    session.context = context;
    let end = graph.execute_session(&mut session).await.unwrap();
    assert!(matches!(end.status, ExecutionStatus::Completed), "{end:?}");
    session.context
}

fn counter() -> Graph {
    let increment = step("increment", |context| {
        let count = number(context, "count") + 1;
        context.set("count", count)?;
        Ok(if count == STEPS { NextAction::End } else { NextAction::ContinueAndExecute })
    });
    GraphBuilder::new("counter")
        .add_task(increment)
        .add_edge("increment", "increment")
        .build()
        .unwrap()
}

/// Counts in a context with this many keys.
async fn count(graph: &Graph, channels: usize) {
    let context = Context::new();
    context.set("count", 0).unwrap();
    for other in 1..channels {
        context.set(format!("other_{other:03}"), 0).unwrap();
    }
    assert_eq!(run(graph, context, "increment").await.get("count"), Some(STEPS));
}

/// A task that runs others in parallel, and one that merges their keys, since a key has no reducer.
fn squares() -> Graph {
    let names: Vec<String> = (0..WIDTH).map(|it| format!("square_{it:03}")).collect();
    let square = |(item, name): (u64, &String)| {
        let key = name.clone();
        step(name, move |context| {
            context.set(key.as_str(), item * item)?;
            Ok(NextAction::End)
        })
    };
    let squares = (0..WIDTH).zip(&names).map(square).collect();
    let squares =
        FanOutTask::new("squares", squares).with_next_action(NextAction::ContinueAndExecute);
    let merge = step("merge", move |context| {
        let items: Vec<u64> = names.iter().filter_map(|it| context.get(it)).collect();
        context.set("items", items)?;
        Ok(NextAction::End)
    });
    GraphBuilder::new("squares")
        .add_task(squares)
        .add_task(merge)
        .add_edge("squares", "merge")
        .build()
        .unwrap()
}

async fn spread(graph: &Graph) {
    let items: Vec<u64> = run(graph, Context::new(), "squares").await.get("items").unwrap();
    assert_eq!(items.iter().sum::<u64>(), sum_of_squares());
}

struct Wait(String);

#[async_trait]
impl Task for Wait {
    fn id(&self) -> &str {
        &self.0
    }

    async fn run(&self, _: Context) -> Result<TaskResult> {
        tokio::time::sleep(WAIT).await;
        let is_last = self.0 == "wait_4";
        let next = if is_last { NextAction::End } else { NextAction::ContinueAndExecute };
        Ok(TaskResult::new(None, next))
    }
}

fn waits() -> Graph {
    let names: Vec<String> = (0..5).map(|it| format!("wait_{it}")).collect();
    let mut graph = GraphBuilder::new("waits");
    for name in &names {
        graph = graph.add_task(Arc::new(Wait(name.clone())));
    }
    for pair in names.windows(2) {
        graph = graph.add_edge(&pair[0], &pair[1]);
    }
    graph.build().unwrap()
}

async fn wait_in_many_runs(graph: Arc<Graph>) {
    let mut runs = JoinSet::new();
    for _ in 0..RUNS {
        let graph = Arc::clone(&graph);
        runs.spawn(async move { run(&graph, Context::new(), "wait_0").await });
    }
    assert_eq!(runs.join_all().await.len(), RUNS);
}

fn team() -> Graph {
    let ba = step("ba", |context| {
        context.set("story", STORY)?;
        Ok(NextAction::ContinueAndExecute)
    });
    let architect = step("architect", |context| {
        context.set("design", context.get::<String>("story"))?;
        Ok(NextAction::ContinueAndExecute)
    });
    let sse = step("sse", |context| {
        context.set("code", number(context, "code") + 1)?;
        Ok(NextAction::ContinueAndExecute)
    });
    let tests = step("tests", |context| {
        context.set("passed", number(context, "code") > 2)?;
        Ok(NextAction::ContinueAndExecute)
    });
    let qa = step("qa", |context| {
        context.set("reviews", number(context, "reviews") + 1)?;
        Ok(NextAction::ContinueAndExecute)
    });
    let passed = |context: &Context| context.get("passed").unwrap_or_default();
    let reviewed = |context: &Context| number(context, "reviews") > 1;
    GraphBuilder::new("team")
        .add_task(ba)
        .add_task(architect)
        .add_task(sse)
        .add_task(tests)
        .add_task(qa)
        .add_task(step("deliver", |_| Ok(NextAction::End)))
        .add_edge("ba", "architect")
        .add_edge("architect", "sse")
        .add_edge("sse", "tests")
        .add_conditional_edge("tests", passed, "qa", "sse")
        .add_conditional_edge("qa", reviewed, "deliver", "sse")
        .build()
        .unwrap()
}
