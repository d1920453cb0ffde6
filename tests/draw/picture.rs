//! The picture, measured: in every graph, its lines cross no box and its labels cover nothing.

use std::fmt::Write as _;

use graphrun::{
    draw::Drawing,
    graph::{IntoNode, Policies, START},
};
use proptest::prelude::*;
use roxmltree::{Document, Node};

use super::{
    Kind, bounded, builder, dev_team, drawing, fork_and_join, line, loop_with_bound, odd_names,
};

/// The measures of the font that the picture is laid out for.
const ADVANCE: f64 = 6.6;
const ASCENT: f64 = 9.0;
/// The points in which a curve is looked at.
const SAMPLES: u32 = 24;

#[derive(Clone, Debug)]
struct Area {
    what: String,
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

/// The drawn shapes, read back from the text of the picture.
#[derive(Debug, Default)]
struct Seen {
    boxes: Vec<Area>,
    labels: Vec<Area>,
    /// For each line, its kind and the points it passes.
    lines: Vec<(String, Vec<(f64, f64)>)>,
    groups: Vec<Area>,
}

impl Seen {
    fn of(svg: &str) -> Self {
        let document = Document::parse(svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
        let mut seen = Self::default();
        for group in document.descendants().filter(|it| it.has_tag_name("g")) {
            let class = group.attribute("class").unwrap_or_default();
            let title = group.children().find(|it| it.has_tag_name("title"));
            let what = title.and_then(|it| it.text()).unwrap_or_default().to_owned();
            let children = || group.children().filter(Node::is_element);
            if class.starts_with("node") {
                seen.boxes.extend(children().filter_map(|it| rect(&it, &what)));
            } else if class.starts_with("edge") {
                let texts = children().filter(|it| it.has_tag_name("text"));
                seen.labels.extend(texts.map(|it| label(&it)));
                seen.labels.extend(children().filter_map(|it| rect(&it, &what)));
                let path = children().find(|it| it.attribute("class") == Some("line")).unwrap();
                seen.lines.push((what, points(path.attribute("d").unwrap())));
            } else {
                seen.groups.extend(children().filter_map(|it| rect(&it, &what)));
            }
        }
        seen
    }

    /// The faults of the picture.
    fn faults(&self) -> String {
        let mut faults = String::new();
        for (at, one) in self.boxes.iter().enumerate() {
            for other in &self.boxes[at + 1..] {
                if one.meets(other) {
                    writeln!(faults, "{} and {} overlap", one.what, other.what).unwrap();
                }
            }
            for label in self.labels.iter().filter(|it| it.meets(one)) {
                writeln!(faults, "`{}` covers {}", label.what, one.what).unwrap();
            }
            for (line, points) in &self.lines {
                if points.iter().any(|it| one.holds(*it)) {
                    writeln!(faults, "{line} passes {}", one.what).unwrap();
                }
            }
        }
        for (at, one) in self.labels.iter().enumerate() {
            // The frame of a stub holds its own texts.
            let is_frame = |it: &Area| it.what.contains(" to ");
            for other in &self.labels[at + 1..] {
                if one.meets(other) && !is_frame(one) && !is_frame(other) {
                    writeln!(faults, "`{}` covers `{}`", one.what, other.what).unwrap();
                }
            }
            for (line, points) in &self.lines {
                if points.iter().any(|it| one.holds(*it)) {
                    writeln!(faults, "{line} passes `{}`", one.what).unwrap();
                }
            }
        }
        faults
    }
}

impl Area {
    fn meets(&self, other: &Self) -> bool {
        self.left + 0.5 < other.right
            && other.left + 0.5 < self.right
            && self.top + 0.5 < other.bottom
            && other.top + 0.5 < self.bottom
    }

    fn holds(&self, (x, y): (f64, f64)) -> bool {
        self.left + 1.0 < x && x < self.right - 1.0 && self.top + 1.0 < y && y < self.bottom - 1.0
    }
}

fn rect(node: &Node<'_, '_>, what: &str) -> Option<Area> {
    let number = |name| node.attribute(name)?.parse::<f64>().ok();
    let left = number("x")?;
    let top = number("y")?;
    let right = left + number("width")?;
    let bottom = top + number("height")?;
    let is_rect = node.has_tag_name("rect");
    is_rect.then(|| Area { what: what.to_owned(), left, top, right, bottom })
}

fn label(node: &Node<'_, '_>) -> Area {
    let number = |name| node.attribute(name).unwrap().parse::<f64>().unwrap();
    let what = node.text().unwrap().to_owned();
    let left = number("x");
    let bottom = number("y") + 2.0;
    let columns = u32::try_from(what.chars().count()).unwrap();
    let right = left + f64::from(columns) * ADVANCE;
    Area { what, left, top: bottom - 2.0 - ASCENT, right, bottom }
}

/// The points of a path of `M`, `L` and `C`.
fn points(path: &str) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut rest = path;
    while let Some(kind) = rest.chars().next() {
        let end = rest[1..].find(['M', 'L', 'C']).map_or(rest.len(), |it| it + 1);
        let numbers: Vec<f64> = rest[1..end]
            .split(' ')
            .map(|it| it.parse().unwrap_or_else(|_| panic!("{path}")))
            .collect();
        let pairs: Vec<(f64, f64)> = numbers.chunks(2).map(|it| (it[0], it[1])).collect();
        let from = points.last().copied().unwrap_or(pairs[0]);
        let handles = match (kind, pairs.as_slice()) {
            ('M', [at]) => [*at, *at, *at],
            ('L', [at]) => [from, *at, *at],
            ('C', [a, b, at]) => [*a, *b, *at],
            _ => panic!("{path}"),
        };
        for step in 1..=SAMPLES {
            let t = f64::from(step) / f64::from(SAMPLES);
            let bend = |a: f64, b: f64, c: f64, d: f64| {
                let s = 1.0 - t;
                s * s * s * a + 3.0 * s * s * t * b + 3.0 * s * t * t * c + t * t * t * d
            };
            let [a, b, at] = handles;
            points.push((bend(from.0, a.0, b.0, at.0), bend(from.1, a.1, b.1, at.1)));
        }
        rest = &rest[end..];
    }
    points
}

fn check(drawing: &Drawing) -> Seen {
    let svg = drawing.to_svg();
    assert_eq!(svg, drawing.to_svg(), "the same drawing is the same picture");
    let seen = Seen::of(&svg);
    let faults = seen.faults();
    assert!(faults.is_empty(), "{}:\n{faults}\n{svg}", drawing.name);
    let shown = |name: &str| seen.boxes.iter().any(|it| it.what.starts_with(name));
    assert!(drawing.nodes.iter().all(|it| shown(it.name.as_str())), "{svg}");
    seen
}

#[test]
fn no_line_passes_a_box_and_no_label_covers_anything() {
    for drawing in [line(), fork_and_join(), loop_with_bound(), dev_team(), odd_names()] {
        check(&drawing);
    }
}

#[test]
fn graphs_of_three_twelve_and_sixty_nodes_are_laid_out() {
    for nodes in [3, 12, 60] {
        check(&random(nodes, 7, nodes * 2));
    }
}

#[test]
fn the_branches_of_a_parallel_stand_in_a_box_with_its_name() {
    let inner = ["left", "right"];
    let both = ["write", "polish", "left", "right", "each", "lint", "sum"];
    for (path, groups) in [
        ("graphs/dev_team.yaml", &[("design", &["qc", "ta"][..])][..]),
        ("tests/cli/workflows/nested.yaml", &[("both", &both), ("inner", &inner)]),
    ] {
        let seen = check(&super::forms::load(path));
        let names: Vec<&str> = seen.groups.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(names, groups.iter().map(|it| it.0).collect::<Vec<_>>());
        for (group, (_, nodes)) in seen.groups.iter().zip(groups) {
            for area in &seen.boxes {
                let is_inside = nodes.contains(&area.what.split([' ', '\n']).next().unwrap());
                let corners = [(area.left, area.top), (area.right, area.bottom)];
                let middle =
                    (f64::midpoint(area.left, area.right), f64::midpoint(area.top, area.bottom));
                assert_eq!(group.holds(middle), is_inside, "{area:?} {group:?}");
                assert!(
                    !is_inside || corners.iter().all(|it| group.holds(*it)),
                    "{area:?} {group:?}"
                );
            }
        }
    }
}

#[test]
fn a_picture_is_static_and_accessible() {
    let svg = odd_names().to_svg();
    let elements = ["svg", "title", "desc", "style", "rect", "text", "g", "path"];
    for word in ["url(", "@import", "href"] {
        assert!(!svg.contains(word), "{word}: {svg}");
    }
    let document = Document::parse(&svg).unwrap();
    for element in document.descendants().filter(Node::is_element) {
        assert!(elements.contains(&element.tag_name().name()), "{element:?}");
        assert!(element.attributes().all(|it| !it.name().starts_with("on")), "{element:?}");
    }
    let title = document.root_element().children().find(|it| it.has_tag_name("title")).unwrap();
    assert!(title.text().unwrap().starts_with("a \"quoted\" | name;"));
    let title = |node: &Node<'_, '_>| node.children().any(|it| it.has_tag_name("title"));
    let parts = document.descendants().filter(|it| it.attribute("class").is_some());
    let parts: Vec<_> = parts.filter(|it| it.has_tag_name("g")).collect();
    assert!(!parts.is_empty() && parts.iter().all(title), "{svg}");
    assert!(svg.contains("prefers-color-scheme: dark"));
}

/// A graph of some shape; the same numbers give the same one.
fn random(nodes: usize, seed: u64, edges: usize) -> Drawing {
    let mut state = seed;
    let mut next = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let name = |it: usize| format!("node_{it}");
    let mut graph = builder("random").edge(START, "node_0");
    for at in 0..nodes {
        let policies = match next(4) {
            0 => bounded(3, &name(next(nodes))),
            _ => Policies::default(),
        };
        graph = graph.node(&name(at), Kind("agent").with_policies(policies));
        if at > 0 {
            graph = graph.edge(&name(at - 1 - next(at.min(4))), &name(at));
        }
    }
    for _ in 0..edges {
        let from = next(nodes);
        let to = next(nodes);
        graph = graph.goto(&name(from), [name(to).as_str()]);
    }
    drawing(graph.edge(&name(nodes - 1), "end"), [])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_graph_is_laid_out(nodes in 1..24usize, seed: u64, edges in 0..40usize) {
        check(&random(nodes, seed, edges));
    }
}
