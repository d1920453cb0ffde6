//! Tools of MCP servers that a model calls.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use graphrun::{
    id::unique_id,
    mcp::{ServerAccess, Servers, look},
    nodes::Services,
    registry,
    workflow::{Approval, HostAccess, HostPermission, McpLock, mcp_servers},
};
use serde_json::json;

use super::{
    Ended,
    agent_tools::{Reply, Scripted, call, calls, says, told},
    run_in,
};
use crate::sandbox::host::leftovers;

/// How long the end of all processes may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Locks the tools of a server of this behaviour on a host, and asks a model that may call them.
async fn ask(behaviour: &str, model: &Scripted) -> Ended {
    ask_in("here", behaviour, model).await
}

/// The same for a server in `here` or in the sandbox `box`.
async fn ask_in(place: &str, behaviour: &str, model: &Scripted) -> Ended {
    let tools = "srv.echo, srv.add, srv.read_resource, srv.list_resources, srv.greet";
    ask_with_tools(place, tools, behaviour, model).await
}

/// The same for an agent with these tools.
async fn ask_with_tools(place: &str, tools: &str, behaviour: &str, model: &Scripted) -> Ended {
    let server = format!("{}/tests/cli/workflows/mcp_server.py", env!("CARGO_MANIFEST_DIR"));
    let code = fs::read_to_string(&server).unwrap();
    let (server, scripts) = match place {
        "here" => (server, ""),
        _ => ("mcp_server.py".to_owned(), ", scripts: mcp_server.py"),
    };
    let text = format!(
        "graphrun: 1\nname: w\nstate: {{ answer: string }}\nmodels: {{ m: x/1 }}\n\
         agents: {{ a: {{ model: m, tools: [{tools}] }} }}\n\
         hosts: {{ here: {{ allow: [python3], approve: never, secrets: SERVER_TOKEN }} }}\n\
         sandboxes: {{ box: {{}} }}\n\
         mcp: {{ srv: {{ command: [python3, {server}, \"{behaviour}\"], in: {place}{scripts}, \
         prompts: greet, resources: \"note://*\" }} }}\n\
         start: a\nnodes:\n  a: {{ agent: a, prompt: {{ text: What? }}, writes: answer, then: end }}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.yaml");
    fs::write(&path, &text).unwrap();
    fs::write(folder.path().join("mcp_server.py"), code).unwrap();
    let permission = HostPermission { approve: Approval::Never, ..HostPermission::default() };
    let access = HostAccess::default().allow("here", permission);
    let access = access.with_variable("SERVER_TOKEN", "token").with_variable("OTHER", "x");
    let access = ServerAccess { hosts: Arc::new(access), ..ServerAccess::default() };
    let server = mcp_servers(&path).unwrap().remove(0);
    let offer = Box::pin(look(&server, &access)).await.unwrap();
    let lock = McpLock::new([("srv".to_owned(), offer.locked)].into());
    fs::write(McpLock::path(&path), json!(lock).to_string()).unwrap();
    let services = Services { mcp: Arc::new(Servers::new(access)), ..model.services() };
    run_in(folder.path(), &text, json!({}), services, registry()).await
}

/// Answers with a call of `srv.echo`.
fn echo(text: &str) -> Reply {
    calls([call("", "srv.echo", &json!({ "text": text }).to_string())])
}

#[tokio::test]
async fn a_model_gets_texts_failures_structures_and_resources() {
    let made = [
        call("1", "srv.echo", r#"{"text": "hello"}"#),
        call("2", "srv.echo", r#"{"text": "fail"}"#),
        call("3", "srv.add", r#"{"a": 1, "b": 2}"#),
        call("4", "srv.add", r#"{"a": 1}"#),
        call("5", "srv.read_resource", r#"{"uri": "note://one"}"#),
        call("6", "srv.other", "{}"),
    ];
    let model = Scripted::new([calls(made), says("done")]);
    assert_eq!(ask("well", &model).await.state("answer"), &json!("done"));
    let asked = model.asked();
    let results = told(&asked[1]);
    // The server has the named secret, and no other variable.
    assert_eq!(results[0], "hello token -");
    assert_eq!(results[1], "error: it failed on purpose");
    assert_eq!(results[2], r#"{"sum":3}"#);
    assert!(results[3].starts_with("error: the input does not fit its schema"), "{results:?}");
    assert_eq!(results[4], "the note");
    assert!(results[5].starts_with("error: there is no `srv.other`"), "{results:?}");
    assert_eq!(asked[0].tools[0].description, "Says it again.");
}

#[tokio::test]
async fn a_model_lists_and_reads_allowed_resources_and_gets_prompts() {
    let made = [
        call("1", "srv.list_resources", "{}"),
        call("2", "srv.read_resource", r#"{"uri": "file:///etc/passwd"}"#),
        call("3", "srv.read_resource", r#"{"uri": "note://a/../../etc"}"#),
        call("4", "srv.greet", r#"{"who": "Ann", "how": "warmly"}"#),
        call("5", "srv.greet", r#"{"how": "warmly"}"#),
        call("6", "srv.greet", r#"{"who": 1}"#),
    ];
    let model = Scripted::new([calls(made), says("done")]);
    assert_eq!(ask("well", &model).await.state("answer"), &json!("done"));
    let asked = model.asked();
    let results = told(&asked[1]);
    let listed = json!({
        "resources": [{"uri": "note://one", "name": "one"}],
        "templates": [{"uri": "note://{name}", "name": "notes"}],
    });
    assert_eq!(results[0], listed.to_string());
    for (result, uri) in [(1, "file:///etc/passwd"), (2, "note://a/../../etc")] {
        let expected = format!("error: `resources` of the server `srv` does not allow `{uri}`");
        assert_eq!(results[result], expected);
    }
    assert_eq!(results[3], "Greet Ann, warmly.");
    for result in [4, 5] {
        let text = &results[result];
        assert!(text.starts_with("error: the input does not fit its schema"), "{text}");
    }
    let prompt = asked[0].tools.iter().find(|it| it.description == "Greets.").unwrap();
    let schema = format!("{prompt:?}");
    assert!(schema.contains("The tone."), "{schema}");
}

/// The server says so after its first call, and the second one must not follow the new description.
#[tokio::test]
async fn a_server_that_changes_its_tools_is_not_called_again() {
    let model = Scripted::new([echo("one"), echo("two"), echo("three"), says("done")]);
    assert_eq!(ask("once", &model).await.state("answer"), &json!("done"));
    let asked = model.asked();
    let results = told(&asked[3]);
    assert_eq!(results[0], "one token -");
    for result in &results[1..3] {
        let expected = "error: the server `srv` has changed its tool `echo`";
        assert!(result.starts_with(expected), "{results:?}");
    }
}

/// The server counts its calls, and says after each of them that its tools have changed.
#[tokio::test]
async fn a_server_that_reports_no_real_change_keeps_its_process() {
    let model = Scripted::new([echo("one"), echo("two"), echo("three"), says("done")]);
    assert_eq!(ask("same", &model).await.state("answer"), &json!("done"));
    let asked = model.asked();
    assert_eq!(told(&asked[3]), ["one 1", "two 2", "three 3"]);
}

/// This process continues, so only the end of the graph ends the server.
#[tokio::test]
async fn a_server_ends_with_the_graph_that_started_it() {
    for place in ["here", "box"] {
        let word = unique_id();
        let model =
            Scripted::new([calls([call("1", "srv.echo", r#"{"text": "hello"}"#)]), says("done")]);
        let ended = ask_in(place, &format!("fork:{word}"), &model).await;
        assert_eq!(ended.state("answer"), &json!("done"));
        assert!(told(&model.asked()[1])[0].starts_with("hello "), "{place}");
        drop(ended);
        let began = Instant::now();
        while !leftovers(&word).is_empty() {
            assert!(began.elapsed() < PATIENCE, "{place}: {:?}", leftovers(&word));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn a_locked_tool_that_the_agent_does_not_have_is_never_called() {
    let add = calls([call("1", "srv.add", r#"{"a": 1, "b": 2}"#)]);
    let model = Scripted::new([add, echo("one"), says("done")]);
    // The server counts its calls.
    let ended = ask_with_tools("here", "srv.echo", "same", &model).await;
    assert_eq!(ended.state("answer"), &json!("done"));
    let asked = model.asked();
    let results = told(&asked[2]);
    assert!(results[0].starts_with("error: there is no `srv.add`"), "{results:?}");
    assert_eq!(results[1], "one 1");
}
