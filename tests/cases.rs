//! The cases of workflows: their mistakes are found before the first one runs, and they
//! run on the real engine without touching the world.

use std::{fs, path::Path, time::Duration};

use graphrun::{
    cases::{CaseRun, Effort, ExplorationResult, Problem, Suite, explore},
    id::NodeName,
    registry,
    workflow::LoadError,
};

/// The workflows in `graphs` that have test cases.
const WORKFLOWS: [&str; 8] = [
    "dev_team",
    "phase_result",
    "cycle",
    "lifecycle_policy",
    "lifecycle",
    "escalation",
    "autocode",
    "autocode_subtask",
];

fn load(path: &str) -> Suite {
    match Suite::load(Path::new(path), &registry()) {
        Ok((suite, warnings)) => {
            assert!(warnings.is_empty(), "{warnings}");
            suite
        }
        Err(LoadError::Invalid(diagnostics)) => panic!("{diagnostics}"),
        Err(error) => panic!("{error}"),
    }
}

async fn run(suite: &Suite) -> Vec<(String, CaseRun)> {
    let mut ran = Vec::new();
    for case in &suite.cases {
        ran.push((case.name.clone(), suite.run(case).await));
    }
    ran
}

fn lines(problem: &Problem) -> String {
    let parts = [
        Some(format!("  {:?}: {}", problem.span, problem.what)),
        problem.expected.as_ref().map(|it| format!("    expected: {it}")),
        problem.actual.as_ref().map(|it| format!("    actual: {it}")),
        problem.help.as_ref().map(|it| format!("    help: {it}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

async fn assert_passed(path: &str) {
    assert_all_passed(run(&load(path)).await);
}

/// Returns the first problem of each test case of a file.
async fn first_problems(path: &str) -> Vec<String> {
    let ran = run(&load(path)).await.into_iter();
    ran.map(|it| it.1.problems.first().map_or("none", |it| it.what.as_str()).to_owned()).collect()
}

/// Returns the last problem of each test case of a file.
async fn last_problems(path: &str) -> Vec<String> {
    let ran = run(&load(path)).await.into_iter();
    ran.map(|it| it.1.problems.last().map_or("none", |it| it.what.as_str()).to_owned()).collect()
}

fn assert_all_passed(ran: Vec<(String, CaseRun)>) {
    assert!(!ran.is_empty());
    for (name, ran) in ran {
        let problems: Vec<String> = ran.problems.iter().map(lines).collect();
        assert!(problems.is_empty(), "{name}:\n{}", problems.join("\n"));
    }
}

#[tokio::test]
async fn test_cases_cover_each_workflow_of_this_repository() {
    for name in WORKFLOWS {
        let suite = load(&format!("graphs/{name}.test.yaml"));
        let ran = run(&suite).await;
        assert_eq!(missed_by(&suite, &ran), Vec::<String>::new(), "{name}");
        assert_all_passed(ran);
    }
}

#[tokio::test]
async fn an_agent_adds_its_turn_to_its_history() {
    assert_passed("tests/cases/talk.test.yaml").await;
}

#[tokio::test]
async fn a_case_can_have_every_key() {
    assert_passed("tests/cases/passing.test.yaml").await;
}

#[tokio::test]
async fn parts_and_reasons_that_decide_nothing_are_left_open() {
    assert_passed("tests/cases/decides.test.yaml").await;
}

#[tokio::test]
async fn parts_of_made_records_that_decide_nothing_are_left_open() {
    assert_passed("tests/cases/picked.test.yaml").await;
}

#[tokio::test]
async fn a_person_chooses_one_of_the_texts_of_a_list() {
    assert_passed("tests/cases/chosen.test.yaml").await;
    let explored = explored("tests/cases/chosen.yaml", 1_000);
    assert_eq!((explored.stuck, explored.unreached), (vec![], vec![]));
}

#[tokio::test]
async fn an_agent_that_writes_one_item_answers_with_it() {
    assert_passed("tests/cases/translated.test.yaml").await;
    let explored = explored("tests/cases/translated.yaml", 1_000);
    assert_eq!((explored.stuck, explored.unreached), (vec![], vec![]));
}

#[tokio::test]
async fn cases_decide_about_calls_that_need_an_approval() {
    assert_passed("tests/cases/paid.test.yaml").await;
    assert_eq!(
        last_problems("tests/cases/paid_failing.test.yaml").await,
        [
            "`clerk` asks a person before this call: give it `answer: approve` or `answer: reject`",
            "this call needs no approval, so it takes no `answer`",
        ]
    );
}

#[tokio::test]
async fn agents_with_tools_replay_the_recorded_results() {
    assert_passed("tests/cases/looked_up.test.yaml").await;
    let text = fs::read_to_string("tests/cases/looked_up.test.yaml").unwrap();
    let folder = tempfile::tempdir().unwrap();
    for name in ["looked_up.yaml", "unrecorded.jsonl"] {
        fs::copy(Path::new("tests/cases").join(name), folder.path().join(name)).unwrap();
    }
    let path = folder.path().join("looked_up.test.yaml");
    fs::write(&path, text.replace("looked_up.jsonl", "unrecorded.jsonl")).unwrap();
    let ran = run(&load(path.to_str().unwrap())).await;
    let problem = ran[0].1.problems.last().unwrap();
    assert_eq!(problem.what, "`report` calls `weather`, and no result of it is recorded");
}

#[tokio::test]
async fn a_script_answers_in_place_of_the_program_of_an_agent() {
    assert_passed("tests/cases/program.test.yaml").await;
    assert_eq!(
        last_problems("tests/cases/program_failing.test.yaml").await,
        [
            "`ask` refused this call: its tools are none, the input must fit the tool, and the agent \
             may call tools in a limited number of rounds"
        ]
    );
}

#[tokio::test]
async fn a_person_answers_with_one_item_of_a_list_that_grows() {
    assert_passed("tests/cases/asked.test.yaml").await;
}

#[tokio::test]
async fn a_scripted_model_answers_in_the_requested_form() {
    assert_passed("tests/cases/requested.test.yaml").await;
}

#[tokio::test]
async fn a_field_that_holds_nothing_is_unset() {
    assert_passed("tests/cases/nothing.test.yaml").await;
}

#[tokio::test]
async fn the_prompt_of_each_item_of_a_map_is_compared() {
    assert_passed("tests/cases/unrendered.test.yaml").await;
    assert_eq!(
        first_problems("tests/cases/unrendered_failing.test.yaml").await,
        [
            "the prompt of `write` on visit 1 cannot be rendered",
            "`read` has 2 items, and 1 is expected",
            "the prompt of `read` for item 2 differs",
            "`read` has no item 3",
        ]
    );
}

#[tokio::test]
async fn waits_take_no_time_in_cases_and_in_the_exploration() {
    assert_passed("tests/cases/waiting.test.yaml").await;
    let explored =
        load("tests/cases/waiting.test.yaml").explore(Effort { states_max: 1_000, time_max: None });
    assert!(explored.is_complete && explored.unreached.is_empty(), "{explored:?}");
    assert_eq!((explored.stuck.as_slice(), explored.gaps.as_slice()), (&[][..], &[][..]));
}

#[tokio::test]
async fn items_are_tasks_of_one_visit_and_skipped_tasks_are_none() {
    assert_passed("tests/cases/stories.test.yaml").await;
}

#[tokio::test]
async fn nodes_of_used_workflows_are_scripted_like_others() {
    assert_passed("tests/cases/used/outer.test.yaml").await;
}

#[tokio::test]
async fn cases_start_and_stop_midway_with_given_facts() {
    assert_passed("tests/cases/midway.test.yaml").await;
}

#[tokio::test]
async fn a_used_workflow_that_fails_is_a_failure_with_its_error() {
    assert_passed("tests/cases/refusal.test.yaml").await;
}

/// Two nodes that write one field are never led to together, which only the choices of a route say.
#[tokio::test]
async fn writers_separated_by_a_route_load() {
    assert_passed("tests/cases/apart.test.yaml").await;
}

#[tokio::test]
async fn a_failed_case_shows_its_place_and_the_difference() {
    for file in ["failing", "midway_failing"] {
        let mut text = String::new();
        for (name, ran) in run(&load(&format!("tests/cases/{file}.test.yaml"))).await {
            let problems: Vec<String> = ran.problems.iter().map(lines).collect();
            assert!(!problems.is_empty(), "`{name}` passed");
            text.extend([&name, "\n", &problems.join("\n"), "\n"]);
        }
        insta::with_settings!({snapshot_path => "cases"}, {
            insta::assert_snapshot!(file, text);
        });
    }
}

#[test]
fn a_division_by_zero_is_found_where_inputs_have_other_defaults() {
    let explored = explored("tests/cases/explore/divides.yaml", 10_000);
    let reasons: Vec<&str> = explored.stuck.iter().map(|it| it.reason.as_str()).collect();
    assert!(reasons.iter().any(|it| it.contains("`first`")), "{reasons:?}");
    assert!(reasons.iter().any(|it| it.contains("`second`")), "{reasons:?}");
    assert_eq!(explored.unreached, []);
}

#[test]
fn numbers_that_only_a_condition_on_an_item_names_are_tried() {
    let explored = explored("tests/cases/explore/items.yaml", 10_000);
    assert!(explored.is_complete, "{explored:?}");
    assert_eq!((explored.stuck, explored.unreached, explored.gaps), (vec![], vec![], vec![]));
}

#[test]
fn a_question_without_a_deadline_is_never_answered_too_late() {
    let explored = explored("tests/cases/explore/no_deadline.yaml", 10_000);
    let unreached: Vec<&str> = explored.unreached.iter().map(NodeName::as_str).collect();
    assert_eq!(unreached, ["late"]);
}

#[test]
fn a_question_with_a_deadline_may_be_answered_too_late() {
    let explored = explored("tests/cases/explore/deadline.yaml", 10_000);
    assert!(explored.is_complete, "{explored:?}");
    assert_eq!((explored.stuck, explored.unreached, explored.gaps), (vec![], vec![], vec![]));
}

#[test]
fn all_mistakes_are_found_before_a_case_runs() {
    for entry in fs::read_dir("tests/cases/wrong").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|it| it != "yaml") {
            continue;
        }
        let Err(LoadError::Invalid(diagnostics)) = Suite::load(&path, &registry()) else {
            panic!("{} has no findings", path.display())
        };
        let name = path.file_name().unwrap().to_string_lossy().replace(".test.yaml", "");
        insta::with_settings!({snapshot_path => "cases/wrong", prepend_module_to_snapshot => false}, {
            insta::assert_snapshot!(name, diagnostics);
        });
    }
}

/// Two runs of a case differ in nothing but the time they took.
#[tokio::test]
async fn a_case_is_the_same_whenever_it_is_run() {
    let suite = load("graphs/dev_team.test.yaml");
    let shown = |ran: Vec<(String, CaseRun)>| -> Vec<String> {
        let ran = ran.into_iter();
        ran.map(|(name, it)| format!("{name} {:?} {:?} {:?}", it.route, it.reason, it.problems))
            .collect()
    };
    assert_eq!(shown(run(&suite).await), shown(run(&suite).await));
}

/// The parts of a workflow that its cases do not take.
async fn missed(path: &str) -> Vec<String> {
    let suite = load(path);
    let ran = run(&suite).await;
    missed_by(&suite, &ran)
}

fn missed_by(suite: &Suite, ran: &[(String, CaseRun)]) -> Vec<String> {
    let coverage = suite.coverage(ran.iter().map(|(_, it)| it));
    let (parts, taken) = coverage.counts();
    let missed = coverage.missed();
    assert_eq!(parts - taken, missed.len());
    assert_eq!(coverage.percent() == 100, missed.is_empty());
    let shown = missed.into_iter().map(|part| {
        let from = part.from.as_ref().map_or("", |it| it.as_str());
        let to = part.to.as_deref().unwrap_or("");
        let label = part.label.as_deref().unwrap_or("");
        format!("{} {from} {to} {label}", part.kind.as_str()).trim_end().to_owned()
    });
    shown.collect()
}

#[tokio::test]
async fn uncovered_parts_are_listed_by_kind() {
    assert_eq!(missed("tests/cases/stories.test.yaml").await, ["catch write check refused"]);
    assert_eq!(missed("tests/cases/passing.test.yaml").await, ["exhausted write fail"]);
    assert_eq!(
        missed("tests/cases/taken.test.yaml").await,
        [
            "route first plain else",
            "route first special else",
            "node plain",
            "node special",
            "skip special  not level == \"high\"",
            "node both",
            "join plain both plain, special",
            "edge both end",
            "catch  fail any",
        ]
    );
    assert_eq!(
        missed("tests/cases/used/outer.test.yaml").await,
        [
            "exhausted part.review.judge part.review.bad",
            "route part.review.grade part.review.bad found.kind == \"none\"",
            "route part.review.grade part.review.help score > 20",
            "route part.review.help part.review.good good",
            "node part.review.polish",
        ]
    );
}

#[tokio::test]
async fn bounds_with_limits_are_covered_like_those_with_visits() {
    assert_passed("tests/cases/limited.test.yaml").await;
    assert_passed("tests/cases/limited_visits.test.yaml").await;
    assert_eq!(missed("tests/cases/limited.test.yaml").await, Vec::<String>::new());
    let rest = ["exhausted polish fail"];
    assert_eq!(missed("tests/cases/limited_visits.test.yaml").await, rest);
    assert_eq!(
        missed("tests/cases/unlimited.test.yaml").await,
        [
            "node write",
            "exhausted write note",
            "edge write write",
            "node note",
            "edge note polish",
            "exhausted polish fail",
        ]
    );
}

#[tokio::test]
async fn a_default_route_counts_only_if_a_node_may_take_it() {
    let untaken = ["catch  apart invalid_output"];
    let missed = missed("tests/cases/defaults.test.yaml").await;
    let is_route = |it: &&String| it.starts_with("catch");
    assert_eq!(
        missed.iter().filter(is_route).collect::<Vec<_>>(),
        untaken.iter().collect::<Vec<_>>()
    );
}

#[test]
fn values_of_every_type_are_tried() {
    let explored = explored("tests/cases/explore/values.yaml", 10_000);
    assert!(explored.is_complete, "{explored:?}");
    assert_eq!((explored.stuck, explored.unreached, explored.gaps), (vec![], vec![], vec![]));
}

#[test]
fn nodes_behind_values_that_are_not_tried_are_not_reached_yet() {
    let explored = explored("tests/cases/explore/untried.yaml", 10_000);
    assert!(explored.is_complete, "{explored:?}");
    let names: Vec<&str> = explored.not_yet_reached.iter().map(NodeName::as_str).collect();
    assert_eq!((names, explored.unreached), (vec!["high", "other"], vec![]));
    let gap = "every value of `found.part`: the tried values are few of many";
    assert!(explored.gaps.iter().any(|it| it == gap), "{:?}", explored.gaps);
}

#[test]
fn the_rest_of_a_declared_limit_is_there_and_undecided() {
    let explored = explored("tests/cases/explore/remaining.yaml", 10_000);
    assert!(explored.is_complete, "{explored:?}");
    assert_eq!((&explored.stuck, &explored.unreached), (&vec![], &vec![]), "{explored:?}");
    assert!(!explored.gaps.is_empty(), "{explored:?}");
}

#[test]
fn a_sum_that_may_leave_its_range_is_a_gap() {
    let explored = explored("tests/cases/explore/sum_in_a_range.yaml", 10_000);
    let gap = "every sum of `points`: more updates may lead out of its range";
    assert!(explored.gaps.iter().any(|it| it == gap), "{explored:?}");
}

fn explored(path: &str, states_max: usize) -> ExplorationResult {
    let (definition, compiled) =
        graphrun::cases::load(Path::new(path), &registry()).unwrap_or_else(|it| panic!("{it:?}"));
    explore(&definition, &compiled, Effort { states_max, time_max: None }, |_| ())
}

#[test]
fn both_results_of_every_kind_of_decision_are_tried() {
    let explored = explored("tests/cases/explore/sound.yaml", 10_000);
    assert!(explored.is_complete, "{explored:?}");
    assert_eq!((explored.stuck, explored.unreached, explored.gaps), (vec![], vec![], vec![]));
}

/// The first steps alone have more states than the search may see.
#[test]
fn later_nodes_are_tried_before_all_states_of_the_first_ones() {
    let explored = explored("graphs/cycle.yaml", 4_000);
    assert!(!explored.is_complete && explored.states == 4_000, "{}", explored.states);
    let is_later = |it: &&NodeName| ["judge", "aggregate", "record"].contains(&it.as_str());
    assert_eq!(explored.not_yet_reached.iter().find(is_later), None, "{explored:?}");
}

/// Values copied into a used workflow decide routes there; values computed there
/// and copied out decide routes outside.
#[test]
fn outcomes_inside_and_after_a_used_workflow_are_tried() {
    let explored = explored("tests/cases/used/outer.yaml", 10_000);
    assert!(explored.is_complete, "{explored:?}");
    assert_eq!((explored.stuck, explored.unreached, explored.gaps), (vec![], vec![], vec![]));
}

#[test]
fn a_path_to_an_inner_failure_shows_the_inner_outcomes() {
    let explored = explored("tests/cases/used/divides.yaml", 10_000);
    let [stuck] = explored.stuck.as_slice() else { panic!("{explored:?}") };
    assert_eq!(stuck.reason, "`part.share` failed: division by zero (in `12 / (count - 3)`)");
    let named = |(node, outcome): &(NodeName, String)| format!("{node} {outcome}");
    let path: Vec<String> = stuck.path.iter().flatten().map(named).collect();
    assert_eq!(path, ["plan count 3", "part ", "part.share "]);
}

#[test]
fn stuck_runs_and_unreached_nodes_are_reported() {
    let explored = explored("tests/cases/explore/stuck.yaml", 10_000);
    let [stuck] = explored.stuck.as_slice() else { panic!("{explored:?}") };
    assert!(stuck.reason.starts_with("`share` failed: "), "{stuck:?}");
    let shown = |step: &Vec<(_, String)>| -> Vec<String> {
        step.iter()
            .map(|(node, outcome)| format!("{node} {outcome}").trim_end().to_owned())
            .collect()
    };
    let path: Vec<String> = stuck.path.iter().flat_map(shown).collect();
    assert_eq!(path, ["judge verdict \"good\"", "count count 0", "share"]);
    let unreached: Vec<&str> = explored.unreached.iter().map(NodeName::as_str).collect();
    assert_eq!(unreached, ["mend"]);
}

#[test]
fn a_caught_unexpected_failure_leaves_nothing_stuck() {
    let explored = explored("tests/cases/explore/hidden.yaml", 10_000);
    let [caught] = explored.caught.as_slice() else { panic!("{explored:?}") };
    assert_eq!(caught.reason, "`share` failed: division by zero (in `total / count`)");
    assert_eq!((explored.stuck, explored.unreached), (vec![], vec![]));
}

/// A limit drops the frontier, and with it the nodes that a join waits for.
#[test]
fn a_limit_beside_a_waiting_join_leads_to_no_dead_end() {
    let explored = explored("tests/cases/explore/limit_beside.yaml", 10_000);
    assert!(explored.is_complete, "{explored:?}");
    assert_eq!((explored.stuck, explored.unreached, explored.gaps), (vec![], vec![], vec![]));
}

#[test]
fn an_abandoned_search_reports_only_its_results() {
    let explored = explored("tests/cases/explore/sound.yaml", 3);
    assert_eq!((explored.states, explored.is_complete), (3, false));
    assert!(explored.open > 0 && !explored.not_yet_reached.is_empty(), "{explored:?}");
    assert_eq!(explored.unreached, []);
}

#[test]
fn values_that_it_did_not_try_prove_no_node_unreachable() {
    let explored = explored("tests/cases/explore/undecided.yaml", 10_000);
    assert!(explored.is_complete, "{explored:?}");
    let names: Vec<&str> = explored.not_yet_reached.iter().map(NodeName::as_str).collect();
    assert_eq!((names, explored.unreached), (vec!["long", "never", "ticket", "twice"], vec![]));
    insta::assert_snapshot!(explored.gaps.join("\n"), @r"
    every target of the route of `parts`: it does more than compare values with constants
    every target of the route of `title`: it does more than compare values with constants
    every value of `double` that `double` can compute: the tried values are few of many
    ");
}

/// Items that need others run behind them, or fail with them. Nothing in these files gets stuck.
#[test]
fn facts_of_a_run_prove_no_node_unreachable() {
    let explored = explored("tests/cases/explore/facts.yaml", 10_000);
    let names: Vec<&str> = explored.not_yet_reached.iter().map(NodeName::as_str).collect();
    assert_eq!((names, explored.unreached), (vec!["dear", "late"], vec![]));
    insta::assert_snapshot!(explored.gaps.join("\n"), @r"
    both results of `when` of `check`: it reads facts of the run
    every target of the route of `write`: it reads facts of the run
    every value of `note` that `caught` can compute: the tried values are few of many
    ");
}

#[test]
fn fractions_and_all_numbers_of_a_small_range_are_tried() {
    let explored = explored("tests/cases/explore/fractions.yaml", 10_000);
    assert!(explored.is_complete, "{explored:?}");
    assert_eq!((explored.stuck, explored.unreached, explored.gaps), (vec![], vec![], vec![]));
}

#[test]
fn a_node_may_use_up_its_limits() {
    let explored = explored("tests/cases/explore/node_limits.yaml", 10_000);
    assert!(explored.is_complete, "{explored:?}");
    assert_eq!((explored.stuck, explored.unreached, explored.gaps), (vec![], vec![], vec![]));
}

#[test]
fn limits_of_a_node_that_lead_to_failure_leave_nothing_stuck() {
    let explored = explored("tests/cases/explore/limits_fail.yaml", 10_000);
    assert!(explored.is_complete, "{explored:?}");
    assert_eq!((explored.stuck, explored.unreached, explored.gaps), (vec![], vec![], vec![]));
}

#[test]
fn a_message_is_tried_between_the_steps() {
    let explored = explored("tests/cases/explore/inbox.yaml", 10_000);
    assert!(explored.is_complete, "{explored:?}");
    let names: Vec<&str> = explored.not_yet_reached.iter().map(NodeName::as_str).collect();
    assert_eq!((names, explored.stuck, explored.unreached), (vec!["both"], vec![], vec![]));
    let gap = "more than one message to `guidance`";
    assert!(explored.gaps.iter().any(|it| it == gap), "{:?}", explored.gaps);
}

#[test]
fn items_fail_with_each_kind_that_a_decision_names() {
    let complete = explored("tests/cases/explore/failed_items.yaml", 10_000);
    assert!(complete.is_complete, "{complete:?}");
    assert_eq!((complete.stuck, complete.unreached, complete.gaps), (vec![], vec![], vec![]));
    let many = explored("tests/cases/explore/many_failures.yaml", 10_000);
    let names: Vec<&str> = many.not_yet_reached.iter().map(NodeName::as_str).collect();
    assert_eq!((names, many.unreached), (vec!["two"], vec![]));
    let gap = "every failure of `read` in `lost`: the tried ones are few of many";
    assert!(many.gaps.iter().any(|it| it == gap), "{:?}", many.gaps);
}

#[test]
fn parts_of_items_that_decide_nothing_make_no_further_states() {
    let explored = explored("tests/cases/explore/maps.yaml", 5_000);
    assert!(explored.is_complete, "{} states", explored.states);
    assert_eq!((explored.stuck, explored.unreached, explored.gaps), (vec![], vec![], vec![]));
}

#[test]
fn items_that_need_each_other_are_tried_in_their_order() {
    for file in ["ordered", "ordered_caught"] {
        let explored = explored(&format!("tests/cases/explore/{file}.yaml"), 10_000);
        assert!(explored.is_complete, "{file}: {explored:?}");
        let found = (explored.stuck, explored.unreached, explored.gaps);
        assert_eq!(found, (vec![], vec![], vec![]), "{file}");
    }
}

#[test]
fn a_number_with_a_range_has_a_value_without_a_condition() {
    let explored = explored("tests/cases/explore/range.yaml", 10_000);
    let found = (explored.stuck, explored.unreached, explored.gaps);
    assert_eq!(found, (vec![], vec![], vec![]));
}

#[test]
fn of_too_many_inputs_the_tried_ones_are_spread() {
    let explored = explored("tests/cases/explore/many_inputs.yaml", 10_000);
    assert_eq!(
        explored.gaps,
        [
            "the input has more than 1024 outcomes; 1024 were tried",
            "every value of `count` that `look` can compute: the tried values are few of many"
        ]
    );
    let names: Vec<&str> = explored.not_yet_reached.iter().map(NodeName::as_str).collect();
    assert_eq!((names, explored.unreached), (vec!["never"], vec![]));
}

#[test]
fn a_nested_run_has_every_result_that_fits() {
    let explored = explored("tests/cases/explore/nested.yaml", 10_000);
    let found = (explored.stuck, explored.unreached, explored.gaps);
    assert_eq!(found, (vec![], vec![], vec![]));
}

/// Twelve nodes side by side, each with three outcomes: half a million at once.
const WIDE: &str = "tests/cases/explore/wide.yaml";

#[test]
fn nodes_behind_a_step_with_very_many_outcomes_are_come_to() {
    let explored = explored(WIDE, 2_000);
    assert_eq!((explored.states, explored.is_complete), (2_000, false));
    assert_eq!(explored.not_yet_reached, [], "after {} steps", explored.steps);
}

#[test]
fn a_search_ends_when_its_time_is_over() {
    let (definition, compiled) = graphrun::cases::load(Path::new(WIDE), &registry()).unwrap();
    let effort = Effort { states_max: usize::MAX, time_max: Some(Duration::ZERO) };
    let mut told = 0;
    let explored = explore(&definition, &compiled, effort, |_| told += 1);
    assert_eq!((explored.steps, explored.is_complete, told), (1, false, 0));
    assert!(explored.not_yet_reached.iter().any(|it| it.as_str() == "a0"), "{explored:?}");
}

#[test]
fn progress_ends_with_the_final_numbers() {
    let (definition, compiled) =
        graphrun::cases::load(Path::new("tests/cases/explore/sound.yaml"), &registry()).unwrap();
    let effort = Effort { states_max: 10_000, time_max: None };
    let mut told = Vec::new();
    let explored = explore(&definition, &compiled, effort, |it| told.push((it.states, it.steps)));
    assert!(told.is_sorted());
    assert_eq!(told.last(), Some(&(explored.states, explored.steps)));
    assert_eq!((explored.open, explored.not_yet_reached), (0, vec![]));
}
