//! The report of a run as text for people.

use std::path::Path;

use jiff::Timestamp;

use super::{
    report::{BranchLine, RunReport},
    terminal::Paint,
    words::{clean, clean_to, cost, count, duration, shell_word, table, tokens},
};
use crate::{
    cli::{
        people::answer::{choices, example},
        settings::database::Database,
    },
    event::{Status, Usage},
    id::NodeName,
};

/// The length of a shortened hash that still distinguishes entries.
const HASH_LENGTH: usize = 16;

/// The longest answer in a table, in characters.
const ANSWER_CHARACTERS_MAX: usize = 60;

/// The most failed items of maps that are listed.
const FAILED_ITEMS_MAX: usize = 10;

/// The most characters of the failure of an item.
const ERROR_CHARACTERS_MAX: usize = 200;

/// The most characters of the choices of a question.
const CHOICES_CHARACTERS_MAX: usize = 2_000;

/// The most artifacts that are listed by name.
const ARTIFACTS_MAX: usize = 20;

/// Returns the status of a run, its artifacts and usage, and the next command.
pub(crate) fn draw(report: &RunReport, database: &Database, paint: Paint) -> String {
    let mut text = headline(report, paint);
    let mut rows = Vec::new();
    let folder = folder(&report.artifacts);
    if let Some(folder) = folder {
        rows.push(row(paint, "folder", clean(&folder.display().to_string())));
    }
    for (at, path) in report.artifacts.iter().take(ARTIFACTS_MAX).enumerate() {
        let inside = folder.and_then(|it| Path::new(path).strip_prefix(it).ok());
        let path = inside.map_or_else(|| path.clone(), |it| it.display().to_string());
        rows.push(row(paint, if at == 0 { "wrote" } else { "" }, clean(&path)));
    }
    if report.artifacts.len() > ARTIFACTS_MAX {
        let more = format!("… and {} more", report.artifacts.len() - ARTIFACTS_MAX);
        rows.push(row(paint, "", more));
    }
    for (at, BranchLine { repository, branch, .. }) in report.branches.iter().enumerate() {
        let text = format!("{branch} in {}", repository.display());
        rows.push(row(paint, if at == 0 { "branch" } else { "" }, clean(&text)));
    }
    let items = report.failures.iter().filter_map(|it| Some((it.item?, it)));
    for (at, (item, failure)) in items.clone().take(FAILED_ITEMS_MAX).enumerate() {
        let error = clean_to(&failure.error, ERROR_CHARACTERS_MAX);
        let text = format!("item {item} of {}: {error}", failure.node);
        rows.push(row(paint, if at == 0 { "failed" } else { "" }, text));
    }
    let more = items.count().saturating_sub(FAILED_ITEMS_MAX);
    if more > 0 {
        rows.push(row(paint, "", format!("… and {more} more")));
    }
    if report.usage.tokens.calls > 0 {
        rows.push(row(paint, "models", usage_text(&report.usage)));
        rows.extend(
            report
                .by_node
                .iter()
                .map(|(node, usage)| row(paint, "", format!("{node}: {}", usage_text(usage)))),
        );
    }
    if let Some(command) = database.command("runs state", &report.name) {
        rows.push(row(paint, "state", paint.command(&command)));
    }
    if !report.uncommitted.is_empty() {
        let nodes: Vec<&str> = report.uncommitted.iter().map(NodeName::as_str).collect();
        let text = format!("saved, and in the state after the step: {}", nodes.join(", "));
        rows.push(row(paint, "", text));
    }
    if let Some(command) = report.resume.as_ref().filter(|_| report.status != Status::Done) {
        rows.push(row(paint, "resume", paint.command(command)));
        // An answer need not wait for its deadline.
        let due = report.due.as_ref().filter(|_| report.questions.is_empty());
        if let Some(due) = due.and_then(|it| it.parse::<Timestamp>().ok()) {
            rows.push(row(paint, "", format!("after {due:.0}, or by `graphrun resume --due`")));
        }
        if report.status == Status::Limit {
            let how = "with a higher limit: --max-steps, --max-calls, --max-tokens, --max-cost or --timeout";
            rows.push(row(paint, "", how.to_owned()));
        }
    }
    text += &table(&rows);
    text
}

/// Returns the tasks of a run in the order in which their updates were applied.
pub(crate) fn draw_trace(report: &RunReport, paint: Paint) -> String {
    let mut rows =
        vec![["STEP", "NODE", "ATTEMPT", "OUTCOME", "TIME"].map(|it| paint.faint(it)).to_vec()];
    rows.extend(report.trace.iter().map(|task| {
        let outcome = match task.outcome {
            "finished" => paint.good(task.outcome),
            other => paint.bad(other),
        };
        let step = task.step.to_string();
        let attempt = task.attempt.to_string();
        vec![step, task.node.to_string(), attempt, outcome, duration(task.ms)]
    }));
    table(&rows)
}

/// Returns the answers to questions, and the hashes that prove the state for which they were given.
pub(crate) fn draw_answers(report: &RunReport, paint: Paint) -> String {
    if report.answers.is_empty() {
        return String::new();
    }
    let head =
        ["QUESTION", "ANSWER", "BY", "AT", "FOR THE STATE OF"].map(|it| paint.faint(it)).to_vec();
    let rows = report.answers.iter().map(|answer| {
        let by = answer.by.as_deref().map_or_else(|| "?".to_owned(), clean);
        let hash =
            answer.question_hash.as_deref().and_then(|it| it.get(..HASH_LENGTH)).unwrap_or("?");
        let given = clean_to(&answer.answer.to_string(), ANSWER_CHARACTERS_MAX);
        vec![clean(&answer.key), given, by, answer.at.clone(), hash.to_owned()]
    });
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    format!("\n{}", table(&rows))
}

/// Returns the open questions of a run, each with the values that it shows and the command that answers it.
pub(crate) fn draw_questions(report: &RunReport, database: &Database, paint: Paint) -> String {
    let mut lines = Vec::new();
    let whole = database.command("runs show", &report.name);
    let whole = whole.map(|it| format!("{it} --output json"));
    for question in &report.questions {
        let text = question.text().draw_cut(whole.as_deref(), paint);
        lines.extend(text.into_iter().map(|it| it + "\n"));
        if let Some(resume) = &report.resume {
            let deadline = question.deadline.as_ref().and_then(|it| it.parse::<Timestamp>().ok());
            if let Some(deadline) = deadline.filter(|it| *it <= Timestamp::now()) {
                lines.push(format!(
                    "  its deadline was {deadline:.0}; the run continues without an answer by: {}\n",
                    paint.command(resume)
                ));
                continue;
            }
            if let Some(choices) = choices(&question.schema).filter(|_| !question.is_yes_or_no) {
                let choices = clean_to(&choices.join(", "), CHOICES_CHARACTERS_MAX);
                lines.push(format!("  the answer is one of: {choices}\n"));
            }
            let answer = format!("{}={}", question.key, example(&question.schema));
            let command = format!("{resume} --answer {}", shell_word(&answer));
            lines.push(format!("  answer it with: {}\n", paint.command(&command)));
            if question.is_yes_or_no {
                let key = shell_word(&question.key);
                let [yes, no] = ["approve", "reject"].map(|verb| {
                    let run = resume.replacen("resume", verb, 1);
                    paint.command(&format!("{run} {key}"))
                });
                lines.push(format!("  or with: {yes}, {no}\n"));
            }
            if let Some(deadline) = deadline {
                lines.push(format!(
                    "  until {deadline:.0}; then `{resume}` continues without an answer\n"
                ));
            }
        }
    }
    lines.concat()
}

fn headline(report: &RunReport, paint: Paint) -> String {
    let status = paint.status(report.status);
    let reason = report.reason.as_ref().map(|it| format!(": {}", clean(it))).unwrap_or_default();
    let workflow = &report.workflow;
    let name = paint.strong(&report.name);
    format!("{status}{reason}\n{workflow} {name}, {}\n", count(report.steps, "step"))
}

fn row(paint: Paint, title: &str, text: String) -> Vec<String> {
    vec![format!("  {}", paint.faint(title)), text]
}

fn usage_text(usage: &Usage) -> String {
    let calls = count(usage.tokens.calls, "call");
    format!("{calls}, {}, {}", tokens(usage.total_tokens()), cost(usage.cost_usd))
}

/// Returns the folder that contains all artifacts.
fn folder(artifacts: &[String]) -> Option<&Path> {
    let mut folder = Path::new(artifacts.first()?).parent()?;
    while !artifacts.iter().all(|it| Path::new(it).starts_with(folder)) {
        folder = folder.parent()?;
    }
    (!folder.as_os_str().is_empty()).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::{super::report::sample, *};

    fn drawn(report: &RunReport) -> String {
        draw(report, &Database::default(), Paint::new(false))
    }

    #[test]
    fn a_summary_shows_results_and_usage() {
        insta::assert_snapshot!(drawn(&sample("done")));
    }

    #[test]
    fn a_resumable_run_shows_its_command() {
        insta::assert_snapshot!(drawn(&sample("limit")));
    }

    #[test]
    fn a_question_comes_with_the_command_that_answers_it() {
        let drawn = draw_questions(&sample("paused"), &Database::default(), Paint::new(false));
        insta::assert_snapshot!(drawn, @r#"
        ? help asks: Go on?
          {
            "plan": "ship it"
          }
          the answer is one of: go_on, stop
          answer it with: graphrun resume calm-otter --answer 'help="go_on"'
        "#);
    }

    #[test]
    fn a_trace_is_a_table() {
        insta::assert_snapshot!(draw_trace(&sample("done"), Paint::new(false)), @r"
        STEP  NODE  ATTEMPT  OUTCOME   TIME
        1     qc    1        finished  2.3 s
        1     ta    2        finished  9.1 s
        2     sse   1        failed    300 ms
        2     sse   1        finished  1 min 04 s
        ");
    }

    #[test]
    fn the_folder_is_the_one_around_all_files() {
        let paths = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert_eq!(folder(&paths(&["/o/a/x", "/o/a/b/y"])).unwrap(), Path::new("/o/a"));
        assert_eq!(folder(&paths(&["/o/ab/x", "/o/a/y"])).unwrap(), Path::new("/o"));
        assert_eq!(folder(&paths(&["x"])), None);
        assert_eq!(folder(&[]), None);
    }
}
