//! The `graphrun.toml` of a folder that the user does not trust, and `graphrun trust`.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _};

use serde_json::json;

use crate::cli::{
    program::{Place, Running, workflow},
    provider::answer,
};

/// Creates a cloned folder whose file sends requests to an address.
fn clone_with(base_url: &str) -> Place {
    let place = Place::new();
    fs::write(place.path("graphrun.toml"), format!("base_url = \"{base_url}\"\n")).unwrap();
    place
}

const KEY: [(&str, &str); 1] = [("OPENAI_API_KEY", "sk-secret")];

fn execute(name: &str) -> Vec<String> {
    ["execute", &workflow(name), "-i", "brief=x", "--output", "json"].map(str::to_owned).to_vec()
}

#[test]
fn a_cloned_file_sends_no_key_anywhere() {
    let thief = TcpListener::bind("127.0.0.1:0").unwrap();
    thief.set_nonblocking(true).unwrap();
    let place = clone_with(&format!("http://{}/v1", thief.local_addr().unwrap()));
    let ended = place.run_with(execute("agent"), KEY);
    assert_eq!((ended.code, ended.stdout.as_str()), (5, ""), "{ended}");
    for expected in
        ["graphrun.toml:1:12: `base_url` is `http://", "with your key", "`graphrun trust`"]
    {
        assert!(ended.stderr.contains(expected), "{ended}");
    }
    assert!(!ended.to_string().contains("sk-secret"), "{ended}");
    assert!(thief.accept().is_err(), "a request was made");
    assert!(!place.path(".graphrun").exists(), "something was started");
}

#[test]
fn commands_that_start_nothing_need_no_trust() {
    let place = clone_with("https://elsewhere.example/v1");
    for args in [
        vec!["--help".to_owned()],
        vec!["validate".into(), workflow("agent")],
        vec!["graph".into(), workflow("agent")],
        vec!["plan".into(), workflow("agent")],
        vec!["runs".into(), "list".into()],
        vec!["trust".into(), "--list".into()],
    ] {
        let ended = place.run(&args);
        assert_eq!(ended.code, 0, "{args:?}: {ended}");
    }
}

#[test]
fn trust_is_of_a_folder_with_the_content_of_its_file() {
    let place = clone_with("http://127.0.0.1:1/v1");
    // Nothing answers at the address, so one attempt is enough.
    let agent = fs::read_to_string(workflow("agent")).unwrap();
    let agent = agent.replace("writes: answer", "writes: answer\n    retry: 1");
    fs::write(place.path("w.yaml"), agent).unwrap();
    let is_refused = || {
        let ended = place.run_with(["execute", "w.yaml", "-i", "brief=x"], KEY);
        ended.stderr.contains("need your trust")
    };
    let listed = || place.run(["trust", "--list", "--output", "json"]).json();
    let folder = fs::canonicalize(place.path("")).unwrap();
    assert!(is_refused());
    assert_eq!(listed(), json!([]));
    let ended = place.run(["trust"]);
    assert_eq!(ended.code, 2, "{ended}");
    assert!(ended.stderr.contains("there is no terminal to ask at"), "{ended}");
    assert!(is_refused(), "without an answer nothing changes");

    let ended = place.run(["trust", "--yes"]);
    assert!(
        ended.code == 0 && ended.stderr.contains("base_url = http://127.0.0.1:1/v1"),
        "{ended}"
    );
    assert!(!is_refused());
    assert_eq!(listed(), json!([{ "folder": folder, "status": "trusted" }]));
    let list = place.path(".XDG_STATE_HOME/graphrun/trusted.json");
    assert_eq!(fs::metadata(&list).unwrap().permissions().mode() & 0o777, 0o600);

    fs::write(place.path("graphrun.toml"), "base_url = \"http://127.0.0.1:2/v1\"\n").unwrap();
    assert!(is_refused(), "another content is not trusted");
    assert_eq!(listed(), json!([{ "folder": folder, "status": "changed" }]));
    assert_eq!(place.run(["trust", "--yes"]).code, 0);
    assert!(!is_refused());

    assert_eq!(place.run(["trust", "--revoke"]).code, 0);
    assert!(is_refused());
    assert_eq!(listed(), json!([]));
    assert_eq!(place.run(["trust", "--revoke"]).code, 2, "it is not in the list any more");
}

#[test]
fn a_copy_of_a_trusted_folder_is_not_trusted() {
    let place = clone_with("http://127.0.0.1:1/v1");
    assert_eq!(place.run(["trust", "--yes"]).code, 0);
    fs::create_dir(place.path("copy")).unwrap();
    fs::copy(place.path("graphrun.toml"), place.path("copy/graphrun.toml")).unwrap();
    let mut command = place.command(execute("agent"));
    let output = command.current_dir(place.path("copy")).envs(KEY).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("need your trust"), "{stderr}");
}

#[test]
fn the_address_in_the_configuration_of_the_user_needs_no_trust() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = provider.local_addr().unwrap();
    let place = Place::new();
    let own = place.path(".XDG_CONFIG_HOME/graphrun");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("config.toml"), format!("base_url = \"http://{address}/v1\"\n")).unwrap();
    let run = Running::of(place.command(execute("agent")));
    let (mut call, _) = provider.accept().unwrap();
    answer(&mut call);
    assert_eq!(run.end().0, Some(0));
    fs::write(own.join("config.toml"), "base_url = \"nowhere\"\n").unwrap();
    let ended = place.run(execute("agent"));
    assert_eq!(ended.code, 5, "{ended}");
    assert!(ended.stderr.contains("graphrun/config.toml:1:12: `base_url` is `nowhere`"), "{ended}");
}

#[test]
fn a_database_outside_of_the_folder_needs_trust_or_a_flag() {
    let place = Place::new();
    fs::create_dir(place.path("clone")).unwrap();
    fs::write(place.path("clone/graphrun.toml"), "db = \"sqlite:../runs.db\"\n").unwrap();
    let run = |more: &[&str]| {
        let mut command = place.command(execute("two_steps"));
        let output = command.args(more).current_dir(place.path("clone")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, stderr) = run(&[]);
    assert_eq!(code, Some(5), "{stderr}");
    assert!(stderr.contains("`db` is `sqlite:../runs.db`: it names a database"), "{stderr}");
    assert!(!place.path("runs.db").exists());
    assert_eq!(run(&["--db", "memory:"]).0, Some(0), "a flag replaces it");
}

#[test]
fn a_damaged_list_of_trusted_folders_is_named() {
    let place = clone_with("http://127.0.0.1:1/v1");
    let list = place.path(".XDG_STATE_HOME/graphrun/trusted.json");
    fs::create_dir_all(list.parent().unwrap()).unwrap();
    for damaged in ["{", "{\"v\": 2, \"folders\": {}}", "[]"] {
        fs::write(&list, damaged).unwrap();
        let ended = place.run_with(execute("agent"), KEY);
        assert_eq!(ended.code, 5, "{damaged}: {ended}");
        assert!(ended.stderr.contains("trusted.json` cannot be read"), "{damaged}: {ended}");
    }
}

#[test]
fn the_doctor_names_settings_that_need_trust() {
    let place = clone_with("http://127.0.0.1:1/v1");
    let settings = || {
        let checks = place.run(["doctor", "--output", "json"]).json();
        checks.as_array().unwrap().iter().find(|it| it["name"] == "settings").unwrap().clone()
    };
    let found = settings();
    assert_eq!(found["ok"], false);
    assert!(
        found["detail"].as_str().unwrap().contains("`graphrun.toml` is not trusted"),
        "{found}"
    );
    assert!(found["help"].as_str().unwrap().contains("graphrun trust"), "{found}");
    assert_eq!(place.run(["trust", "--yes"]).code, 0);
    let found = settings();
    assert!(
        found["detail"].as_str().unwrap().starts_with("`graphrun.toml` (trusted); "),
        "{found}"
    );
}

/// A price of zero.
const FREE: &str = "input_per_million = 0\noutput_per_million = 0\n";

#[test]
fn untrusted_prices_do_not_count_for_a_limit_of_the_user() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", provider.local_addr().unwrap());
    provider.set_nonblocking(true).unwrap();
    let own_limit = "[limits]\nusd = 1\n";
    let run = |place: &Place, more: &[&str], own: &str| {
        let folder = place.path(".XDG_CONFIG_HOME/graphrun");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.toml"), own).unwrap();
        // A run that starts by mistake waits for an answer, and fails by this limit.
        let more = more
            .iter()
            .chain(&["--timeout", "5s", "--model", "openai/tiny"])
            .map(|it| (*it).to_owned());
        let args = [execute("agent"), more.collect()].concat();
        place.run_with(args, [("OPENAI_API_KEY", "sk-secret"), ("OPENAI_BASE_URL", &base)])
    };
    // A file may name a model with its provider or without, and lower the limit that it weakens.
    for (file, more, own) in [
        (format!("[prices.\"openai/tiny\"]\n{FREE}"), &["--max-cost", "1"][..], ""),
        (format!("[prices.\"openai/tiny\"]\n{FREE}"), &[], own_limit),
        (format!("[limits]\nusd = 0.5\n[prices.\"openai/tiny\"]\n{FREE}"), &[], own_limit),
        (format!("[prices.tiny]\n{FREE}"), &["--max-cost", "1"], ""),
    ] {
        let place = Place::new();
        fs::write(place.path("graphrun.toml"), &file).unwrap();
        let ended = run(&place, more, own);
        assert_eq!(ended.code, 5, "{file}: {ended}");
        assert!(ended.stderr.contains("a cost limit cannot be enforced"), "{file}: {ended}");
        assert!(provider.accept().is_err(), "a request was made");
        assert!(ended.stderr.contains("that you do not trust"), "{file}: {ended}");
    }
}

#[test]
fn the_prices_of_a_trusted_file_hold_a_limit_of_the_user() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new();
    let file = "[prices.\"openai/tiny\"]\ninput_per_million = 1\noutput_per_million = 1\n";
    fs::write(place.path("graphrun.toml"), file).unwrap();
    assert_eq!(place.run(["trust", "--yes"]).code, 0);
    let args = [
        execute("agent"),
        ["--max-cost", "1", "--model", "openai/tiny"].map(str::to_owned).to_vec(),
    ]
    .concat();
    let mut command = place.command(args);
    let address = provider.local_addr().unwrap();
    command.env("OPENAI_BASE_URL", format!("http://{address}/v1"));
    let run = Running::of(command);
    let (mut call, _) = provider.accept().unwrap();
    answer(&mut call);
    assert_eq!(run.end().0, Some(0));
}

#[test]
fn an_own_database_needs_no_trust() {
    let place = Place::new();
    place.execute("two_steps");
    let ended = place.run(["trust"]);
    assert_eq!(ended.code, 0, "{ended}");
    assert!(
        ended.stderr.contains("needs no trust: graphrun made its databases for you"),
        "{ended}"
    );
    assert_eq!(place.run(["trust", "--revoke"]).code, 2);
}
