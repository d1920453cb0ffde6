//! Code that gives a graph its input and reads its result, compared with the fields of the graph.

use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics, did_you_mean},
    graph::{Contract, Graph, NodeDescription, NodeFault},
    id::ChannelName,
    state::Channel,
};

use super::types::TypeCheck;

/// Returns what does not fit: `code` describes a node that reads the result of the graph and writes its input.
pub(crate) fn misfits(graph: &Graph, code: &NodeDescription) -> Vec<NodeFault> {
    let mut diagnostics = Diagnostics::default();
    let Contract { reads, writes } = &code.contract;
    for name in writes.iter().flatten() {
        if graph.schema.channel(name.as_str()).is_none() {
            diagnostics.push(unknown(
                graph,
                &format!("its graph has no field `{name}` for the input"),
                name,
            ));
        }
    }
    let is_needed = |channel: &&ChannelName| {
        graph.schema.channel(channel.as_str()).is_some_and(Channel::is_needed_as_input)
    };
    for name in graph.input.iter().filter(is_needed) {
        if writes.as_ref().is_some_and(|it| !it.contains(name)) {
            let message = format!("its graph needs the input `{name}`, which is never given");
            diagnostics.push(Diagnostic::error("GR071", message));
        }
    }
    for read in reads.iter().flatten() {
        let name = &read.channel;
        let channel = graph.schema.channel(name.as_str());
        if channel.is_none_or(|it| read.required && !it.is_public()) {
            diagnostics.push(unknown(
                graph,
                &format!("its graph has no field `{name}` for the result"),
                name,
            ));
        }
    }
    if let Some(types) = &code.types {
        let mut check = TypeCheck { graph, span: None, diagnostics: &mut diagnostics };
        for read in &types.reads {
            check.check_reads("the result of its graph", read);
        }
        if let Some(written) = &types.writes {
            check.check_writes("the input of its graph", written);
        }
    }
    let fault = |it: &&Diagnostic| NodeFault { code: it.code, message: it.message.clone() };
    diagnostics.in_order().iter().map(fault).collect()
}

fn unknown(graph: &Graph, message: &str, name: &ChannelName) -> Diagnostic {
    let public = graph.schema.channels().iter().filter(|it| it.is_public());
    let nearest = did_you_mean(name.as_str(), public.map(|it| it.name().as_str()));
    let hint = nearest.map(|it| format!("; did you mean `{it}`?")).unwrap_or_default();
    Diagnostic::error("GR072", format!("{message}{hint}"))
}
