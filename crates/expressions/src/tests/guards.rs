//! What an expression reads, and the conditions that guard values which may be absent.

use super::*;

#[test]
fn the_reads_of_an_expression_are_known() {
    let state = state();
    let expression = compiled(&state, "n > 1 || has(later) || list.exists(it, it == n)").unwrap();
    let reads: Vec<&str> = expression.reads().iter().map(ChannelName::as_str).collect();
    assert_eq!(reads, ["later", "list", "n"]);
}

#[test]
fn a_guard_holds_only_where_it_is_certain() {
    let state = state();
    let refused = [
        "has(review.note) || review.note == \"x\"",
        "!has(review.note) && review.note == \"x\"",
        "(has(review.note) || yes) && review.note == \"x\"",
        "has(review.note) ? yes : review.note == \"x\"",
        "has(list[0]) && list[1] == 1",
        "has(list.first()) && list.last() == 1",
        "list.exists(a, has(list[a])) && list.exists(a, list[a] == 1)",
        "(has(review.note) && yes) == (review.note == \"x\")",
        "n < list.size() && list[n] == 1",
        "n >= 0 && n <= list.size() && list[n] == 1",
        "n > -2 && n < list.size() && list[n] == 1",
        "n >= 0 && (n < list.size() || yes) && list[n] == 1",
        "n >= 0 && n < list.size() && holes[n] == 1",
        "n >= 0 && n < holes.size() && holes[n] == 1",
        "n >= 0 && n < list.size() && list[n + 1] == 1",
        "n < list.size() && list[n % list.size()] == 1",
        "list[list.size() - 1] == 1",
        "list.size() > 1 && list[list.size() - 3] == 1",
        "grade > 0 && list[max(grade, list.size() - 1)] == 1",
        "[1, 2][n] == 1",
        "grade <= list.size() && list[grade] == 1",
        "grade < holes.size() && holes[grade] == 1",
        "grade < list.size() || list[grade] == 1",
        "has(text.groups(\"(a)(b)\")) && text.groups(\"(a)(b)\")[2] == \"b\"",
        "has(text.groups(\"(a)(b)\")) && text.groups(\"(a)\")[0] == \"b\"",
        "[text].filter(w, has(int(w))).all(y, int(text) > 1)",
        "[text].filter(w, has(int(w)) || yes).all(y, int(y) > 1)",
        "[text].map(w, w).filter(w, yes).all(y, int(y) > 1)",
        "review.by.name == \"x\"",
        "counts.a == 1",
    ];
    for source in refused {
        let problems = compiled(&state, source).expect_err(source);
        let codes: BTreeSet<&str> = problems.iter().map(|it| it.code).collect();
        assert_eq!(codes, BTreeSet::from(["GR026"]), "{source}");
    }
}

#[test]
fn calls_numbers_and_groups_are_guarded_as_fields_are() {
    let state = state();
    for (source, value) in [
        ("['1', 'x', '2'].filter(w, has(int(w))).map(w, int(w))", json!([1, 2])),
        ("['1', 'x', '2'].filter(w, has(int(w))).map(y, int(y))", json!([1, 2])),
        ("['2', 'x', '1'].filter(w, has(int(w))).sort().slice(0, 1).map(y, int(y))", json!([1])),
        ("['1', 'x', '2'].filter(w, has(int(w))).filter(y, int(y) > 1).map(z, int(z))", json!([2])),
        ("['a'].filter(w, has(counts[w])).map(y, counts[y])", json!([1])),
        ("['a'].filter(w, w in counts).map(y, counts[y])", json!([1])),
        ("grade < list.size() ? list[grade] : 0", json!(0)),
        ("list.size() <= grade ? 0 : list[grade]", json!(0)),
        ("n >= 0 && n < list.size() ? list[n] : 0", json!(0)),
        ("n < list.size() && n >= 0 && list[n] > 1", json!(false)),
        ("0 <= n && list.size() > n ? list[n] : 0", json!(0)),
        ("n < 0 || n >= list.size() ? 0 : list[n]", json!(0)),
        ("n > 0 && n <= list.size() ? list[n - 1] : 0", json!(0)),
        ("n >= 0 && n <= list.size() - 1 ? list[n] : 0", json!(0)),
        ("list.size() > 0 ? list[list.size() - 1] : 0", json!(3)),
        ("list.size() > 0 ? list[min(grade, list.size() - 1)] : 0", json!(3)),
        ("n >= 0 && list.size() > 0 ? list[n % list.size()] : 0", json!(2)),
        ("[5, 6][1] + [7].first()", json!(13)),
        ("[0, 2, 9].filter(i, i < list.size()).map(i, list[i])", json!([1, 3])),
        ("has(text.groups('^(g)(r)')) ? text.groups('^(g)(r)')[1] : ''", json!("r")),
        ("has(text.groups('^(g)')) ? text.groups('^(g)').last() : ''", json!("g")),
    ] {
        let expression = compiled(&state, source).unwrap_or_else(|it| panic!("{source}: {it:?}"));
        assert_eq!(evaluated(&state, &expression).unwrap(), value, "{source}");
    }
}
