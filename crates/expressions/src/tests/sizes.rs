//! Guards of items: the size of a list, and a key of a map.

use super::{compiled, state};

#[test]
fn a_size_guards_the_items_before_it() {
    let state = state();
    for source in [
        "list.size() > 0 && list[0] > 1",
        "list.size() != 0 ? list.first() : 0",
        "list.size() >= 1 ? list.last() : 0",
        "list.size() > 2 ? list[0] + list[1] + list[2] : 0",
        "list.size() == 2 ? list[1] : 0",
        "size(list) > 0 && 0 < list.size() ? list[0] : 0",
        "0 < list.size() ? list[0] : 0",
        "list.size() == 0 ? 0 : list[0]",
        "list.size() < 2 ? 0 : list[1]",
        "list == [] ? 0 : list[0]",
        "list != [] ? list.first() : 0",
        "!(list.size() == 0) && list.first() > 0",
        "3 in list ? list[0] : 0",
        "list.filter(it, it > 1).size() > 0 ? list.filter(it, it > 1).first() : 0",
        "[list].all(it, it.size() > 0 && it[0] > 0)",
    ] {
        assert!(compiled(&state, source).is_ok(), "{source}: {:?}", compiled(&state, source));
    }
    for source in [
        "list.size() > 0 ? list[1] : 0",
        "list.size() >= 0 ? list[0] : 0",
        "list.size() != 1 ? list[0] : 0",
        "list.size() < 2 ? list[0] : 0",
        "list.size() > 0 ? 0 : list[0]",
        "list.size() > 0 || list[0] > 1",
        "holes.size() > 0 ? holes[0] + 1 : 0",
        "holes.size() > 0 ? holes.first() + 1 : 0",
        "holes.size() > 0 ? list[0] : 0",
        "list.size() > 0 ? list.filter(it, it > 1).first() : 0",
        "3 in list ? list[1] : 0",
    ] {
        let problems = compiled(&state, source).unwrap_err();
        assert_eq!(problems[0].code, "GR026", "{source}: {problems:?}");
    }
}

#[test]
fn a_key_guards_its_value_unless_that_may_be_null() {
    let state = state();
    for source in [
        "'a' in counts ? counts['a'] : 0",
        "'a' in counts && counts.a > 0",
        "text in counts ? counts[text] : 0",
        "!('a b' in counts) || counts['a b'] > 0",
        "'a' in gaps && has(gaps.a) && gaps.a > 0",
    ] {
        assert!(compiled(&state, source).is_ok(), "{source}: {:?}", compiled(&state, source));
    }
    for (source, help) in [
        ("'a' in counts ? counts['b'] : 0", "guard it: `has(counts.b) ? counts.b : …`"),
        ("'a' in counts || counts.a > 0", "guard it: `has(counts.a) && …`"),
        (
            "'a' in gaps && gaps['a'] > 0",
            "guard it: `has(gaps.a) && …`; `in` is true for null, too",
        ),
        (
            "text in gaps && gaps[text] > 0",
            "guard it: `has(gaps[text]) && …`; `in` is true for null, too",
        ),
    ] {
        let problems = compiled(&state, source).unwrap_err();
        assert_eq!(
            (problems[0].code, problems[0].help.as_deref()),
            ("GR026", Some(help)),
            "{source}"
        );
    }
}
