//! The promises of every store, those of databases, and what a file of SQLite promises besides.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::{cell::Cell, fs, os::unix::fs::PermissionsExt as _, sync::Arc, time::Duration};

#[cfg(feature = "postgres")]
use graphrun_memory::PostgresStore;
use graphrun_memory::{
    Approval, Batch, Embedding, Entry, EntryId, Filter, InMemoryStore, Listing, NewEntry, Search,
    Source, SqliteStore, Store, StoreError, VECTORS_MAX, Vector,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;

#[cfg(feature = "postgres")]
#[path = "../../../tests/support/postgres.rs"]
mod postgres_server;

/// A store, and its place.
struct Home {
    store: Arc<dyn Store>,
    place: Place,
}

enum Place {
    Process,
    Folder(TempDir),
    #[cfg(feature = "postgres")]
    Schema(postgres_server::Schema),
}

impl Home {
    fn in_memory() -> Self {
        Self { store: Arc::new(InMemoryStore::default()), place: Place::Process }
    }

    fn sqlite() -> Self {
        Self::at(Place::Folder(TempDir::new().unwrap()))
    }

    #[cfg(feature = "postgres")]
    fn postgres() -> Self {
        Self::at(Place::Schema(postgres_server::Schema::new()))
    }

    /// Returns an empty home of the same kind.
    fn another(&self) -> Self {
        match self.place {
            Place::Process => Self::in_memory(),
            Place::Folder(_) => Self::sqlite(),
            #[cfg(feature = "postgres")]
            Place::Schema(_) => Self::postgres(),
        }
    }

    fn at(place: Place) -> Self {
        Self { store: place.open(), place }
    }

    async fn put(&self, key: &str, entries: Vec<NewEntry>, now: Timestamp) -> Vec<EntryId> {
        let batch = Batch { key: key.to_owned(), entries, now };
        self.store.put(&batch).await.unwrap()
    }

    async fn texts(&self, search: Search) -> Vec<String> {
        let found = self.store.search(&search).await.unwrap();
        found.into_iter().map(|it| it.text).collect()
    }
}

impl Place {
    /// Opens the store as another process does.
    fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Process => Arc::new(InMemoryStore::default()),
            Self::Folder(folder) => {
                Arc::new(SqliteStore::open(folder.path().join("memory.db")).unwrap())
            }
            #[cfg(feature = "postgres")]
            Self::Schema(schema) => Arc::new(PostgresStore::open(&schema.url()).unwrap()),
        }
    }
}

macro_rules! promises {
    (all { $($name:ident)* } databases { $($of_databases:ident)* }) => {
        mod in_memory {
            use super::Home;
            $(#[tokio::test] async fn $name() { super::$name(&Home::in_memory()).await; })*
        }
        mod sqlite {
            use super::Home;
            $(#[tokio::test] async fn $name() { super::$name(&Home::sqlite()).await; })*
            $(#[tokio::test] async fn $of_databases() { super::$of_databases(&Home::sqlite()).await; })*
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            use super::Home;
            $(#[tokio::test] async fn $name() { super::$name(&Home::postgres()).await; })*
            $(#[tokio::test] async fn $of_databases() { super::$of_databases(&Home::postgres()).await; })*
        }
    };
}

promises! { all {
    the_best_entry_comes_first
    a_text_is_kept_once_and_its_last_value_counts
    a_known_key_changes_nothing_even_after_a_removal
    an_entry_ends_unless_a_person_approves_it
    an_approved_entry_is_not_changed_by_runs
    a_search_sees_its_tier_its_module_and_its_filter
    an_empty_module_is_none
    any_text_is_a_query
    a_list_has_pages_and_no_expired_entries
    an_id_is_found_by_its_beginning
    entries_are_imported_as_they_were
    entries_that_are_too_large_are_refused
    a_missing_entry_is_named
    any_text_is_kept_as_it_is
    a_vector_finds_an_entry_without_a_common_word
    ranks_of_words_and_vectors_are_fused
    vectors_follow_their_entries
    missing_vectors_are_found_and_added
} databases {
    vectors_outlive_their_process
    only_the_newest_vectors_are_compared
    words_are_found_by_their_stem
    a_common_word_does_not_hide_a_rare_one
    processes_that_remember_one_text_keep_one_entry
    batches_of_several_processes_are_kept_whole
    entries_outlive_their_process
} }

fn at(hours: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1_000 + hours)
}

fn run() -> Source {
    let word = |it: &str| it.to_owned();
    Source::Run { workflow: word("w"), run: word("r1"), node: word("keep") }
}

fn new(text: &str) -> NewEntry {
    NewEntry::of("insights", text.into(), run())
}

fn insights() -> Search {
    Search::of("insights", at(0))
}

async fn the_best_entry_comes_first(home: &Home) {
    let texts = [
        "the parser fails on tabs",
        "tests need a database",
        "what to say about the parser, its tests and its tabs is on another page",
    ];
    let others = (0..9).map(|it| new(&format!("something else {it}")));
    let entries = texts.map(new).into_iter().chain(others).collect();
    home.put("1", entries, at(0)).await;
    let found = home.texts(insights().query("Parser: TABS")).await;
    assert_eq!(found, [texts[0], texts[2]]);
    let found = home.texts(insights().query("database")).await;
    assert_eq!(found, [texts[1]]);
    assert_eq!(home.texts(insights().query("network")).await, [""; 0]);
    let one = Search { limit: 1, ..insights().query("tests page tabs") };
    assert_eq!(home.texts(one).await, [texts[2]]);
    // A word that no entry has hides nothing.
    assert_eq!(home.texts(insights().query("database network")).await, [texts[1]]);
}

async fn a_text_is_kept_once_and_its_last_value_counts(home: &Home) {
    let lesson = |count: i32| NewEntry {
        confidence: Some(0.5),
        ..NewEntry::of("insights", json!({"lesson": "use a lock", "count": count}), run())
    };
    let first = home.put("1", vec![lesson(1)], at(0)).await;
    let second = home.put("2", vec![lesson(2)], at(1)).await;
    assert_eq!(first, second);
    let found = home.store.search(&Search::of("insights", at(1)).query("lock")).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].value(), json!({"lesson": "use a lock", "count": 2}));
    assert_eq!((found[0].created, found[0].updated), (at(0), at(1)));
    assert_eq!((found[0].confidence, &found[0].source), (Some(0.5), &run()));
    // In another tier or module it is another entry.
    let other = NewEntry { module: Some("api".into()), ..lesson(3) };
    let other_tier = NewEntry { tier: "core".into(), ..lesson(3) };
    home.put("3", vec![other, other_tier], at(1)).await;
    assert_eq!(home.store.list(&Listing::all(at(1))).await.unwrap().len(), 3);
}

async fn a_known_key_changes_nothing_even_after_a_removal(home: &Home) {
    let ids = home.put("run/3/keep/0", vec![new("a"), new("b")], at(0)).await;
    home.store.remove(&ids[0]).await.unwrap();
    assert_eq!(home.put("run/3/keep/0", vec![new("a"), new("b")], at(1)).await, ids);
    let found = home.store.search(&insights()).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].text.as_str(), found[0].updated), ("b", at(0)));
    assert_eq!(home.texts(insights().query("a")).await, [""; 0]);
}

async fn an_entry_ends_unless_a_person_approves_it(home: &Home) {
    let kept = |text: &str| NewEntry {
        approval: Approval::Pending,
        keep: Some(Duration::from_secs(48 * 3_600)),
        ..new(text)
    };
    let ids = home.put("1", vec![kept("goes"), kept("stays")], at(0)).await;
    let pending = Listing { pending: true, ..Listing::all(at(0)) };
    assert_eq!(home.store.list(&pending).await.unwrap().len(), 2);
    home.store.approve(&ids[1], "ana", at(1)).await.unwrap();
    assert_eq!(home.store.list(&pending).await.unwrap().len(), 1);
    let texts = |now| home.texts(Search::of("insights", now));
    assert_eq!(texts(at(47)).await, ["stays", "goes"]);
    assert_eq!(texts(at(48)).await, ["stays"]);
    let query = Search::of("insights", at(48)).query("goes");
    assert_eq!(home.texts(query).await, [""; 0]);
    // The next write removes expired entries, and a text may come back as a new entry.
    home.put("2", vec![new("other")], at(49)).await;
    assert!(home.store.find(ids[0].as_str()).await.unwrap().is_empty());
    home.put("3", vec![kept("goes")], at(50)).await;
    let found = home.store.find(ids[0].as_str()).await.unwrap();
    assert_eq!((found[0].created, found[0].expires), (at(50), Some(at(98))));
    let found = home.store.find(ids[1].as_str()).await.unwrap();
    assert_eq!(found[0].approved_by.as_deref(), Some("ana"));
}

async fn an_approved_entry_is_not_changed_by_runs(home: &Home) {
    let person = Source::Person { name: "ana".into() };
    let rule = |count: i32| json!({"rule": "use tabs", "count": count});
    let own = NewEntry {
        approval: Approval::Approved,
        ..NewEntry::of("insights", rule(1), person.clone())
    };
    let ids = home.put("1", vec![own.clone()], at(0)).await;
    home.put("2", vec![NewEntry::of("insights", rule(2), run())], at(1)).await;
    let found = home.store.find(ids[0].as_str()).await.unwrap();
    assert_eq!((found[0].value(), &found[0].source), (rule(1), &person));
    let changed = NewEntry { value: Some(rule(3)), ..own };
    home.put("3", vec![changed], at(2)).await;
    assert_eq!(home.store.find(ids[0].as_str()).await.unwrap()[0].value(), rule(3));
}

async fn a_search_sees_its_tier_its_module_and_its_filter(home: &Home) {
    let of = |tier: &str, module: &str, text: &str| NewEntry {
        tier: tier.into(),
        module: Some(module.into()),
        ..new(text)
    };
    let entries = vec![
        of("insights", "api", "cache one"),
        of("insights", "web", "cache two"),
        of("core", "api", "cache three"),
    ];
    home.put("1", entries, at(0)).await;
    let sorted = |mut texts: Vec<String>| {
        texts.sort();
        texts
    };
    for query in [None, Some("cache".to_owned())] {
        let search = Search { query, ..insights() };
        assert_eq!(sorted(home.texts(search.clone()).await), ["cache one", "cache two"]);
        let of_module = Search { module: Some("web".into()), ..search.clone() };
        assert_eq!(home.texts(of_module).await, ["cache two"]);
        let filter = Filter::new(|it: &Entry| Ok(it.text.ends_with("one")));
        let filtered = Search { filter, limit: 1, ..search.clone() };
        assert_eq!(home.texts(filtered).await, ["cache one"]);
        let filter = Filter::new(|_| Err("no value".into()));
        let error = home.store.search(&Search { filter, ..search }).await.unwrap_err();
        assert_eq!(error.to_string(), "the condition on entries fails: no value");
    }
}

async fn an_empty_module_is_none(home: &Home) {
    let of = |module: Option<&str>| NewEntry { module: module.map(str::to_owned), ..new("cache") };
    let first = home.put("1", vec![of(Some(""))], at(0)).await;
    assert_eq!(home.put("2", vec![of(None), of(Some("web"))], at(0)).await[0], first[0]);
    let all = home.store.list(&Listing::all(at(0))).await.unwrap();
    let mut modules: Vec<Option<&str>> = all.iter().map(|it| it.module.as_deref()).collect();
    modules.sort_unstable();
    assert_eq!(modules, [None, Some("web")]);
    for query in [None, Some("cache".to_owned())] {
        let search = Search { query, module: Some(String::new()), ..insights() };
        assert_eq!(home.texts(search).await.len(), 2);
    }
    let line = serde_json::to_string(all.iter().find(|it| it.module.is_some()).unwrap()).unwrap();
    let empty: Entry = serde_json::from_str(&line.replace("\"web\"", "\"\"")).unwrap();
    assert_eq!(empty.module, None);
}

async fn any_text_is_a_query(home: &Home) {
    home.put("1", vec![new("naïve café \"quoted\" AND near(x)")], at(0)).await;
    for query in ["\"", "AND OR NOT", "quoted\" OR *", "a:b ^c {d}", "NEAR(x y)", "é", "\0", "café"]
    {
        home.store.search(&insights().query(query)).await.unwrap();
    }
    assert_eq!(home.texts(insights().query("CAFÉ")).await.len(), 1);
    assert_eq!(home.texts(insights().query("…!? 🎉")).await, [""; 0], "a text without a word");
    assert_eq!(home.texts(insights().query(" ")).await.len(), 1, "no text");
}

async fn a_list_has_pages_and_no_expired_entries(home: &Home) {
    for number in 0..7 {
        let keep = (number == 3).then_some(Duration::from_secs(3_600));
        let entry = NewEntry { keep, ..new(&format!("text {number}")) };
        home.put(&number.to_string(), vec![entry], at(number / 2)).await;
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let listing = Listing { after, limit: 2, ..Listing::all(at(9)) };
        let page = home.store.list(&listing).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.updated, last.id.clone()));
        seen.extend(page.into_iter().map(|it| it.text));
    }
    assert_eq!(seen.len(), 6);
    assert_eq!(seen[0], "text 6");
    assert!(!seen.contains(&"text 3".to_owned()));
    let tier = Listing { tier: Some("core".into()), ..Listing::all(at(9)) };
    assert!(home.store.list(&tier).await.unwrap().is_empty());
}

async fn an_id_is_found_by_its_beginning(home: &Home) {
    let ids = home.put("1", (0..40).map(|it| new(&it.to_string())).collect(), at(0)).await;
    let found = home.store.find(&ids[7].as_str()[..10]).await.unwrap();
    assert_eq!(found.iter().map(|it| &it.id).collect::<Vec<_>>(), [&ids[7]]);
    assert_eq!(home.store.find("").await.unwrap().len(), 2);
    assert!(home.store.find("zz%").await.unwrap().is_empty());
}

async fn entries_are_imported_as_they_were(home: &Home) {
    let value = json!({"lesson": "use a lock", "files": ["a.py"]});
    let module = Some("api".to_owned());
    let entry = NewEntry { module, ..NewEntry::of("insights", value, run()) };
    home.put("1", vec![entry, new("b")], at(0)).await;
    let all = home.store.list(&Listing::all(at(0))).await.unwrap();
    let copy = home.another();
    for _ in 0..2 {
        copy.store.import(&all).await.unwrap();
        assert_eq!(copy.store.list(&Listing::all(at(0))).await.unwrap(), all);
    }
    assert_eq!(copy.texts(insights().query("lock")).await.len(), 1);
    let line = serde_json::to_string(&all[0]).unwrap();
    assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), all[0]);
}

async fn entries_that_are_too_large_are_refused(home: &Home) {
    let put = async |entries| {
        let batch = Batch { key: "1".into(), entries, now: at(0) };
        home.store.put(&batch).await.unwrap_err().to_string()
    };
    let says = "the text of an entry has 65537 bytes, more than 65536";
    assert_eq!(put(vec![new("small"), new(&"x".repeat((64 << 10) + 1))]).await, says);
    let value = Value::Array(vec![json!(7); 200_000]);
    let large = NewEntry { value: Some(value), ..new("x") };
    assert!(put(vec![large]).await.starts_with("the value of an entry has 400001 bytes"));
    let says = "1001 entries at once are more than 1000";
    assert_eq!(put((0..1001).map(|it| new(&it.to_string())).collect()).await, says);
    assert!(home.store.search(&insights()).await.unwrap().is_empty());
}

async fn a_missing_entry_is_named(home: &Home) {
    let id = EntryId::of("insights", None, "gone");
    for error in [
        home.store.remove(&id).await.unwrap_err(),
        home.store.approve(&id, "ana", at(0)).await.unwrap_err(),
    ] {
        assert_eq!(error.to_string(), format!("there is no entry `{id}`"));
    }
}

async fn any_text_is_kept_as_it_is(home: &Home) {
    let texts = [
        "a\0b".to_owned(),
        "\0".to_owned(),
        "cafe\u{301} naïve ß ﬁ ½ 日本語 🦀 \u{202e}".to_owned(),
        "x".repeat(64 << 10),
        (0..9_000).map(|it| format!("w{it}")).collect::<Vec<_>>().join(" "),
        "'); DROP TABLE entries; --".to_owned(),
        "\\x00 {\"a\": 1}".to_owned(),
        ".".to_owned(),
    ];
    let entries = texts.iter().enumerate().map(|(at, text)| NewEntry {
        module: Some(text.chars().take(20).collect()),
        value: Some(json!({"text": text, "at": at})),
        confidence: Some(0.1 + 0.2),
        source: Source::Person { name: text.chars().take(20).collect() },
        ..new(text)
    });
    let entries: Vec<NewEntry> = entries.collect();
    let ids = home.put("run\0/1", entries.clone(), at(0)).await;
    assert_eq!(home.put("run\0/1", vec![new("not kept")], at(0)).await.len(), 1);
    for blank in ["", " \n"] {
        let key = blank.to_owned();
        let entries = vec![new(blank)];
        let now = at(0);
        let refused = home.store.put(&Batch { key, entries, now }).await;
        assert!(matches!(refused, Err(StoreError::NoText)), "{refused:?}");
    }
    assert_eq!(home.store.list(&Listing::all(at(0))).await.unwrap().len(), texts.len());
    for (entry, id) in entries.iter().zip(&ids) {
        let found = home.store.find(id.as_str()).await.unwrap();
        let kept = (&found[0].text, &found[0].module, &found[0].value, &found[0].source);
        assert_eq!(kept, (&entry.text, &entry.module, &entry.value, &entry.source));
        assert_eq!(found[0].confidence, entry.confidence);
        let module = Search { module: entry.module.clone(), ..insights() };
        assert!(home.texts(module).await.contains(&entry.text));
        home.store.search(&insights().query(&entry.text)).await.unwrap();
        home.store.approve(id, "a\0na", at(1)).await.unwrap();
    }
    assert_eq!(home.texts(insights().query("w8999")).await, [texts[4].as_str()]);
    for id in &ids {
        home.store.remove(id).await.unwrap();
    }
    assert_eq!(home.texts(insights()).await, [""; 0]);
}

async fn processes_that_remember_one_text_keep_one_entry(home: &Home) {
    let write = |process: usize| {
        let store = home.place.open();
        async move {
            for round in 0..20 {
                let entries = vec![new("shared"), new(&format!("shared {round}"))];
                // The other process has the other order.
                let entries =
                    if process == 0 { entries } else { entries.into_iter().rev().collect() };
                let key = format!("{process}/{round}");
                store.put(&Batch { key, entries, now: at(0) }).await.unwrap();
            }
        }
    };
    tokio::join!(write(0), write(1));
    assert_eq!(home.store.list(&Listing::all(at(0))).await.unwrap().len(), 21);
    let found = home.texts(Search { limit: 50, ..insights().query("shared") }).await;
    assert_eq!(found.len(), 21, "the words of an entry are counted once: {found:?}");
}

async fn batches_of_several_processes_are_kept_whole(home: &Home) {
    // A reader finds all entries of a batch or none.
    let writer = home.place.open();
    let reader = home.place.open();
    let is_done = Cell::new(false);
    let writes = async {
        for round in 0..20 {
            let entries = (0..5).map(|it| new(&format!("lesson {round} part {it}"))).collect();
            let batch = Batch { key: round.to_string(), entries, now: at(0) };
            writer.put(&batch).await.unwrap();
        }
        is_done.set(true);
    };
    let reads = async {
        while !is_done.get() {
            let search = Search { limit: 1_000, ..insights().query("lesson") };
            assert_eq!(reader.search(&search).await.unwrap().len() % 5, 0);
        }
    };
    tokio::join!(writes, reads);
    assert_eq!(home.store.list(&Listing::all(at(0))).await.unwrap().len(), 100);
}

async fn entries_outlive_their_process(home: &Home) {
    let ids = home.put("1", vec![new("kept")], at(0) + SignedDuration::from_nanos(1_999)).await;
    // Databases keep microseconds, so that an entry is the same in each of them.
    let created = home.store.find(ids[0].as_str()).await.unwrap()[0].created;
    assert_eq!(created, at(0) + SignedDuration::from_micros(1));
    home.store.approve(&ids[0], "ana", at(1)).await.unwrap();
    let other = home.place.open();
    let found = other.search(&insights().query("kept")).await.unwrap();
    assert_eq!(found, home.store.find(ids[0].as_str()).await.unwrap());
    other.put(&Batch { key: "1".into(), entries: vec![new("again")], now: at(2) }).await.unwrap();
    assert_eq!(other.list(&Listing::all(at(2))).await.unwrap().len(), 1);
}

async fn words_are_found_by_their_stem(home: &Home) {
    home.put("1", vec![new("Retries hide failing tests")], at(0)).await;
    assert_eq!(home.texts(insights().query("test failed retry")).await.len(), 1);
    home.put("2", vec![new("the Café is closed")], at(0)).await;
    assert_eq!(home.texts(insights().query("cafe")).await.len(), 1);
    assert_eq!(home.texts(insights().query("the")).await.len(), 1, "no word is left out");
    // An accent can be a character after its letter, as in file names of some systems.
    home.put("3", vec![new("a re\u{301}sume\u{301} of one page")], at(0)).await;
    for query in ["r\u{e9}sum\u{e9}", "re\u{301}sume\u{301}", "resume"] {
        assert_eq!(home.texts(insights().query(query)).await.len(), 1, "{query}");
    }
}

/// Both databases find the same entries in the same order.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn both_databases_rank_alike() {
    let sqlite = Home::sqlite();
    let postgres = Home::postgres();
    // Words of different frequencies, in texts of different lengths.
    let word = |number: usize| ["parser", "tests", "failing", "cache", "lock", "retry"][number % 6];
    let text = |number: usize| {
        let words = (0..=number % 7).map(|at| word(number * 7 + at * at * (number % 3 + 1)));
        let words: Vec<&str> = words.chain([word(number / 40)]).collect();
        format!("{} rule{number} of{}", words.join(" "), number % 11)
    };
    let angle = |it: usize| f32::from(u16::try_from(it % 37).unwrap());
    let vector = |it: usize| embedding("lab/v", angle(it).cos(), angle(it).sin());
    let entries = (0..200).map(|number| NewEntry {
        embedding: (number % 3 > 0).then(|| vector(number)),
        ..new(&text(number))
    });
    let entries: Vec<NewEntry> = entries.collect();
    for home in [&sqlite, &postgres] {
        home.put("1", entries.clone(), at(0)).await;
        let ids = home.put("2", vec![new("parser to be removed")], at(0)).await;
        home.store.remove(&ids[0]).await.unwrap();
    }
    for query in
        ["parser", "failed test", "cache of3", "locks retries rule7", "of1 of2 tested rule3"]
    {
        for embedding in [None, Some(vector(query.len()))] {
            let search = Search { limit: 30, embedding, ..insights().query(query) };
            let ours = postgres.texts(search.clone()).await;
            let theirs = sqlite.texts(search).await;
            assert_eq!(ours, theirs, "{query}");
            assert!(!ours.is_empty(), "{query}");
        }
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_schema_of_others_is_refused_and_left_alone() {
    let schema = postgres_server::Schema::new();
    let refused = || PostgresStore::open(&schema.url()).unwrap_err().to_string();
    // A memory is looked for, and not made.
    assert!(PostgresStore::open_existing(&schema.url()).unwrap().is_none());
    drop(graphrun_storage::PostgresStorage::open(&schema.url()).unwrap());
    let says = refused();
    assert!(says.contains("belongs to another program; name one of your own"), "{says}");
    let format = format!("SELECT version FROM {}.graphrun_format", schema.name);
    assert_eq!(postgres_server::ask(format), "1");

    let schema = postgres_server::Schema::new();
    drop(PostgresStore::open(&schema.url()).unwrap());
    let says = graphrun_storage::PostgresStorage::open(&schema.url()).unwrap_err().to_string();
    assert!(says.contains("belongs to another program; name one of your own"), "{says}");
    let newer = format!("UPDATE {}.graphrun_memory_format SET version = 9", schema.name);
    postgres_server::execute(newer);
    let says = PostgresStore::open(&schema.url()).unwrap_err().to_string();
    assert!(says.contains("it has format 9"), "{says}");
    let error = PostgresStore::open("postgres://me:secret@127.0.0.1:1/x").unwrap_err();
    assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
    let says = error.to_string();
    assert!(says.contains("no server answers there") && !says.contains("secret"), "{says}");
}

async fn a_common_word_does_not_hide_a_rare_one(home: &Home) {
    for batch in 0..4 {
        let entries = (0..1000).map(|it| new(&format!("common word {batch} {it}"))).collect();
        home.put(&batch.to_string(), entries, at(0)).await;
    }
    home.put("last", vec![new("a rare thing")], at(0)).await;
    let found = home.texts(insights().query("common rare")).await;
    assert_eq!(found, ["a rare thing"]);
    // Where all words are common, they still find something.
    assert_eq!(home.texts(insights().query("word common")).await.len(), 10);
    assert_eq!(home.texts(insights().query("word missing")).await.len(), 10);
}

#[tokio::test]
async fn only_the_owner_reads_a_new_file_and_another_process_finds_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("deep/memory.db");
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let batch = Batch { key: "1".into(), entries: vec![new("kept")], now: at(0) };
    store.put(&batch).await.unwrap();
    let other = SqliteStore::open_existing(&path).unwrap();
    assert_eq!(other.search(&insights().query("kept")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn nothing_is_remembered_in_a_file_that_is_gone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("memory.db");
    let moved = folder.path().join("moved.db");
    let store = SqliteStore::open(&path).unwrap();
    let put = async |key: &str| {
        let batch = Batch { key: key.into(), entries: vec![new(key)], now: at(0) };
        store.put(&batch).await
    };
    put("before").await.unwrap();
    fs::rename(&path, &moved).unwrap();
    let error = put("lost").await.unwrap_err();
    assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
    assert!(error.to_string().contains("it was removed or moved away"), "{error}");
    drop(store);
    fs::rename(&moved, &path).unwrap();
    let store = SqliteStore::open_existing(&path).unwrap();
    let found = store.search(&insights()).await.unwrap();
    assert_eq!(found.iter().map(|it| &*it.text).collect::<Vec<_>>(), ["before"]);
}

#[test]
fn a_file_of_others_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("memory.db");
    let refused = |content: &[u8]| {
        fs::write(&path, content).unwrap();
        let error = SqliteStore::open(&path).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), content);
        assert!(matches!(error, StoreError::Unusable { .. }));
        error.to_string().replace(&path.display().to_string(), "memory.db")
    };
    let says = refused(b"");
    assert!(says.ends_with("remove it and let a run remember something"), "{says}");
    assert_eq!(
        refused(b"notes"),
        "memory.db cannot be used: it is not a database; give another path"
    );
    fs::remove_file(&path).unwrap();
    drop(graphrun_storage::SqliteStorage::open(&path).unwrap());
    let runs = fs::read(&path).unwrap();
    let says = "memory.db cannot be used: it is a database of another program; give another path";
    assert_eq!(refused(&runs), says);
    let error = SqliteStore::open_existing(folder.path().join("missing")).unwrap_err();
    assert!(error.to_string().contains("there is no such file"), "{error}");
}

/// Returns an embedding of a model, in two dimensions.
fn embedding(model: &str, x: f32, y: f32) -> Embedding {
    Embedding { model: model.to_owned(), vector: Vector::of(&[x, y]).unwrap() }
}

fn with_vector(text: &str, x: f32, y: f32) -> NewEntry {
    NewEntry { embedding: Some(embedding("lab/v", x, y)), ..new(text) }
}

async fn a_vector_finds_an_entry_without_a_common_word(home: &Home) {
    let entries = vec![
        with_vector("the parser needs a lock", 1.0, 0.1),
        with_vector("parsing is slow", 0.0, 1.0),
        with_vector("an opposite", -1.0, 0.0),
        new("a mutex guards the reader"),
    ];
    home.put("1", entries, at(0)).await;
    let search = insights().query("synchronise reading");
    assert_eq!(home.texts(search.clone()).await, [""; 0]);
    let near = search.embedding(embedding("lab/v", 1.0, 0.3));
    assert_eq!(home.texts(near.clone()).await, ["the parser needs a lock", "parsing is slow"]);
    // A query without a word has a vector, too.
    let search = Search { query: Some("…!?".into()), ..near.clone() };
    assert_eq!(home.texts(search).await, ["the parser needs a lock", "parsing is slow"]);
    assert_eq!(home.texts(Search { limit: 1, ..near.clone() }).await, ["the parser needs a lock"]);
    // Vectors of another model, or of other dimensions, are not compared.
    let other = near.clone().embedding(embedding("lab/w", 1.0, 0.3));
    assert_eq!(home.texts(other.query("mutex")).await, ["a mutex guards the reader"]);
    let vector = Vector::of(&[1.0, 0.3, 0.0]).unwrap();
    let other = near.embedding(Embedding { model: "lab/v".into(), vector });
    assert_eq!(home.texts(other).await, [""; 0]);
}

async fn ranks_of_words_and_vectors_are_fused(home: &Home) {
    let entries = vec![
        with_vector("cache cache", 0.1, 1.0),
        with_vector("a cache of pages", 1.0, 0.0),
        with_vector("memory of pages", 1.0, 0.2),
        new("cache of words only, which is longer"),
    ];
    let ids = home.put("1", entries, at(0)).await;
    let search = insights().query("cache").embedding(embedding("lab/v", 1.0, 0.0));
    let found = home.texts(search.clone()).await;
    // Ranks by words: 1, 2, none, 3. By vectors: 3, 1, 2, none.
    let best = ["a cache of pages", "cache cache", "memory of pages"];
    assert_eq!(found[..3], best);
    assert_eq!(found.len(), 4);
    // Equal scores: the first of each list. Their ids decide.
    home.store.remove(&ids[1]).await.unwrap();
    home.store.remove(&ids[2]).await.unwrap();
    let ids = home.put("2", vec![with_vector("unrelated", 1.0, 0.0)], at(1)).await;
    let search = Search { limit: 2, ..search.query("longer words") };
    let longer = home.store.search(&Search { embedding: None, ..search.clone() }).await.unwrap();
    let mut expected = vec![ids[0].clone(), longer[0].id.clone()];
    expected.sort();
    let found = home.store.search(&search).await.unwrap();
    assert_eq!(found.into_iter().map(|it| it.id).collect::<Vec<_>>(), expected);
}

async fn vectors_follow_their_entries(home: &Home) {
    let near = || insights().query("nothing").embedding(embedding("lab/v", 1.0, 0.0));
    let of = |tier: &str, module: &str, text: &str| NewEntry {
        tier: tier.into(),
        module: Some(module.into()),
        ..with_vector(text, 1.0, 0.0)
    };
    let ends = NewEntry { keep: Some(Duration::from_secs(3_600)), ..of("insights", "web", "ends") };
    let entries = vec![of("insights", "api", "stays"), ends, of("core", "api", "another tier")];
    let ids = home.put("1", entries, at(0)).await;
    assert_eq!(home.texts(near()).await.len(), 2);
    let of_module = Search { module: Some("web".into()), ..near() };
    assert_eq!(home.texts(of_module).await, ["ends"]);
    let of_none = Search { module: Some(String::new()), ..near() };
    assert_eq!(home.texts(of_none).await, home.texts(near()).await);
    let filter = Filter::new(|it: &Entry| Ok(it.text == "ends"));
    assert_eq!(home.texts(Search { filter, limit: 1, ..near() }).await, ["ends"]);
    assert_eq!(home.texts(Search { now: at(1), ..near() }).await, ["stays"]);
    // An update without a vector keeps it: the text is the same.
    home.put("2", vec![NewEntry { embedding: None, ..of("insights", "api", "stays") }], at(2))
        .await;
    assert_eq!(home.texts(Search { now: at(2), ..near() }).await, ["stays"]);
    // Another vector replaces it, also of an entry that runs do not change.
    home.store.approve(&ids[0], "ana", at(2)).await.unwrap();
    let turned = NewEntry {
        embedding: Some(embedding("lab/v", -1.0, 0.0)),
        ..of("insights", "api", "stays")
    };
    home.put("3", vec![turned], at(3)).await;
    assert_eq!(home.texts(Search { now: at(3), ..near() }).await, [""; 0]);
    // An entry that is written again after its removal has no vector.
    home.store.remove(&ids[0]).await.unwrap();
    home.put("4", vec![NewEntry { embedding: None, ..of("insights", "api", "stays") }], at(4))
        .await;
    let back = Search { now: at(4), ..near() }.embedding(embedding("lab/v", -1.0, 0.0));
    assert_eq!(home.texts(back).await, [""; 0]);
    // A key that is known changes no vector.
    home.put("4", vec![of("insights", "api", "stays")], at(5)).await;
    assert_eq!(home.texts(Search { now: at(5), ..near() }).await, [""; 0]);
}

async fn missing_vectors_are_found_and_added(home: &Home) {
    let other = NewEntry { embedding: Some(embedding("lab/w", 1.0, 0.0)), ..new("other model") };
    let later = NewEntry { embedding: Some(embedding("lab/a", 1.0, 0.0)), ..new("a third") };
    let entries = vec![with_vector("has one", 1.0, 0.0), new("has none"), other, later];
    let ids = home.put("1", entries, at(0)).await;
    let elsewhere = NewEntry { tier: "core".into(), ..new("another tier") };
    home.put("2", vec![elsewhere], at(0)).await;
    let missing = async |limit| {
        let found = home.store.without_vector("insights", "lab/v", limit).await.unwrap();
        let mut texts: Vec<String> = found.into_iter().map(|it| it.text).collect();
        texts.sort();
        texts
    };
    assert_eq!(missing(10).await, ["a third", "has none", "other model"]);
    assert_eq!(missing(2).await.len(), 2);
    assert_eq!(missing(0).await, [""; 0]);
    let near = insights().query("nothing").embedding(embedding("lab/v", 0.0, 1.0));
    assert_eq!(home.texts(near.clone()).await, [""; 0]);
    let gone = EntryId::of("insights", None, "gone");
    let vectors: Vec<(EntryId, Embedding)> = ids[1..3]
        .iter()
        .chain([&gone])
        .map(|it| (it.clone(), embedding("lab/v", 0.0, 1.0)))
        .collect();
    home.store.set_vectors(&vectors).await.unwrap();
    assert_eq!(missing(10).await, ["a third"]);
    assert_eq!(home.texts(near).await.len(), 2);
    home.store.set_vectors(&[]).await.unwrap();
}

async fn vectors_outlive_their_process(home: &Home) {
    let vector = Vector::of(&[1.0, -0.5, 0.25]).unwrap();
    let embedding = Embedding { model: "lab/\u{e9}".into(), vector };
    let entry = NewEntry { embedding: Some(embedding.clone()), ..new("kept") };
    home.put("1", vec![entry], at(0)).await;
    let search = insights().query("nothing").embedding(embedding);
    let found = home.place.open().search(&search).await.unwrap();
    assert_eq!(found.into_iter().map(|it| it.text).collect::<Vec<_>>(), ["kept"]);
}

async fn only_the_newest_vectors_are_compared(home: &Home) {
    home.put("first", vec![with_vector("the first", 1.0, 0.0)], at(0)).await;
    for batch in 0..VECTORS_MAX / 1_000 {
        let text = |it: i32| format!("text {batch} {it}");
        let entries = (0..1_000).map(|it| with_vector(&text(it), 0.1, 1.0)).collect();
        home.put(&batch.to_string(), entries, at(0)).await;
    }
    let near = insights().query("nothing").embedding(embedding("lab/v", 1.0, 0.0));
    assert!(
        !home.texts(Search { limit: 1_000, ..near.clone() }).await.contains(&"the first".into())
    );
    home.put("last", vec![with_vector("the last", 1.0, 0.0)], at(0)).await;
    assert_eq!(home.texts(Search { limit: 1, ..near }).await, ["the last"]);
}
