//! The Rust types of nodes, routes and conditions, compared with the types of channels.

use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics, SourceSpan},
    graph::{Edge, Graph, NodeTypes},
    state::{Channel, Type},
};

/// A Rust type that a node, a route or a condition reads or writes can be a value of the channels.
///
/// The node may still fail on some values: a type can say less than its code.
pub(super) fn check_types(graph: &Graph, diagnostics: &mut Diagnostics) {
    for (name, spec) in &graph.nodes {
        let mut check =
            TypeCheck { graph, span: spec.span.as_ref(), diagnostics: &mut *diagnostics };
        let whose = format!("`{name}`");
        if let Some(types) = &spec.describe().types {
            let NodeTypes { reads, items, writes } = types.as_ref();
            for it in reads {
                check.check_reads(&whose, it);
            }
            if let Some(writes) = writes {
                check.check_writes(&whose, writes);
            }
            if let Some([one, another]) = items.windows(2).find(|it| it[0].excludes(&it[1])) {
                check.report(format!("{whose} takes an item as `{one}` and as `{another}`"));
            }
        }
        if let Some(view) = spec.when.as_ref().and_then(|it| it.view_type()) {
            check.check_reads(&format!("the condition of `{name}`"), view);
        }
    }
    for edge in &graph.edges {
        let Edge::Route { from, route, span } = edge else { continue };
        if let Some(view) = route.view_type() {
            let mut check =
                TypeCheck { graph, span: span.as_ref(), diagnostics: &mut *diagnostics };
            check.check_reads(&format!("the route of `{from}`"), view);
        }
    }
}

/// The checks of the types that one node or edge reads and writes.
pub(super) struct TypeCheck<'a> {
    pub(super) graph: &'a Graph,
    pub(super) span: Option<&'a SourceSpan>,
    pub(super) diagnostics: &'a mut Diagnostics,
}

impl TypeCheck<'_> {
    pub(super) fn check_reads(&mut self, whose: &str, view: &Type) {
        match view {
            Type::Record(record) => {
                for field in &record.fields {
                    let channel = self.graph.schema.channel(&field.name);
                    if let Some(ty) = channel.map(Channel::ty).filter(|it| it.excludes(&field.ty)) {
                        let name = &field.name;
                        let read = field.ty.required();
                        let ty = ty.required();
                        self.report(format!(
                            "{whose} reads `{name}` as `{read}`, and the field is `{ty}`"
                        ));
                    }
                }
            }
            Type::Map(_) | Type::Any => (),
            other => {
                self.report(format!("{whose} reads `{other}`, which is not a struct of fields"));
            }
        }
    }

    pub(super) fn check_writes(&mut self, whose: &str, view: &Type) {
        match view.required() {
            Type::Record(record) => {
                for field in &record.fields {
                    let Some(channel) = self.graph.schema.channel(&field.name) else { continue };
                    let written = field.ty.required();
                    let fits = channel.takes(written)
                        || channel.update_types().iter().any(|it| !it.excludes(written));
                    if !fits {
                        let name = &field.name;
                        let ty = channel.ty().required();
                        self.report(format!(
                            "{whose} writes `{name}` as `{written}`, and the field is `{ty}`"
                        ));
                    }
                }
            }
            Type::Map(_) | Type::Any => (),
            other => {
                self.report(format!("{whose} writes `{other}`, which is not a struct of fields"));
            }
        }
    }

    fn report(&mut self, message: String) {
        self.diagnostics.push(Diagnostic::error("GR022", message).at(self.span.cloned(), "here"));
    }
}
