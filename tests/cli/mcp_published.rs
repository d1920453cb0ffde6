//! Published MCP servers: one from npm on a host, and one from `PyPI` in a sandbox. Both are pinned, and are installed once into
//! the cache of the tests.

use std::{fs, path::Path};

use serde_json::json;

use crate::{
    cli::program::{Ended, Place},
    support::packages,
};

fn execute(place: &Place, more: &[&str]) -> Ended {
    place.run(["execute", "w.yaml", "--output", "json"].iter().chain(more))
}

/// Locks the tools of a server, and runs the workflow with a recording, and then from it.
fn check(place: &Place, allowed: &[&str], state: &serde_json::Value) {
    let lock = place.run(["mcp", "lock", "w.yaml"].iter().chain(allowed));
    assert_eq!(lock.code, 0, "{lock}");
    let record = execute(place, &[allowed, &["--record", "calls.jsonl"]].concat());
    assert_eq!(record.json()["state"], *state, "{record}");
    let replay = execute(place, &["--replay", "calls.jsonl"]);
    assert_eq!(replay.json()["state"], *state, "{replay}");
    let again = place.run(["mcp", "lock", "w.yaml", "--check"].iter().chain(allowed));
    assert_eq!(again.code, 0, "{again}");
}

#[test]
fn the_file_server_of_npm_writes_and_reads_on_a_host() {
    let server = packages::npm("tests/mcp_servers")
        .join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    let place = Place::new();
    let server = server.display();
    fs::create_dir(place.path("data")).unwrap();
    let data = place.path("data").canonicalize().unwrap();
    let file = data.join("a.txt").display().to_string();
    let data = data.display();
    let text = format!(
        "graphrun: 1\nname: files\nstate: {{ text: {{ type: string, default: none }} }}\noutput: text\n\
         hosts: {{ here: {{ allow: node {server}, approve: never }} }}\n\
         mcp: {{ files: {{ command: [node, \"{server}\", \"{data}\"], in: here, tools: [write_file, read_text_file] }} }}\n\
         start: write\nnodes:\n  \
         write: {{ tool: files.write_file, args: {{ path: '\"{file}\"', content: '\"hello\"' }}, then: read }}\n  \
         read: {{ tool: files.read_text_file, args: {{ path: '\"{file}\"' }}, writes: {{ text: content }}, then: end }}\n"
    );
    fs::write(place.path("w.yaml"), text).unwrap();
    check(&place, &["--allow-host", "here"], &json!({"text": "hello"}));
    assert_eq!(fs::read_to_string(file).unwrap(), "hello");
}

#[test]
fn the_git_server_of_pypi_reads_a_history_in_a_sandbox() {
    let place = Place::new();
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/workflows/mcp_git_server.py");
    fs::copy(script, place.path("server.py")).unwrap();
    let text = "graphrun: 1\nname: history\nstate: { log: string, made: string }\noutput: log\n\
         sandboxes: { box: { python: { requirements: [mcp-server-git==2026.10.19] } } }\n\
         mcp: { git: { command: [python3, server.py], in: box, scripts: server.py, tools: [git_log, git_create_branch, git_branch] } }\n\
         start: log\nnodes:\n  \
         log: { tool: git.git_log, args: { repo_path: '\"/box/repo\"' }, writes: made, then: branch }\n  \
         branch: { tool: git.git_create_branch, args: { repo_path: '\"/box/repo\"', branch_name: '\"next\"' }, then: list }\n  \
         list: { tool: git.git_branch, args: { repo_path: '\"/box/repo\"', branch_type: '\"local\"' }, writes: log, then: end }\n";
    fs::write(place.path("w.yaml"), text).unwrap();
    check(&place, &[], &json!({"log": "* main\n  next"}));
}
