//! `set`: computes fields of the state.

use graphrun_core::{
    id::ChannelName,
    state::{Reducer, Type},
};

use super::Reading;
use crate::{
    SetNode,
    lower::Lowering,
    reader::{Data, Entry, Yaml},
    typing::fits,
};

impl Lowering<'_> {
    pub(super) fn read_set(&mut self, reading: Reading<'_, '_>, yaml: &Yaml) -> Option<SetNode> {
        let Data::Map(entries) = &yaml.data else {
            self.report.wrong_kind(yaml, "`set`", "a mapping from fields to expressions");
            return None;
        };
        let written = self.flow.before(reading.name);
        let mut sets = Vec::new();
        for Entry { key, value } in entries {
            let channel = self.report.channel(key, &self.schema);
            let expression = self.expression(value, &written);
            let (Some(channel), Some(expression)) = (channel, expression) else { continue };
            self.check_set(value, &channel, expression.ty());
            sets.push((channel, expression));
        }
        Some(SetNode { sets })
    }

    pub(super) fn check_set(&mut self, yaml: &Yaml, channel: &ChannelName, ty: &Type) {
        let Some(declared) = self.schema.channel(channel.as_str()) else { return };
        let item = match (declared.reducer(), declared.ty()) {
            (Reducer::Append | Reducer::Union, Type::List(item)) => fits(ty, item),
            // The update is a part of the value; the whole is checked once it is folded.
            (Reducer::Merge | Reducer::Messages | Reducer::Custom(_), _) => true,
            _ => false,
        };
        if !item {
            let declared = declared.ty().clone();
            self.expect_type(yaml, ty, &declared, &format!("`{channel}`"));
        }
    }
}
