//! `graphrun fmt`: files are laid out, or left as they are.

use std::{fs, os::unix::fs::symlink};

use crate::cli::program::{Ended, Place};

const CROOKED: &str = "graphrun: 1   # first\nname:   x\n";
const LAID_OUT: &str = "graphrun: 1 # first\nname: x\n";

#[test]
fn files_are_laid_out_once() {
    let place = Place::new();
    fs::create_dir(place.path("flows")).unwrap();
    fs::write(place.path("flows/a.yaml"), CROOKED).unwrap();
    fs::write(place.path("flows/b.yaml"), LAID_OUT).unwrap();
    fs::write(place.path("flows/c.yaml"), "services:   {}\n").unwrap();
    let check = place.run(["fmt", "--check", "flows"]);
    insta::assert_snapshot!(check, @r"
    exit 1
    stdout:
    flows/a.yaml: would be laid out differently
    2 files: 1 would change, 1 as before
    stderr:
    ");
    assert_eq!(fs::read_to_string(place.path("flows/a.yaml")).unwrap(), CROOKED);
    let first = place.run(["fmt", "flows"]);
    assert!(first.code == 0 && first.stdout.contains("flows/a.yaml: laid out\n"), "{first}");
    assert_eq!(fs::read_to_string(place.path("flows/a.yaml")).unwrap(), LAID_OUT);
    assert_eq!(fs::read_to_string(place.path("flows/c.yaml")).unwrap(), "services:   {}\n");
    let second = place.run(["fmt", "flows", "--output", "json"]).json();
    assert_eq!(second, serde_json::json!({"files": 2, "changed": [], "refused": 0}));
    assert_eq!(place.run(["fmt", "--check", "flows"]).code, 0);
    assert_eq!(fs::read_dir(place.path("flows")).unwrap().count(), 3, "no other file is left");
}

#[test]
fn a_link_in_a_folder_is_left_alone_and_a_named_one_is_followed() {
    let place = Place::new();
    fs::create_dir(place.path("flows")).unwrap();
    fs::write(place.path("flows/a.yaml"), LAID_OUT).unwrap();
    fs::write(place.path("outside.yaml"), CROOKED).unwrap();
    symlink(place.path("outside.yaml"), place.path("flows/link.yaml")).unwrap();
    assert_eq!(place.run(["fmt", "flows"]).code, 0);
    assert_eq!(fs::read_to_string(place.path("outside.yaml")).unwrap(), CROOKED);
    assert_eq!(place.run(["fmt", "flows/link.yaml"]).code, 0);
    assert_eq!(fs::read_to_string(place.path("outside.yaml")).unwrap(), LAID_OUT);
    assert!(place.path("flows/link.yaml").is_symlink());
}

/// All files that `graphrun init` writes are below `graphs`.
#[test]
fn the_templates_are_laid_out() {
    let place = Place::new();
    let root = env!("CARGO_MANIFEST_DIR");
    let folders = [format!("{root}/graphs"), format!("{root}/examples")];
    let checked = place.run(["fmt", "--check", &folders[0], &folders[1]]);
    assert_eq!(checked.code, 0, "{checked}");
}

fn from_stdin(place: &Place, args: &[&str], text: &str) -> Ended {
    fs::write(place.path("input"), text).unwrap();
    let input = fs::File::open(place.path("input")).unwrap();
    Ended::of(place.command(["fmt"].iter().chain(args)).stdin(input))
}

#[test]
fn a_text_on_stdin_is_laid_out_to_stdout() {
    let place = Place::new();
    let printed = from_stdin(&place, &["-"], CROOKED);
    assert_eq!((printed.code, printed.stdout.as_str()), (0, LAID_OUT), "{printed}");
    let unusual = "graphrun: 1\r\nname: x\r\nabout: family \u{1f468}\u{200d}\u{1f469}\r\n";
    assert_eq!(from_stdin(&place, &["-"], unusual).stdout, unusual, "no value changes");
    for (text, code) in [(CROOKED, 1), (LAID_OUT, 0)] {
        let checked = from_stdin(&place, &["--check", "-"], text);
        assert_eq!((checked.code, checked.stdout.as_str()), (code, ""), "{checked}");
    }
    let broken = from_stdin(&place, &["-"], "graphrun: 1\nname: [x\n");
    assert!(broken.code == 2 && broken.stderr.contains("GR001"), "{broken}");
    assert_eq!(place.run(["fmt", "-", "a.yaml"]).code, 2);
}

#[test]
fn an_unreadable_file_is_left_and_the_others_are_laid_out() {
    let place = Place::new();
    let broken = "graphrun: 1\nname: [x\n";
    fs::write(place.path("a.yaml"), broken).unwrap();
    fs::write(place.path("b.yaml"), CROOKED).unwrap();
    let ended = place.run(["fmt", "a.yaml", "b.yaml", "nowhere.yaml"]);
    assert_eq!(ended.code, 2, "{ended}");
    assert!(ended.stderr.contains("GR001") && ended.stderr.contains("nowhere.yaml"), "{ended}");
    assert!(ended.stdout.ends_with("3 files: 1 changed, 0 as before, 2 refused\n"), "{ended}");
    assert_eq!(fs::read_to_string(place.path("a.yaml")).unwrap(), broken);
    assert_eq!(fs::read_to_string(place.path("b.yaml")).unwrap(), LAID_OUT);
}
