//! Types by examples, and random values of random schemas.

mod random;

use schemars::{JsonSchema, schema_for};
use serde::Serialize;
use serde_json::json;

use super::*;

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is of interest")]
enum Verdict {
    /// Documented, so that schemars writes `oneOf`.
    Approved,
    Rework,
}

#[derive(Serialize, JsonSchema)]
struct Review {
    verdict: Verdict,
    score: Option<f64>,
    issues: Vec<String>,
}

fn closed(fields: &[(&str, Type)]) -> Type {
    let field = |(name, ty): &(&str, Type)| Field::new(*name, ty.clone());
    let fields = fields.iter().map(field).collect();
    Type::Record(Arc::new(Record { name: None, fields, is_closed: true }))
}

#[test]
fn a_value_with_undeclared_fields_fits_once_it_is_cut() {
    let list = |it: Type| Type::List(Box::new(it));
    let small = list(closed(&[("a", Type::INT), ("b", closed(&[("x", Type::INT)]).optional())]));
    let inner = closed(&[("x", Type::INT), ("y", Type::INT)]);
    let big = list(closed(&[("a", Type::INT), ("b", inner), ("c", Type::Bool)]));
    assert!(big.fits_cut(&small) && !big.fits(&small) && !small.fits_cut(&big));
    assert_eq!(big.undeclared_field(&small).as_deref(), Some("b.y"));
    let value = json!([{"a": 1, "b": {"x": 2, "y": 3}, "c": true}]);
    assert_eq!(small.cut(value.clone()), json!([{"a": 1, "b": {"x": 2}}]));
    assert_eq!(big.cut(value.clone()), value);

    let open = Type::of::<Review>();
    let more = json!({"verdict": "rework", "score": 1, "issues": [], "more": 1});
    assert_eq!(open.cut(more.clone()), more, "an open record keeps all fields");
}

#[test]
fn types_exclude_each_other_if_no_value_is_of_both() {
    let excludes = |one: &Type, another: &Type| {
        assert_eq!(one.excludes(another), another.excludes(one), "{one} and {another}");
        one.excludes(another)
    };
    let list = |it: Type| Type::List(Box::new(it));
    let words = |values: &[&str]| Type::Enum(values.iter().map(|it| (*it).to_owned()).collect());
    let narrow = Type::of_schema(&json!({"type": "integer", "minimum": 7}));
    let (point, far) = (closed(&[("x", Type::INT)]), closed(&[("x", Type::INT), ("y", Type::INT)]));
    let open = |fields: &[(&str, Type)]| match closed(fields) {
        Type::Record(it) => {
            Type::Record(Arc::new(Record { is_closed: false, ..Record::clone(&it) }))
        }
        other => other,
    };

    for (one, another) in [
        (Type::INT, Type::String),
        (Type::INT.optional(), Type::Bool),
        (list(Type::INT), list(Type::String)),
        (list(Type::INT), Type::INT),
        (words(&["a", "b"]), words(&["c"])),
        (words(&["a"]), Type::Date),
        (point.clone(), far.clone()),
        (open(&[("x", Type::String)]), point.clone()),
        (Type::Map(Box::new(Type::Bool)), point.clone()),
    ] {
        assert!(excludes(&one, &another), "{one} and {another}");
    }
    for (one, another) in [
        (Type::Any, Type::String),
        (list(Type::Any), list(Type::String)),
        (Type::INT.optional(), Type::FLOAT),
        (narrow, Type::INT),
        (words(&["a", "b"]), words(&["b"])),
        (words(&["a"]), Type::String),
        (words(&["2026-01-31"]), Type::Date),
        (point.clone(), open(&[])),
        (open(&[("y", Type::INT)]), open(&[("x", Type::INT)])),
        (closed(&[("x", Type::INT), ("y", Type::INT.optional())]), point),
    ] {
        assert!(!excludes(&one, &another), "{one} and {another}");
    }
    assert!(!excludes(&open(&[("x", Type::INT)]), &far));
}

#[test]
fn a_number_fits_only_in_a_range_that_includes_its_own() {
    let of = |schema| Type::of_schema(&schema);
    let grade = of(json!({"type": "integer", "minimum": 1, "maximum": 6}));
    let count = of(json!({"type": "integer", "minimum": 0}));
    assert!(grade.fits(&count) && grade.fits(&Type::INT) && grade.fits(&Type::FLOAT));
    assert!(!count.fits(&grade) && !Type::INT.fits(&count) && !Type::FLOAT.fits(&Type::INT));
    assert!(!count.clone().optional().fits(&grade.clone().optional()));

    let plan = |level: &Type| closed(&[("level", level.clone()), ("x", Type::Bool)]);
    let plans = |level: &Type| closed(&[("all", Type::List(Box::new(plan(level))))]);
    assert!(plans(&grade).fits(&plans(&count)) && !plans(&count).fits(&plans(&grade)));
    let found = plans(&count).out_of_range(&plans(&grade)).unwrap();
    assert_eq!(found.path, "all.level");
    assert_eq!(found.declared, grade.range().unwrap());
}

#[test]
fn an_open_record_fits_only_a_map_of_anything() {
    let map = |it: Type| Type::Map(Box::new(it));
    let Type::Record(record) = closed(&[("a", Type::INT)]) else { panic!("a record") };
    let open = Type::Record(Arc::new(Record { is_closed: false, ..Record::clone(&record) }));
    assert!(Type::Record(record).fits(&map(Type::INT)) && open.fits(&map(Type::Any)));
    assert!(!open.fits(&map(Type::INT)));
}

#[test]
fn a_part_may_lack_any_field_and_has_no_other() {
    let whole = closed(&[("a", Type::INT), ("b", closed(&[("x", Type::INT)]))]);
    assert!(closed(&[]).fits(&whole.partial()));
    assert!(closed(&[("b", closed(&[]))]).fits(&whole.partial()));
    assert!(!closed(&[("b", closed(&[("y", Type::INT)]))]).fits(&whole.partial()));
    assert!(!closed(&[("a", Type::Bool)]).fits(&whole.partial()));
}

#[test]
fn types_are_read_from_the_schema_of_a_rust_type() {
    let ty = Type::of_schema(schema_for!(Review).as_value());
    assert_eq!(ty.to_string(), "Review");
    assert_eq!(ty.field("verdict").unwrap().to_string(), "rework | approved");
    assert_eq!(ty.field("score").unwrap().to_string(), "float?");
    assert_eq!(ty.field("issues").unwrap().to_string(), "[string]");
    assert_eq!(ty.field("nothing"), None);
}

#[derive(Serialize, JsonSchema)]
struct Tree {
    children: Vec<Self>,
}

fn parts(ty: &Type) -> usize {
    match ty.required() {
        Type::Record(record) => 1 + record.fields.iter().map(|it| parts(&it.ty)).sum::<usize>(),
        _ => 1,
    }
}

#[test]
fn a_type_that_contains_itself_often_has_few_parts() {
    let tree = serde_json::json!({"$ref": "#"});
    let fields: Map<String, Value> = (0..100).map(|at| (format!("f{at}"), tree.clone())).collect();
    let schema = serde_json::json!({"type": "object", "properties": fields});
    let size = parts(&Type::of_schema(&schema));
    assert!((100..100_000).contains(&size), "{size} parts");
}

#[test]
fn a_recursive_type_ends() {
    let ty = Type::of_schema(schema_for!(Tree).as_value());
    assert!(matches!(ty.field("children"), Some(Type::List(_))));
}
