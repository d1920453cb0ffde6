//! The outputs of a node: which of them goes to which field.

use graphrun_core::{id::ChannelName, state::Type};
use graphrun_workflow::kind::{NodeReader, Yaml, suggestion};

/// Reads `field: output`, or just fields with the names of their outputs. `what` is the node in a message, and `known` has
/// the outputs with their names and types.
pub(super) fn read_outputs<T: Copy>(
    reader: &mut NodeReader<'_>,
    yaml: &Yaml,
    what: &str,
    known: &[(&'static str, Type, T)],
) -> Vec<(ChannelName, T)> {
    let mut writes = Vec::new();
    for (field, output) in reader.pairs(yaml) {
        let channel = reader.channel(&field);
        let Some((name, ty, found)) = known.iter().find(|it| it.0 == output.text) else {
            let help = suggestion(&output.text, known.iter().map(|it| it.0)).unwrap_or_default();
            let message = format!("{what} has no output `{}`", output.text);
            reader.report().bad_value(&output, message, &help);
            continue;
        };
        let Some(channel) = channel else { continue };
        reader.expect_output(&field, &channel, &format!("`{name}`"), ty);
        writes.push((channel, *found));
    }
    writes
}
