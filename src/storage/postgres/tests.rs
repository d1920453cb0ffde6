//! What only one who holds the connection can see.

use super::*;

#[path = "../../../tests/support/postgres.rs"]
mod server;

#[test]
fn a_commit_is_on_the_disk_of_the_server_whatever_its_user_is_used_to() {
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
