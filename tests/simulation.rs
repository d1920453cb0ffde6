//! Random graphs under random faults: processes that die between any two writes, writes that are refused or come to pass
//! unnoticed, nodes that panic, hang, fail and take their time, answers that are wrong or given twice.
//!
//! Each seed is one graph and one fate. `GRAPHRUN_SEED=17` tries one seed, `GRAPHRUN_SEEDS=50000` more than usual.

use std::{
    collections::BTreeMap,
    env,
    panic::catch_unwind,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use graphrun::{
    checkpoint::{
        CheckpointError, Checkpointer, Claim, Entry, Hold, Link, Logged, Message, Position, Posted,
        RunInfo, RunSummary, SavedRun,
    },
    compile::{CompiledGraph, compile},
    engine::{Engine, RunEnd, RunError, Stop},
    event::{Event, EventSink, Stamped, Status},
    graph::{
        Backoff, Catch, Dispatch, GraphBuilder, Node, NodeContext, NodeError, Policies, Question,
        Target, node_fn,
    },
    id::{ChannelName, NodeName, RunId, Step, TaskId},
    state::{State, Update},
    storage::MemoryStorage,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{
    runtime,
    time::{sleep, timeout},
};

/// How many seeds are tried where nobody says otherwise.
const SEEDS: u64 = 500;

/// After so many disturbed lives a run is left in peace.
const DISTURBED_MAX: usize = 12;

/// After so many lives in all it should have come to its end.
const LIVES_MAX: usize = 60;

/// How long a life may take, by a clock that jumps from event to event. Without faults none takes a minute.
const LIFE_MAX: Duration = Duration::from_secs(600);

#[test]
fn g1_g2_g3_g18_g20_random_runs_under_random_faults_end_as_undisturbed_ones_do() {
    let number = |name| env::var(name).ok().map(|it: String| it.parse().expect("it is a number"));
    let seeds = match number("GRAPHRUN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GRAPHRUN_SEEDS").unwrap_or(SEEDS),
    };
    let (mut lives, mut runs) = (0, 0);
    for seed in seeds {
        let lived = catch_unwind(|| check(seed));
        let lived = lived.unwrap_or_else(|_| panic!("GRAPHRUN_SEED={seed} tries this one alone"));
        (lives, runs) = (lives + lived, runs + 1);
    }
    println!("{runs} runs had {lives} lives");
    assert!(runs == 1 || lives > runs * 2, "too little has happened to them");
}

/// Compares a disturbed run with one that is not. Gives back how many lives it had.
fn check(seed: u64) -> usize {
    let runtime = runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut random = StdRng::seed_from_u64(seed);
        let parts = parts(&mut random);
        let calm = World::default();
        let graph = graph(&parts, &calm);
        let mut undisturbed = Fate::new(graph.clone());
        let expected = undisturbed.see_through(&calm, None).await;

        let world = World { lazy: Some(random.random()), ..World::default() };
        let graph = self::graph(&parts, &world);
        let mut fate = Fate::new(graph);
        let state = fate.see_through(&world, Some(&mut random)).await;
        assert_eq!(state, expected, "{parts:?}");
        let (begun, usual) = (world.begun(), calm.begun());
        assert!(begun.keys().eq(usual.keys()), "{parts:?}: {begun:?} and not {usual:?}");
        for (attempt, count) in begun {
            // Each question that is answered starts its task over; its life before counts as well.
            let asked = usual[&attempt] - 1;
            assert!(count <= fate.lives + asked, "{parts:?}: {attempt:?} was begun {count} times");
        }
        fate.lives
    })
}

/// A part of a graph: a way from its first node to its last.
#[derive(Clone, Copy, Debug)]
enum Part {
    One(Temper),
    /// Branches, and a join.
    Fan([Temper; 3]),
    /// A node for each of so many items, at most so many at a time, and a join.
    Map(u32, usize),
    /// Two nodes that go around until the bound of the first is used up.
    Loop(u32),
}

/// How a node behaves. What it does follows from its task and attempt alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Temper {
    Steady,
    /// Fails that often first.
    Fails(u32),
    /// Panics; a route catches that.
    Panics,
    /// Never ends the first time, and has a timeout.
    Hangs,
    /// Asks a person.
    Asks,
}

/// What is known of nodes outside of their runs.
#[derive(Clone, Default)]
struct World {
    begun: Arc<Mutex<BTreeMap<(TaskId, u32), usize>>>,
    /// Makes nodes take their time, each time another.
    lazy: Option<u64>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Channels {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    notes: Vec<String>,
    #[serde(default)]
    #[schemars(extend("x-merge" = "sum"))]
    sum: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Serialize, JsonSchema)]
struct Noted {
    notes: Vec<String>,
    sum: u64,
}

impl World {
    fn begun(&self) -> BTreeMap<(TaskId, u32), usize> {
        self.begun.lock().unwrap().clone()
    }

    /// How often each task was begun, all attempts together.
    fn tasks(&self) -> BTreeMap<TaskId, usize> {
        let mut tasks = BTreeMap::new();
        for ((task, _), count) in self.begun() {
            *tasks.entry(task).or_default() += count;
        }
        tasks
    }

    /// A node of this world.
    fn node(&self, temper: Temper) -> impl Node + 'static {
        let world = self.clone();
        node_fn(move |_: Nothing, ctx: NodeContext| {
            let world = world.clone();
            async move {
                let nth = {
                    let mut begun = world.begun.lock().unwrap();
                    let nth = begun.entry((ctx.task, ctx.attempt)).or_default();
                    *nth += 1;
                    u64::try_from(*nth).unwrap()
                };
                if let Some(seed) = world.lazy {
                    let mixed = ctx.task.step.0 ^ u64::from(ctx.task.index) << 8 ^ nth << 16;
                    let mut random = StdRng::seed_from_u64(seed ^ mixed);
                    sleep(Duration::from_millis(random.random_range(0..50))).await;
                }
                match temper {
                    Temper::Fails(times) if ctx.attempt <= times => {
                        return Err(NodeError::transient(format!("attempt {}", ctx.attempt)));
                    }
                    Temper::Panics => panic!("a node that always panics"),
                    Temper::Hangs if ctx.attempt == 1 => std::future::pending().await,
                    Temper::Asks => {
                        let question = Question::new(format!("q{}", ctx.task), "how many?");
                        let question = question.with_schema(json!({"type": "integer"}));
                        let answer: u64 = ctx.ask(question)?;
                        return Ok(Noted { notes: vec![format!("{answer}")], sum: answer });
                    }
                    _ => (),
                }
                let item = ctx.input.item().map(ToString::to_string).unwrap_or_default();
                let note = format!("{} {} {item} {}", ctx.node, ctx.task, ctx.attempt);
                Ok(Noted { notes: vec![note], sum: ctx.task.step.0 })
            }
        })
    }
}

impl Temper {
    fn random(random: &mut StdRng) -> Self {
        match random.random_range(0..9) {
            0 => Self::Fails(1),
            1 => Self::Fails(2),
            2 => Self::Panics,
            3 => Self::Hangs,
            4 | 5 => Self::Asks,
            _ => Self::Steady,
        }
    }

    fn policies(self, next: &str) -> Policies {
        let (initial, max) = (Duration::from_millis(20), Duration::from_millis(100));
        let retry = Backoff { attempts_max: 4, initial, max };
        match self {
            Self::Steady | Self::Asks => Policies::default(),
            Self::Fails(_) => Policies { retry, ..Policies::default() },
            Self::Hangs => {
                Policies { retry, timeout: Some(Duration::from_secs(2)), ..Policies::default() }
            }
            Self::Panics => {
                let catch = vec![Catch { kind: None, to: Target::Node(name(next)) }];
                Policies { catch, ..Policies::default() }
            }
        }
    }
}

fn parts(random: &mut StdRng) -> Vec<Part> {
    let part = |random: &mut StdRng| match random.random_range(0..6) {
        0 | 1 => Part::Fan([(); 3].map(|()| match Temper::random(random) {
            // A branch that fails leads elsewhere, and its join would wait for ever.
            Temper::Panics => Temper::Steady,
            temper => temper,
        })),
        2 => Part::Map(random.random_range(1..6), random.random_range(1..4)),
        3 => Part::Loop(random.random_range(1..4)),
        _ => Part::One(Temper::random(random)),
    };
    (0..random.random_range(2..6)).map(|_| part(random)).collect()
}

/// The parts, one after the other.
fn graph(parts: &[Part], world: &World) -> CompiledGraph {
    let mut graph = GraphBuilder::new::<Channels>("random").entry("n0");
    for (at, part) in parts.iter().enumerate() {
        let (first, next) = (format!("n{at}"), format!("n{}", at + 1));
        let (inner, last) = (format!("i{at}"), format!("j{at}"));
        let steady = || world.node(Temper::Steady);
        graph = match *part {
            Part::One(temper) => graph
                .node_with(&first, world.node(temper), temper.policies(&next))
                .then(&first, &next),
            Part::Fan(tempers) => {
                let branches = [0, 1, 2].map(|it| format!("{inner}_{it}"));
                graph = graph.node(&first, steady()).node(&last, steady());
                for (branch, temper) in branches.iter().zip(tempers) {
                    graph = graph
                        .node_with(branch, world.node(temper), temper.policies(&last))
                        .then(&first, branch);
                }
                graph.join([&*branches[0], &*branches[1], &*branches[2]], &last).then(&last, &next)
            }
            Part::Map(items, width) => {
                let narrow = Policies { width_max: Some(width), ..Policies::default() };
                let to = name(&inner);
                graph
                    .node(&first, steady())
                    .node_with(&inner, steady(), narrow)
                    .node(&last, steady())
                    .route(&first, [&*inner], move |_: &Nothing| {
                        let send = |it| Dispatch { node: to.clone(), input: json!(it) };
                        (0..items).map(send).collect::<Vec<_>>()
                    })
                    .join([&*inner], &last)
                    .then(&last, &next)
            }
            Part::Loop(rounds) => {
                let exhausted = Some(Target::Node(name(&next)));
                let bound = Policies { max_visits: Some(rounds), exhausted, ..Policies::default() };
                graph
                    .node_with(&first, steady(), bound)
                    .node(&inner, steady())
                    .then(&first, &inner)
                    .then(&inner, &first)
            }
        };
    }
    let last = format!("n{}", parts.len());
    let graph = graph.node(&last, world.node(Temper::Steady)).then(&last, "end");
    compile(graph.build()).unwrap_or_else(|it| panic!("{parts:?}: {it:?}")).0
}

fn name(text: &str) -> NodeName {
    NodeName::parse(text).unwrap()
}

/// What happens to one run, life after life.
struct Fate {
    graph: CompiledGraph,
    storage: Arc<MemoryStorage>,
    info: RunInfo,
    lives: usize,
}

impl Fate {
    fn new(graph: CompiledGraph) -> Self {
        let info = RunInfo::new("random");
        Self { graph, storage: Arc::default(), info, lives: 0 }
    }

    /// Goes on with the run, life after life, until it is done.
    async fn see_through(&mut self, world: &World, mut random: Option<&mut StdRng>) -> State {
        loop {
            self.lives += 1;
            assert!(self.lives <= LIVES_MAX, "it never comes to its end");
            let disturbing = random.as_deref_mut().filter(|_| self.lives <= DISTURBED_MAX);
            let (links, finished) = (self.links().await, self.finished().await);
            let begun = world.tasks();
            let (end, told) = self.live(disturbing).await;

            // What was saved is still there, and first; what had finished was not done again.
            assert!(self.links().await.starts_with(&links), "it has another history now");
            for task in finished {
                assert_eq!(world.tasks()[&task], begun[&task], "{task} ran again");
            }
            self.compare_events(&told).await;
            match end {
                Some(Ok(end)) if end.status == Status::Done => return end.state,
                Some(Ok(end)) => {
                    let rests = [Status::Paused, Status::Interrupted];
                    assert!(rests.contains(&end.status), "{:?}: {:?}", end.status, end.reason);
                }
                // It died after its last write, or somebody died there for it.
                Some(Err(RunError::NothingToDo(Status::Done))) => {
                    let saved = self.storage.load(&self.info.id).await.unwrap();
                    return self.graph.schema().restore(saved.values).unwrap();
                }
                Some(Err(RunError::Checkpoint(CheckpointError::Storage { .. }))) | None => (),
                Some(Err(error)) => panic!("{error:?}"),
            }
        }
    }

    /// One life: a process that starts the run or goes on with it. None is the end of one that was killed.
    async fn live(
        &self,
        mut random: Option<&mut StdRng>,
    ) -> (Option<Result<RunEnd, RunError>>, Vec<Stamped>) {
        let fault = random.as_mut().map_or(Fault::None, |it| Fault::random(it));
        let killed = random.as_mut().and_then(|it| {
            let after = Duration::from_millis(it.random_range(0..400));
            it.random_ratio(1, 3).then_some(after)
        });
        let inner = Arc::clone(&self.storage);
        let storage = Arc::new(Faulty { inner, fault, writes: Mutex::new(0) });
        let engine = Engine::new(self.graph.clone(), storage);
        let (mut sink, stop, id) = (EventSink::default(), Stop::default(), &self.info.id);
        let mut told = sink.subscribe();
        let work = async {
            let found = self.storage.find(id.as_str()).await;
            if matches!(found, Err(CheckpointError::UnknownRun(_))) {
                engine.start(self.info.clone(), Update::default(), sink, &stop).await
            } else {
                let answers = self.answers(random.as_deref_mut(), &engine).await;
                engine.resume(id, answers, sink, &stop).await
            }
        };
        let end = match killed {
            Some(after) => timeout(after, work).await.ok(),
            None => Some(timeout(LIFE_MAX, work).await.expect("a life has an end")),
        };
        let mut heard = Vec::new();
        while let Ok(event) = told.try_recv() {
            heard.push(event);
        }
        (end, heard)
    }

    /// Answers to some of the open questions. Wrong ones are tried before, and change nothing.
    async fn answers(
        &self,
        random: Option<&mut StdRng>,
        engine: &Engine,
    ) -> BTreeMap<String, serde_json::Value> {
        let saved = self.storage.load(&self.info.id).await.unwrap();
        let mut open = BTreeMap::new();
        for record in &saved.records {
            match &record.outcome {
                graphrun::checkpoint::Outcome::Asked { question, .. } => {
                    open.insert(question.key.clone(), json!(record.task.step.0));
                }
                graphrun::checkpoint::Outcome::Answered { key, .. } => {
                    open.remove(key);
                }
                _ => (),
            }
        }
        let Some(random) = random else { return open };
        for (key, answer) in
            [(open.keys().next().cloned(), json!("many")), (Some("q0".into()), json!(1))]
        {
            let Some(key) = key.filter(|_| random.random_ratio(1, 4)) else { continue };
            let links = self.links().await;
            let (answers, stop) = (BTreeMap::from([(key, answer)]), Stop::default());
            let refused = engine.resume(&self.info.id, answers, EventSink::default(), &stop).await;
            assert!(refused.is_err(), "a wrong answer was taken: {refused:?}");
            assert_eq!(self.links().await, links, "a wrong answer has changed something");
        }
        open.retain(|_, _| random.random_ratio(2, 3));
        open
    }

    async fn journal(&self) -> Vec<Logged> {
        match self.storage.journal(&self.info.id, 0, usize::MAX).await {
            Err(CheckpointError::UnknownRun(_)) => Vec::new(),
            journal => journal.unwrap(),
        }
    }

    async fn links(&self) -> Vec<Link> {
        self.journal().await.iter().map(|it| it.link).collect()
    }

    async fn finished(&self) -> Vec<TaskId> {
        let journal = self.journal().await;
        let records = journal.iter().flat_map(|it| &it.entry.records);
        records.filter(|it| it.outcome.is_final()).map(|it| it.task).collect()
    }

    /// Events are numbered without gaps, and what was told of as done was saved before.
    async fn compare_events(&self, told: &[Stamped]) {
        let saved: Vec<Stamped> =
            self.journal().await.into_iter().flat_map(|it| it.entry.events).collect();
        assert!(saved.iter().map(|it| it.seq).eq(1..=saved.len() as u64), "gaps: {saved:?}");
        assert!(told.windows(2).all(|it| it[1].seq == it[0].seq + 1), "gaps: {told:?}");
        for event in told {
            let is_begun = matches!(
                event.event,
                Event::TaskStarted { .. } | Event::TaskReported { .. } | Event::TaskRetrying { .. }
            );
            let at = usize::try_from(event.seq).unwrap() - 1;
            assert!(is_begun || saved.get(at) == Some(event), "told and not saved: {event:?}");
        }
    }
}

/// What happens to one write of a life, and to those after it.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// The process dies before it is made.
    Before(usize),
    /// It is made, and the process dies before it knows.
    After(usize),
    /// It is refused, and later ones are not.
    Refused(usize),
}

/// A storage to which something happens.
#[derive(Debug)]
struct Faulty {
    inner: Arc<MemoryStorage>,
    fault: Fault,
    writes: Mutex<usize>,
}

impl Fault {
    fn random(random: &mut StdRng) -> Self {
        let nth = random.random_range(0..8);
        match random.random_range(0..4) {
            0 => Self::None,
            1 => Self::Before(nth),
            2 => Self::After(nth),
            _ => Self::Refused(nth),
        }
    }
}

impl Faulty {
    /// Makes a write, unless something happens.
    async fn write<T>(
        &self,
        write: impl Future<Output = Result<T, CheckpointError>>,
    ) -> Result<T, CheckpointError> {
        let lost = || CheckpointError::Storage { action: "write".into(), source: "lost".into() };
        let at = {
            let mut writes = self.writes.lock().unwrap();
            *writes += 1;
            *writes - 1
        };
        match self.fault {
            Fault::Before(nth) if at >= nth => Err(lost()),
            Fault::After(nth) if at > nth => Err(lost()),
            Fault::After(nth) if at == nth => {
                write.await?;
                Err(lost())
            }
            Fault::Refused(nth) if at == nth => Err(lost()),
            _ => write.await,
        }
    }
}

#[async_trait]
impl Checkpointer for Faulty {
    async fn create(
        &self,
        info: &RunInfo,
        claim: &Claim,
        first: &Entry,
    ) -> Result<Hold, CheckpointError> {
        self.write(self.inner.create(info, claim, first)).await
    }

    async fn acquire(&self, run: &RunId, claim: &Claim) -> Result<Hold, CheckpointError> {
        self.inner.acquire(run, claim).await
    }

    async fn renew(&self, hold: &Hold, ttl: Duration) -> Result<(), CheckpointError> {
        self.inner.renew(hold, ttl).await
    }

    async fn release(&self, _: &Hold) -> Result<(), CheckpointError> {
        // The dead give nothing back.
        Ok(())
    }

    async fn append(&self, hold: &Hold, entry: &Entry) -> Result<(), CheckpointError> {
        self.write(self.inner.append(hold, entry)).await
    }

    async fn load(&self, run: &RunId) -> Result<SavedRun, CheckpointError> {
        self.inner.load(run).await
    }

    async fn find(&self, id_or_name: &str) -> Result<RunSummary, CheckpointError> {
        self.inner.find(id_or_name).await
    }

    async fn page(
        &self,
        before: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, CheckpointError> {
        self.inner.page(before, limit).await
    }

    async fn journal(
        &self,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Logged>, CheckpointError> {
        self.inner.journal(run, after, limit).await
    }

    async fn post(&self, run: &RunId, message: &Message) -> Result<u64, CheckpointError> {
        self.inner.post(run, message).await
    }

    async fn inbox(&self, run: &RunId, after: u64) -> Result<Vec<Posted>, CheckpointError> {
        self.inner.inbox(run, after).await
    }

    async fn remove(&self, run: &RunId) -> Result<(), CheckpointError> {
        self.inner.remove(run).await
    }

    async fn checkpoint_at(
        &self,
        run: &RunId,
        step: Step,
    ) -> Result<(Position, BTreeMap<ChannelName, serde_json::Value>), CheckpointError> {
        self.inner.checkpoint_at(run, step).await
    }
}
