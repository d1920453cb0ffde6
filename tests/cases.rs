//! The cases of workflows: what is wrong with them is found before the first one runs, and they
//! run on the real engine without touching the world.

use std::{fs, path::Path};

use graphrun::{
    cases::{Problem, Ran, Suite},
    nodes::registry,
    workflow::LoadError,
};

fn load(path: &str) -> Suite {
    match Suite::load(Path::new(path), &registry()) {
        Ok((suite, warnings)) => {
            assert!(warnings.is_empty(), "{warnings}");
            suite
        }
        Err(LoadError::Invalid(findings)) => panic!("{findings}"),
        Err(error) => panic!("{error}"),
    }
}

async fn run(suite: &Suite) -> Vec<(String, Ran)> {
    let mut ran = Vec::new();
    for case in &suite.cases {
        ran.push((case.name.clone(), suite.run(case).await));
    }
    ran
}

fn lines(problem: &Problem) -> String {
    let parts = [
        Some(format!("  {:?}: {}", problem.place, problem.what)),
        problem.expected.as_ref().map(|it| format!("    expected: {it}")),
        problem.actual.as_ref().map(|it| format!("    actual: {it}")),
        problem.help.as_ref().map(|it| format!("    help: {it}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

async fn assert_passed(path: &str) {
    let ran = run(&load(path)).await;
    assert!(!ran.is_empty());
    for (name, ran) in ran {
        let problems: Vec<String> = ran.problems.iter().map(lines).collect();
        assert!(problems.is_empty(), "{name}:\n{}", problems.join("\n"));
    }
}

#[tokio::test]
async fn the_software_team_goes_where_its_cases_say() {
    assert_passed("graphs/dev_team.test.yaml").await;
}

#[tokio::test]
async fn a_case_can_say_all_of_this() {
    assert_passed("tests/cases/passing.test.yaml").await;
}

#[tokio::test]
async fn items_are_visits_and_what_is_skipped_has_not_run() {
    assert_passed("tests/cases/stories.test.yaml").await;
}

#[tokio::test]
async fn a_case_that_fails_says_where_and_how() {
    let mut text = String::new();
    for (name, ran) in run(&load("tests/cases/failing.test.yaml")).await {
        let problems: Vec<String> = ran.problems.iter().map(lines).collect();
        assert!(!problems.is_empty(), "`{name}` passed");
        text.extend([&name, "\n", &problems.join("\n"), "\n"]);
    }
    insta::with_settings!({snapshot_path => "cases"}, {
        insta::assert_snapshot!("failing", text);
    });
}

#[test]
fn everything_that_is_wrong_is_found_at_its_place_before_a_case_runs() {
    for entry in fs::read_dir("tests/cases/wrong").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|it| it != "yaml") {
            continue;
        }
        let Err(LoadError::Invalid(findings)) = Suite::load(&path, &registry()) else {
            panic!("{} has no findings", path.display())
        };
        let name = path.file_name().unwrap().to_string_lossy().replace(".test.yaml", "");
        insta::with_settings!({snapshot_path => "cases/wrong", prepend_module_to_snapshot => false}, {
            insta::assert_snapshot!(name, findings);
        });
    }
}

/// Two runs of a case differ in nothing but the time they took.
#[tokio::test]
async fn a_case_is_the_same_whenever_it_is_run() {
    let suite = load("graphs/dev_team.test.yaml");
    let shown = |ran: Vec<(String, Ran)>| -> Vec<String> {
        let ran = ran.into_iter();
        ran.map(|(name, it)| format!("{name} {:?} {:?} {:?}", it.route, it.reason, it.problems))
            .collect()
    };
    assert_eq!(shown(run(&suite).await), shown(run(&suite).await));
}
