//! Random graphs, made of sequential parts.

use std::time::Duration;

use graphrun::{
    compile::CompiledGraph,
    graph::{
        Attempts, Backoff, Bounds, Catch, Dispatch, GraphBuilder, IntoNode, ItemPolicy, Policies,
        START, Schedule, Target,
    },
    id::ChannelName,
};
use rand::{RngExt as _, rngs::StdRng};
use serde_json::{Value, json};

use crate::{
    simulation::world::{Channels, World},
    support::team::{Nothing, name},
};

/// A part of a graph, from its first node to its last.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    One(Temper),
    /// Branches, and a join.
    Fan([Temper; 3]),
    /// Branches of one, two and three steps, and a join of this many of them.
    Race(usize),
    /// A node for each of this many items, with a maximum of concurrent tasks, and a node after them.
    Map(u32, usize, Items),
    /// Two nodes in a loop, until the bound of the first is used up.
    Loop(u32),
}

/// How the items of a map end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Items {
    Sound,
    /// Each second one fails and is collected.
    Collected,
    /// Each second one fails, and a route catches the failures.
    Caught,
}

impl Items {
    /// Returns whether this item fails.
    pub(crate) fn fails(self, item: &Value) -> bool {
        self != Self::Sound && item.as_u64().is_some_and(|it| it % 2 == 1)
    }

    fn policies(self, next: &str) -> Policies {
        match self {
            Self::Sound => Policies::default(),
            Self::Collected => {
                let failed = Some(ChannelName::parse("lost").unwrap());
                Policies::from(Schedule {
                    items: Some(ItemPolicy { failed, order: None }),
                    ..Schedule::default()
                })
            }
            Self::Caught => {
                let catch = vec![Catch { kind: None, to: Target::Node(name(next)) }];
                Policies {
                    schedule: Schedule {
                        items: Some(ItemPolicy::default()),
                        ..Schedule::default()
                    },
                    catch,
                    ..Policies::default()
                }
            }
        }
    }
}

/// The behaviour of a node. It depends on the task and the attempt alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Temper {
    Steady,
    /// Fails this often first.
    Fails(u32),
    /// Panics; a route catches the panic.
    Panics,
    /// Never ends the first time, and has a timeout.
    Hangs,
    /// Asks a person.
    Asks,
    /// Takes this many seconds.
    Slow(u64),
    /// Fails for good this often, with any kind, until the cause is repaired; only in a disturbed world.
    Breaks(u64),
    /// Works on items, some of which fail.
    Of(Items),
    /// Works, but its route panics this often; only in a disturbed world.
    Strays(u32),
}

impl Temper {
    pub(crate) fn random(random: &mut StdRng) -> Self {
        match random.random_range(0..13) {
            0 => Self::Fails(1),
            1 => Self::Fails(2),
            2 => Self::Panics,
            3 => Self::Hangs,
            4 | 5 => Self::Asks,
            6 => Self::Slow(random.random_range(3..20)),
            7 => Self::Breaks(random.random_range(1..3)),
            8 => Self::Strays(random.random_range(1..3)),
            _ => Self::Steady,
        }
    }

    fn policies(self, next: &str) -> Policies {
        let initial = Duration::from_millis(20);
        let max = Duration::from_millis(100);
        let retry =
            Backoff { attempts_max: Some(4), initial, max, total: None, ..Backoff::default() };
        match self {
            Self::Of(_)
            | Self::Steady
            | Self::Asks
            | Self::Slow(_)
            | Self::Breaks(_)
            | Self::Strays(_) => Policies::default(),
            Self::Fails(_) => Policies::from(Attempts { retry, ..Attempts::default() }),
            Self::Hangs => Policies::from(Attempts {
                retry,
                timeout: Some(Duration::from_secs(2)),
                ..Attempts::default()
            }),
            Self::Panics => {
                let catch = vec![Catch { kind: None, to: Target::Node(name(next)) }];
                Policies { catch, ..Policies::default() }
            }
        }
    }
}

pub(crate) fn random(random: &mut StdRng) -> Vec<Part> {
    let part = |random: &mut StdRng| match random.random_range(0..6) {
        0 | 1 => Part::Fan([(); 3].map(|()| match Temper::random(random) {
            // A branch whose failure is caught leads elsewhere, and its join would wait forever.
            Temper::Panics => Temper::Steady,
            temper => temper,
        })),
        2 => {
            let items = match random.random_range(0..3) {
                0 => Items::Sound,
                1 => Items::Collected,
                _ => Items::Caught,
            };
            Part::Map(random.random_range(1..6), random.random_range(1..4), items)
        }
        3 if random.random_bool(0.5) => Part::Race(random.random_range(1..4)),
        3 => Part::Loop(random.random_range(1..4)),
        _ => Part::One(Temper::random(random)),
    };
    let mut parts: Vec<Part> = (0..random.random_range(2..6)).map(|_| part(random)).collect();
    for at in 1..parts.len() {
        // The checks assume that some items of a map fail and others do not. The race would then begin twice, a step
        // apart, and the join could wait for a third round.
        if let (Part::Map(_, _, Items::Caught), Part::Race(_)) = (parts[at - 1], parts[at]) {
            parts[at] = Part::One(Temper::Steady);
        }
    }
    parts
}

/// Returns the graph of the parts, one after the other.
pub(crate) fn graph(parts: &[Part], world: &World) -> CompiledGraph {
    let mut graph = GraphBuilder::new::<Channels>("random").edge(START, "n0");
    for (at, part) in parts.iter().enumerate() {
        let first = format!("n{at}");
        let next = format!("n{}", at + 1);
        let inner = format!("i{at}");
        let last = format!("j{at}");
        let steady = || world.node(Temper::Steady);
        graph = match *part {
            Part::One(temper) => {
                graph =
                    graph.node(&first, world.node(temper).with_policies(temper.policies(&next)));
                match temper {
                    Temper::Strays(times) => {
                        graph.route(&first, [&*next], world.route(&first, &next, times))
                    }
                    _ => graph.edge(&first, &next),
                }
            }
            Part::Fan(tempers) => {
                let branches = [0, 1, 2].map(|it| format!("{inner}_{it}"));
                graph = graph.node(&first, steady()).node(&last, steady());
                for (branch, temper) in branches.iter().zip(tempers) {
                    graph = graph
                        .node(branch, world.node(temper).with_policies(temper.policies(&last)))
                        .edge(&first, branch);
                    if let Temper::Strays(times) = temper {
                        graph = graph.route(branch, [&*last], world.route(branch, &last, times));
                    }
                }
                graph.edge([&*branches[0], &*branches[1], &*branches[2]], &last).edge(&last, &next)
            }
            Part::Race(count) => {
                let branch = |steps: u32, step: u32| format!("{inner}_{steps}{step}");
                graph = graph.node(&first, steady()).node(&last, steady());
                for steps in 1..=3 {
                    graph = graph.edge(&first, &branch(steps, 1));
                    for step in 1..=steps {
                        graph = graph.node(&branch(steps, step), steady());
                        if step > 1 {
                            graph = graph.edge(&branch(steps, step - 1), &branch(steps, step));
                        }
                    }
                }
                let ends = [1, 2, 3].map(|it| branch(it, it));
                let ends = [&*ends[0], &*ends[1], &*ends[2]];
                graph.edge_of(count, ends, &last).edge(&last, &next)
            }
            Part::Map(count, width, items) => {
                let mut narrow = items.policies(&next);
                narrow.schedule.width_max = Some(width);
                let to = name(&inner);
                graph
                    .node(&first, steady())
                    .node(&inner, world.node(Temper::Of(items)).with_policies(narrow))
                    .node(&last, steady())
                    .route(&first, [&*inner], move |_: &Nothing| {
                        let send = |it| Dispatch::new(to.clone(), json!(it));
                        (0..count).map(send).collect::<Vec<_>>()
                    })
                    .edge(&inner, &last)
                    .edge(&last, &next)
            }
            Part::Loop(rounds) => {
                let exhausted = Some(Target::Node(name(&next)));
                let bound = Policies::from(Bounds {
                    max_visits: Some(rounds),
                    exhausted,
                    ..Bounds::default()
                });
                graph
                    .node(&first, steady().with_policies(bound))
                    .node(&inner, steady())
                    .edge(&first, &inner)
                    .edge(&inner, &first)
            }
        };
    }
    let last = format!("n{}", parts.len());
    let graph = graph.node(&last, world.node(Temper::Steady)).edge(&last, "end");
    graph.compile().unwrap_or_else(|it| panic!("{parts:?}: {it:?}"))
}
