//! Descriptors that a shell leaves open for the program: none reaches generated code.

use std::{
    fs,
    process::{Command, Stdio},
};

use super::program::Place;

const LOOKS: &str = "graphrun: 1
name: looks
state: { code: int }
sandboxes: { s: {} }
start: look
nodes:
  look: { run: [bash, -c, '! [[ -e /proc/self/fd/6 || -e /proc/self/fd/7 ]]'], in: s, then: end }
";

#[test]
fn a_descriptor_of_the_shell_reaches_no_sandbox() {
    let place = Place::new();
    fs::write(place.path("looks.yaml"), LOOKS).unwrap();
    // The numbers of the channel, which this node has not.
    let line = "exec 6<looks.yaml 7<looks.yaml; exec \"$0\" execute looks.yaml --db memory:";
    let plain = place.command([""; 0]);
    let mut shell = Command::new("bash");
    shell.args(["-c", line, env!("CARGO_BIN_EXE_graphrun")]).stdin(Stdio::null());
    shell.current_dir(place.path("")).env_clear();
    for (name, value) in plain.get_envs() {
        shell.envs(value.map(|it| (name, it)));
    }
    let ended = shell.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
