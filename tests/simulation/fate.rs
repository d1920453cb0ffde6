//! One run over several lives: each life is a process.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use graphrun::{
    checkpoint::{
        CheckpointError, Checkpointer, EntryHash, JournalEntry, Outcome, RunHistory as _, RunInfo,
        RunJournal as _, RunList as _, TaskRecord,
    },
    compile::CompiledGraph,
    engine::{Clock, Engine, RunEnd, RunError, ShutdownHandle},
    event::{Event, EventSink, RunEvent, Status},
    graph::Limits,
    id::{RunId, TaskId},
    state::{State, Update},
    storage::InMemoryStorage,
};
use jiff::{SignedDuration, Timestamp};
use rand::{RngExt as _, rngs::StdRng};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    simulation::world::World,
    support::disturbed::{Disturbed, Happens},
};

/// After this many disturbed lives, a run continues without disturbances.
const DISTURBED_MAX: usize = 12;

/// After this many lives in total, a run should have ended.
const LIVES_MAX: usize = 60;

/// The maximum duration of a life, by a clock that jumps from event to event. Without faults few take more
/// than a minute.
const LIFE_MAX: Duration = Duration::from_secs(1_200);

/// A run and its history.
pub(crate) struct Fate {
    graph: CompiledGraph,
    storage: Arc<InMemoryStorage>,
    info: RunInfo,
    /// Follows the clock of the runtime, which jumps.
    clock: Clock,
    pub(crate) lives: usize,
    /// The ends of its lives, with their counts.
    pub(crate) ends: BTreeMap<&'static str, usize>,
}

impl Fate {
    pub(crate) fn new(graph: CompiledGraph) -> Self {
        // The random waits depend on the id of the run, among others.
        let id = RunId::parse("r").unwrap();
        let info = RunInfo { id, ..RunInfo::new("random") };
        let begun = Instant::now();
        let clock = Clock::new(move || {
            Timestamp::UNIX_EPOCH + SignedDuration::try_from(begun.elapsed()).unwrap()
        });
        Self { graph, storage: Arc::default(), info, clock, lives: 0, ends: BTreeMap::new() }
    }

    /// Resumes the run, life after life, until it is done.
    pub(crate) async fn see_through(
        &mut self,
        world: &World,
        mut random: Option<&mut StdRng>,
    ) -> State {
        loop {
            self.lives += 1;
            assert!(self.lives <= LIVES_MAX, "it never comes to its end");
            let disturbing = random.as_deref_mut().filter(|_| self.lives <= DISTURBED_MAX);
            let hashes = self.hashes().await;
            let finished = self.finished().await;
            let begun = world.tasks();
            let (end, told) = self.live(disturbing).await;

            // The saved history is a prefix of the new one; finished tasks did not run again.
            assert!(self.hashes().await.starts_with(&hashes), "it has another history now");
            for task in finished {
                assert_eq!(world.tasks()[&task], begun[&task], "{task} ran again");
            }
            self.compare_events(&told).await;
            *self.ends.entry(word_for(end.as_ref())).or_default() += 1;
            match end {
                Some(Ok(end)) if end.status == Status::Done => return end.state,
                Some(Ok(end)) => assert_ne!(end.status, Status::Running, "that is no rest"),
                // A process died after the last write: this one, or the one that had taken the run.
                Some(Err(RunError::AlreadyEnded(Status::Done))) => {
                    let saved = self.storage.load(&self.info.id).await.unwrap();
                    return self.graph.schema().restore(saved.values).unwrap();
                }
                Some(Err(RunError::Checkpoint(
                    CheckpointError::Storage { .. } | CheckpointError::Overtaken { .. },
                )))
                | None => (),
                Some(Err(error)) => panic!("{error:?}"),
            }
        }
    }

    /// One life: a process that starts or resumes the run. Returns `None` if the process was killed.
    async fn live(
        &self,
        mut random: Option<&mut StdRng>,
    ) -> (Option<Result<RunEnd, RunError>>, Vec<RunEvent>) {
        let fault = random.as_mut().map_or(Fault::None, |it| Fault::random(it));
        let signal = random.as_mut().and_then(|it| Signal::random(it));
        let time = random.as_mut().and_then(|dice| {
            let time = Duration::from_millis(dice.random_range(100..30_000));
            dice.random_ratio(1, 6).then_some(time)
        });
        let killed = random.as_mut().and_then(|dice| {
            let after = Duration::from_millis(dice.random_range(0..400));
            dice.random_ratio(1, 3).then_some(after)
        });
        let inner = Arc::clone(&self.storage) as Arc<dyn Checkpointer>;
        let storage = Arc::new(Disturbed::new(inner, move |nth| fault.at(nth)));
        let limits = Limits { time, ..self.graph.definition().limits.clone() };
        let engine = Engine::new(self.graph.clone()).with_storage(storage);
        let engine = engine.with_limits(limits).with_clock(self.clock.clone());
        let mut sink = EventSink::default();
        let stop = ShutdownHandle::default();
        let id = &self.info.id;
        let mut told = sink.subscribe();
        let work = async {
            let found = self.storage.find(id.as_str()).await;
            if matches!(found, Err(CheckpointError::UnknownRun(_))) {
                engine
                    .run(Update::default())
                    .with_info(self.info.clone())
                    .with_events(sink)
                    .with_shutdown(&stop)
                    .await
            } else {
                let answers = self.answers(random.as_deref_mut(), &engine).await;
                engine.resume(id).with_answers(answers).with_events(sink).with_shutdown(&stop).await
            }
        };
        // Boxed, because moving a future of this size is slow.
        let work = Box::pin(async {
            tokio::select! {
                end = work => end,
                () = sent(signal, &stop) => unreachable!("a signal is sent once"),
            }
        });
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

    /// Answers some of the open questions. Invalid answers are tried first, and change nothing.
    async fn answers(
        &self,
        random: Option<&mut StdRng>,
        engine: &Engine,
    ) -> BTreeMap<String, serde_json::Value> {
        let saved = self.storage.load(&self.info.id).await.unwrap();
        let mut open = BTreeMap::new();
        for record in &saved.records {
            match &record.outcome {
                Outcome::Asked { question, .. } => {
                    open.insert(question.key.clone(), json!(record.task.step.0));
                }
                Outcome::Answered { key, .. } => {
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
            let hashes = self.hashes().await;
            let answers = BTreeMap::from([(key, answer)]);
            let stop = ShutdownHandle::default();
            let refused =
                engine.resume(&self.info.id).with_answers(answers).with_shutdown(&stop).await;
            assert!(refused.is_err(), "a wrong answer was taken: {refused:?}");
            assert_eq!(self.hashes().await, hashes, "a wrong answer has changed something");
        }
        open.retain(|_, _| random.random_ratio(2, 3));
        open
    }

    async fn journal(&self) -> Vec<JournalEntry> {
        match self.storage.journal(&self.info.id).await {
            Err(CheckpointError::UnknownRun(_)) => Vec::new(),
            journal => journal.unwrap(),
        }
    }

    async fn hashes(&self) -> Vec<EntryHash> {
        self.journal().await.iter().map(|it| it.hash).collect()
    }

    async fn finished(&self) -> Vec<TaskId> {
        let journal = self.journal().await;
        let records = journal.iter().flat_map(|it| &it.entry.records);
        // The node of an undecided task has finished; only its route is tried again.
        let has_result = |it: &&TaskRecord| it.outcome.is_final() || it.outcome.update().is_some();
        records.filter(has_result).map(|it| it.task).collect()
    }

    /// Events are numbered without gaps, and results were saved before they were published.
    async fn compare_events(&self, told: &[RunEvent]) {
        let saved: Vec<RunEvent> =
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

/// The fault of one write of a life, and of the writes after it.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// The process dies before the write.
    Before(usize),
    /// The process dies after the write, before it gets the result.
    After(usize),
    /// The write is refused, and later ones are not.
    Refused(usize),
    /// This write and every third one is delayed.
    Late(usize, Duration),
    /// Another process takes the run before the write.
    Stolen(usize),
}

impl Fault {
    fn random(random: &mut StdRng) -> Self {
        let nth = random.random_range(0..8);
        match random.random_range(0..7) {
            0 | 1 => Self::None,
            2 => Self::Before(nth),
            3 => Self::After(nth),
            4 => Self::Refused(nth),
            5 => Self::Late(nth, Duration::from_millis(random.random_range(1..5_000))),
            _ => Self::Stolen(nth),
        }
    }

    fn at(self, at: usize) -> Happens {
        match self {
            Self::Before(nth) if at >= nth => Happens::Refused,
            Self::After(nth) if at > nth => Happens::Refused,
            Self::After(nth) if at == nth => Happens::Unnoticed,
            Self::Refused(nth) if at == nth => Happens::Refused,
            Self::Late(nth, time) if at >= nth && (at - nth).is_multiple_of(3) => {
                Happens::Late(time)
            }
            Self::Stolen(nth) if at == nth => Happens::Stolen,
            _ => Happens::Nothing,
        }
    }
}

/// A signal to the process, and when it comes.
#[derive(Clone, Copy, Debug)]
struct Signal {
    after: Duration,
    /// Whether a second one follows at once.
    twice: bool,
}

impl Signal {
    fn random(random: &mut StdRng) -> Option<Self> {
        let after = Duration::from_millis(random.random_range(0..3_000));
        let twice = random.random_bool(0.5);
        random.random_ratio(1, 6).then_some(Self { after, twice })
    }
}

/// Sends a signal if there is one, and never ends.
async fn sent(signal: Option<Signal>, stop: &ShutdownHandle) {
    if let Some(Signal { after, twice }) = signal {
        sleep(after).await;
        stop.drain();
        if twice {
            stop.abort();
        }
    }
    std::future::pending::<()>().await;
}

/// Describes the end of a life.
fn word_for(end: Option<&Result<RunEnd, RunError>>) -> &'static str {
    match end {
        None => "killed",
        Some(Ok(end)) => end.status.as_str(),
        Some(Err(RunError::AlreadyEnded(_))) => "done before",
        Some(Err(RunError::Checkpoint(CheckpointError::Overtaken { .. }))) => "overtaken",
        Some(Err(_)) => "not saved",
    }
}
