//! The filters that read a part of each item. Null is an absent value, as in expressions, so a default replaces it, and an
//! item without the part is null.

use std::{fmt, sync::Arc};

use minijinja::{
    Error, State, Value, filters,
    value::{Enumerator, Kwargs, Object, ObjectRepr, Rest, ValueOrKwargs},
};

/// Returns the filter `map`.
pub(super) fn map(
    state: &mut State<'_, '_>,
    value: Value,
    args: Rest<ValueOrKwargs>,
) -> Result<Vec<Value>, Error> {
    let args = args.into_values();
    let named = args.last().and_then(|it| Kwargs::try_from(it.clone()).ok());
    let named = named.filter(|it| it.has("attribute") && it.has("default"));
    let default = named.map(|it| it.get::<Value>("default")).transpose()?;
    let default = default.unwrap_or_else(|| Value::from(()));
    let args = args.into_iter().map(ValueOrKwargs::from).collect();
    let made = filters::map(state, value, Rest(args))?;
    let is_absent = |it: &Value| it.is_undefined() || it.is_none();
    Ok(made.into_iter().map(|it| if is_absent(&it) { default.clone() } else { it }).collect())
}

/// Returns the filter `groupby`.
pub(super) fn groupby(
    state: &mut State<'_, '_>,
    value: Value,
    attribute: Option<&str>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let Some(default) = kwargs.get::<Option<Value>>("default")? else {
        return filters::groupby(value, attribute, kwargs);
    };
    let attribute = match attribute {
        Some(attribute) => attribute,
        None => kwargs.get::<&str>("attribute")?,
    };
    let is_case_sensitive = kwargs.get::<Option<bool>>("case_sensitive")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let part = Kwargs::from_iter([("attribute", Value::from(attribute)), ("default", default)]);
    let keys = map(state, value.clone(), Rest(vec![Value::from(part).into()]))?;
    let pairs = keys.into_iter().zip(value.try_iter()?).map(|(key, it)| Value::from(vec![key, it]));
    let pairs = pairs.collect::<Value>();
    let options = Kwargs::from_iter([("case_sensitive", Value::from(is_case_sensitive))]);
    let groups = filters::groupby(pairs, Some("0"), options)?;
    let group = |value: Value| {
        let items = value.get_attr("list")?.try_iter()?.map(|it| it.get_item_by_index(1));
        let items = items.collect::<Result<Vec<_>, _>>()?;
        Ok(Value::from_object(Group { grouper: value.get_attr("grouper")?, list: items }))
    };
    groups.try_iter()?.map(group).collect::<Result<Vec<_>, Error>>().map(Value::from)
}

/// The value of a part, and the items that have it: a pair, as the engine makes it.
#[derive(Debug)]
struct Group {
    grouper: Value,
    list: Vec<Value>,
}

impl Object for Group {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match (key.as_usize(), key.as_str()) {
            (Some(0), None) | (None, Some("grouper")) => Some(self.grouper.clone()),
            (Some(1), None) | (None, Some("list")) => Some(Value::from(self.list.clone())),
            _ => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(2)
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("").field(&self.grouper).field(&self.list).finish()
    }
}
