//! The files that a workflow names: prompts, schemas, other workflows, the folder of its tools.

use std::{fs, os::unix::fs::symlink};

use crate::paths::{SECRET, World, make_pipe};

/// A workflow file that names another file, and the folder of the named one.
struct Way {
    name: &'static str,
    workflow: &'static str,
    /// A file that can be used there.
    good: &'static str,
}

const WAYS: [Way; 4] = [
    Way {
        name: "prompt",
        workflow: "graphrun: 1\nname: w\nstate: { a: string }\noutput: a\nmodels: { m: openai/x }\n\
                   agents: { g: { model: m } }\nstart: one\nnodes:\n  one: { agent: g, prompt: NAMED, writes: a, then: end }\n",
        good: "Say something.",
    },
    Way {
        name: "report",
        workflow: "graphrun: 1\nname: w\nstate: { a: string }\ninput: a\nstart: one\nnodes:\n  \
                   one: { write_files: { to: output.dir, report: NAMED }, then: end }\n",
        good: "Report: {{ a }}",
    },
    Way {
        name: "schema",
        workflow: "graphrun: 1\nname: w\nstate: { a: string, b: { schema: NAMED.json } }\ninput: [a, b]\nstart: one\nnodes:\n  \
                   one: { set: { a: '\"x\"' }, then: end }\n",
        good: r#"{ "type": "object", "properties": {} }"#,
    },
    Way {
        name: "used workflow",
        workflow: "graphrun: 1\nname: w\nstate: { a: string }\ninput: a\nstart: one\nnodes:\n  \
                   one: { use: { workflow: NAMED, in: { a: a }, out: { a: a } }, then: end }\n",
        good: "graphrun: 1\nname: inner\nstate: { a: string }\ninput: a\noutput: a\nstart: one\nnodes:\n  \
               one: { set: { a: '\"x\"' }, then: end }\n",
    },
];

/// Writes the workflow with this path in it, and validates it.
fn validate(world: &World, way: &Way, named: &str) -> crate::cli::program::Ended {
    let named = named.strip_suffix(".json").unwrap_or(named);
    world.write("flows/w.yaml", &way.workflow.replace("NAMED", named));
    world.run(&["validate", "flows/w.yaml"])
}

/// The name that a way gives to a file.
fn named(way: &Way, path: &str) -> String {
    if way.name == "schema" { format!("{path}.json") } else { path.to_owned() }
}

#[test]
fn a_workflow_reads_regular_files_beneath_its_folder() {
    for way in &WAYS {
        let world = World::new();
        world.write(&format!("flows/{}", named(way, "parts/good")), way.good);
        symlink("parts", world.inside("flows/linked")).unwrap();
        symlink(named(way, "good"), world.inside("flows").join(named(way, "parts/near"))).unwrap();
        for path in ["parts/good", "linked/good", "parts/near"] {
            let ended = validate(&world, way, path);
            assert_eq!(ended.code, 0, "{}: {path}: {ended}", way.name);
        }
    }
}

#[test]
fn a_workflow_reads_nothing_out_of_its_folder() {
    for way in &WAYS {
        let world = World::new();
        let outside = world.outside.join(named(way, "good"));
        fs::write(&outside, format!("{}\n{SECRET}", way.good)).unwrap();
        fs::create_dir_all(world.inside("flows/parts")).unwrap();
        symlink(&world.outside, world.inside("flows/first")).unwrap();
        symlink("../../../outside", world.inside("flows/parts/middle")).unwrap();
        symlink(&outside, world.inside("flows").join(named(way, "parts/last"))).unwrap();
        symlink(named(way, "last"), world.inside("flows").join(named(way, "parts/chain"))).unwrap();
        make_pipe(&world.inside("flows").join(named(way, "parts/pipe")));
        symlink("/dev/zero", world.inside("flows").join(named(way, "parts/device"))).unwrap();
        fs::create_dir(world.inside("flows").join(named(way, "parts/folder"))).unwrap();
        fs::write(world.inside("").join(named(way, "beside")), way.good).unwrap();
        let absolute = world.outside.join("good").display().to_string();
        let long = "x".repeat(5_000);
        for path in [
            "../outside/good",
            "../../outside/good",
            &absolute,
            "first/good",
            "parts/middle/good",
            "parts/last",
            "parts/chain",
            "parts/pipe",
            "parts/device",
            "parts/folder",
            "beside",
            "parts/../../beside",
            &long,
            "/dev/zero",
            "/dev/stdin",
            "/proc/self/environ",
        ] {
            let ended = validate(&world, way, path);
            assert_eq!(ended.code, 2, "{}: {path}: {ended}", way.name);
            assert!(!ended.to_string().contains(SECRET), "{}: {path}: {ended}", way.name);
        }
    }
}

#[test]
fn a_project_is_read_as_a_whole_and_nothing_above_it() {
    for way in &WAYS {
        let world = World::new();
        world.write(&named(way, "beside"), way.good);
        fs::write(world.place.path(&named(way, "above")), way.good).unwrap();
        symlink(format!("../../{}", named(way, "above")), world.inside(&named(way, "link")))
            .unwrap();
        assert_eq!(validate(&world, way, "beside").code, 2, "{}", way.name);
        for marker in ["graphrun.toml", ".git"] {
            fs::write(world.inside(marker), "").unwrap();
            // The folder above is searched for prompts and workflows; a schema lies beside its workflow.
            let is_found = way.name != "schema";
            let ended = validate(&world, way, "beside");
            assert_eq!(ended.code == 0, is_found, "{}: {marker}: {ended}", way.name);
            for path in ["above", "link"] {
                let ended = validate(&world, way, path);
                assert_eq!(ended.code, 2, "{}: {marker}: {path}: {ended}", way.name);
            }
            fs::remove_file(world.inside(marker)).unwrap();
        }
    }
}

#[test]
fn a_file_out_of_the_project_is_named_with_the_remedy() {
    let world = World::new();
    symlink(world.outside.join("secret"), world.inside("leak.md")).unwrap();
    world.write("w.yaml", &WAYS[0].workflow.replace("NAMED", "leak.md"));
    let ended = world.run(&["validate", "w.yaml"]);
    let text = ended.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("`leak.md` cannot be read: it leads out of the folder"), "{ended}");
    assert!(text.contains("graphrun.toml` or a `.git`"), "{ended}");
}

#[test]
fn the_folder_of_the_tools_lies_in_the_project() {
    let workflow = "graphrun: 1\nname: w\nstate: { text: string }\ntools: { fs: { root: 'NAMED' } }\nstart: one\nnodes:\n  \
                    one: { tool: fs.read, args: { path: '\"secret\"' }, writes: { text: text }, then: end }\n";
    let world = World::new();
    fs::create_dir_all(world.inside("flows/data")).unwrap();
    world.write("flows/data/secret", "of the project");
    world.write("secret", "of the project");
    symlink(&world.outside, world.inside("flows/link")).unwrap();
    let absolute = world.outside.display().to_string();
    let run = |root: &str| {
        world.write("flows/w.yaml", &workflow.replace("NAMED", root));
        world.run(&["execute", "flows/w.yaml", "--db", "memory:", "--output", "json"])
    };
    for root in ["..", "../../outside", &absolute, "link", "/", "missing/../../..", "data/../.."] {
        let ended = run(root);
        assert_eq!(ended.code, 2, "{root}: {ended}");
        assert!(!ended.to_string().contains(SECRET), "{root}: {ended}");
    }
    assert_eq!(run("data").code, 0);
    world.write("graphrun.toml", "");
    assert_eq!(run("..").code, 0, "the folder above is in the project now");
    assert_eq!(run("../../outside").code, 2);
}

#[test]
fn a_file_of_cases_names_files_of_the_project_only() {
    let world = World::new();
    world.write("flows/w.yaml", "graphrun: 1\nname: w\nstate: { a: string }\nstart: one\nnodes:\n  one: { set: { a: '\"x\"' }, then: end }\n");
    fs::copy(world.inside("flows/w.yaml"), world.outside.join("w.yaml")).unwrap();
    symlink(&world.outside, world.inside("flows/link")).unwrap();
    symlink("/dev/zero", world.inside("flows/device")).unwrap();
    make_pipe(&world.inside("flows/pipe"));
    let test = |keys: &str| {
        let text = format!(
            "graphrun_test: 1\n{keys}cases:\n  - {{ name: c, expect: {{ status: done }} }}\n"
        );
        world.write("flows/c.test.yaml", &text);
        world.run(&["test", "flows/c.test.yaml"])
    };
    let ended = test("workflow: w.yaml\n");
    assert_eq!(ended.code, 0, "{ended}");
    let absolute = world.outside.join("w.yaml").display().to_string();
    for path in ["../../outside/w.yaml", "link/w.yaml", "pipe", "device", &absolute] {
        for keys in [format!("workflow: {path}\n"), format!("workflow: w.yaml\nreplay: {path}\n")] {
            let ended = test(&keys);
            assert_eq!(ended.code, 2, "{keys}: {ended}");
            let text = ended.to_string();
            let is_named = text.contains("leads out") || text.contains("not a regular file");
            assert!(is_named, "{keys}: {ended}");
        }
    }
}
