//! The PostgreSQL servers and databases that are refused, and the messages.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    path::PathBuf,
    sync::Arc,
    thread,
};

use graphrun::{
    checkpoint::{CheckpointError, RunJournal as _, RunList as _, RunMaintenance as _},
    storage::PostgresStorage,
};
use tokio_rustls::rustls::{
    ServerConfig, ServerConnection, Stream,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::{
    storage::sample::*,
    support::postgres::{Schema, ask, execute, server, without_room},
};

/// Returns the error of opening the database of this URL; it must not contain the password.
fn refused(url: &str) -> String {
    let opened =
        [PostgresStorage::open(url).map(drop), PostgresStorage::open_existing(url).map(drop)];
    let said = opened.map(|opened| {
        let error = opened.expect_err("it is refused");
        assert!(matches!(error, CheckpointError::Unusable { .. }), "{error:?}");
        let debug = format!("{error:?} {}", told(&error));
        assert!(!debug.contains("hunter2"), "{debug}");
        told(&error)
    });
    assert_eq!(said[0], said[1]);
    said.into_iter().next().unwrap()
}

/// Returns the part of a message that is the same on every machine.
fn plain(said: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(said.to_owned(), |said, (found, shown)| said.replace(found, shown))
}

/// Returns the URL of the test server with this user and this database.
fn url_of(user: &str, database: Option<&str>) -> String {
    let url = server();
    let (_, rest) = url.split_once('@').expect("the URL of the test server names a user");
    let (host, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let (usual, query) = rest.split_once('?').unwrap_or((rest, ""));
    format!("postgres://{user}:hunter2@{host}/{}?{query}", database.unwrap_or(usual))
}

/// Starts a server that answers every client in the same way, in the format of the protocol.
fn server_that_says(answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut length = [0; 4];
            while client.read_exact(&mut length).is_ok() {
                let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
                client.read_exact(&mut body).unwrap();
                client.write_all(&answer(&body)).unwrap();
            }
        }
    });
    format!("postgres://me:hunter2@{address}/app")
}

fn error_message(code: &str, message: &str) -> Vec<u8> {
    let body = format!("SFATAL\0VFATAL\0C{code}\0M{message}\0\0");
    let length = u32::try_from(body.len() + 4).unwrap();
    [b"E", &length.to_be_bytes()[..], body.as_bytes()].concat()
}

/// Starts a server that refuses every client, for this reason.
fn server_that_refuses(code: &'static str, message: &'static str) -> String {
    server_that_says(move |_| error_message(code, message)) + "?sslmode=disable"
}

#[test]
fn an_unusable_server_is_reported_with_reason_and_remedy() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let urls = [
        format!("postgres://me:hunter2@{closed}/app"),
        server_that_refuses("28P01", "password authentication failed for user \"me\""),
        server_that_refuses("28000", "no pg_hba.conf entry for host \"10.0.0.1\""),
        server_that_refuses("53300", "sorry, too many clients already"),
        // It asks for a password in plain text.
        server_that_says(|_| vec![b'R', 0, 0, 0, 8, 0, 0, 0, 3]).replace(":hunter2", "")
            + "?sslmode=disable",
        // It has no encryption.
        server_that_says(|_| b"N".to_vec()) + "?sslmode=require",
        "postgres://me:hunter2@no-such-host.invalid/app".to_owned(),
        "postgres://me:hunter2@db/app?sslmode=verify-full&sslrootcert=/no/such/file".to_owned(),
    ];
    let said = urls.map(|url| {
        let host = url.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned();
        let said = plain(&refused(&url), &[(&host, "HOST")]);
        // The wording of the operating system differs.
        match said.split_once("no server answers there (") {
            Some((before, _)) if host.starts_with("no-such") => {
                format!("{before}no server answers there (…)")
            }
            _ => said,
        }
    });
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn an_unusable_database_is_reported_with_reason_and_remedy() {
    let schema = Schema::new();
    let name = schema.name.clone();
    let user = format!("{}_user", schema.name);
    let address = PostgresStorage::shown(&server()).unwrap();
    let host = address.split(['@', '/']).nth(3).unwrap();
    let mut said = Vec::new();
    let mut refused = |url: &str| {
        let whole = refused(url);
        let (place, reason) = whole.split_once(" cannot be used: ").unwrap();
        assert!(place.starts_with("postgres://") && place.contains(host), "{place}");
        said.push(plain(reason, &[(user.as_str(), "USER"), (name.as_str(), "NAME")]));
    };
    execute(format!("CREATE ROLE {user} LOGIN PASSWORD 'hunter2'"));
    let mine = |query: &str| format!("{}&schema={name}{query}", url_of(&user, None));

    refused(&url_of(&user, Some("no_such_database")));
    // Reading creates no schema; opening for writing fails.
    let error = PostgresStorage::open(&mine("")).unwrap_err();
    assert!(PostgresStorage::open_existing(&mine("")).unwrap().is_none());
    let remedy = format!("CREATE SCHEMA {name} AUTHORIZATION {user}");
    assert!(told(&error).ends_with(&remedy), "{}", told(&error));
    let error = PostgresStorage::check(&mine("")).unwrap_err();
    assert!(told(&error).ends_with(&remedy), "{}", told(&error));
    refused(&mine("&options=-cdefault_transaction_read_only%3Don"));
    execute(format!("CREATE SCHEMA {name}"));
    let error = PostgresStorage::open_existing(&mine("")).unwrap_err();
    assert!(
        told(&error).contains(&format!("GRANT USAGE ON SCHEMA {name} TO {user};")),
        "{}",
        told(&error)
    );
    execute(format!("GRANT USAGE ON SCHEMA {name} TO {user}"));
    let remedy = format!("GRANT CREATE ON SCHEMA {name} TO {user}");
    for error in
        [PostgresStorage::open(&mine("")), PostgresStorage::check(&mine("")).map(Option::unwrap)]
    {
        let error = error.unwrap_err();
        assert!(told(&error).ends_with(&remedy), "{}", told(&error));
    }
    assert!(PostgresStorage::check(&schema.url()).unwrap().is_none());
    for (thing, made) in [("SEQUENCE", "heads"), ("TYPE", "heads AS ENUM ('a')")] {
        execute(format!("CREATE {thing} {name}.{made}"));
        let error = PostgresStorage::open(&schema.url()).unwrap_err();
        assert!(told(&error).contains("belongs to another program"), "{}", told(&error));
        execute(format!("DROP {thing} {name}.heads"));
    }

    execute(format!("CREATE TABLE {name}.customers (id int)"));
    refused(&schema.url());
    assert_eq!(ask(format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{name}'")), "1");
    execute(format!("DROP TABLE {name}.customers"));

    drop(PostgresStorage::open(&schema.url()).unwrap());
    execute(format!("GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {user}"));
    refused(&mine(""));
    execute(format!("UPDATE {name}.graphrun_format SET version = 99"));
    refused(&schema.url());
    execute(format!("DELETE FROM {name}.graphrun_format"));
    refused(&schema.url());
    execute(format!("DROP OWNED BY {user}"));
    execute(format!("DROP ROLE {user}"));

    let other = format!("{name}_bytes");
    execute(format!(
        "CREATE DATABASE {other} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    ));
    let own = server();
    let (own_user, _) = own.split_once('@').unwrap();
    refused(&format!("{own_user}@{host}/{other}"));
    execute(format!("DROP DATABASE {other} WITH (FORCE)"));
    insta::assert_snapshot!(said.join("\n"));
}

/// Accepts encrypted connections for `localhost`, and closes them.
fn encrypted_server() -> u16 {
    let file = |name: &str| PathBuf::from("tests/storage/tls").join(name);
    let certificates = CertificateDer::pem_file_iter(file("server.pem")).unwrap();
    let certificates = certificates.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(file("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut asked = [0; 8];
            client.read_exact(&mut asked).unwrap();
            client.write_all(b"S").unwrap();
            let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = Stream::new(&mut session, &mut client);
            // A client that completes the handshake trusts this server.
            if stream.read_exact(&mut asked).is_ok() {
                let refused = error_message("28P01", "so you trusted me");
                let _ = stream.write_all(&refused);
            }
        }
    });
    port
}

#[test]
fn a_server_certificate_is_verified_only_on_request() {
    let port = encrypted_server();
    let trusts = |host: &str, query: &str| {
        let url = format!("postgres://me:hunter2@{host}:{port}/app?{query}");
        let said = refused(&url);
        let trusted = said.contains("refuses the password");
        assert!(
            trusted || said.contains("the identity of the server cannot be verified"),
            "{said}"
        );
        trusted
    };
    let ca = |name: &str| format!("sslmode=verify-full&sslrootcert=tests/storage/tls/{name}.pem");
    assert!(trusts("localhost", &ca("authority")));
    assert!(!trusts("127.0.0.1", &ca("authority")), "of another name");
    assert!(!trusts("localhost", &ca("stranger")), "of another authority");
    assert!(
        !trusts("localhost", "sslmode=verify-full"),
        "of an authority this system does not know"
    );
    assert!(trusts("127.0.0.1", "sslmode=require"));
    assert!(trusts("127.0.0.1", ""));
}

#[tokio::test]
async fn a_run_of_which_only_the_history_is_left_is_missed() {
    let schema = Schema::new();
    let storage = PostgresStorage::open(&schema.url()).unwrap();
    for (id, name) in [("R1", "a"), ("R2", "b")] {
        storage.create(&info(id, name), &request(), &commit(0, vec![]).into()).await.unwrap();
    }
    storage.check().await.unwrap();
    execute(format!("UPDATE {}.runs SET info = '' WHERE id = 'R1'", schema.name));
    assert_eq!(storage.ids().await.unwrap(), [run("R2"), run("R1")], "one hides no other");
    execute(format!("DELETE FROM {}.runs WHERE id = 'R1'", schema.name));
    let error = told(&storage.check().await.unwrap_err());
    assert!(error.contains("`heads` has a row without a run"), "{error}");
}

#[tokio::test]
async fn a_damaged_run_hides_no_other_in_a_list() {
    for change in [
        "UPDATE runs SET info = '' WHERE id = 'R1'",
        "UPDATE runs SET id = 'R 1' WHERE id = 'R1'",
        "UPDATE heads SET seq = seq + 1 WHERE run = 1",
        "UPDATE heads SET owner = NULL WHERE run = 1",
        "DELETE FROM heads WHERE run = 1",
    ] {
        let schema = Schema::new();
        let storage = PostgresStorage::open(&schema.url()).unwrap();
        for (id, name) in [("R1", "a"), ("R2", "b")] {
            let first = commit(0, vec![]).into();
            storage.create(&info(id, name), &request(), &first).await.unwrap();
        }
        execute(format!("SET search_path = {}; {change}", schema.name));
        assert_only_first_is_damaged(&storage, change).await;
    }
}

#[tokio::test]
async fn a_full_server_differs_from_a_failing_one() {
    let schema = Schema::new();
    let storage = PostgresStorage::open(&schema.url()).unwrap();
    let first = commit(0, vec![]).into();
    let token = storage.create(&info("R1", "a"), &request(), &first).await.unwrap();
    // The same error as that of a server with a full disk.
    execute(format!(
        "SET search_path = {}; {}",
        schema.name,
        without_room("could not extend file: No space left on device")
    ));
    let error = storage.append(&token, &commit(1, vec![]).into()).await.unwrap_err();
    assert!(matches!(error, CheckpointError::Full { .. }), "{error:?}");
    assert!(told(&error).contains("No space left on device"), "{}", told(&error));
    execute(format!("SET search_path = {}; DROP TRIGGER full_disk ON journal", schema.name));
    storage.append(&token, &commit(1, vec![]).into()).await.unwrap();
}

#[tokio::test]
async fn changes_in_the_tables_are_found_and_named() {
    let schema = Schema::new();
    let storage = PostgresStorage::open(&schema.url()).unwrap();
    let mut said = Vec::new();
    let changes = [
        "UPDATE runs SET name = 'other'",
        "UPDATE runs SET info = info || ' '",
        "UPDATE heads SET number = number + 1",
        "UPDATE heads SET step = step + 1",
        "UPDATE heads SET run_status = '{\"status\":\"done\"}'",
        "UPDATE heads SET hash = substr(hash, 2)",
        "UPDATE heads SET fence = fence + 1",
        "UPDATE heads SET owner = NULL",
        "UPDATE heads SET until = until + 1",
        "DELETE FROM heads",
        "DELETE FROM journal WHERE number = 1",
        "DELETE FROM journal WHERE number = 2",
        "DELETE FROM journal WHERE number = 3",
        "DELETE FROM journal",
        "UPDATE journal SET data = data || ' ' WHERE number = 2",
        "UPDATE journal SET meta = ''",
        "UPDATE journal SET changes = NULL WHERE number = 1",
        "UPDATE journal SET hash = substr(hash, 2) WHERE number = 3",
        "UPDATE journal SET seq = 7 WHERE number = 3",
        "UPDATE journal SET number = 4 WHERE number = 3",
        "INSERT INTO journal SELECT run, 4, step, seq, changes, meta, data, hash FROM journal WHERE number = 3",
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let id = format!("R{at}");
        let name = format!("run-{at}");
        let token = storage
            .create(&info(&id, &name), &request(), &commit(0, vec![set("n", 0)]).into())
            .await;
        let token = token.unwrap();
        for step in 1..=2 {
            storage.append(&token, &commit(step, vec![set("n", step)]).into()).await.unwrap();
        }
        execute(format!("SET search_path = {}; {change}", schema.name));
        let error = storage.load(&run(&id)).await.expect_err(change);
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{change}: {error:?}");
        said.push(format!("{change}\n    {}", told(&error).replace(&id, "RUN")));
        execute(format!("SET search_path = {}; TRUNCATE runs, heads, journal", schema.name));
    }
    insta::assert_snapshot!(said.join("\n"));
}
