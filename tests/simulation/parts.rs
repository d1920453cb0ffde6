//! Random graphs, made of sequential parts.

use std::time::Duration;

use graphrun::{
    compile::{CompiledGraph, compile},
    graph::{Backoff, Catch, Dispatch, GraphBuilder, Policies, Target},
};
use rand::{RngExt as _, rngs::StdRng};
use serde_json::json;

use crate::{
    support::team::{Nothing, name},
    world::{Channels, World},
};

/// A part of a graph, from its first node to its last.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    One(Temper),
    /// Branches, and a join.
    Fan([Temper; 3]),
    /// A node for each of this many items, with a maximum of concurrent tasks, and a join.
    Map(u32, usize),
    /// Two nodes in a loop, until the bound of the first is used up.
    Loop(u32),
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
}

impl Temper {
    pub(crate) fn random(random: &mut StdRng) -> Self {
        match random.random_range(0..12) {
            0 => Self::Fails(1),
            1 => Self::Fails(2),
            2 => Self::Panics,
            3 => Self::Hangs,
            4 | 5 => Self::Asks,
            6 => Self::Slow(random.random_range(3..20)),
            7 => Self::Breaks(random.random_range(1..3)),
            _ => Self::Steady,
        }
    }

    fn policies(self, next: &str) -> Policies {
        let (initial, max) = (Duration::from_millis(20), Duration::from_millis(100));
        let retry = Backoff { attempts_max: 4, initial, max };
        match self {
            Self::Steady | Self::Asks | Self::Slow(_) | Self::Breaks(_) => Policies::default(),
            Self::Fails(_) => Policies { retry, ..Policies::default() },
            Self::Hangs => {
                Policies { retry, timeout: Some(Duration::from_secs(2)), ..Policies::default() }
            }
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
        2 => Part::Map(random.random_range(1..6), random.random_range(1..4)),
        3 => Part::Loop(random.random_range(1..4)),
        _ => Part::One(Temper::random(random)),
    };
    (0..random.random_range(2..6)).map(|_| part(random)).collect()
}

/// Returns the graph of the parts, one after the other.
pub(crate) fn graph(parts: &[Part], world: &World) -> CompiledGraph {
    let mut graph = GraphBuilder::new::<Channels>("random").entry("n0");
    for (at, part) in parts.iter().enumerate() {
        let (first, next) = (format!("n{at}"), format!("n{}", at + 1));
        let (inner, last) = (format!("i{at}"), format!("j{at}"));
        let steady = || world.node(Temper::Steady);
        graph = match *part {
            Part::One(temper) => graph
                .node_with(&first, world.node(temper), temper.policies(&next))
                .then(&first, &next),
            Part::Fan(tempers) => {
                let branches = [0, 1, 2].map(|it| format!("{inner}_{it}"));
                graph = graph.node(&first, steady()).node(&last, steady());
                for (branch, temper) in branches.iter().zip(tempers) {
                    graph = graph
                        .node_with(branch, world.node(temper), temper.policies(&last))
                        .then(&first, branch);
                }
                graph.join([&*branches[0], &*branches[1], &*branches[2]], &last).then(&last, &next)
            }
            Part::Map(items, width) => {
                let narrow = Policies { width_max: Some(width), ..Policies::default() };
                let to = name(&inner);
                graph
                    .node(&first, steady())
                    .node_with(&inner, steady(), narrow)
                    .node(&last, steady())
                    .route(&first, [&*inner], move |_: &Nothing| {
                        let send = |it| Dispatch { node: to.clone(), input: json!(it) };
                        (0..items).map(send).collect::<Vec<_>>()
                    })
                    .join([&*inner], &last)
                    .then(&last, &next)
            }
            Part::Loop(rounds) => {
                let exhausted = Some(Target::Node(name(&next)));
                let bound = Policies { max_visits: Some(rounds), exhausted, ..Policies::default() };
                graph
                    .node_with(&first, steady(), bound)
                    .node(&inner, steady())
                    .then(&first, &inner)
                    .then(&inner, &first)
            }
        };
    }
    let last = format!("n{}", parts.len());
    let graph = graph.node(&last, world.node(Temper::Steady)).then(&last, "end");
    compile(graph.build()).unwrap_or_else(|it| panic!("{parts:?}: {it:?}")).0
}
