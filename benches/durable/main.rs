//! The cost of saving runs in SQLite, beside hand-written programs that save the same bytes with the same durability.
//!
//! `cargo bench --bench durable`; words after `--` choose rows by their names. The items are noise that does not
//! compress. The databases are in the target folder. The rows "without disk" and "resume" use `/dev/shm`, where a
//! sync takes no time, and are the CPU time of all threads; the others are elapsed time. `GRAPHRUN_BENCH_ROUNDS` sets the
//! rounds of the short runs. With `GRAPHRUN_BENCH_JSON=1`, each of their rows is a JSON object.

#[path = "../shared/mod.rs"]
mod shared;

mod content;
mod long_run;
mod many_runs;
mod short_runs;

use self::shared::table::Table;

const ROUNDS: u32 = 7;

fn main() {
    let table = Table::begin(ROUNDS);
    short_runs::measure(&table);
    many_runs::measure(&table);
    long_run::measure(&table);
}
