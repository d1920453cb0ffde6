//! The speed of memory across runs with 100,000 entries, and the cost of a step that remembers.
//!
//! `cargo bench --bench memory`, with `--features postgres` also in PostgreSQL, on the server in
//! `GRAPHRUN_TEST_POSTGRES`. The texts have about twelve words of a vocabulary of 30,000, in which
//! some words are common and most are rare, as in a natural language. The bench fails if a
//! median recall takes 20 ms or more, one that also compares vectors 60 ms or more (150 ms in PostgreSQL), or if a write takes more than twice its
//! time with an empty memory.
//! `GRAPHRUN_BENCH_ENTRIES` sets the number of entries.

#[cfg(feature = "postgres")]
#[path = "../tests/support/postgres.rs"]
mod server;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use graphrun::{
    compile::compile,
    diagnostic::SourceFile,
    engine::Engine,
    event::Status,
    memory::{
        Batch, Embedding, Entry, Filter, Memory, NewEntry, Search, Source, SqliteStore, Store,
        VECTORS_MAX, Vector,
    },
    nodes::{Services, factory},
    registry,
    storage::SqliteStorage,
    workflow::parse,
};
use jiff::Timestamp;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;

const ENTRIES: usize = 100_000;
/// The number of entries that one batch writes.
const BATCH: usize = 1_000;
const WORDS: f64 = 30_000.0;
const MODULES: usize = 50;
/// The longest duration of a recall: the median of each kind of search. On a busy machine the processor time tells why one is
/// longer.
const RECALL_MAX: Duration = Duration::from_millis(20);
/// The same for a recall that compares the most vectors: 15 MB of them, which PostgreSQL sends over its connection.
const RECALL_BY_VECTOR_MAX: Duration = Duration::from_millis(60);
const RECALL_BY_SENT_VECTOR_MAX: Duration = Duration::from_millis(150);
/// The newest entries with a vector: more than a recall compares.
const VECTORS: usize = 2 * VECTORS_MAX;
/// The dimensions of a vector, as many as those of a common model.
const DIMENSIONS: usize = 1_536;
/// The recalls and the writes of each measurement.
const ROUNDS: usize = 200;
/// The steps of a run.
const STEPS: usize = 300;

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = SqliteStore::open(folder.path().join("memory.db")).unwrap();
    measure("SQLite", &(Arc::new(store) as _), RECALL_BY_VECTOR_MAX).await;
    #[cfg(feature = "postgres")]
    {
        let schema = server::Schema::new();
        let store = graphrun::memory::PostgresStore::open(&schema.url()).unwrap();
        measure("PostgreSQL", &(Arc::new(store) as _), RECALL_BY_SENT_VECTOR_MAX).await;
    }
}

async fn measure(place: &str, store: &Arc<dyn Store>, by_vector_max: Duration) {
    let entries = std::env::var("GRAPHRUN_BENCH_ENTRIES").ok().and_then(|it| it.parse().ok());
    let entries = entries.unwrap_or(ENTRIES);
    let mut random = StdRng::seed_from_u64(7);
    let (first, _) = writes(&**store, &mut random, "first").await;
    let begun = Instant::now();
    for number in 0..entries / BATCH {
        let has_vectors = (number + 1) * BATCH + VECTORS > entries;
        let batch = (0..BATCH).map(|_| {
            let embedding = has_vectors.then(|| embedding(&mut random));
            NewEntry { embedding, ..entry(&mut random) }
        });
        let batch = batch.collect();
        put(&**store, format!("fill/{number}"), batch).await;
    }
    println!("{entries} entries written to {place} in {:.1} s", begun.elapsed().as_secs_f64());
    println!("{:<44} {:>10} {:>10} {:>10}", "", "median", "worst", "processor");
    let mut slow = Vec::new();
    for (name, search) in SEARCHES {
        let mut times = Vec::new();
        let mut limit = RECALL_MAX;
        let before = processor_time();
        for _ in 0..ROUNDS {
            let search = search(&mut random);
            let begun = Instant::now();
            limit = if search.embedding.is_some() { by_vector_max } else { RECALL_MAX };
            store.search(&search).await.unwrap();
            times.push(begun.elapsed());
        }
        let processor = processor_time().saturating_sub(before) / u32::try_from(ROUNDS).unwrap();
        let median = shown(name, &mut times, processor);
        slow.extend((median >= limit).then(|| format!("{name}: {median:?}")));
    }
    let (last, _) = writes(&**store, &mut random, "last").await;
    println!("{:<44} {:>7} µs", "write of an entry, empty memory", first.as_micros());
    println!("{:<44} {:>7} µs", format!("write of an entry, {entries} entries"), last.as_micros());
    let plain = steps(store, "  each: { set: { done: part } }\n").await;
    let remembers = "  each: { remember: '\"learnt from \" + string(part)', as: insights }\n";
    let remembering = steps(store, remembers).await;
    println!("{:<44} {:>7} µs", "a task that sets a field", plain.as_micros());
    println!("{:<44} {:>7} µs", "a task that remembers", remembering.as_micros());
    assert!(slow.is_empty(), "{slow:?}");
    let limit = 2 * first + Duration::from_millis(1);
    assert!(last < limit, "a write takes {last:?} instead of {first:?}");
    let limit = 2 * (plain + last);
    assert!(remembering < limit, "a task that remembers takes {remembering:?}");
}

type MakeSearch = fn(&mut StdRng) -> Search;

const SEARCHES: [(&str, MakeSearch); 8] = [
    ("recall by a sentence", |random| search(text(random))),
    ("recall by common words", |random| search(format!("w0 w1 w2 w{}", random.random_range(3..9)))),
    ("recall by one rare word", |random| {
        search(format!("w{}", random.random_range(5_000..25_000)))
    }),
    ("recall in a module", |random| in_module(search(text(random)), random)),
    ("recall with a condition that few fit", |random| Search {
        filter: Filter::new(|it: &Entry| Ok(it.confidence.is_some_and(|it| it > 0.99))),
        ..search(text(random))
    }),
    ("recall of the newest", |_| Search { query: None, ..search(String::new()) }),
    ("recall by a sentence and its vector", |random| {
        search(text(random)).embedding(embedding(random))
    }),
    ("the same in a module", |random| {
        in_module(search(text(random)).embedding(embedding(random)), random)
    }),
];

fn in_module(search: Search, random: &mut StdRng) -> Search {
    Search { module: Some(format!("m{}", random.random_range(0..MODULES))), ..search }
}

fn embedding(random: &mut StdRng) -> Embedding {
    let numbers: Vec<f32> = (0..DIMENSIONS).map(|_| random.random::<f32>() - 0.5).collect();
    let vector = Vector::of(&numbers).unwrap();
    Embedding { model: "openai/text-embedding-3-small".to_owned(), vector }
}

fn search(query: String) -> Search {
    Search::of("insights", Timestamp::now()).query(query)
}

/// A text whose words are distributed as in a natural language (Zipf).
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small positive numbers"
)]
fn text(random: &mut StdRng) -> String {
    let count = random.random_range(8..16);
    let word = |_| format!("w{}", (WORDS.powf(random.random::<f64>()) - 1.0) as u64);
    let words: Vec<String> = (0..count).map(word).collect();
    words.join(" ")
}

fn entry(random: &mut StdRng) -> NewEntry {
    let source = Source::Run { workflow: "w".into(), run: "r".into(), node: "n".into() };
    let module = Some(format!("m{}", random.random_range(0..MODULES)));
    let confidence = Some(random.random());
    NewEntry { module, confidence, ..NewEntry::of("insights", text(random).into(), source) }
}

async fn put(store: &dyn Store, key: String, entries: Vec<NewEntry>) {
    store.put(&Batch { key, entries, now: Timestamp::now() }).await.unwrap();
}

/// The median duration of a write of one entry, and the longest one.
async fn writes(store: &dyn Store, random: &mut StdRng, name: &str) -> (Duration, Duration) {
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let key = format!("{name}/{round}");
        let entry = entry(random);
        let begun = Instant::now();
        put(store, key, vec![entry]).await;
        times.push(begun.elapsed());
    }
    times.sort();
    (times[ROUNDS / 2], times[ROUNDS - 1])
}

/// The time that this process has used processors. On a busy machine it says more than the time that has passed.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2).map(|it| it.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Prints a line of the table, and returns the median.
fn shown(name: &str, times: &mut [Duration], processor: Duration) -> Duration {
    times.sort();
    let median = times[times.len() / 2];
    let worst = times[times.len() - 1];
    let ms = |it: Duration| it.as_secs_f64() * 1e3;
    let worst = ms(worst);
    let processor = ms(processor);
    println!("{name:<44} {:>7.2} ms {worst:>7.2} ms {processor:>7.2} ms", ms(median));
    median
}

/// The duration of a step of a saved run that has one task.
async fn steps(store: &Arc<dyn Store>, node: &str) -> Duration {
    let text = format!(
        "graphrun: 1\nname: w\nmemory: {{ insights: {{}} }}\n\
         state: {{ parts: [int], done: {{ type: [int], merge: append }} }}\ninput: parts\nstart: all\nnodes:\n  \
         all: {{ map: {{ over: parts, as: part, width: 1, do: each }}, then: end }}\n{node}"
    );
    let file = Arc::new(SourceFile { name: "w.yaml".into(), text });
    let (workflow, _) = parse(file, Path::new(""), &registry())
        .unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let services = Services { memory: Memory::new(Arc::clone(store)), ..Services::offline() };
    let graph = compile(workflow.into_graph(&factory(services, registry()))).unwrap();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let storage = SqliteStorage::open(folder.path().join("runs.db")).unwrap();
    let engine = Engine::new(graph).with_storage(Arc::new(storage));
    let parts: Vec<usize> = (0..STEPS).collect();
    let begun = Instant::now();
    let end = engine.run(&json!({ "parts": parts })).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    begun.elapsed() / u32::try_from(STEPS).unwrap()
}
