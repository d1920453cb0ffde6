//! Kills a process at every failure point, each time it reaches the point, and lets another process resume.
//!
//! G1: recorded work is not repeated. G2: interrupted work is repeated, and no work more often than once per
//! crash. G3: the result of the run equals that of an undisturbed run, byte for byte.

use std::{
    collections::BTreeSet, os::unix::process::ExitStatusExt as _, process::Output, time::Duration,
};

use graphrun::fault::Point;
use nix::sys::signal::Signal;

use crate::{
    durability::{
        child::Order,
        ledger::Ledger,
        place::{Backend, Left, Place},
        shapes::Shape,
    },
    support::some_of,
};

/// Returns the maximum number of hits of one point: later hits of long runs resemble earlier ones.
///
/// Databases differ only inside their transactions, so the second database needs fewer hits.
fn hits_max(backend: Backend) -> u32 {
    match backend {
        Backend::Sqlite => 5,
        Backend::Postgres => 2,
    }
}

/// Returns the points at which the runs of a test are killed.
fn points(shape: Shape) -> Vec<Point> {
    let asks = shape == Shape("approved");
    let of_answers =
        |point: &Point| matches!(point, Point::ApprovalInTransaction | Point::ApprovalAfterCommit);
    some_of(3, Point::ALL.into_iter().filter(|it| asks || !of_answers(it)))
}

macro_rules! kills {
    ($($name:ident: $shape:literal;)*) => {
        mod sqlite {
            use super::{Backend, Shape, survives};
            $(
                #[test]
                fn $name() {
                    survives(Shape($shape), Backend::Sqlite);
                }
            )*
        }
        mod postgres {
            use super::{Backend, Shape, survives};
            $(
                #[test]
                fn $name() {
                    survives(Shape($shape), Backend::Postgres);
                }
            )*
        }
    };
}

kills! {
    a_linear_run_survives_a_kill_at_every_point: "linear";
    a_run_with_decisions_survives_a_kill_at_every_point: "conditional";
    a_loop_survives_a_kill_at_every_point: "rounds";
    a_fan_out_and_its_join_survive_a_kill_at_every_point: "joined";
    a_used_workflow_survives_a_kill_at_every_point: "used";
    retries_survive_a_kill_at_every_point: "retried";
    approvals_survive_a_kill_at_every_point: "approved";
    parts_of_tasks_that_were_saved_survive_a_kill_at_every_point: "memos";
    a_map_survives_a_kill_at_every_point: "mapped";
}

/// The behaviour of an undisturbed run.
struct Calm {
    left: Left,
    begun: Ledger,
}

/// Kills the shape at every point.
fn survives(shape: Shape, backend: Backend) {
    let calm = Calm::of(shape, backend);
    let mut reached = BTreeSet::new();
    let mut kills = 0;
    let points = points(shape);
    for &point in &points {
        for nth in 1..=hits_max(backend) {
            if !kill(shape, backend, point, nth, &calm) {
                break;
            }
            reached.insert(point.name());
            kills += 1;
        }
    }
    let expected: BTreeSet<&str> = points.into_iter().map(Point::name).collect();
    assert_eq!(reached, expected, "points at which it was killed");
    println!("{}: {kills} kills", shape.0);
}

/// Kills a run once and lets another process resume it. Returns whether the run reached that point.
fn kill(shape: Shape, backend: Backend, point: Point, nth: u32, calm: &Calm) -> bool {
    let at = format!("{} at {}, hit {nth}", shape.0, point.name());
    let place = Place::new(backend);
    let mut crashes = 0;
    if point == Point::AcquireAfter {
        // A previous process must have left the run behind.
        let first = planned(place.order(shape.0), Point::TaskAfterRun, 1);
        assert!(was_killed(&first.run()), "{at}");
        crashes += 1;
    }
    let output = planned(place.order(shape.0), point, nth).run();
    if !was_killed(&output) {
        assert_eq!(output.status.code(), Some(0), "{at}: {}", said(&output));
        assert_eq!(place.left().expect(&at), calm.left, "{at}, which it never came to");
        return false;
    }
    crashes += 1;
    let before = place.left();
    let begun = place.ledger();

    let output = place.order(shape.0).run();
    assert_eq!(output.status.code(), Some(0), "{at}: {}", said(&output));
    let after = place.left().expect(&at);
    let ledger = place.ledger();
    assert_eq!(after, calm.left, "{at}");
    for task in before.iter().flat_map(|it| &it.finished) {
        assert_eq!(ledger.begun_of(task), begun.begun_of(task), "{at}: {task} ran again");
    }
    for (part, task) in before.iter().flat_map(|it| &it.noted) {
        assert_eq!(ledger.done(part, task), begun.done(part, task), "{at}: {part} of {task} again");
    }
    calm.compare(&ledger, crashes, &at);
    true
}

/// Returns the same order with a process that reaches that point and dies there.
fn planned(order: Order, point: Point, nth: u32) -> Order {
    let faults = Some(format!("{}=abort@{nth}", point.name()));
    let order = Order { faults, ..order };
    let ms = Duration::from_millis;
    match point {
        // A renewal has 400 ms until the end of the lease, also on a busy machine.
        Point::LeaseRenew => Order { takes: ms(250), lease: ms(600), ..order },
        Point::ShutdownDrain => Order { takes: ms(5), stop_after: Some(1), ..order },
        _ => order,
    }
}

impl Calm {
    fn of(shape: Shape, backend: Backend) -> Self {
        let place = Place::new(backend);
        let output = place.order(shape.0).run();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let calm = Self { left: place.left().unwrap(), begun: place.ledger() };
        assert!(calm.begun.begun().values().all(|&it| it == 1), "{:?}", calm.begun);
        calm
    }

    /// Compares the work of the nodes with that of an undisturbed run.
    fn compare(&self, ledger: &Ledger, crashes: usize, at: &str) {
        let usual = self.begun.begun();
        let begun = ledger.begun();
        assert!(begun.keys().eq(usual.keys()), "{at}: {begun:?} and not {usual:?}");
        for (attempt, count) in begun {
            assert!(count <= 1 + crashes, "{at}: {attempt:?} was begun {count} times");
        }
    }
}

fn was_killed(output: &Output) -> bool {
    output.status.signal() == Some(Signal::SIGKILL as i32)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
