//! Random graphs under random faults: processes that die between any two writes; writes that are refused,
//! late or unconfirmed; runs that another process takes; nodes that panic, hang, break, fail and are slow;
//! signals; time limits; answers that are invalid or given twice. The rules alone are also tested, with
//! events delivered twice, late or never.
//!
//! Each seed is one graph and one history. `GRAPHRUN_SEED=17` tries one seed, `GRAPHRUN_SEEDS=50000` more
//! than usual.

mod fate;
mod parts;
mod rules;
mod world;

use std::{
    collections::BTreeMap,
    env, iter,
    num::NonZero,
    panic::{catch_unwind, resume_unwind},
    sync::Mutex,
    thread::{self, ScopedJoinHandle},
};

use fate::Fate;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::runtime;
use world::World;

/// The default number of seeds.
const SEEDS: u64 = 500;

/// Tries every seed, one per processor at a time, and returns the results. Reports the seed that failed.
fn try_seeds<T: Send>(check: fn(u64) -> T) -> Vec<T> {
    let number = |name| env::var(name).ok().map(|it: String| it.parse().expect("it is a number"));
    let seeds = match number("GRAPHRUN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GRAPHRUN_SEEDS").unwrap_or(SEEDS),
    };
    let check = |seed| {
        let checked = catch_unwind(|| check(seed));
        checked.unwrap_or_else(|_| panic!("GRAPHRUN_SEED={seed} tries this one alone"))
    };
    let places = thread::available_parallelism().map_or(1, NonZero::get);
    let next = Mutex::new(seeds);
    let take = || next.lock().expect("no thread panics over a number").next();
    thread::scope(|scope| {
        let work = || iter::from_fn(take).map(check).collect::<Vec<T>>();
        let threads: Vec<_> = (0..places).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(ScopedJoinHandle::join);
        ended.flat_map(|it| it.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[test]
fn random_faults_do_not_change_results() {
    let lived = try_seeds(check);
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    for (end, count) in lived.iter().flatten() {
        *ends.entry(end).or_default() += count;
    }
    let lives: usize = ends.values().sum();
    println!("{} runs had {lives} lives, which ended so: {ends:?}", lived.len());
    assert!(lived.len() == 1 || lives > lived.len() * 2, "too little has happened to them");
    let all =
        ["done", "failed", "interrupted", "killed", "limit", "not saved", "overtaken", "paused"];
    let missed = all.into_iter().find(|it| !ends.contains_key(it));
    assert!(lived.len() < 500 || missed.is_none(), "no life ended as {missed:?}");
}

#[test]
fn late_lost_and_repeated_events_do_not_change_results() {
    let happened = try_seeds(rules::check);
    let (repeated, crashes) =
        happened.iter().fold((0, 0), |sum, it| (sum.0 + it.repeated, sum.1 + it.crashes));
    println!("{repeated} events were repeated, and {crashes} times something was taken up again");
    assert!(happened.len() == 1 || repeated.min(crashes) > happened.len(), "too little happened");
    let strayed = happened.iter().map(|it| it.strayed).sum::<usize>();
    assert!(happened.len() < 100 || strayed > happened.len() / 10, "few routes failed: {strayed}");
}

/// Compares a disturbed run with an undisturbed one. Returns how its lives ended.
fn check(seed: u64) -> BTreeMap<&'static str, usize> {
    let runtime = runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut random = StdRng::seed_from_u64(seed);
        let parts = parts::random(&mut random);
        let calm = World::default();
        let mut undisturbed = Fate::new(parts::graph(&parts, &calm));
        let expected = undisturbed.see_through(&calm, None).await;

        let world = World::disturbed(random.random());
        let mut fate = Fate::new(parts::graph(&parts, &world));
        let state = fate.see_through(&world, Some(&mut random)).await;
        assert_eq!(state, expected, "{parts:?}");
        let begun = world.begun();
        let usual = calm.begun();
        assert!(begun.keys().eq(usual.keys()), "{parts:?}: {begun:?} and not {usual:?}");
        for (attempt, count) in begun {
            // Each answered question starts its task again; the attempt before the answer counts as well.
            let asked = usual[&attempt] - 1;
            assert!(count <= fate.lives + asked, "{parts:?}: {attempt:?} was begun {count} times");
        }
        fate.ends
    })
}
