//! No file uses up the memory: each bomb is refused with the limit that it reaches, or answered.
//!
//! The program runs with 300 MB of memory.

mod generator;
mod run;

use std::{thread, time::Instant};

use generator::{Bomb, Expected, bombs};

use crate::support::some_of;

#[test]
fn every_bomb_is_refused_or_answered_in_little_memory() {
    let bombs = bombs();
    assert!(bombs.len() >= 100, "{} bombs", bombs.len());
    let bombs = some_of(3, bombs);
    let problems = |part: &[Bomb]| -> Vec<String> {
        part.iter().filter_map(|it| run::run(it).problem(it)).collect()
    };
    let (one, other) = bombs.split_at(bombs.len() / 2);
    let wrong = thread::scope(|scope| {
        let beside = scope.spawn(|| problems(one));
        let mut wrong = problems(other);
        wrong.extend(beside.join().expect("no bomb makes the test panic"));
        wrong
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Prints how long each bomb takes, the longest last. `scripts/measure-bombs` runs this with a release build.
#[test]
#[ignore = "measures, and asserts nothing"]
fn the_time_of_every_bomb() {
    let timed = |bomb: &Bomb| {
        let begun = Instant::now();
        let problem = run::run(bomb).problem(bomb);
        (begun.elapsed(), bomb.name.clone(), problem.unwrap_or_default())
    };
    let mut times: Vec<_> = bombs().iter().map(timed).collect();
    times.sort();
    for (time, name, problem) in times {
        println!("{:7.3} s  {name}  {problem}", time.as_secs_f64());
    }
}

#[test]
fn every_limit_of_a_file_has_a_bomb() {
    let bombs = bombs();
    for limit in [
        "file_bytes",
        "yaml_nodes",
        "schema_nodes",
        "graph_nodes",
        "expression_steps",
        "expression_memory",
        "input_bytes",
        "value_depth",
        "value_memory",
    ] {
        assert!(bombs.iter().any(|it| it.expected == Expected::Limit(limit)), "{limit}");
    }
}
