//! One channel: its type, the check of its writes, and how it reads a model's answer.

use std::{fmt, slice, sync::Arc};

use graphrun_guard::redact::redact_value;
use serde_json::Value;

use super::{
    Field, LenientValue, ReadError, Record, Reducer, Type, UpdateForm,
    lazy_validator::LazyValidator,
    lenient::{is_lenient, read_by_schema},
    measure::{measure, rounded_int},
    messages::is_removal,
    schema_problem,
};
use crate::id::ChannelName;

/// The maximum number of reported problems of one value: a list may have one at every item.
const PROBLEMS_MAX: usize = 20;

/// The field of a message that names it, and the field that removes it.
const ID: &str = "id";
const REMOVE: &str = "remove";

/// The longest text of a problem.
const PROBLEM_CHARS_MAX: usize = 400;

/// Reads a model's answer into the normal form of a channel's type.
pub type ReadAnswer = Arc<dyn Fn(Value) -> Result<LenientValue<Value>, ReadError> + Send + Sync>;

/// Who sees a channel besides the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Visibility {
    /// It can be input, and the result has it.
    #[default]
    Public,
    /// It belongs to a used graph: only the shown state has it.
    Inner,
    /// Only nodes see it.
    Private,
}

/// A named place in the state.
#[derive(Clone)]
pub struct Channel {
    name: ChannelName,
    ty: Type,
    schema: Arc<Value>,
    validator: Arc<LazyValidator>,
    reducer: Reducer,
    default: Option<Arc<Value>>,
    reader: Option<ReadAnswer>,
    visibility: Visibility,
}

impl Channel {
    /// Makes a channel whose values fit a JSON Schema. If a part of it has `x-lenient: true`, the channel reads
    /// the answers of models [by the schema](read_by_schema).
    ///
    /// # Errors
    ///
    /// Fails when the schema itself is invalid, and when it limits the whole list to which the reducer adds items.
    pub fn new(name: ChannelName, schema: Value, reducer: Reducer) -> Result<Self, String> {
        if let Some(keyword) = reducer.may_break(&schema) {
            return Err(format!(
                "`{reducer}` adds items to `{name}`, so the list may break `{keyword}`"
            ));
        }
        let schema = Arc::new(schema);
        let validator = LazyValidator::of(Arc::clone(&schema))?;
        let channel = Self {
            name,
            ty: Type::of_schema(&schema),
            schema,
            validator: Arc::new(validator),
            reducer,
            default: None,
            reader: None,
            visibility: Visibility::default(),
        };
        if !is_lenient(&channel.schema) {
            return Ok(channel);
        }
        let schema = Arc::clone(&channel.schema);
        Ok(channel.with_reader(move |answer| read_by_schema(&schema, answer)))
    }

    /// Sets the default value.
    #[must_use]
    pub fn with_default(mut self, mut default: Value) -> Self {
        // The default is saved with every run.
        redact_value(&mut default);
        self.default = Some(Arc::new(default));
        self
    }

    /// Sets how a model's answer is read into this channel.
    #[must_use]
    pub fn with_reader(
        mut self,
        reader: impl Fn(Value) -> Result<LenientValue<Value>, ReadError> + Send + Sync + 'static,
    ) -> Self {
        self.reader = Some(Arc::new(reader));
        self.ty = Type::of_filled(&self.schema);
        self
    }

    /// Returns whether each record that is read from an answer has all of its fields, if only as null: a reader makes a
    /// value of a Rust type, but reading by a schema adds no field that may be omitted.
    pub fn reads_whole_records(&self) -> bool {
        self.reader.is_some() && !is_lenient(&self.schema)
    }

    /// Excludes the channel from the input and the result of a run.
    #[must_use]
    pub fn private(mut self) -> Self {
        self.visibility = Visibility::Private;
        self
    }

    /// Makes it a channel of a used graph: no part of the input and the result of the run, but a part of its shown state.
    #[must_use]
    pub fn inner(mut self) -> Self {
        // What its author hid stays hidden.
        if self.visibility == Visibility::Public {
            self.visibility = Visibility::Inner;
        }
        self
    }

    /// Returns the same channel under another name.
    #[must_use]
    pub fn renamed(self, name: ChannelName) -> Self {
        Self { name, ..self }
    }

    /// Returns the name.
    pub fn name(&self) -> &ChannelName {
        &self.name
    }

    /// Returns the type, as expressions see it.
    pub fn ty(&self) -> &Type {
        &self.ty
    }

    /// Returns the JSON Schema, with every definition it refers to.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Returns the JSON Schema of the items of a list; `true` for another type.
    #[must_use]
    pub fn item_schema(&self) -> Value {
        let mut item = self.schema().get("items").cloned().unwrap_or(Value::Bool(true));
        if let (Value::Object(item), Some(shared)) = (&mut item, self.schema().get("$defs")) {
            item.insert("$defs".to_owned(), shared.clone());
        }
        item
    }

    /// Returns the reducer.
    pub fn reducer(&self) -> &Reducer {
        &self.reducer
    }

    /// Returns whether a run that receives this channel as input cannot start without it.
    pub fn is_needed_as_input(&self) -> bool {
        // The type of `json?` is the same as that of `json`.
        let options = self.schema.get("anyOf").and_then(Value::as_array);
        let mut options = options.into_iter().flatten();
        let may_be_null = options.any(|it| it.get("type") == Some(&"null".into()));
        self.default.is_none() && !may_be_null && !matches!(self.ty, Type::Optional(_))
    }

    /// Returns the value before the first write.
    pub fn default(&self) -> Option<&Arc<Value>> {
        self.default.as_ref()
    }

    /// Returns how a model's answer is read, or `None` if it is used unchanged.
    pub fn reader(&self) -> Option<&ReadAnswer> {
        self.reader.as_ref()
    }

    /// Returns whether it can be input and is part of the result.
    pub fn is_public(&self) -> bool {
        self.visibility == Visibility::Public
    }

    /// Returns whether no shown state has it.
    pub fn is_private(&self) -> bool {
        self.visibility == Visibility::Private
    }

    /// Checks a write before it is folded: its type, its size and its depth.
    ///
    /// # Errors
    ///
    /// Names every place where the value does not fit, or the limit that it reaches.
    pub fn check(&self, written: &Value) -> Result<(), Vec<String>> {
        self.check_limits(written)?;
        if self.reducer.is_messages() {
            let items = written.as_array().map_or(slice::from_ref(written), Vec::as_slice);
            let has_no_id = |it: &&Value| it.get(ID).is_none_or(Value::is_null);
            if items.iter().filter(|it| is_removal(it)).any(|it| has_no_id(&it)) {
                return Err(vec!["a removal needs the `id` of a message".to_owned()]);
            }
        }
        self.check_saved(written)
    }

    /// Checks a saved write; the limits may have changed since, so they are not checked.
    ///
    /// # Errors
    ///
    /// Names every place where the value does not fit.
    pub fn check_saved(&self, written: &Value) -> Result<(), Vec<String>> {
        match self.reducer.update_form() {
            UpdateForm::Items if !self.is_whole_list(written) => {
                self.validate(&Value::Array(vec![written.clone()]))
            }
            UpdateForm::Items | UpdateForm::Whole => self.validate(written),
            // The whole value is checked after folding.
            UpdateForm::Fields | UpdateForm::Part => Ok(()),
        }
    }

    /// Returns the types of writes. The first one is the declared one, unless only the reducer defines the form of a
    /// write.
    pub fn update_types(&self) -> Vec<Type> {
        match (self.reducer.update_form(), self.ty.required()) {
            (UpdateForm::Items, Type::List(item)) => vec![self.ty.clone(), Type::clone(item)],
            (UpdateForm::Whole, ty) if self.reducer.adds() => vec![ty.summand()],
            (UpdateForm::Whole | UpdateForm::Items, _) => vec![self.ty.clone()],
            (UpdateForm::Fields, _) => vec![self.ty.partial()],
            (UpdateForm::Part, Type::List(message)) if self.reducer.is_messages() => {
                let item = without_id(message);
                vec![self.ty.clone(), Type::List(Box::new(item.clone())), item]
            }
            (UpdateForm::Part, _) => vec![Type::Any],
        }
    }

    /// Returns whether values of a type can be writes: they fit one of the [types of writes](Self::update_types), or they
    /// remove messages.
    pub fn takes(&self, ty: &Type) -> bool {
        if self.update_types().iter().any(|it| ty.fits(it)) {
            return true;
        }
        let (Type::List(message), true) = (self.ty.required(), self.reducer.is_messages()) else {
            return false;
        };
        let found = match ty {
            Type::List(found) => found,
            found => found,
        };
        removes(found, message)
    }

    /// Returns whether null can be a write.
    pub fn takes_null(&self) -> bool {
        self.update_types().iter().any(|it| matches!(it, Type::Optional(_) | Type::Any))
    }

    /// Returns the path of a field that the value may lack after a write of a type that the channel [takes](Self::takes). A
    /// part of a record needs a complete value before it.
    pub fn missing_field(&self, ty: &Type, has_value: bool) -> Option<String> {
        let is_part = self.reducer.update_form() == UpdateForm::Fields;
        let has_value = has_value && !matches!(self.ty, Type::Optional(_));
        is_part.then(|| ty.missing_field(&self.ty, has_value)).flatten()
    }

    /// Returns a write without the fields that the type of the channel does not declare: what a tool or a test runner
    /// gives may be more than what a workflow wants of it.
    pub fn cut(&self, written: Value) -> Value {
        match (self.reducer.update_form(), self.ty.required()) {
            (UpdateForm::Part, _) => written,
            (UpdateForm::Items, Type::List(item)) if !self.is_whole_list(&written) => {
                item.cut(written)
            }
            (_, ty) => ty.cut(written),
        }
    }

    /// Checks a value that replaces the content of the channel: its type, its size and its depth.
    ///
    /// # Errors
    ///
    /// Names every place where the value does not fit, or the limit that it reaches.
    pub fn check_whole(&self, value: &Value) -> Result<(), Vec<String>> {
        self.check_limits(value)?;
        self.validate(value)
    }

    /// Checks the size and the depth of a new value, and that its whole numbers have kept all digits.
    fn check_limits(&self, value: &Value) -> Result<(), Vec<String>> {
        measure(value).map_err(|reached| vec![format!("it is {reached}")])?;
        let item = match self.ty.required() {
            Type::List(item) if !self.is_whole_list(value) => item,
            ty => ty,
        };
        let Some((place, number)) = rounded_int(item, value) else { return Ok(()) };
        let at = if place.is_empty() { place } else { format!("{place}: ") };
        Err(vec![format!(
            "{at}{number} may have lost digits; write a whole number of more than 15 digits without fraction \
             and exponent, in at most 64 bits"
        )])
    }

    /// Checks the type of a whole value of the channel.
    ///
    /// # Errors
    ///
    /// Names every place where the value does not fit.
    pub fn validate(&self, value: &Value) -> Result<(), Vec<String>> {
        let validator = self.validator.get();
        if validator.is_valid(value) {
            return Ok(());
        }
        let describe = |error: jsonschema::ValidationError<'_>| shortened(schema_problem(&error));
        let mut problems: Vec<String> =
            validator.iter_errors(value).take(PROBLEMS_MAX + 1).map(describe).collect();
        if problems.len() > PROBLEMS_MAX {
            problems.truncate(PROBLEMS_MAX);
            problems.push("there are more".to_owned());
        }
        Err(problems)
    }

    /// Returns whether an empty list of this type is one item of a list of lists, rather than no items.
    fn is_item(&self, ty: &Type) -> bool {
        match (self.reducer.update_form(), self.ty.required()) {
            (UpdateForm::Items, Type::List(item)) => {
                let ty = ty.required();
                matches!(item.required(), Type::List(_))
                    && ty.fits_cut(item)
                    && !ty.fits_cut(&self.ty)
            }
            _ => false,
        }
    }

    /// Returns a value as a write. In a list of lists, an empty list could be no items or one of them: its type decides.
    pub fn write_of(&self, value: Arc<Value>, ty: impl FnOnce() -> Option<Type>) -> Arc<Value> {
        let is_empty = value.as_array().is_some_and(Vec::is_empty);
        if is_empty && ty().is_some_and(|it| self.is_item(&it)) {
            return Arc::new(Value::Array(vec![Value::Array(Vec::new())]));
        }
        value
    }

    /// Returns whether a write to a list contains all of its items rather than one item.
    ///
    /// An array contains all items, unless the items are arrays themselves and the array fits as one item. An empty
    /// one contains no items; see [`write_of`](Self::write_of).
    pub(super) fn is_whole_list(&self, written: &Value) -> bool {
        let Value::Array(items) = written else { return false };
        match self.ty.required() {
            Type::List(item) if matches!(item.required(), Type::List(_)) => {
                items.iter().all(Value::is_array)
            }
            _ => true,
        }
    }
}

/// The type of a message as it is written: without an `id` it gets one.
fn without_id(message: &Type) -> Type {
    let Type::Record(record) = message else { return message.clone() };
    let field = |it: &Field| match it.name.as_str() {
        ID => Field { ty: it.ty.clone().optional(), ..it.clone() },
        _ => it.clone(),
    };
    let fields = record.fields.iter().map(field).collect();
    Type::Record(Arc::new(Record { fields, ..Record::clone(record) }))
}

/// Returns whether values of a type remove messages, all of them or some: where `remove` may be absent, the others are
/// messages. The reducer reads only `id` and `remove` of a removal.
fn removes(found: &Type, message: &Type) -> bool {
    let (Type::Record(record), Some(id), Some(remove)) =
        (found, found.field(ID), found.field(REMOVE))
    else {
        return false;
    };
    let known_id = message.field(ID).map_or(&Type::String, Type::required);
    if !id.required().fits(known_id) || !remove.required().fits(&Type::Bool) {
        return false;
    }
    if !matches!(remove, Type::Optional(_)) {
        return true;
    }
    let fields = record.fields.iter().filter(|it| it.name != REMOVE).cloned().collect();
    Type::Record(Arc::new(Record { fields, ..Record::clone(record) })).fits(&message.partial())
}

/// Shortens a problem: it quotes the value, which may be large.
fn shortened(mut problem: String) -> String {
    if let Some((end, _)) = problem.char_indices().nth(PROBLEM_CHARS_MAX) {
        problem.truncate(end);
        problem.push('…');
    }
    problem
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.name, self.ty, self.reducer)
    }
}
