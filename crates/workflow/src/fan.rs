//! Fan-out and fan-in: the edges behind the branches of a `parallel` and the tasks of a `map`, and
//! the joins.

use std::sync::Arc;

use graphrun_core::{
    diagnostic::{Diagnostic, Place},
    graph::{Edge, Target},
    id::NodeName,
};

use super::{
    Workflow, declarations::Follows, lower::Lowering, reader::Yaml, route::Each, shape::Section,
    then::is_conditional,
};
/// The continuation behind a name.
enum Following<'y> {
    /// The targets that its `then` gives.
    Written(&'y Yaml),
    /// The next name of its branch.
    Next(NodeName, Option<Place>),
    /// The `parallel` or `map` around it makes the edges.
    Owned,
}

impl Lowering {
    /// Makes the edges that leave a node, a `map` or a `parallel`.
    pub(super) fn read_following(
        &mut self,
        name: &NodeName,
        section: &Section<'_>,
        workflow: &mut Workflow,
    ) {
        let Some(following) = self.following(name, section) else { return };
        let is_group = self.declarations.groups.contains_key(name);
        let is_map = section.get("map").is_some();
        match following {
            Following::Owned if is_map => {
                let message = format!("the map `{name}` is the last node of its branch");
                let place = section.key("map").and_then(|it| self.report.place(&it.range));
                let finding = Diagnostic::error("GR039", message).at(
                    place,
                    "no node gathers its \
                    results",
                );
                self.report.push(finding.help("let another node of the branch follow it"));
            }
            Following::Owned => (),
            Following::Written(then) if is_group || is_map => {
                if let Some(targets) = self.plain_targets(then, is_map) {
                    let place = self.report.place(&then.range);
                    self.gather(name, &targets, place.as_ref(), workflow);
                }
            }
            Following::Written(then) => self.read_then(name, then, workflow),
            Following::Next(next, place) => {
                let starts = self.declarations.starts(&next);
                let targets: Vec<Target> = starts.into_iter().map(Target::Node).collect();
                if is_group || is_map {
                    self.gather(name, &targets, place.as_ref(), workflow);
                } else {
                    self.lead(name, targets, place.as_ref(), workflow);
                }
            }
        }
    }

    fn following<'y>(&mut self, name: &NodeName, section: &Section<'y>) -> Option<Following<'y>> {
        let then = section.get("then");
        let owner = match self.declarations.follows(name) {
            Follows::Then if then.is_none() && self.declarations.may_be_a_part(name) => {
                return None;
            }
            Follows::Then => {
                let help = "add `then`, even if it is `then: end`";
                return section.require(&mut self.report, "then", help).map(Following::Written);
            }
            Follows::Next(next) => {
                let place = section.keys().next().and_then(|it| self.report.place(&it.range));
                return Some(then.map_or(Following::Next(next, place), Following::Written));
            }
            Follows::Group(owner) | Follows::Map(owner) => owner,
        };
        if let Some(then) = section.key("then") {
            let message = format!("`{owner}` decides the next node after `{name}`");
            let place = self.report.place(&then.range);
            let finding = Diagnostic::error("GR039", message).at(place, "not here");
            self.report.push(finding.help(format!("move it to `{owner}`")));
        }
        Some(Following::Owned)
    }

    /// Reads plain targets behind several tasks. No single task can decide for all, so routes are
    /// refused.
    fn plain_targets(&mut self, then: &Yaml, is_map: bool) -> Option<Vec<Target>> {
        if !is_conditional(then) {
            return Some(self.read_targets(then, "`then`"));
        }
        let what = if is_map { "a map" } else { "a parallel" };
        let message = format!("the node after {what} cannot depend on the state");
        let place = self.report.place(&then.range);
        let finding = Diagnostic::error("GR039", message).at(place, "conditions");
        self.report.push(finding.help("lead to one node, and route from there"));
        None
    }

    /// Makes plain edges. If the target is a join that awaits the node, the join is the edge.
    pub(super) fn lead(
        &mut self,
        from: &NodeName,
        targets: Vec<Target>,
        place: Option<&Place>,
        workflow: &mut Workflow,
    ) {
        for to in targets {
            if self.is_awaited(from, &to) {
                self.arrivals.extend(to.node().map(|it| (from.clone(), it.clone())));
            } else {
                let place = place.cloned();
                workflow.edges.push(Edge::Then { from: from.clone(), to, place });
            }
        }
    }

    fn is_awaited(&self, from: &NodeName, to: &Target) -> bool {
        let awaited = to.node().and_then(|it| self.declarations.joins.get(it));
        awaited.is_some_and(|it| it.contains(from))
    }

    /// Makes the edges behind a `parallel`, which waits for all branches, or a `map`, whose tasks
    /// are one step.
    fn gather(
        &mut self,
        name: &NodeName,
        targets: &[Target],
        place: Option<&Place>,
        workflow: &mut Workflow,
    ) {
        let ends = self.declarations.ends(name);
        let awaited = |it: &Self, to: &Target| {
            !ends.is_empty() && ends.iter().all(|end| it.is_awaited(end, to))
        };
        if let Some(node) = self.declarations.maps.get(name).cloned() {
            if let Some(over) = self.overs.get(name).cloned() {
                let route = Arc::new(Each::new(over, node, targets.to_vec()));
                let (from, place) = (name.clone(), place.cloned());
                workflow.edges.push(Edge::Route { from, route, place });
            }
            for end in &ends {
                self.lead(end, targets.to_vec(), place, workflow);
            }
            return;
        }
        for target in targets {
            match target {
                Target::Node(to) if !awaited(self, target) => {
                    let (from, to, place) = (ends.clone(), to.clone(), place.cloned());
                    workflow.edges.push(Edge::Join { from, to, place });
                }
                Target::Node(to) => {
                    let arrive = |it: &NodeName| (it.clone(), to.clone());
                    self.arrivals.extend(ends.iter().map(arrive));
                }
                // The run ends when no task is left, independent of the order of the branches.
                Target::End | Target::Fail => {
                    for end in &ends {
                        self.lead(end, vec![target.clone()], place, workflow);
                    }
                }
            }
        }
    }

    /// A node with a `join` waits for others, each of which must lead to it.
    pub(super) fn read_join(
        &mut self,
        name: &NodeName,
        section: &Section<'_>,
        workflow: &mut Workflow,
    ) {
        let (Some(yaml), Some(from)) =
            (section.get("join"), self.declarations.joins.get(name).cloned())
        else {
            return;
        };
        let place = self.report.place(&yaml.range);
        if from.len() < 2 && yaml.items().len() < 2 {
            let finding = Diagnostic::error("GR037", "a join waits for several nodes");
            self.report.push(finding.at(place, "only one").help("remove `join`"));
            return;
        }
        workflow.edges.push(Edge::Join { from, to: name.clone(), place });
    }

    /// Each awaited node must lead to its join; otherwise the join would wait for ever.
    pub(super) fn check_arrivals(&mut self, workflow: &Workflow) {
        if self.report.has_errors() {
            // The missing edge may be a misspelt one.
            return;
        }
        for (name, awaited) in &self.declarations.joins {
            let leads = |from: &&NodeName| {
                self.arrivals.contains(&((*from).clone(), name.clone()))
                    || workflow.edges.iter().any(|edge| match edge {
                        Edge::Route { from: it, route, .. } if it == *from => {
                            route.targets().iter().any(|it| it.to.node() == Some(name))
                        }
                        _ => false,
                    })
            };
            for from in awaited.iter().filter(|it| !leads(it)) {
                let place = workflow.edges.iter().find_map(|edge| match edge {
                    Edge::Join { to, place, .. } if to == name => place.clone(),
                    _ => None,
                });
                let message = format!("`{name}` waits for `{from}`, which does not lead to it");
                let finding = Diagnostic::error("GR037", message).at(place, "waits forever");
                let help = format!("give `{from}` the target `then: {name}`");
                self.report.push(finding.help(help));
            }
        }
    }
}
