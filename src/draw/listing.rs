//! A list of the nodes, each with the edges that leave it.

use std::collections::BTreeSet;

use super::{Arrow, Drawing, DrawnNode, Reason, clean};
use crate::{graph::Target, id::NodeName};

/// The width of a terminal. Every line fits into it if names permit.
const COLUMNS: usize = 80;

/// The minimum number of characters of a label, even if the rest of its line is long.
const LABEL_LENGTH_MIN: usize = 12;

/// The maximum number of characters of the condition of a node.
const CONDITION_LENGTH_MAX: usize = 40;

/// The character set of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// `→` is a regular edge, `⇢` an edge after a failure or a used-up bound, `↺` an edge back; `∥`
    /// separates concurrent nodes.
    #[default]
    Unicode,
    /// Plain ASCII: `->`, `..>`, `~>`, `||`.
    Ascii,
}

/// The signs of one character set.
#[derive(Debug)]
struct Signs {
    branch: &'static str,
    last: &'static str,
    rail: &'static str,
    forward: &'static str,
    dashed: &'static str,
    back: &'static str,
    beside: &'static str,
    at_most: &'static str,
    times: &'static str,
    ellipsis: &'static str,
}

const UNICODE: Signs = Signs {
    branch: "├─",
    last: "└─",
    rail: "│",
    forward: "→",
    dashed: "⇢",
    back: "↺",
    beside: "∥",
    at_most: "≤",
    times: "×",
    ellipsis: "…",
};

const ASCII: Signs = Signs {
    branch: "|-",
    last: "`-",
    rail: "|",
    forward: "->",
    dashed: "..>",
    back: "~>",
    beside: "||",
    at_most: "<=",
    times: "x",
    ellipsis: "...",
};

/// The sources of the unconditional edges to a node. Nodes with the same fork run concurrently.
#[derive(Debug, PartialEq, Eq)]
struct Fork<'a> {
    layer: usize,
    from: BTreeSet<Option<&'a NodeName>>,
}

/// The edges that one line below a node, or below several concurrent nodes, shows.
#[derive(Debug)]
struct DrawnEdge<'a> {
    /// The nodes of the group that they leave; empty for the run itself.
    from: Vec<&'a NodeName>,
    /// The label; empty if it needs none.
    label: String,
    /// The text after it: the bound of the loop, how often the edge was taken.
    marks: String,
    sign: &'static str,
    to: Vec<&'a Target>,
    /// Whether they are unconditional, so that the same nodes may take other such edges with it.
    is_fork: bool,
}

pub(super) fn draw(drawing: &Drawing, charset: Charset) -> String {
    let signs = match charset {
        Charset::Unicode => &UNICODE,
        Charset::Ascii => &ASCII,
    };
    let arrows = drawing.shown_arrows();
    let listing = Listing { drawing, arrows: &arrows, signs };
    let mut lines = vec![listing.cut(&clean(&drawing.name), COLUMNS)];
    if let Some(run) = &drawing.run {
        lines.push(listing.cut(&run.words(), COLUMNS));
        lines.extend(run.notes.iter().map(|it| listing.cut(&format!("note: {it}"), COLUMNS)));
    }
    lines.extend(listing.edges(&[]));
    for group in listing.groups() {
        let names: Vec<&NodeName> = group.iter().map(|it| &it.name).collect();
        lines.push(String::new());
        lines.extend(listing.heading(&group));
        lines.extend(listing.edges(&names));
    }
    let text = lines.join("\n") + "\n";
    match charset {
        Charset::Unicode => text,
        Charset::Ascii => text.replace(|it: char| !it.is_ascii(), "?"),
    }
}

#[derive(Clone, Copy, Debug)]
struct Listing<'a> {
    drawing: &'a Drawing,
    /// The arrows to show; one may represent many.
    arrows: &'a [Arrow],
    signs: &'static Signs,
}

impl<'a> Listing<'a> {
    /// Returns the nodes in order; concurrent nodes form one group.
    fn groups(self) -> Vec<Vec<&'a DrawnNode>> {
        let mut groups: Vec<(Option<Fork<'a>>, Vec<&DrawnNode>)> = Vec::new();
        for node in &self.drawing.nodes {
            let fork = self.fork(node);
            match groups.iter_mut().find(|(other, _)| fork.is_some() && *other == fork) {
                Some((_, group)) => group.push(node),
                None => groups.push((fork, vec![node])),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    fn fork(self, node: &DrawnNode) -> Option<Fork<'a>> {
        let starts = |it: &&Arrow| {
            it.reason == Reason::Always && !it.back && it.to.node() == Some(&node.name)
        };
        let from: BTreeSet<Option<&NodeName>> =
            self.arrows.iter().filter(starts).map(|it| it.from.as_ref()).collect();
        (!from.is_empty()).then_some(Fork { layer: node.layer?, from })
    }

    /// `design: qc (agent) ∥ ta (agent, ≤3)`
    fn heading(self, group: &[&DrawnNode]) -> Vec<String> {
        let show = |node: &&DrawnNode| {
            let mut facts = vec![node.kind_words()];
            facts.extend(node.max_visits.map(|it| format!("{}{it}", self.signs.at_most)));
            facts
                .extend(node.condition_words().iter().map(|it| self.cut(it, CONDITION_LENGTH_MAX)));
            facts.extend(node.layer.is_none().then(|| "unreachable".to_owned()));
            facts.extend(node.visits.map(|it| it.words()).filter(|it| !it.is_empty()));
            facts.extend(self.drawing.is_unreached(node).then(|| "not reached".to_owned()));
            format!("{} ({})", node.name, facts.join(", "))
        };
        self.beside(self.group(group), group.iter().map(show), "    ")
    }

    /// Returns the name of the `parallel` whose branches these are. Nodes of a used workflow
    /// already have it in their own names.
    fn group(self, nodes: &[&DrawnNode]) -> String {
        let groups: Option<Vec<&str>> = nodes
            .iter()
            .map(|it| self.drawing.group_of(&it.name).map(|it| it.name.as_str()))
            .collect();
        match groups.as_deref() {
            Some([first, others @ ..])
                if others.iter().all(|it| it == first)
                    && !nodes
                        .iter()
                        .all(|it| it.name.as_str().starts_with(&format!("{first}."))) =>
            {
                format!("{first}: ")
            }
            _ => String::new(),
        }
    }

    /// Returns the lines for the edges that leave concurrent nodes; without nodes, those of the run
    /// itself.
    fn edges(self, names: &[&'a NodeName]) -> Vec<String> {
        let edges = self.collect(names);
        let mut lines = Vec::new();
        for (at, edge) in edges.iter().enumerate() {
            let is_last = at + 1 == edges.len();
            let (branch, rail) =
                if is_last { (self.signs.last, " ") } else { (self.signs.branch, self.signs.rail) };
            let from: Vec<&str> = edge.from.iter().map(|it| it.as_str()).collect();
            let from =
                if from.len() == names.len() { String::new() } else { from.join(", ") + ": " };
            let to: Vec<String> = edge.to.iter().map(ToString::to_string).collect();
            let taken =
                [branch, &from, edge.sign, &to[0], &edge.marks, "   "].map(width).iter().sum();
            let label = self.cut(&edge.label, COLUMNS.saturating_sub(taken));
            let words = format!("{from}{label}");
            let words = if words.is_empty() { words } else { format!(" {} ", words.trim_end()) };
            let head = format!("{branch}{words}{} ", edge.sign);
            let mut drawn = self.beside(head, to, &format!("{rail}     "));
            if let Some(last) = drawn.last_mut() {
                last.push_str(&edge.marks);
            }
            lines.extend(drawn);
        }
        lines
    }

    /// Merges equal edges of several nodes of a group into one line, and forks as well.
    fn collect(self, names: &[&'a NodeName]) -> Vec<DrawnEdge<'a>> {
        let mut edges: Vec<DrawnEdge<'a>> = Vec::new();
        for arrow in self.arrows {
            let is_ours = match &arrow.from {
                Some(from) => names.contains(&from),
                None => names.is_empty(),
            };
            if is_ours {
                let edge = self.edge(arrow, names);
                match edges.iter_mut().find(|it| it.ends_like(&edge)) {
                    Some(same) => same.merge(edge),
                    None => edges.push(edge),
                }
            }
        }
        let mut forked: Vec<DrawnEdge<'a>> = Vec::new();
        for edge in edges {
            match forked.iter_mut().find(|it| it.starts_like(&edge)) {
                Some(fork) => fork.to.extend(edge.to),
                None => forked.push(edge),
            }
        }
        forked
    }

    fn edge(self, arrow: &'a Arrow, names: &[&NodeName]) -> DrawnEdge<'a> {
        let label = match &arrow.reason {
            Reason::Join { of, count } => {
                let others = of.iter().filter(|it| !names.contains(it));
                let others: Vec<&str> = others.map(NodeName::as_str).collect();
                match (others.as_slice(), of.len()) {
                    ([], all) if *count < all => format!("{count} of them"),
                    (others, all) if *count < all => {
                        format!("{count} with {}", others.join(", "))
                    }
                    ([], 0 | 1) => String::new(),
                    ([], _) => "together".to_owned(),
                    (others, _) => format!("with {}", others.join(", ")),
                }
            }
            _ => arrow.label().unwrap_or_default(),
        };
        let sign = match (arrow.back, arrow.is_dashed()) {
            (true, _) => self.signs.back,
            (false, true) => self.signs.dashed,
            (false, false) => self.signs.forward,
        };
        let is_fork = arrow.reason == Reason::Always;
        let from = arrow.from.iter().collect();
        let marks = self.marks(arrow);
        DrawnEdge { from, label, marks, sign, to: vec![&arrow.to], is_fork }
    }

    /// ` (≤3 of tl) ×2`
    fn marks(self, arrow: &Arrow) -> String {
        let bound = arrow.bound_words(self.signs.at_most).filter(|_| arrow.back);
        let bound = bound.map(|it| format!(" ({it})")).unwrap_or_default();
        let is_alike = |it: &&Arrow| {
            it.from == arrow.from && it.to == arrow.to && it.is_dashed() == arrow.is_dashed()
        };
        let taken = match arrow.taken {
            None | Some(0) => String::new(),
            Some(taken) if self.arrows.iter().filter(is_alike).count() > 1 => {
                format!(" {}{taken} in all", self.signs.times)
            }
            Some(taken) => format!(" {}{taken}", self.signs.times),
        };
        bound + &taken
    }

    /// Joins parts with the sign for concurrency, in as many lines as they need.
    fn beside(
        self,
        head: String,
        parts: impl IntoIterator<Item = String>,
        margin: &str,
    ) -> Vec<String> {
        let sign = self.signs.beside;
        let mut lines = Vec::new();
        let mut line = head;
        for (at, part) in parts.into_iter().enumerate() {
            if at == 0 {
                line += &part;
            } else if [&line, sign, &part, sign, "   "].map(width).iter().sum::<usize>() <= COLUMNS
            {
                line = format!("{line} {sign} {part}");
            } else {
                lines.push(format!("{line} {sign}"));
                line = format!("{margin}{part}");
            }
        }
        lines.push(line);
        lines
    }

    /// Cuts a text to the free columns, but not below the minimum.
    fn cut(self, text: &str, room: usize) -> String {
        let room = room.max(LABEL_LENGTH_MIN);
        if width(text) <= room {
            return text.to_owned();
        }
        let kept: String = text.chars().take(room - width(self.signs.ellipsis)).collect();
        format!("{}{}", kept.trim_end(), self.signs.ellipsis)
    }
}

impl DrawnEdge<'_> {
    fn ends_like(&self, other: &Self) -> bool {
        self.to == other.to
            && self.sign == other.sign
            && self.label == other.label
            && self.marks == other.marks
    }

    fn merge(&mut self, other: Self) {
        for name in other.from {
            if !self.from.contains(&name) {
                self.from.push(name);
            }
        }
    }

    fn starts_like(&self, other: &Self) -> bool {
        self.is_fork
            && other.is_fork
            && self.from == other.from
            && self.sign == other.sign
            && self.marks == other.marks
    }
}

/// Returns the number of columns of a text, one for each character.
fn width(text: &str) -> usize {
    text.chars().count()
}
