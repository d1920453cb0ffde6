//! What `write_files` delivers, and where.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use graphrun::sandbox::{Replace, SourceFile, write_files};
use serde_json::json;

use crate::paths::{SECRET, World, make_pipe};

const DELIVERY: &str = r#"
graphrun: 1
name: delivery
types: { file: { file_path: string, content: string } }
state: { sub: string, files: "[file]" }
input: [sub, files]
start: deliver
nodes:
  deliver: { write_files: { to: output.dir + "/" + sub, files: files }, then: end }
"#;

/// Delivers one file to a folder below `out`, and returns the exit code and the reason.
fn deliver(world: &World, sub: &str, path: &str) -> (i32, String) {
    world.write("delivery.yaml", DELIVERY);
    let files = json!([{ "file_path": path, "content": "planted" }]);
    let input = json!({ "sub": sub, "files": files }).to_string();
    world.write("input.json", &input);
    let args = ["execute", "delivery.yaml", "-i", "@input.json", "--out", "out", "--db", "memory:"];
    let ended = world.run(&[&args[..], &["--output", "json"]].concat());
    (ended.code, ended.to_string())
}

#[test]
fn a_folder_out_of_the_state_stays_below_the_output_folder() {
    let world = World::new();
    fs::create_dir_all(world.inside("out/real")).unwrap();
    symlink(&world.outside, world.inside("out/first")).unwrap();
    symlink(&world.outside, world.inside("out/real/middle")).unwrap();
    symlink("real", world.inside("out/near")).unwrap();
    symlink("nothing", world.inside("out/dangling")).unwrap();
    fs::hard_link(world.outside.join("secret"), world.inside("out/hard")).unwrap();
    make_pipe(&world.inside("out/pipe"));
    let long = "x".repeat(5_000);
    let absolute = world.outside.display().to_string();
    for sub in [
        "..",
        "../../outside",
        "real/../../../outside",
        &absolute,
        "first",
        "first/deep",
        "real/middle",
        "real/middle/deep",
        "near",
        "dangling",
        "hard",
        "pipe",
        "pipe/x",
        ".git/hooks",
        "real/.GIT",
        ".ssh",
        ".graphrun",
        "a\u{0}b",
        "a//b",
        "./a",
        &long,
        "../out",
        "-rf",
        "~",
        "con",
        "a\\..\\b",
    ] {
        let (code, text) = deliver(&world, sub, "pre-commit");
        assert_ne!(code, 0, "{sub:?}: {text}");
        assert!(text.contains("refused") || text.contains("is not a regular"), "{sub:?}: {text}");
        world.assert_untouched(sub);
    }
    let (code, text) = deliver(&world, "site/docs/", "index.md");
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read_to_string(world.inside("out/site/docs/index.md")).unwrap(), "planted");
}

#[test]
fn a_generated_name_stays_below_the_output_folder() {
    let world = World::new();
    fs::create_dir_all(world.inside("out/site/real")).unwrap();
    symlink(&world.outside, world.inside("out/site/first")).unwrap();
    symlink(&world.outside, world.inside("out/site/real/middle")).unwrap();
    symlink(world.outside.join("secret"), world.inside("out/site/last")).unwrap();
    make_pipe(&world.inside("out/site/pipe"));
    for path in [
        "../x",
        "../../../outside/x",
        "/tmp/x",
        "first/x",
        "first/secret",
        "real/middle/x",
        "last",
        "pipe",
        "pipe/x",
        ".git/config",
        "a/.Git/hooks/pre-commit",
        ".graphrun-delivered.json",
        ".graphrun/runs.db",
        "a\u{0}b",
        "real",
    ] {
        let (code, text) = deliver(&world, "site", path);
        assert_ne!(code, 0, "{path:?}: {text}");
        world.assert_untouched(path);
    }
}

#[test]
fn a_hard_link_to_a_file_outside_is_replaced() {
    let world = World::new();
    fs::create_dir_all(world.inside("out/site")).unwrap();
    for name in ["x", ".graphrun-x.tmp", ".graphrun-delivered.json"] {
        fs::hard_link(world.outside.join("secret"), world.inside("out/site").join(name)).unwrap();
    }
    let file = SourceFile { path: "x".to_owned(), content: "new".to_owned() };
    write_files(&world.inside("out"), "site", &[file], Replace::Anything).unwrap();
    assert_eq!(fs::read_to_string(world.inside("out/site/x")).unwrap(), "new");
    world.assert_untouched("hard links");
}

/// A folder on the way, and the file itself, are swapped for links while files are delivered there.
#[test]
fn a_swap_during_a_delivery_leads_no_file_out() {
    let world = World::new();
    let out = world.inside("out");
    fs::create_dir_all(out.join("folder")).unwrap();
    symlink(&world.outside, out.join("link")).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let swap = |a: &str, b: &str| fs::rename(out.join(a), out.join(b));
            while !is_over.load(Ordering::Relaxed) {
                // What the delivery makes meanwhile under a name can make one of these fail; the next round continues.
                drop(swap("folder", "kept"));
                drop(swap("link", "folder"));
                drop(swap("folder", "link"));
                drop(swap("kept", "folder"));
            }
        });
        for round in 0..300 {
            let content = format!("{SECRET}-{round}");
            let files = [SourceFile { path: "folder/secret".to_owned(), content: content.clone() }];
            drop(write_files(&out, "", &files, Replace::Anything));
            let files = [SourceFile { path: "secret".to_owned(), content }];
            drop(write_files(&out, "folder", &files, Replace::Anything));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    world.assert_untouched("a race");
}

#[test]
fn a_folder_that_no_run_could_accept_is_refused_at_load() {
    let world = World::new();
    for (to, is_right) in [
        ("output.dir", true),
        (r#"output.dir + "/sub""#, true),
        (r#"output.dir + "/" + sub"#, true),
        ("output.dir + sub", true),
        (r#"output.dir + "/a/" + sub + "/b/""#, true),
        (r#"sub == "" ? output.dir : output.dir + "/x""#, true),
        (r#"(sub == "" ? output.dir : output.dir + "/x") + "/y""#, true),
        (r#"output.dir + "/../x""#, false),
        (r#"output.dir + "/" + sub + "/../x""#, false),
        (r#"output.dir + "/.git/hooks""#, false),
        (r#"output.dir + "/" + sub + "/.GIT""#, false),
        (r#"output.dir + "side""#, false),
        (r#"sub == "" ? output.dir : output.dir + "/..""#, false),
        (r#""site""#, false),
        (r#""/etc""#, false),
        ("sub", false),
        (r#""x" + output.dir"#, false),
    ] {
        world.write(
            "delivery.yaml",
            &DELIVERY.replace(r#"output.dir + "/" + sub"#, &format!("'{to}'")),
        );
        let ended = world.run(&["validate", "delivery.yaml"]);
        assert_eq!(ended.code == 0, is_right, "{to}: {ended}");
        assert_eq!(ended.to_string().contains("GR056"), !is_right, "{to}: {ended}");
    }
}
