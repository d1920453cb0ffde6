//! The prompts of the software team, and its recorded runs: every request that the workflow makes
//! finds exactly one answer. The tests are those of `check.py`, whose outputs are kept beside the
//! recordings; here the routes of `graphs/dev_team.yaml` are followed by hand.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use graphrun::{
    nodes::TestResult,
    state::ReadLeniently,
    team::{
        CodeArtifact, FailureReport, Review, Routing, TeamState, TechnicalSpec, TestSuite,
        UserStory, Verdict,
    },
};
use minijinja::{Environment, UndefinedBehavior, value::Serde};
use serde::Deserialize;
use serde_json::{Value, json};

const RECORDINGS: &str = "tests/recordings/dev_team";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    v: u32,
    about: String,
    node: String,
    when: When,
    reply: Reply,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    contains: Vec<String>,
    #[serde(default)]
    lacks: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    json: Value,
    usage: BTreeMap<String, u64>,
    model: String,
}

impl Entry {
    fn answers(&self, node: &str, request: &str) -> bool {
        self.node == node
            && self.when.contains.iter().all(|text| request.contains(text))
            && !self.when.lacks.iter().any(|text| request.contains(text))
    }
}

/// A run of the team against one recording.
struct Team {
    run: &'static str,
    entries: Vec<Entry>,
    used: Vec<usize>,
    state: TeamState,
    visits: BTreeMap<&'static str, u32>,
    attempts: u32,
    path: Vec<String>,
}

impl Team {
    fn new(run: &'static str) -> Self {
        let recording = fs::read_to_string(format!("{RECORDINGS}/{run}.jsonl")).unwrap();
        Self {
            run,
            entries: recording.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            used: Vec::new(),
            state: TeamState {
                brief: Some(fs::read_to_string(format!("{RECORDINGS}/brief.md")).unwrap()),
                ..TeamState::default()
            },
            visits: BTreeMap::new(),
            attempts: 0,
            path: Vec::new(),
        }
    }

    /// Follows the routes of the workflow to the end.
    fn go(mut self) -> Self {
        let requirements = self.ask("ba", "ba", "start");
        self.state.clarified_requirements =
            Some(read(requirements["clarified_requirements"].clone()));
        self.state.user_stories =
            Some(read::<Vec<UserStory>>(requirements["user_stories"].clone()));
        let suite = self.ask("qc", "qc", "then");
        let spec = self.ask("ta", "ta", "then");
        self.state.test_suite = Some(read::<TestSuite>(suite));
        self.state.technical_spec = Some(read::<TechnicalSpec>(spec));
        loop {
            let reason = self.write_code();
            let review: Review = read(self.ask("tl", "tl", reason));
            let verdict = review.verdict;
            self.state.review = Some(review);
            self.visits.remove("sse");
            assert_ne!(verdict, Verdict::Stuck);
            if verdict == Verdict::Rework {
                assert_eq!(reason, "exhausted", "the recordings send back only what fails");
                continue;
            }
            // One recorded report has words in odd cases, on purpose.
            let report = self.ask("qa", "qa", "then");
            let report = FailureReport::read_leniently(report).unwrap().value;
            let routing = report.routing;
            self.state.failure_report = Some(report);
            match routing {
                Routing::Pass => return self,
                Routing::Code => panic!("no recording has a report of this kind"),
                Routing::Architectural => {
                    self.state.technical_spec =
                        Some(read(self.ask("architect", "architect", "then")));
                    self.state.candidate = None;
                    self.state.test_result = None;
                    self.state.code_artifact = None;
                }
            }
        }
    }

    /// A round of the engineer; gives the reason for which the tech lead is asked.
    fn write_code(&mut self) -> &'static str {
        for visit in 1..=3 {
            let template = if visit == 1 { "sse.first" } else { "sse.retry" };
            let candidate: CodeArtifact = read(self.ask("sse", template, "then"));
            self.attempts += 1;
            let result = format!("{RECORDINGS}/outputs/{}_{}.json", self.run, self.attempts);
            let result: TestResult =
                serde_json::from_str(&fs::read_to_string(result).unwrap()).unwrap();
            let passed = result.passed;
            let count =
                |artifact: &CodeArtifact| artifact.test_result.as_ref().unwrap().passed_count;
            let tested = candidate.clone().tested(visit, result.clone());
            if self.state.code_artifact.as_ref().is_none_or(|best| count(best) < count(&tested)) {
                self.state.code_artifact = Some(tested);
            }
            self.state.candidate = Some(candidate);
            self.state.test_result = Some(result);
            if passed {
                return "then";
            }
        }
        "exhausted"
    }

    fn ask(&mut self, node: &'static str, template: &str, reason: &str) -> Value {
        let visit = self.visits.entry(node).and_modify(|count| *count += 1).or_insert(1);
        let mut known = serde_json::to_value(&self.state).unwrap();
        known["visit"] = json!(visit);
        known["max_visits"] = json!(3);
        known["via"] = json!({ "node": "somewhere", "reason": reason });
        let request =
            format!("{}\n{}", render(&format!("{node}.system"), &known), render(template, &known));
        let answering = |(_, entry): &(usize, &Entry)| entry.answers(node, &request);
        let found: Vec<usize> =
            self.entries.iter().enumerate().filter(answering).map(|(place, _)| place).collect();
        let run = self.run;
        let [place] = found[..] else {
            panic!("{run}: {found:?} answer the request of {node}:\n{request}")
        };
        self.used.push(place);
        self.path.push(node.to_owned());
        self.entries[place].reply.json.clone()
    }
}

/// A value that had to be read without any bending.
fn read<T: ReadLeniently>(answer: Value) -> T {
    let reading = T::read_leniently(answer).unwrap();
    assert_eq!(reading.warnings, Vec::<String>::new());
    reading.value
}

fn render(template: &str, known: &Value) -> String {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let source = fs::read_to_string(format!("prompts/dev_team/{template}.md")).unwrap();
    let rendered = environment.render_str(&source, Serde(known));
    rendered.unwrap_or_else(|error| panic!("{template}: {error:#}"))
}

fn check_run(run: &'static str, path: &str) {
    let team = Team::new(run).go();
    assert_eq!(team.path.join(" "), path);
    assert_eq!(team.used, (0..team.entries.len()).collect::<Vec<_>>(), "each answer, in order");
    let artifact = team.state.code_artifact.unwrap();
    let result = artifact.test_result.unwrap();
    assert_eq!((result.passed, result.passed_count, result.total_tests), (true, 24, 24));
    assert_eq!(artifact.stories_covered.len(), 8);
}

#[test]
fn a_retry_needs_the_failures_of_the_first_attempt() {
    check_run("retry", "ba qc ta sse sse tl qa");
}

#[test]
fn the_guidance_of_the_tech_lead_is_followed() {
    check_run("tech_lead", "ba qc ta sse sse sse tl sse tl qa");
}

#[test]
fn architect_makes_a_new_design_and_the_engineer_starts_afresh() {
    check_run("architect", "ba qc ta sse tl qa architect sse tl qa");
}

#[test]
fn every_recorded_entry_is_complete_and_conditional() {
    for run in ["retry", "tech_lead", "architect"] {
        for entry in Team::new(run).entries {
            assert_eq!((entry.v, entry.reply.model.as_str()), (1, "recorded/dev-team"));
            assert!(!entry.when.contains.is_empty(), "{run}: {}", entry.about);
            let usage: Vec<_> = entry
                .reply
                .usage
                .iter()
                .map(|(kind, tokens)| (kind.as_str(), *tokens > 0))
                .collect();
            assert_eq!(usage, [("input_tokens", true), ("output_tokens", true)]);
        }
    }
}

#[test]
fn the_recordings_match_their_sources() {
    let check =
        Command::new("python3").args([&format!("{RECORDINGS}/build.py"), "--check"]).output();
    let check = check.expect("python3 is needed to build the recordings; it is not on PATH");
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}

#[test]
fn prompt_files_and_their_names_in_the_workflow_agree() {
    let workflow = fs::read_to_string("graphs/dev_team.yaml").unwrap();
    let named: BTreeSet<String> = workflow
        .split("prompts/dev_team/")
        .skip(1)
        .map(|rest| rest.split_inclusive(".md").next().unwrap().to_owned())
        .collect();
    let there: BTreeSet<String> = fs::read_dir("prompts/dev_team")
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();

    assert_eq!(named, there);
}

/// The fields that exist if no attempt could be read: all those written before the engineer runs.
fn without_code() -> Value {
    let mut team = Team::new("retry");
    team.entries.truncate(3);
    let planned = team.entries.iter().map(|entry| &entry.reply.json);
    let [requirements, suite, spec] = planned.collect::<Vec<_>>()[..] else { unreachable!() };
    json!({
        "brief": "a",
        "clarified_requirements": requirements["clarified_requirements"],
        "user_stories": requirements["user_stories"],
        "test_suite": suite,
        "technical_spec": spec,
        "visit": 2,
        "max_visits": 3,
        "via": { "node": "sse", "reason": "caught", "error": "files: at least one is required" },
    })
}

#[test]
fn the_engineer_sees_the_problems_of_an_unreadable_answer() {
    let prompt = render("sse.retry", &without_code());
    assert!(prompt.contains("attempt 2 of 3"));
    assert!(prompt.contains("## Your last answer could not be read"));
    assert!(prompt.contains("files: at least one is required"));
    assert!(!prompt.contains("## What failed") && !prompt.contains("## Your previous code"));
}

#[test]
fn prompts_after_the_engineer_mention_missing_code() {
    let mut known = without_code();
    known["via"] = json!({ "node": "sse", "reason": "exhausted" });
    assert!(render("tl", &known).contains("No attempt gave code that could be read and tested."));
    assert!(render("qa", &known).contains("There is no code that could be read and tested."));
    assert!(render("flush", &known).contains("Best code: none that was tested"));
}

#[test]
fn the_flush_report_always_gives_the_reason_of_the_stop() {
    let known = |via: Value| json!({ "visit": 1, "via": via });
    let cases = [
        (
            json!({ "reason": "limit", "error": "200,000 tokens" }),
            "A limit of the run was reached: 200,000 tokens",
        ),
        (json!({ "reason": "caught", "node": "ta", "error": "timed out" }), "ta failed: timed out"),
        (json!({ "reason": "exhausted", "node": "unit_tests" }), "The retries are used up."),
    ];
    for (via, expected) in cases {
        let report = render("flush", &known(via));
        assert!(report.contains(expected), "{report}");
        assert!(report.contains("Stories: none"));
    }
    let stopped =
        render("flush", &json!({ "via": { "reason": "then" }, "decision": { "choice": "stop" } }));
    assert!(stopped.contains("A person decided: stop."));
}

#[test]
fn code_that_qa_refused_goes_back_with_the_reason_and_the_hint() {
    let team = Team::new("retry").go();
    let mut known = serde_json::to_value(&team.state).unwrap();
    known["failure_report"]["routing"] = json!("code");
    known["failure_report"]["errors"] = json!(["US-004 is not fulfilled"]);
    known["failure_report"]["exact_fix_hint"] = json!("compare with < in is_overdue");
    known["code_artifact"].take();
    let known = known.as_object_mut().unwrap();
    known.retain(|name, _| !["code_artifact", "test_result"].contains(&name.as_str()));
    known.extend([
        ("visit".to_owned(), json!(1)),
        ("max_visits".to_owned(), json!(3)),
        ("via".to_owned(), json!({ "reason": "then" })),
    ]);
    let prompt = render("sse.first", &Value::Object(known.clone()));
    for part in [
        "## QA refused the code",
        "- US-004 is not fulfilled",
        "compare with < in is_overdue",
        "## The code that was sent back",
    ] {
        assert!(prompt.contains(part), "no {part:?} in\n{prompt}");
    }
}

#[test]
fn the_report_of_a_delivery_names_files_stories_and_cases() {
    let team = Team::new("architect").go();
    let mut known = serde_json::to_value(&team.state).unwrap();
    known["via"] = json!({ "node": "qa", "reason": "then" });
    let report = render("report", &known);
    let expected = [
        "CODE-002: 24 of 24 tests pass, at attempt 1 of the last round.",
        "| taskboard/store.py | implementation |",
        "| US-007 | Keep the list | critical | TC-019, TC-020, TC-021 |",
        "### A list owns its store",
        "## Review: approved",
    ];
    for part in expected {
        assert!(report.contains(part), "no {part:?} in\n{report}");
    }
}
