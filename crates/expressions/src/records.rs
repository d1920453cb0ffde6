//! Checks of records that an expression makes, against the type that they are for.

use std::{ops::Range, sync::Arc};

use graphrun_core::state::{Absence, Field, Record, Type};

use super::{
    checker::ExpressionChecker,
    syntax::{Node, RecordField},
    typing::{Misfit, describe},
};
use crate::problem::suggestion;

impl ExpressionChecker<'_> {
    /// Returns the type of a record: the named one, the expected one, or that of its fields.
    pub(super) fn record(
        &mut self,
        name: Option<&str>,
        fields: &[RecordField],
        range: &Range<usize>,
        expected: Option<&Type>,
    ) -> Type {
        let declared = match name {
            Some(name) => Some(self.named_type(name, range)),
            // A reducer appends a record to a list.
            None => match expected.map(Type::required) {
                Some(Type::List(item)) => Some(item.required().clone()),
                other => other.cloned(),
            },
        };
        match declared {
            Some(Type::Record(record)) => self.declared_record(&record, fields, range),
            Some(Type::Map(value)) => {
                for field in fields {
                    let ty = self.maybe(&field.value, Some(&value));
                    // A null value stands for none.
                    if !ty.fits(&value.clone().optional()) {
                        self.misfit(&field.value, &ty, &value, "a value of the map");
                    }
                }
                Type::Map(value)
            }
            declared => {
                let is_unknown = declared == Some(Type::Any);
                let fields = fields.iter().map(|it| {
                    let ty = self.maybe(&it.value, None);
                    // A record has no field for a null value.
                    Field::new(&*it.name, ty).absent_as(Absence::Omitted)
                });
                let fields = fields.collect();
                if is_unknown && name.is_some() {
                    return Type::Any;
                }
                Type::Record(Arc::new(Record { name: None, fields, is_closed: true }))
            }
        }
    }

    /// Returns the record of a name; [`Type::Any`] if there is none, which is reported.
    fn named_type(&mut self, name: &str, range: &Range<usize>) -> Type {
        self.named.insert(name.to_owned());
        let found = self.scope.types.get(name).cloned();
        if found.is_none() {
            let range = range.start..range.start + name.len();
            let help = suggestion(name, self.scope.types.keys().map(String::as_str));
            let message = format!("there is no record type `{name}`");
            let declare = "declare it under `types`, or omit the name: `{ field: value }`";
            let help = help.filter(|_| !self.scope.types.is_empty());
            self.problem("GR014", &range, message, "no such type").help =
                Some(help.unwrap_or_else(|| declare.to_owned()));
        }
        found.unwrap_or(Type::Any)
    }

    fn declared_record(
        &mut self,
        record: &Arc<Record>,
        fields: &[RecordField],
        range: &Range<usize>,
    ) -> Type {
        let shown = Type::Record(Arc::clone(record));
        for field in fields {
            let Some(declared) = record.fields.iter().find(|it| it.name == field.name) else {
                self.maybe(&field.value, None);
                let help = suggestion(&field.name, record.fields.iter().map(|it| it.name.as_str()));
                let message = format!("{} has no field `{}`", describe(&shown), field.name);
                self.problem("GR021", &field.range, message, "no such field").help = help;
                continue;
            };
            let what = format!("`{}`", field.name);
            let ty = match &declared.ty {
                Type::Optional(_) => self.maybe(&field.value, Some(&declared.ty)),
                ty => self.value_as(&field.value, Some(ty)),
            };
            self.expect_field(field, &ty, &declared.ty, &what);
        }
        let is_given = |it: &&Field| fields.iter().any(|field| field.name == it.name);
        let missing = record.fields.iter().filter(|it| !is_given(it));
        let missing = missing.filter(|it| !it.may_be_omitted());
        // An optional one becomes null.
        let missing = missing.filter(|it| !matches!(it.ty, Type::Optional(_)));
        let missing: Vec<String> = missing.map(|it| format!("`{}`", it.name)).collect();
        if !missing.is_empty() {
            let message = format!("{} needs {}", describe(&shown), missing.join(" and "));
            self.problem("GR022", range, message, "incomplete");
        }
        shown
    }

    fn expect_field(&mut self, field: &RecordField, ty: &Type, declared: &Type, what: &str) {
        if ty.fits(declared) {
            return;
        }
        self.misfit(&field.value, ty, declared, what);
    }

    /// Reports a value whose type does not fit a declared one.
    pub(super) fn misfit(&mut self, value: &Node, ty: &Type, declared: &Type, what: &str) {
        let Misfit { code, message, label, help } =
            Misfit::of(ty, declared, what, &value.to_string());
        self.problem(code, &value.range, message, label).help = help;
    }
}
