//! What every store of results promises: those in memory and those in a database.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::{error::Error, sync::Arc};

use graphrun::{
    checkpoint::CheckpointError,
    id::ChannelName,
    results::{CachedResult, ResultKey, ResultStore},
    state::Update,
    storage::{MemoryResults, SqliteStorage},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::postgres::Schema;

macro_rules! promises {
    ($($name:ident)*) => {
        mod memory {
            $(#[tokio::test] async fn $name() { super::$name(super::Home::Memory(Default::default())).await; })*
        }
        mod sqlite {
            $(#[tokio::test] async fn $name() { super::$name(super::Home::Sqlite(tempfile::TempDir::new().unwrap())).await; })*
        }
        mod postgres {
            $(#[tokio::test] async fn $name() { super::$name(super::Home::Postgres(super::Schema::new())).await; })*
        }
    };
}

promises! {
    a_result_is_found_by_its_key_and_by_no_other
    a_later_result_is_found_in_the_place_of_an_earlier_one
    a_result_is_found_as_it_was_kept
    a_result_that_is_too_large_keeps_the_earlier_one
}

/// A place whose storage can be closed and opened again.
enum Home {
    Memory(Arc<MemoryResults>),
    Sqlite(TempDir),
    Postgres(Schema),
}

impl Home {
    fn open(&self) -> Arc<dyn ResultStore> {
        match self {
            Self::Memory(results) => Arc::clone(results) as _,
            Self::Sqlite(folder) => {
                Arc::new(SqliteStorage::open(folder.path().join("runs.db")).unwrap())
            }
            Self::Postgres(schema) => {
                Arc::new(graphrun::storage::PostgresStorage::open(&schema.url()).unwrap())
            }
        }
    }

    async fn find(&self, name: &str) -> Option<CachedResult> {
        self.open().find(&key(name)).await.unwrap()
    }

    async fn keep(&self, name: &str, result: &CachedResult) {
        self.open().keep(&key(name), result).await.unwrap();
    }
}

fn key(name: &str) -> ResultKey {
    ResultKey::of(&json!(name))
}

fn channel(name: &str) -> ChannelName {
    ChannelName::parse(name).unwrap()
}

fn result(value: impl Into<Value>, second: i64) -> CachedResult {
    let update = Update::default().write(channel("plan"), value);
    CachedResult { update, at: Timestamp::from_second(second).unwrap() }
}

async fn a_result_is_found_by_its_key_and_by_no_other(home: Home) {
    assert_eq!(home.find("a").await, None);
    home.keep("a", &result("A", 1)).await;
    home.keep("b", &result("B", 2)).await;
    assert_eq!(home.find("a").await, Some(result("A", 1)));
    assert_eq!(home.find("b").await, Some(result("B", 2)));
    assert_eq!(home.find("c").await, None);
}

async fn a_later_result_is_found_in_the_place_of_an_earlier_one(home: Home) {
    home.keep("a", &result("first", 2)).await;
    // Even if a clock went back meanwhile.
    home.keep("a", &result("second", 1)).await;
    assert_eq!(home.find("a").await, Some(result("second", 1)));
}

async fn a_result_is_found_as_it_was_kept(home: Home) {
    let update = Update { clears: vec![channel("notes")], ..Update::default() }
        .write(channel("plan"), json!({"z": 1.000_000_000_000_000_5e-9, "a": [null, u64::MAX]}))
        .write(channel("plan"), Value::Null);
    let at = Timestamp::from_millisecond(1_769_000_000_123).unwrap();
    for update in [update, Update::default()] {
        let result = CachedResult { update, at };
        home.keep("a", &result).await;
        assert_eq!(home.find("a").await, Some(result));
    }
}

async fn a_result_that_is_too_large_keeps_the_earlier_one(home: Home) {
    home.keep("a", &result("small", 1)).await;
    let large = result("x".repeat(4 << 20), 2);
    let error = home.open().keep(&key("a"), &large).await.unwrap_err();
    assert!(matches!(error, CheckpointError::Storage { .. }), "{error:?}");
    assert_eq!(error.to_string(), "could not cache a result");
    let why = error.source().unwrap().to_string();
    assert_eq!(why, "it has 4194328 bytes, more than the limit of 4194304");
    assert_eq!(home.find("a").await, Some(result("small", 1)));
}
