//! Databases of older programs: they are migrated to the current format without loss, and their
//! runs can be resumed.
//!
//! The program of format 2 created `formats/format-2.db` and `.sql` with the workflows beside them,
//! and exported `.jsonl`. These files never change.

use std::{fs, process::Stdio};

use serde_json::{Value, json};

use super::program::{Ended, Place};
#[cfg(feature = "postgres")]
use super::server::{Schema, ask, execute};

/// The runs of each database, and their status.
const RUNS: [(&str, &str); 4] =
    [("finished", "done"), ("waiting", "paused"), ("failed", "failed"), ("broken_off", "running")];

/// A folder with an old database, or the URL of one.
struct Old {
    place: Place,
    database: String,
    exported: String,
    #[cfg(feature = "postgres")]
    schema: Option<Schema>,
}

impl Old {
    fn sqlite() -> Self {
        let place = workflows();
        fs::copy(path("format-2.db"), place.path("runs.db")).unwrap();
        Self {
            place,
            database: "sqlite:runs.db".to_owned(),
            exported: fs::read_to_string(path("format-2.db.jsonl")).unwrap(),
            #[cfg(feature = "postgres")]
            schema: None,
        }
    }

    #[cfg(feature = "postgres")]
    fn postgres() -> Self {
        let schema = Schema::new();
        let tables = fs::read_to_string(path("format-2.sql")).unwrap();
        let name = &schema.name;
        execute(format!("CREATE SCHEMA {name}; SET search_path = {name}; {tables}"));
        Self {
            place: workflows(),
            database: schema.url(),
            exported: fs::read_to_string(path("format-2.sql.jsonl")).unwrap(),
            schema: Some(schema),
        }
    }

    /// Returns every old database.
    fn all() -> Vec<Self> {
        vec![
            Self::sqlite(),
            #[cfg(feature = "postgres")]
            Self::postgres(),
        ]
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.place.run([args, &["--db", &self.database]].concat())
    }

    /// Returns the state after a command.
    fn state(&self, args: &[&str]) -> Value {
        let ended = self.run(&[args, &["--output", "json"]].concat());
        assert_eq!(ended.code, 0, "{}: {ended}", self.database);
        ended.json()["state"].clone()
    }

    /// Changes the database with its own tools.
    fn change(&self, sql: &str) {
        #[cfg(feature = "postgres")]
        if let Some(schema) = &self.schema {
            return execute(format!("SET search_path = {}; {sql}", schema.name));
        }
        rusqlite::Connection::open(self.place.path("runs.db")).unwrap().execute_batch(sql).unwrap();
    }

    /// Returns the format of the database, and whether it has the table of format 2 that format 3
    /// removed.
    fn format(&self) -> (i64, bool) {
        #[cfg(feature = "postgres")]
        if let Some(Schema { name }) = &self.schema {
            let found = ask(format!(
                "SELECT (SELECT version FROM {name}.graphrun_format) || ' '
                     || (to_regclass('{name}.finished') IS NOT NULL)"
            ));
            let (version, has_table) = found.split_once(' ').unwrap();
            return (version.parse().unwrap(), has_table == "true");
        }
        let raw = rusqlite::Connection::open(self.place.path("runs.db")).unwrap();
        let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'finished'";
        let found: i64 = raw.query_row(sql, [], |row| row.get(0)).unwrap();
        (raw.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap(), found == 1)
    }
}

fn path(file: &str) -> String {
    format!("{}/tests/cli/formats/{file}", env!("CARGO_MANIFEST_DIR"))
}

/// Creates a folder with the workflows of the runs. Their paths are relative to the current folder.
fn workflows() -> Place {
    let place = Place::new();
    for file in ["asks.yaml", "dies.yaml", "steps.yaml", "writes.yaml"] {
        fs::copy(path(file), place.path(file)).unwrap();
    }
    place
}

#[test]
fn migration_keeps_everything_in_an_older_database() {
    for old in Old::all() {
        assert_eq!(old.format(), (2, true));
        let listed = old.run(&["runs", "list", "--output", "json"]);
        assert_eq!(listed.code, 0, "{listed}");
        let listed = listed.json();
        let stand = listed.as_array().unwrap().iter().rev();
        let stand = stand.map(|it| (it["run"].as_str().unwrap(), it["status"].as_str().unwrap()));
        assert_eq!(stand.collect::<Vec<_>>(), RUNS);
        assert_eq!(old.format(), (3, false));

        let exports = RUNS.map(|(run, _)| old.run(&["runs", "export", run]).stdout);
        assert_eq!(exports.concat(), old.exported, "{}", old.database);
        let proven = old.run(&["runs", "verify", "--output", "json"]);
        assert_eq!(proven.code, 0, "{proven}");
        for verdict in proven.json().as_array().unwrap() {
            // A hash that was noted at that time still proves the history.
            let link = verdict["link"].as_str().unwrap();
            assert!(old.exported.contains(link), "{verdict}");
        }
        for (run, _) in RUNS {
            let shown = old.run(&["runs", "show", run]);
            assert_eq!(shown.code, 0, "{shown}");
        }
    }
}

#[test]
fn the_runs_of_an_older_database_can_be_resumed() {
    for old in Old::all() {
        // One more step, before which the run reads its messages.
        let workflow = fs::read_to_string(path("asks.yaml")).unwrap();
        let (before, after) = ("writes: answer, then: end }", "writes: answer, then: last }");
        assert!(workflow.contains(before));
        let last = "  last: { set: { log: '\"last\"' }, then: end }\n";
        fs::write(old.place.path("asks.yaml"), workflow.replace(before, after) + last).unwrap();
        let answered = old.state(&["resume", "waiting", "--answer", r#"help="go_on""#]);
        let all = json!({
            "log": ["draft", "note", "last"], "answer": "go_on", "guidance": ["Mind the gap"],
        });
        assert_eq!(answered, all, "{}", old.database);

        let reply = json!({"v": 1, "node": "write", "when": {"contains": ["Answer this: x"]},
            "reply": {"text": "42", "usage": {"input_tokens": 3, "output_tokens": 4}}});
        fs::write(old.place.path("run.jsonl"), format!("{reply}\n")).unwrap();
        let retried = old.state(&["retry", "failed"]);
        assert_eq!(retried, json!({"log": ["note"], "answer": "42"}), "{}", old.database);

        // Finished tasks of the open step do not run again.
        let resumed = old.state(&["resume", "broken_off"]);
        assert_eq!(resumed, json!({"log": ["note"], "said": "late\n"}), "{}", old.database);

        // Cached results of the older format do not affect new runs.
        let again = old.state(&["execute", "steps.yaml", "-i", "brief=x"]);
        assert!(again["time"].is_string(), "{again}");
        let proven = old.run(&["runs", "verify"]);
        assert_eq!(proven.code, 0, "{proven}");
    }
}

#[test]
fn one_of_many_concurrent_processes_migrates_an_older_database() {
    for old in Old::all() {
        let list = ["runs", "list", "--db", &old.database];
        let start = |_| {
            let mut command = old.place.command(list);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let children: Vec<_> = (0..6).map(start).collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{}: {said}", old.database);
            let listed = String::from_utf8_lossy(&output.stdout);
            assert_eq!(listed.lines().count(), 1 + RUNS.len(), "{listed}");
        }
        assert_eq!(old.format(), (3, false));
    }
}

#[test]
fn a_database_that_an_older_program_is_at_work_on_is_left_to_it() {
    for old in Old::all() {
        old.change("UPDATE heads SET until = 9000000000000 WHERE run = 4");
        for args in [&["runs", "list"][..], &["resume", "waiting"]] {
            let refused = old.run(args);
            assert_eq!((refused.code, refused.stdout.as_str()), (5, ""), "{refused}");
            let said = "it has format 2, and an older program owns run `broken_off`; wait until \
                        that run stops, or stop it";
            assert!(refused.stderr.contains(said), "{refused}");
            assert_eq!(old.format(), (2, true));
        }
    }
}

#[test]
fn a_migrated_database_has_the_tables_of_a_new_one() {
    let (old, new) = (Old::sqlite(), Place::new());
    assert_eq!(old.run(&["runs", "list"]).code, 0);
    let made = new.run(["execute", &path("asks.yaml"), "-i", "brief=x", "--db", "sqlite:runs.db"]);
    assert_eq!(made.code, 3, "{made}");
    let tables = |place: &Place| {
        let raw = rusqlite::Connection::open(place.path("runs.db")).unwrap();
        let sql =
            "SELECT type || ' ' || name || ' ' || ifnull(sql, '') FROM sqlite_schema ORDER BY 1";
        let mut all = raw.prepare(sql).unwrap();
        let all = all.query_map([], |row| row.get::<_, String>(0)).unwrap();
        all.map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(tables(&old.place), tables(&new));
}
