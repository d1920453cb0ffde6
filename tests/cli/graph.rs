//! `graphrun graph`: five formats of a workflow, and runs drawn over them.

use serde_json::{Value, json};

use super::program::{Place, workflow};

/// Returns the edges of a drawing that a run took, as `from to times`.
fn taken(drawing: &Value) -> Vec<String> {
    let edges = drawing["edges"].as_array().unwrap().iter();
    let taken = edges.filter(|it| it["taken"].as_u64().unwrap() > 0);
    let text = |it: &Value| it.as_str().unwrap_or("start").to_owned();
    taken
        .map(|edge| format!("{} {} {}", text(&edge["from"]), text(&edge["to"]), edge["taken"]))
        .collect()
}

fn node<'a>(drawing: &'a Value, name: &str) -> &'a Value {
    drawing["nodes"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap()
}

#[test]
fn a_workflow_is_drawn_in_five_formats_and_leaves_nothing() {
    let place = Place::new();
    let path = workflow("everything");
    for (format, start) in [
        ("text", "everything\n├─ start"),
        ("ascii", "everything\n├─ start"),
        ("mermaid", "---\ntitle: \"everything\"\n---\nflowchart TD\n"),
        ("dot", "digraph \"everything\" {\n"),
        ("svg", "<svg xmlns=\"http://www.w3.org/2000/svg\""),
        ("json", "{\n  \"v\": 1,\n  \"workflow\": \"everything\""),
    ] {
        let ended = place.run(["graph", &path, "--format", format]);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended}");
        assert!(ended.stdout.starts_with(start), "{ended}");
        assert!(ended.stdout.ends_with('\n') && !ended.stdout.ends_with("\n\n"), "{format}");
    }
    let as_output = place.run(["graph", &path, "--output", "json"]).stdout;
    assert_eq!(as_output, place.run(["graph", &path, "--format", "json"]).stdout);
    let both = place.run(["graph", &path, "--output", "json", "--format", "svg"]);
    assert!(both.code == 2 && both.stderr.contains("contradicts `--format`"), "{both}");
    assert!(place.is_empty());
}

#[test]
fn a_paused_or_finished_run_is_drawn_over_the_graph() {
    let place = Place::new();
    let path = workflow("everything");
    let args = ["execute", &path, "-i", "brief=x", "-i", "verdict=rework", "--output", "json"];
    let asked = place.run(args);
    assert_eq!(asked.code, 3, "{asked}");
    let name = asked.json()["name"].as_str().unwrap().to_owned();
    let draw = |format| place.run(["graph", &path, "--run", &name, "--format", format]);

    let drawing = draw("json").json();
    let way = ["start plan 1", "plan left 1", "plan right 1", "left work 1", "right work 1"];
    let rounds = ["work check 2", "check work 2", "work help 1"];
    assert_eq!(taken(&drawing), [&way[..], &rounds].concat());
    let visits = json!({"steps": 2, "tasks": 2, "attempts": 2, "failures": 0, "skipped": 0,
        "status": null});
    assert_eq!(node(&drawing, "check")["visits"], visits);
    assert_eq!(node(&drawing, "help")["visits"]["status"], "waiting");
    assert_eq!(node(&drawing, "done")["visits"], Value::Null);
    assert_eq!(drawing["run"]["status"], "paused");
    let listing = draw("ascii").stdout.replace(&name, "NAME");
    insta::assert_snapshot!(listing, @r#"
    everything
    NAME: paused after 6 steps: waiting for an answer to help
    ├─ start → plan ×1
    ├─ limit reached ⇢ give_up
    └─ any other failure ⇢ give_up

    plan (set, ran once)
    └─→ left ∥ right ×1

    split: left (set, ran once) ∥ right (set, ran once)
    └─ together → work ×1

    work (set, ≤2, ran 2 times)
    ├─ round > 5 && brief != "x" → done
    ├─ else → check ×2
    └─ exhausted ⇢ help ×1

    check (set, ran 2 times)
    ├─ good → done
    ├─ rework ↺ work (≤2) ×2
    └─ bad → give_up

    help (ask, ≤1, ran once, waiting)
    ├─ go_on → done
    ├─ stop → give_up
    ├─ exhausted ⇢ give_up
    └─ catch timeout ⇢ done

    done (set, when brief != "y", after all others, not reached)
    └─→ end

    give_up (set, not reached)
    ├─→ fail
    └─ catch any ⇢ fail
    "#);
    for (format, word) in
        [("mermaid", "class n5 waiting"), ("dot", "penwidth=3"), ("svg", "node waiting")]
    {
        assert!(draw(format).stdout.contains(word), "{}", draw(format));
    }

    let done = place.run(["resume", &name, "--answer", "help=go_on"]);
    assert_eq!(done.code, 0, "{done}");
    let drawing = draw("json").json();
    let end = ["help done 1", "done end 1"];
    // Edges for an exhausted bound come after all others.
    assert_eq!(taken(&drawing), [&way[..], &rounds[..2], &end, &rounds[2..]].concat());
    assert_eq!(node(&drawing, "help")["visits"]["status"], Value::Null);
    assert_eq!(node(&drawing, "give_up")["visits"], Value::Null);
}

/// A map, a skipped node, a node whose failure is caught, a failing subworkflow, and a node whose
/// failure is not caught.
#[test]
fn a_failed_run_is_drawn_over_maps_skips_and_subworkflows() {
    let place = Place::new();
    let path = workflow("whole");
    let failed = place.run(["execute", &path, "-i", "by=0", "--output", "json"]);
    assert_eq!(failed.code, 1, "{failed}");
    let name = failed.json()["name"].as_str().unwrap().to_owned();
    let draw = |format| {
        place
            .run(["graph", &path, "--run", &name, "--format", format])
            .stdout
            .replace(&name, "NAME")
    };
    // The heading is cut at the width of the terminal, and names differ in length.
    let ascii = draw("ascii");
    let reason = "division by zero";
    let cut = ascii.find(reason).unwrap() + reason.len();
    let rest = ascii[cut..].find('\n').unwrap();
    insta::assert_snapshot!("whole_ascii", format!("{}{}", &ascii[..cut], &ascii[cut + rest..]));
    insta::assert_snapshot!("whole_mermaid", draw("mermaid"));
    let drawing: Value = serde_json::from_str(&draw("json")).unwrap();
    assert_eq!(node(&drawing, "part")["visits"]["tasks"], 3);
    assert_eq!(node(&drawing, "extra")["visits"]["skipped"], 1);
    assert_eq!(node(&drawing, "share")["visits"]["failures"], 1);
    assert_eq!(node(&drawing, "sorry")["visits"]["status"], "failed");
    assert_eq!(node(&drawing, "review.end")["visits"], Value::Null);
    for (format, word) in [("dot", "penwidth=3"), ("svg", "node failed")] {
        assert!(draw(format).contains(word), "{}", draw(format));
    }
}

#[test]
fn a_run_through_a_used_workflow_shows_its_rounds() {
    let place = Place::new();
    let path = workflow("whole");
    let done = place.run(["execute", &path, "-i", "by=4", "--output", "json"]);
    assert_eq!(done.code, 0, "{done}");
    let name = done.json()["name"].as_str().unwrap().to_owned();
    let drawn = place.run(["graph", &path, "--run", &name, "--format", "json"]);
    let taken = taken(&drawn.json());
    let within = [
        "review review.round 1",
        "review.round review.round 2",
        "review.round review.judge 1",
        "review.judge review.end 1",
    ];
    for way in within {
        assert!(taken.iter().any(|it| it == way), "{way}: {taken:?}");
    }
    let outside = ["split part 3", "part extra 3", "extra share 1", "review.end end 1"];
    for way in outside {
        assert!(taken.iter().any(|it| it == way), "{way}: {taken:?}");
    }
    assert_eq!(taken.len(), within.len() + outside.len() + 2, "{taken:?}");
}

#[test]
fn a_run_of_another_workflow_or_an_unknown_one_is_refused() {
    let place = Place::new();
    let unknown = place.run(["graph", &workflow("two_steps"), "--run", "calm-otter"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (6, ""), "{unknown}");
    assert!(place.is_empty());
    let name = place.execute("two_steps");
    let other = place.run(["graph", &workflow("everything"), "--run", &name]);
    assert_eq!((other.code, other.stdout.as_str()), (2, ""));
    let said = other.stderr.replace(&name, "NAME");
    insta::assert_snapshot!(said, @r"
    error: run `NAME` belongs to the workflow `two_steps`, not to `everything`
    help: name the workflow of the run
    ");
    assert_eq!(place.run(["graph", &workflow("two_steps"), "--run", &name]).code, 0);
}
