//! `--map OLD=NEW` and `--drop NAME`: resolves them to nodes and fields of a run.

use std::{collections::BTreeSet, env, fmt, path::Path, str::FromStr};

use crate::{
    checkpoint::{GraphOutline, Mapping},
    cli::{error::CliError, output::words::shell_word, settings::database::Database},
    diagnostic::did_you_mean,
    engine::Remedy,
    id::{ChannelName, NameError, NodeName},
};

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameKind {
    Node,
    Field,
}

/// One `--map`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapFlag {
    kind: Option<NameKind>,
    old: NodeName,
    new: NodeName,
}

/// One `--drop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DropFlag {
    kind: Option<NameKind>,
    name: NodeName,
}

/// The names in a run and in its new workflow.
#[derive(Debug)]
pub(crate) struct Names {
    old: Both,
    new: Both,
}

#[derive(Debug)]
struct Both {
    nodes: Vec<String>,
    fields: Vec<String>,
    /// The nodes whose tasks are nested runs.
    nested: Vec<String>,
}

impl Names {
    pub(crate) fn new(old: &GraphOutline, new: &GraphOutline) -> Self {
        Self { old: Both::of(old), new: Both::of(new) }
    }

    /// Resolves the flags.
    ///
    /// # Errors
    ///
    /// Fails with every flag that matches nothing or is ambiguous.
    pub(crate) fn read(&self, map: &[MapFlag], drop: &[DropFlag]) -> Result<Mapping, CliError> {
        let mut mapping = Mapping::default();
        let mut problems = Vec::new();
        for flag in map {
            match self.mapped(flag, mapping.clone()) {
                Ok(with) => mapping = with,
                Err(problem) => problems.push(format!("--map {flag}: {problem}")),
            }
        }
        for flag in drop {
            match self.dropped(flag, mapping.clone()) {
                Ok(with) => mapping = with,
                Err(problem) => problems.push(format!("--drop {flag}: {problem}")),
            }
        }
        if problems.is_empty() {
            return Ok(mapping);
        }
        Err(CliError::usage("the run or the workflow has no such names; nothing was changed")
            .with_problems(problems)
            .with_help("`graphrun graph WORKFLOW.yaml` draws the nodes of a workflow"))
    }

    /// Maps every node and field with that name in the run and in the workflow. If both match and
    /// only one of them loses its old name, maps only that one.
    fn mapped(&self, flag: &MapFlag, mapping: Mapping) -> Result<Mapping, String> {
        let old = flag.old.as_str();
        let new = flag.new.as_str();
        let is = |kind: NameKind| {
            flag.kind.is_none_or(|it| it == kind)
                && self.old.has(kind, old)
                && self.new.has(kind, new)
        };
        let goes = |kind: NameKind| !self.new.has(kind, old);
        let mut node = is(NameKind::Node);
        let mut field = is(NameKind::Field);
        if node && field && goes(NameKind::Node) != goes(NameKind::Field) {
            (node, field) = (goes(NameKind::Node), goes(NameKind::Field));
        }
        if !node && !field {
            return Err(self.explain_no_match(flag.kind, old, Some(new)));
        }
        let mapping = if node { mapping.node(flag.old.clone(), flag.new.clone()) } else { mapping };
        Ok(if field { mapping.field(as_field(&flag.old)?, as_field(&flag.new)?) } else { mapping })
    }

    fn dropped(&self, flag: &DropFlag, mapping: Mapping) -> Result<Mapping, String> {
        let name = flag.name.as_str();
        let is_asked = |kind: NameKind| flag.kind.is_none_or(|it| it == kind);
        // A node that only the new workflow has may be one that a join waits for.
        let is_node = self.old.has(NameKind::Node, name) || self.new.has(NameKind::Node, name);
        let mut node = is_asked(NameKind::Node) && is_node;
        let mut field = is_asked(NameKind::Field) && self.old.has(NameKind::Field, name);
        if node && field {
            let goes = |kind: NameKind| !self.new.has(kind, name);
            if goes(NameKind::Node) == goes(NameKind::Field) {
                return Err(format!(
                    "it is a node and a field; write `node:{name}` or `field:{name}`"
                ));
            }
            (node, field) = (goes(NameKind::Node), goes(NameKind::Field));
        }
        if node {
            return Ok(mapping.drop_node(flag.name.clone()));
        }
        if field {
            return Ok(mapping.drop_field(as_field(&flag.name)?));
        }
        Err(self.explain_no_match(flag.kind, name, None))
    }

    /// Returns why a flag matches nothing.
    fn explain_no_match(&self, kind: Option<NameKind>, old: &str, new: Option<&str>) -> String {
        let missing = |whose: &str, both: &Both, name: &str| {
            let word = match kind {
                None => "node or field",
                Some(NameKind::Node) => "node",
                Some(NameKind::Field) => "field",
            };
            let near = did_you_mean(name, both.of_kind(kind));
            let near = near.map(|it| format!("; did you mean `{it}`?")).unwrap_or_default();
            let hint = both.nested_hint(name).unwrap_or(near);
            format!("{whose} has no {word} `{name}`{hint}")
        };
        let has = |both: &Both, name: &str| {
            [NameKind::Node, NameKind::Field]
                .into_iter()
                .any(|it| kind.is_none_or(|kind| kind == it) && both.has(it, name))
        };
        match new {
            _ if !has(&self.old, old) => missing("the run", &self.old, old),
            Some(new) if !has(&self.new, new) => missing("the workflow", &self.new, new),
            _ => "one is a node and the other a field".to_owned(),
        }
    }
}

impl Both {
    fn of(outline: &GraphOutline) -> Self {
        Self {
            nodes: outline.nodes.keys().map(ToString::to_string).collect(),
            fields: outline.channels.keys().map(ToString::to_string).collect(),
            nested: { outline.nodes.keys().map(ToString::to_string) }
                .filter(|it| outline.nested.contains_key(it))
                .collect(),
        }
    }

    /// Returns the remedy for a name within a nested run, if it is one.
    fn nested_hint(&self, name: &str) -> Option<String> {
        let is_within =
            |node: &&String| name.strip_prefix(node.as_str()).is_some_and(|it| it.starts_with('.'));
        let node = self.nested.iter().find(is_within)?;
        Some(format!(
            "; a migration renames nothing within nested runs: `--again {node}` starts the tasks of `{node}` from the beginning"
        ))
    }

    /// Returns whether the name exists, or a name below it.
    fn has(&self, kind: NameKind, name: &str) -> bool {
        let below = |other: &String| other.strip_prefix(name).is_some_and(|it| it.starts_with('.'));
        self.of_only(kind).iter().any(|it| it == name || below(it))
    }

    fn of_only(&self, kind: NameKind) -> &[String] {
        match kind {
            NameKind::Node => &self.nodes,
            NameKind::Field => &self.fields,
        }
    }

    fn of_kind(&self, kind: Option<NameKind>) -> impl Iterator<Item = &str> {
        let kinds = [NameKind::Node, NameKind::Field].into_iter();
        let kinds = kinds.filter(move |it| kind.is_none_or(|kind| kind == *it));
        kinds.flat_map(|it| self.of_only(it)).map(String::as_str)
    }
}

fn as_field(name: &NodeName) -> Result<ChannelName, String> {
    ChannelName::parse_path(name.as_str()).map_err(|error| error.to_string())
}

/// Parses a name with its optional kind: `node:NAME` or `field:NAME`.
fn parse(text: &str) -> Result<(Option<NameKind>, &str), String> {
    Ok(match text.split_once(':') {
        None => (None, text),
        Some(("node", name)) => (Some(NameKind::Node), name),
        Some(("field", name)) => (Some(NameKind::Field), name),
        Some((other, _)) => return Err(format!("`{other}:` is neither `node:` nor `field:`")),
    })
}

fn named(text: &str) -> Result<NodeName, String> {
    NodeName::parse_path(text).map_err(|error: NameError| error.to_string())
}

impl FromStr for MapFlag {
    type Err = String;

    fn from_str(flag: &str) -> Result<Self, Self::Err> {
        let (kind, names) = parse(flag)?;
        let (old, new) = names.split_once('=').ok_or("expected OLD=NEW")?;
        Ok(Self { kind, old: named(old)?, new: named(new)? })
    }
}

impl FromStr for DropFlag {
    type Err = String;

    fn from_str(flag: &str) -> Result<Self, Self::Err> {
        let (kind, name) = parse(flag)?;
        Ok(Self { kind, name: named(name)? })
    }
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "node:",
            Self::Field => "field:",
        })
    }
}

impl fmt::Display for MapFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.map(|it| it.to_string()).unwrap_or_default();
        write!(f, "{kind}{}={}", self.old, self.new)
    }
}

impl fmt::Display for DropFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.map(|it| it.to_string()).unwrap_or_default();
        write!(f, "{kind}{}", self.name)
    }
}

/// Returns the command that migrates a run, with flags for the user to edit.
pub(crate) fn migrate_command(
    database: &Database,
    name: &str,
    workflow: &Path,
    remedies: &[Remedy],
) -> Option<String> {
    let command = database.command("migrate", name)?;
    let here = env::current_dir().ok();
    let workflow = here.and_then(|it| workflow.strip_prefix(it).ok()).unwrap_or(workflow);
    let flags: BTreeSet<String> = remedies.iter().map(ToString::to_string).collect();
    let workflow = shell_word(&workflow.display().to_string()).into_owned();
    let words: Vec<String> = [command, workflow].into_iter().chain(flags).collect();
    Some(words.join(" "))
}
