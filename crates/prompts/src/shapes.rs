//! The types that only templates have: a list whose items are known one by one, such as a pair or a group of `groupby`, and a
//! value of one of several types.
//!
//! Each is a record whose name is what a message shows. A schema would have to give that name to a record with fields
//! `0`, `1` and so on to be mistaken for one.

use graphrun_core::state::{Field, Record, Type};
use graphrun_expressions::joined;

/// The most parts of the type of a variable, and the deepest nesting of them.
const PARTS_MAX: usize = 2_000;
const DEPTH_MAX: usize = 50;
/// The names of the parts of a group.
pub(super) const GROUP_PARTS: [&str; 2] = ["grouper", "list"];

/// Returns the type of a variable. Nothing is known of a value that a template has made too large: its type would grow
/// further.
pub(super) fn bounded(ty: Type) -> Type {
    fn count(ty: &Type, depth: usize, left: &mut usize) -> bool {
        if depth == 0 || *left == 0 {
            return false;
        }
        *left -= 1;
        match ty {
            Type::List(inner) | Type::Map(inner) | Type::Optional(inner) => {
                count(inner, depth - 1, left)
            }
            Type::Record(record) => record.fields.iter().all(|it| count(&it.ty, depth - 1, left)),
            _ => true,
        }
    }
    let mut left = PARTS_MAX;
    let is_small = count(&ty, DEPTH_MAX, &mut left);
    if is_small { ty } else { Type::Any }
}

/// Returns the type of a list with these items, such as a pair of a key and a value.
pub(super) fn tuple(items: Vec<Type>) -> Type {
    shape(tuple_name(&items), items)
}

/// Returns the type of a group of `groupby`: a pair whose parts also have names.
pub(super) fn group(grouper: Type, list: Type) -> Type {
    let items = vec![grouper, list];
    shape(group_name(&items), items)
}

/// Returns the items of a list that are known one by one.
pub(super) fn tuple_items(ty: &Type) -> Option<Vec<&Type>> {
    parts(ty, tuple_name).or_else(|| group_items(ty))
}

/// Returns the type of a part of a group by its name.
pub(super) fn group_part<'t>(ty: &'t Type, name: &str) -> Option<&'t Type> {
    let items = group_items(ty)?;
    GROUP_PARTS.iter().position(|it| *it == name).map(|at| items[at])
}

/// Returns whether the type is one of a group.
pub(super) fn is_group(ty: &Type) -> bool {
    group_items(ty).is_some()
}

fn group_items(ty: &Type) -> Option<Vec<&Type>> {
    parts(ty, group_name).filter(|it| it.len() == GROUP_PARTS.len())
}

/// Returns the types that a value may have.
pub(super) fn alternatives(ty: &Type) -> Vec<&Type> {
    let parts = parts(ty.required(), either_name).filter(|it| it.len() > 1);
    parts.unwrap_or_else(|| vec![ty.required()])
}

/// Returns the type of a value that is one of both.
pub(super) fn either(a: Type, b: Type) -> Type {
    if [&a, &b].into_iter().any(|it| matches!(it, Type::Optional(_))) {
        return match (present(&a), present(&b)) {
            (Some(a), Some(b)) => either(a.clone(), b.clone()).optional(),
            // `none` alone has no type, so that of the other value counts.
            (Some(ty), None) | (None, Some(ty)) => Type::Optional(ty.clone().into()),
            (None, None) => a,
        };
    }
    match (a, b) {
        (Type::Any, _) | (_, Type::Any) => Type::Any,
        (a, b) => {
            let mut types: Vec<Type> = alternatives(&a).into_iter().cloned().collect();
            for other in alternatives(&b) {
                match types.iter_mut().find_map(|it| Some((common(it, other)?, it))) {
                    Some((common, it)) => *it = common,
                    None => types.push(other.clone()),
                }
            }
            if let [single] = types.as_slice() { single.clone() } else { one_of(types) }
        }
    }
}

/// Returns the type of a value where it is there; `None` for `none`, which never is.
pub(super) fn present(ty: &Type) -> Option<&Type> {
    let is_none = matches!(ty, Type::Optional(inner) if **inner == Type::Any);
    (!is_none).then(|| ty.required())
}

/// Returns the type of any of these values; nothing is known of none.
pub(super) fn any_of(types: impl IntoIterator<Item = Type>) -> Type {
    types.into_iter().reduce(either).unwrap_or(Type::Any)
}

/// The type of what a loop over a value goes through: items, the keys of a mapping, or characters.
pub(super) fn items_of(ty: &Type) -> Option<Type> {
    if let Some(items) = tuple_items(ty.required()) {
        return Some(any_of(items.into_iter().cloned()));
    }
    let alternatives = alternatives(ty);
    if alternatives.len() > 1 {
        let items: Option<Vec<Type>> = alternatives.into_iter().map(items_of).collect();
        return items.map(any_of);
    }
    Some(match ty.required() {
        Type::Any => Type::Any,
        Type::List(item) => Type::clone(item),
        Type::Map(_) | Type::Record(_) => Type::String,
        Type::String | Type::Enum(_) | Type::Date | Type::Duration => Type::String,
        Type::Bool | Type::Int(_) | Type::Float(_) | Type::Optional(_) => return None,
    })
}

/// Returns the type of the values of a mapping.
pub(super) fn values_of_map(ty: &Type) -> Type {
    match ty.required() {
        Type::Map(value) => Type::clone(value),
        Type::Record(record) if !is_shape(ty.required()) => {
            any_of(record.fields.iter().map(|it| it.ty.clone()))
        }
        _ => Type::Any,
    }
}

/// Returns the list type of a list whose items are known one by one, unless it is empty; any other type as it is.
pub(super) fn as_list(ty: &Type) -> Type {
    match tuple_items(ty.required()) {
        Some(items) if !items.is_empty() => Type::List(any_of(items.into_iter().cloned()).into()),
        _ => ty.required().clone(),
    }
}

/// Returns the type of a part of a value, of any length: a text for an enum, a list for a pair.
pub(super) fn of_any_length(ty: &Type) -> Type {
    let part = |ty: &Type| match ty {
        Type::Enum(_) | Type::Date | Type::Duration => Type::String,
        ty => as_list(ty),
    };
    any_of(alternatives(ty).into_iter().map(part))
}

/// Returns the type with a part that is present, such as `owner.name`.
pub(super) fn with_part(ty: &Type, path: &str) -> Type {
    let (name, rest) = path.split_once('.').map_or((path, None), |it| (it.0, Some(it.1)));
    let present = |part: &Type| {
        let part = part.required();
        rest.map_or_else(|| part.clone(), |rest| with_part(part, rest))
    };
    let alternatives = alternatives(ty);
    if alternatives.len() > 1 {
        return any_of(alternatives.into_iter().map(|it| with_part(it, path)));
    }
    if let Some(items) = tuple_items(ty) {
        let named = GROUP_PARTS.iter().position(|it| is_group(ty) && *it == name);
        let at = named.or_else(|| name.parse().ok());
        let items = items.into_iter().enumerate();
        let items = items.map(|(it, ty)| if Some(it) == at { present(ty) } else { ty.clone() });
        return like(ty, items.collect());
    }
    let Type::Record(record) = ty else { return ty.clone() };
    let mut record = Record::clone(record);
    for field in record.fields.iter_mut().filter(|it| it.name == name) {
        field.ty = present(&field.ty);
    }
    Type::Record(record.into())
}

/// Returns the type of a group or a tuple, like another one, with these items.
fn like(ty: &Type, items: Vec<Type>) -> Type {
    let name = if is_group(ty) { group_name(&items) } else { tuple_name(&items) };
    shape(name, items)
}

/// Returns whether the type is one of those that only templates have.
pub(super) fn is_shape(ty: &Type) -> bool {
    tuple_items(ty).is_some() || alternatives(ty).len() > 1
}

/// Returns the type that has the values of both, if there is one besides that of one of both.
fn common(a: &Type, b: &Type) -> Option<Type> {
    match (tuple_items(a), tuple_items(b)) {
        (Some(items), Some(others)) if items.len() == others.len() => {
            let pairs = items.into_iter().zip(others);
            let items = pairs.map(|(a, b)| either(a.clone(), b.clone())).collect();
            Some(like(if is_group(a) { b } else { a }, items))
        }
        (Some(a), Some(b)) => Some(Type::List(any_of(a.into_iter().chain(b).cloned()).into())),
        (Some(items), None) | (None, Some(items)) => {
            let ((Type::List(item), _) | (_, Type::List(item))) = (a, b) else { return None };
            let items = items.into_iter().cloned().chain([Type::clone(item)]);
            Some(Type::List(any_of(items).into()))
        }
        (None, None) => match (a, b) {
            (Type::List(a), Type::List(b)) => Some(Type::List(either_of(a, b).into())),
            (Type::Map(a), Type::Map(b)) => Some(Type::Map(either_of(a, b).into())),
            (a, b) => joined(a, b),
        },
    }
}

fn either_of(a: &Type, b: &Type) -> Type {
    either(a.clone(), b.clone())
}

fn one_of(types: Vec<Type>) -> Type {
    shape(either_name(&types), types)
}

fn shape(name: String, types: Vec<Type>) -> Type {
    let field = |(at, ty): (usize, Type)| Field::new(at.to_string(), ty);
    let fields = types.into_iter().enumerate().map(field).collect();
    Type::Record(Record { name: Some(name), fields, is_closed: true }.into())
}

fn parts(ty: &Type, name_of: fn(&[Type]) -> String) -> Option<Vec<&Type>> {
    let Type::Record(record) = ty else { return None };
    let mut names = record.fields.iter().enumerate();
    if !names.all(|(at, it)| it.name.parse() == Ok(at)) {
        return None;
    }
    let types: Vec<Type> = record.fields.iter().map(|it| it.ty.clone()).collect();
    let is_named = record.name.as_ref() == Some(&name_of(&types));
    is_named.then(|| record.fields.iter().map(|it| &it.ty).collect())
}

fn tuple_name(items: &[Type]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    format!("({})", items.join(", "))
}

fn group_name(items: &[Type]) -> String {
    format!("group {}", tuple_name(items))
}

fn either_name(types: &[Type]) -> String {
    let types: Vec<String> = types.iter().map(ToString::to_string).collect();
    types.join(" or ")
}
