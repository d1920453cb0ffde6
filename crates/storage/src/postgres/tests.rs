//! Tests that need access to the connection.

use graphrun_core::state::Update;
use graphrun_engine::results::{KeptResult, ResultKey, ResultStore};
use jiff::Timestamp;
use serde_json::json;

use super::{results::Keep, *};
use graphrun_engine::storage::BOUNDS;

#[path = "../../../../tests/support/postgres.rs"]
mod server;

#[test]
fn commits_are_durable_despite_settings_of_the_user() {
    for (setting, ours) in [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")] {
        let url = server::server();
        let mark = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{mark}options=-csynchronous_commit%3D{setting}");
        let server = Arc::new(Server::new(Place::parse(&url).unwrap()).unwrap());
        let asking = Arc::clone(&server);
        let found = server.wait(async move {
            let client = asking.connect().await.unwrap();
            let row = client.query_one("SHOW synchronous_commit", &[]).await.unwrap();
            Ok(row.get::<_, String>(0))
        });
        assert_eq!(found.unwrap(), ours, "{setting}");
    }
}

#[tokio::test]
async fn when_there_are_too_many_results_the_oldest_goes() {
    let schema = server::Schema::new();
    let storage = PostgresStorage::open(&schema.url()).unwrap();
    let key = |name: i64| ResultKey::of(&json!(name));
    let update = Update::default().write(ChannelName::parse("t").unwrap(), "x");
    let bytes = serde_json::to_string(&update).unwrap().len();
    let limits = [(3, 1000), (2, 1000), (1000, 2 * bytes), (1000, 2 * bytes - 1)];
    for ((results, bytes), left) in limits.into_iter().zip([3, 2, 2, 1]) {
        for second in [3, 1, 4, 2, 5] {
            let at = Timestamp::from_second(second).unwrap();
            let result = KeptResult { update: update.clone(), at };
            let bounds = graphrun_engine::storage::Bounds { results, bytes, ..BOUNDS };
            let work = Keep::new(&key(second), &result, bounds).unwrap();
            storage.transact("cache a result".to_owned(), work).await.unwrap();
        }
        let mut found = Vec::new();
        for second in 1..=5 {
            if ResultStore::find(&storage, &key(second)).await.unwrap().is_some() {
                found.push(second);
            }
        }
        assert_eq!(found, (6 - left..=5).collect::<Vec<i64>>(), "{results} results, {bytes} bytes");
    }
}
