//! The files that the command line names, and those the program looks for itself.

use std::{fs, io::Write as _, os::unix::fs::symlink, process::Stdio};

use crate::paths::{SECRET, World, make_pipe};

const ECHO: &str = "graphrun: 1\nname: echo\nstate: { text: string }\ninput: text\noutput: text\nstart: one\nnodes:\n  \
                    one: { set: { text: text }, then: end }\n";

/// A world with a workflow, and with files in it that are none.
fn world() -> World {
    let world = World::new();
    world.write("echo.yaml", ECHO);
    make_pipe(&world.inside("pipe"));
    symlink("pipe", world.inside("link_to_pipe")).unwrap();
    fs::create_dir(world.inside("folder")).unwrap();
    world
}

/// Things that are not regular files.
const STRANGE: [&str; 5] = ["pipe", "link_to_pipe", "folder", "/dev/zero", "/dev/null"];

#[test]
fn an_input_that_is_no_regular_file_is_refused_at_once() {
    let world = world();
    for path in ["pipe", "link_to_pipe", "/dev/zero", "folder"] {
        for flag in [format!("text=@{path}"), format!("@{path}")] {
            let ended = world.run(&["execute", "echo.yaml", "-i", &flag, "--db", "memory:"]);
            assert_eq!(ended.code, 2, "{flag}: {ended}");
            let reason =
                if path == "folder" { "it is a folder" } else { "it is not a regular file" };
            let expected = format!("cannot read `{path}`: {reason}");
            assert!(ended.stderr.contains(&expected), "{flag}: {ended}");
        }
    }
}

#[test]
fn an_input_that_the_shell_passes_as_a_descriptor_is_read() {
    let world = world();
    for path in ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"] {
        let flag = format!("text=@{path}");
        let args = ["execute", "echo.yaml", "-i", &flag, "--db", "memory:", "--output", "json"];
        let mut command = world.place.command(args);
        command.current_dir(world.inside("")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"from a pipe").unwrap();
        let output = child.wait_with_output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.contains("from a pipe"), "{path}: {stdout}");
    }
}

#[test]
fn an_endless_descriptor_is_bounded() {
    let world = world();
    let args = ["execute", "echo.yaml", "-i", "text=@/dev/stdin", "--db", "memory:"];
    let mut command = world.place.command(args);
    command.env("GRAPHRUN_LIMIT_INPUT_BYTES", "1000").current_dir(world.inside(""));
    let output = command.stdin(fs::File::open("/dev/zero").unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("larger than the limit `input_bytes`"), "{stderr}");
}

#[test]
fn files_of_every_command_are_regular_or_refused_at_once() {
    let world = world();
    fs::copy("tests/cli/workflows/agent.yaml", world.inside("agent.yaml")).unwrap();
    let agent = ["execute", "agent.yaml", "-i", "brief=x", "--db", "memory:"];
    for path in STRANGE {
        let database = format!("sqlite:{path}");
        let commands: [&[&str]; 6] = [
            &["validate", path],
            &["execute", path],
            &["execute", "echo.yaml", "-i", "text=x", "--db", &database],
            &["runs", "list", "--db", &database],
            &["runs", "export", "x", "--db", &database],
            &[&agent[..], &["--replay", path]].concat(),
        ];
        for args in commands {
            let ended = world.run(args);
            assert!(ended.code != 0 && !ended.stderr.is_empty(), "{args:?}: {ended}");
        }
    }
}

#[test]
fn a_recording_is_not_written_to_a_pipe() {
    let world = world();
    fs::copy("tests/cli/workflows/agent.yaml", world.inside("agent.yaml")).unwrap();
    let args = ["execute", "agent.yaml", "-i", "brief=x", "--db", "memory:", "--record", "pipe"];
    let mut command = world.place.command(args);
    command.env("OPENAI_BASE_URL", "http://127.0.0.1:1/v1").current_dir(world.inside(""));
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("the recording cannot be written"), "{stderr}");
}

#[test]
fn an_unusable_output_folder_is_refused_before_the_run() {
    let world = world();
    world.write("file", "mine");
    fs::copy("tests/cli/workflows/delivers.yaml", world.inside("delivers.yaml")).unwrap();
    for out in ["pipe", "link_to_pipe", "file", "file/below", "/dev/null", "/dev/null/x"] {
        let args = ["execute", "delivers.yaml", "-i", "brief=x", "--db", "memory:", "--out", out];
        let ended = world.run(&args);
        assert_eq!(ended.code, 5, "{out}: {ended}");
        assert!(ended.stderr.contains("cannot be written"), "{out}: {ended}");
    }
    assert_eq!(fs::read_to_string(world.inside("file")).unwrap(), "mine");
}

#[test]
fn an_irregular_or_foreign_configuration_is_refused() {
    let world = world();
    fs::write(world.outside.join("secret"), format!("db = \"{SECRET}\"")).unwrap();
    let config = world.inside("graphrun.toml");
    let check = |what: &str| {
        let ended = world.run(&["runs", "list"]);
        assert_eq!(ended.code, 5, "{what}: {ended}");
        assert!(ended.stderr.contains("`graphrun.toml` cannot be read"), "{what}: {ended}");
        assert!(!ended.to_string().contains(SECRET), "{what}: {ended}");
        drop(fs::remove_file(&config).or_else(|_| fs::remove_dir(&config)));
    };
    make_pipe(&config);
    check("a pipe");
    symlink("/dev/zero", &config).unwrap();
    check("a device");
    fs::create_dir(&config).unwrap();
    check("a folder");
    symlink(world.outside.join("secret"), &config).unwrap();
    check("a link that leads out");
}

#[test]
fn a_link_in_the_place_of_a_default_folder_is_not_followed() {
    let world = world();
    fs::copy("tests/cli/workflows/delivers.yaml", world.inside("delivers.yaml")).unwrap();
    let run =
        |more: &[&str]| world.run(&[&["execute", "delivers.yaml", "-i", "brief=x"], more].concat());
    symlink(&world.outside, world.inside("out")).unwrap();
    let ended = run(&["--db", "memory:"]);
    assert!(ended.code == 2 && ended.stderr.contains("`out` is a symbolic link"), "{ended}");
    world.assert_untouched("out");
    for link in [".graphrun", ".graphrun/runs.db"] {
        let link = world.inside(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&world.outside, &link).unwrap();
        let ended = run(&["--out", "files"]);
        assert!(
            ended.code == 5 && ended.stderr.contains("is a symbolic link"),
            "{link:?}: {ended}"
        );
        let ended = world.run(&["runs", "list"]);
        assert!(
            ended.code == 5 && ended.stderr.contains("is a symbolic link"),
            "{link:?}: {ended}"
        );
        world.assert_untouched("the database");
        fs::remove_file(&link).unwrap();
    }
}
