//! `node`: runs a node that a Rust program registers.

use std::sync::Arc;

use graphrun_core::{diagnostic::Diagnostic, graph::Node};
use graphrun_expressions::problem::suggestion;
use schemars::JsonSchema;

use crate::kind::{Keys, Kind, MakeContext, NodeReader, NodeSettings, values::CustomName};

/// The kind `node`.
#[derive(Debug)]
pub struct Custom;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct CustomKeys {
    /// Runs the node that a Rust program has registered under this name.
    node: CustomName,
}

/// A node that runs the one that is registered under a name.
#[derive(Clone, Debug)]
pub struct CustomSettings {
    /// The name.
    pub name: String,
}

impl Kind for Custom {
    fn key(&self) -> &'static str {
        "node"
    }

    fn keys(&self) -> Keys {
        Keys::of::<CustomKeys>()
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let value = reader.value();
        let name = reader.report().word(value, "`node`")?;
        let registry = &reader.scope.env.registry;
        if registry.custom(&name.text).is_some() {
            return Some(Arc::new(CustomSettings { name: name.text }));
        }
        let help = suggestion(&name.text, registry.nodes())
            .unwrap_or_else(|| "a Rust program registers nodes; none is registered".to_owned());
        let message = format!("no node `{}` is registered", name.text);
        let report = reader.report();
        let span = report.span(&name.range);
        report.push(Diagnostic::error("GR010", message).at(span, "not registered").help(help));
        None
    }
}

impl NodeSettings for CustomSettings {
    fn make(&self, ctx: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        let node = ctx.name;
        let name = &self.name;
        ctx.registry.custom(name).ok_or_else(|| {
            let message = format!("node `{node}` names `{name}`, which is not registered");
            Diagnostic::error("GR010", message)
                .at(Some(ctx.span.clone()), "no such node in Rust")
                .help("register it with `Registry::node`, in the program that loads the file")
        })
    }

    fn detail(&self) -> Option<String> {
        Some(self.name.clone())
    }

    fn cache_label(&self) -> Option<&str> {
        Some(&self.name)
    }
}
