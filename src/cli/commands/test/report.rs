//! The results of test cases, for people and for programs.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    coverage::{ExploredWorkflow, WorkflowCoverage},
    files::is_same_file,
};
use crate::{
    cases::{CaseRun, Coverage, ExplorationResult, Problem, step_text},
    cli::output::{
        terminal::Paint,
        words::{clean, count, duration},
    },
    diagnostic::SourceSpan,
    event::EVENT_VERSION,
};

/// The results of all test cases.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) files: Vec<TestedFile>,
    /// The coverage of each workflow.
    coverage: Vec<WorkflowCoverage>,
    /// The results of the exploration.
    pub(super) explored: Vec<ExploredWorkflow>,
}

/// The results of the test cases of a file.
#[derive(Debug)]
pub(super) struct TestedFile {
    pub(super) path: PathBuf,
    pub(super) workflow: PathBuf,
    pub(super) cases: Vec<TestedCase>,
}

/// The result of a test case.
#[derive(Debug)]
pub(super) struct TestedCase {
    pub(super) name: String,
    pub(super) ran: CaseRun,
}

impl Report {
    /// Adds the coverage of a workflow; several files may have test cases for one workflow.
    pub(super) fn cover(&mut self, workflow: &Path, coverage: Coverage) {
        match self.coverage.iter_mut().find(|it| is_same_file(&it.workflow, workflow)) {
            Some(known) => known.coverage.add_all(&coverage),
            None => {
                self.coverage.push(WorkflowCoverage { workflow: workflow.to_owned(), coverage });
            }
        }
    }

    /// Returns whether the coverage of every workflow reaches a percentage.
    pub(super) fn covers(&self, percent: usize) -> bool {
        self.coverage.iter().all(|it| it.coverage.percent() >= percent)
    }

    /// Returns whether no test case failed and the exploration found nothing.
    pub(super) fn is_fine(&self) -> bool {
        let is_fine = |it: &ExplorationResult| it.stuck.is_empty() && it.unreached.is_empty();
        self.failed() == 0 && self.explored.iter().all(|it| is_fine(&it.result))
    }

    /// Returns the number of failed test cases.
    fn failed(&self) -> usize {
        self.cases().filter(|it| !it.is_passed()).count()
    }

    /// Returns one JSON object for all results.
    pub(super) fn to_json(&self) -> Value {
        let files: Vec<Value> = self.files.iter().map(TestedFile::to_json).collect();
        let mut summary = self.summary();
        summary["files"] = files.into();
        if !self.coverage.is_empty() {
            let coverage: Vec<Value> =
                self.coverage.iter().map(WorkflowCoverage::to_json).collect();
            summary["coverage"] = coverage.into();
        }
        if !self.explored.is_empty() {
            let explored: Vec<Value> =
                self.explored.iter().map(ExploredWorkflow::to_json).collect();
            summary["explored"] = explored.into();
        }
        summary
    }

    /// Returns one JSON object per line: each test case, then the totals.
    pub(super) fn lines(&self) -> String {
        let mut text = String::new();
        let mut line = |kind: &str, mut object: Value| {
            let head = json!({"v": EVENT_VERSION, "type": kind});
            if let (Value::Object(object), Value::Object(mut head)) = (&mut object, head) {
                head.append(object);
                text.extend([&Value::Object(head).to_string(), "\n"]);
            }
        };
        for file in &self.files {
            for case in &file.cases {
                let mut object = case.to_json();
                object["file"] = file.path.display().to_string().into();
                line("case.finished", object);
            }
        }
        self.coverage.iter().for_each(|it| line("coverage", it.to_json()));
        self.explored.iter().for_each(|it| line("explored", it.to_json()));
        line("test.finished", self.summary());
        text
    }

    /// Returns text for people: a line per test case, and the problems of failed ones.
    pub(super) fn draw(&self, quiet: bool, paint: Paint) -> String {
        let mut text = String::new();
        for file in &self.files {
            let shown: Vec<&TestedCase> =
                file.cases.iter().filter(|it| !(quiet && it.is_passed())).collect();
            if shown.is_empty() {
                continue;
            }
            text.extend([&paint.strong(&file.path.display().to_string()), "\n"]);
            for case in shown {
                case.draw(paint, &mut text);
            }
            text.push('\n');
        }
        for covered in &self.coverage {
            covered.draw(paint, &mut text);
        }
        for explored in &self.explored {
            explored.draw(paint, &mut text);
        }
        if self.cases().next().is_some() {
            self.draw_verdict(paint, &mut text);
        }
        text
    }

    fn draw_verdict(&self, paint: Paint, text: &mut String) {
        let failed = self.failed();
        let passed = self.cases().count() - failed;
        let counted = [(passed, "passed"), (failed, "failed")].into_iter();
        let counted = counted.filter(|(number, _)| *number > 0);
        let counted: Vec<String> =
            counted.map(|(number, word)| format!("{number} {word}")).collect();
        let total = count(self.cases().count() as u64, "case");
        let verdict = format!("{total}: {}", counted.join(", "));
        let verdict = if failed == 0 { paint.good(&verdict) } else { paint.bad(&verdict) };
        text.extend([&verdict, ", ", &duration(ms(self.elapsed())), "\n"]);
    }

    fn summary(&self) -> Value {
        let failed = self.failed();
        json!({"passed": self.cases().count() - failed, "failed": failed, "ms": ms(self.elapsed())})
    }

    /// Returns all test cases that ran.
    pub(super) fn cases(&self) -> impl Iterator<Item = &TestedCase> {
        self.files.iter().flat_map(|it| &it.cases)
    }

    fn elapsed(&self) -> Duration {
        self.cases().map(|it| it.ran.elapsed).sum()
    }
}

impl TestedFile {
    fn to_json(&self) -> Value {
        let cases: Vec<Value> = self.cases.iter().map(TestedCase::to_json).collect();
        json!({
            "file": self.path.display().to_string(),
            "workflow": self.workflow.display().to_string(),
            "cases": cases,
        })
    }
}

impl TestedCase {
    fn is_passed(&self) -> bool {
        self.ran.problems.is_empty()
    }

    fn to_json(&self) -> Value {
        let problems: Vec<Value> = self.ran.problems.iter().map(problem_to_json).collect();
        json!({
            "name": self.name,
            "passed": self.is_passed(),
            "ms": ms(self.ran.elapsed),
            "status": self.ran.status.as_str(),
            "reason": self.ran.reason,
            "route": self.ran.route,
            "problems": problems,
        })
    }

    fn draw(&self, paint: Paint, text: &mut String) {
        let verdict = if self.is_passed() { paint.good("ok  ") } else { paint.bad("FAIL") };
        let elapsed = paint.faint(&duration(ms(self.ran.elapsed)));
        text.extend(["  ", &verdict, "  ", &clean(&self.name), "  ", &elapsed, "\n"]);
        for problem in &self.ran.problems {
            draw_problem(problem, paint, text);
        }
        if !self.is_passed() && !self.ran.route.is_empty() {
            let steps: Vec<String> = self.ran.route.iter().map(|it| step_text(it)).collect();
            let went = paint.faint(&format!("the whole run: {}", steps.join(", ")));
            text.extend(["        ", &went, "\n"]);
        }
    }
}

fn draw_problem(problem: &Problem, paint: Paint, text: &mut String) {
    let at = paint.strong(&shown(&problem.span));
    text.extend(["        ", &at, ": ", &clean(&problem.what), "\n"]);
    let lines = [("expected", &problem.expected), ("actual  ", &problem.actual)];
    for (word, line) in lines {
        if let Some(line) = line {
            text.extend(["          ", &paint.faint(word), "  ", &clean(line), "\n"]);
        }
    }
    if let Some(help) = &problem.help {
        text.extend(["          ", &paint.command("help:"), " ", help, "\n"]);
    }
}

fn problem_to_json(problem: &Problem) -> Value {
    let (line, column) = problem.span.line_and_column();
    json!({
        "file": problem.span.file.name,
        "line": line,
        "column": column,
        "what": problem.what,
        "expected": problem.expected,
        "actual": problem.actual,
        "help": problem.help,
    })
}

/// Returns a position in the form that editors and terminals can follow.
pub(super) fn shown(span: &SourceSpan) -> String {
    format!("{}:{}", span.file.name, span.line_and_column().0)
}

fn ms(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
