//! Used workflows that end, or are left, at most once for each time they start.
//!
//! The last node of a used workflow waits until no other task is left to run in it, and any other
//! edge out of it drops the remaining tasks. So it ends at most as often as it starts, and the token that
//! started it is the one that leaves. The nodes within have separate tokens. This holds only if one
//! node alone starts it, and if every edge out of it drops the remaining tasks.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use graphrun_core::graph::{Bounds, Defer, Graph, Policies, Target};

use super::{
    shares::Departures,
    tokens::{Arrival, Tokens},
};

/// A used workflow.
#[derive(Debug)]
pub(super) struct UsedScope {
    /// The node that starts it.
    pub(super) user: usize,
    /// Its last node.
    pub(super) end: usize,
    inside: BTreeSet<usize>,
    /// The inner nodes whose bounds are reset each time it starts.
    pub(super) begun_anew: BTreeSet<usize>,
    /// The targets of the other edges out of it.
    pub(super) exits: Vec<usize>,
}

/// The used workflows of a graph whose inner tokens never leave.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    pub(super) all: Vec<UsedScope>,
    /// For each node, the used workflows that contain it, the outermost first.
    around: Vec<Vec<usize>>,
}

/// The data for the search.
struct ScopeSearch<'a> {
    graph: &'a Graph,
    tokens: &'a Tokens<'a>,
    departures: &'a [Departures],
}

impl Scopes {
    pub(super) fn of(
        graph: &Graph,
        tokens: &Tokens<'_>,
        departures: &[Departures],
        heights: &[usize],
    ) -> Self {
        let Tokens { names, passages, .. } = tokens;
        let mut within: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (at, name) in names.iter().enumerate() {
            let mut scope = name.scope();
            while let Some(it) = scope {
                within.entry(it).or_default().insert(at);
                scope = it.rsplit_once('.').map(|(outer, _)| outer);
            }
        }
        let search = ScopeSearch { graph, tokens, departures };
        let mut all: Vec<UsedScope> = Vec::new();
        // A scope comes before its inner scopes.
        for scope in within.into_iter().filter_map(|(scope, inside)| search.scope(scope, inside)) {
            // Of the scopes that one visit starts, only the outermost counts: its token leaves that
            // scope, and moves within the inner ones.
            if all.iter().all(|it| it.user != scope.user) {
                all.push(scope);
            }
        }
        let mut around = vec![Vec::new(); names.len()];
        for (at, scope) in all.iter().enumerate() {
            scope.inside.iter().for_each(|it| around[*it].push(at));
        }
        let mut scopes = Self { all, around };
        for (to, passage) in passages.iter().enumerate() {
            for arrival in &passage.from {
                if let Some(left) = scopes.left(arrival.source(), to) {
                    let exits = &mut scopes.all[left].exits;
                    if !exits.contains(&to) {
                        exits.push(to);
                    }
                }
            }
        }
        for scope in &mut scopes.all {
            scope.exits.sort_by_key(|it| Reverse(heights[*it]));
        }
        scopes
    }

    /// Returns the outermost scope that an edge from one node to another leaves, other than through
    /// its last node.
    pub(super) fn left(&self, from: usize, to: usize) -> Option<usize> {
        let is_left = |number: &&usize| {
            let scope = &self.all[**number];
            scope.end != from && !scope.inside.contains(&to)
        };
        self.around[from].iter().find(is_left).copied()
    }

    pub(super) fn begun_by(&self, node: usize) -> Option<&UsedScope> {
        self.all.iter().find(|it| it.user == node)
    }

    pub(super) fn ended_by(&self, node: usize) -> Option<&UsedScope> {
        self.around[node].iter().map(|it| &self.all[*it]).find(|it| it.end == node)
    }
}

impl ScopeSearch<'_> {
    fn scope(&self, name: &str, inside: BTreeSet<usize>) -> Option<UsedScope> {
        let is_last = |node: &&usize| {
            let defer = &self.policies(**node).schedule.defer;
            matches!(defer, Some(Defer::Scope(scope)) if scope.as_str() == name)
        };
        let mut last = inside.iter().filter(is_last);
        let (Some(&end), None) = (last.next(), last.next()) else { return None };
        let user = self.user(&inside)?;
        let passages = &self.tokens.passages;
        let is_last = !passages[end].is_wide && self.policies(end).bounds.exhausted.is_none();
        let mut begins = self.departures[user].edges.iter().flatten().flatten();
        let is_begun = !passages[user].is_wide && begins.all(|it| inside.contains(&it.to));
        let begun_anew = self.begun_anew(user, &inside);
        let abandons = |node: &usize| {
            let mut leads = self.departures[*node].leads();
            let is_plain = leads.all(|lead| {
                inside.contains(&lead.to)
                    || (matches!(lead.by, Arrival::Visit(_)) && !lead.is_dispatched)
            });
            let is_begun_anew = begun_anew.contains(node);
            is_plain && self.is_left_by_a_step(*node, user, is_begun_anew, &inside)
        };
        let is_alone = inside.iter().filter(|it| **it != end).all(abandons);
        let exits = Vec::new();
        (is_last && is_begun && is_alone).then_some(UsedScope {
            user,
            end,
            inside,
            begun_anew,
            exits,
        })
    }

    /// Returns the nodes of a scope whose counts the starting node always resets.
    fn begun_anew(&self, user: usize, inside: &BTreeSet<usize>) -> BTreeSet<usize> {
        // A node resets counts only if it finishes, not if it is skipped or fails.
        let caught = &self.departures[user].caught;
        let is_skipped = self.graph.nodes[self.tokens.names[user]].when.is_some();
        if is_skipped || caught.iter().any(|it| inside.contains(&it.to)) {
            return BTreeSet::new();
        }
        let is_reset = |it: &&usize| self.tokens.resetters[**it].contains(&user);
        inside.iter().filter(is_reset).copied().collect()
    }

    /// Returns the only node that leads into a scope.
    fn user(&self, inside: &BTreeSet<usize>) -> Option<usize> {
        let mut user = None;
        for passage in inside.iter().map(|it| &self.tokens.passages[*it]) {
            if passage.is_first || passage.is_after_limit {
                return None;
            }
            for arrival in passage.from.iter().filter(|it| !inside.contains(&it.source())) {
                match (arrival, user) {
                    (Arrival::Visit(source), None) => user = Some(*source),
                    (Arrival::Visit(source), Some(user)) if *source == user => (),
                    _ => return None,
                }
            }
        }
        user
    }

    /// Returns whether the scope of a node is left by a step of the node when its bound is used up
    /// and leads out.
    ///
    /// An arrival that waits, is dispatched or starts the scope is redirected without leaving the
    /// scope. A node that was reset before is not used up.
    fn is_left_by_a_step(
        &self,
        node: usize,
        user: usize,
        is_begun_anew: bool,
        inside: &BTreeSet<usize>,
    ) -> bool {
        let used_up = |node: usize| {
            let exhausted = self.policies(node).bounds.exhausted.as_ref();
            let next = exhausted.and_then(Target::node)?;
            self.tokens.names.binary_search(&next).ok()
        };
        let next = std::iter::successors(used_up(node), |it| used_up(*it));
        if next.take(self.tokens.names.len()).all(|it| inside.contains(&it)) {
            return true;
        }
        let Bounds { limits, max_visits, .. } = &self.policies(node).bounds;
        let is_free = is_begun_anew && limits.is_none() && *max_visits != Some(0);
        let passage = &self.tokens.passages[node];
        let turns_away = |arrival: &Arrival| match arrival {
            Arrival::Join(_) | Arrival::PartialJoin(_) => true,
            arrival => arrival.source() == user && !is_free,
        };
        !passage.is_wide && !passage.from.iter().any(turns_away)
    }

    fn policies(&self, node: usize) -> &Policies {
        &self.graph.nodes[self.tokens.names[node]].policies
    }
}
