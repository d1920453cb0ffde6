//! The text of the live tree: permanent lines, and a line per running task. It draws nothing.

use std::{collections::BTreeMap, time::Duration};

use super::{
    super::{
        terminal::Paint,
        words::{clean, clock, duration, tokens, tokens_and_cost},
    },
    Caption,
    plain::{called, describe_message, describe_targets, label, waits},
};
use crate::{
    event::{Event, MessageDelta, Report, RunEvent, Status, Usage},
    id::{NodeName, TaskId},
};

/// The most characters of an answer beside its task.
const TAIL_CHARACTERS_MAX: usize = 60;

/// The running tasks, according to the events.
#[derive(Debug)]
pub(super) struct Tree {
    caption: Caption,
    paint: Paint,
    running: BTreeMap<TaskId, Running>,
    focus: Option<Focus>,
}

/// The task whose answer arrived last. Only its answer is shown: several would move at once.
#[derive(Debug)]
struct Focus {
    task: TaskId,
    message: u64,
    /// The end of the answer so far.
    tail: String,
}

/// A running task.
#[derive(Debug)]
struct Running {
    label: String,
    since: Duration,
    tokens: u64,
    attempt: u32,
}

impl Tree {
    /// Creates an empty tree.
    pub(super) fn new(caption: Caption, paint: Paint) -> Self {
        Self { caption, paint, running: BTreeMap::new(), focus: None }
    }

    /// Takes an event at time `now`, and returns the permanent lines for it.
    pub(super) fn take(&mut self, stamped: &RunEvent, now: Duration) -> Vec<String> {
        let paint = self.paint;
        match &stamped.event {
            Event::RunStarted { name, workflow } => {
                let title = format!("{} {}", paint.strong(name), paint.faint(stamped.run.as_str()));
                vec![format!("{title}  {workflow}{}", self.resume())]
            }
            Event::RunResumed { step } => {
                let name = paint.strong(&self.caption.name);
                let id = paint.faint(stamped.run.as_str());
                vec![format!("{name} {id}  continues after step {step}{}", self.resume())]
            }
            Event::TurnStarted { turn, .. } => {
                let name = paint.strong(&self.caption.name);
                let id = paint.faint(stamped.run.as_str());
                vec![format!("{name} {id}  turn {turn}{}", self.resume())]
            }
            Event::TaskStarted { task, node, attempt, visit, max_visits } => {
                let label = label(node, *visit, *max_visits);
                let fresh = Running { label, since: now, tokens: 0, attempt: 1 };
                self.running.entry(*task).or_insert(fresh).attempt = *attempt;
                Vec::new()
            }
            Event::TaskReported { task, node, report } => self.reported(*task, node, report),
            // A memo saves progress within a task; the tree stays the same.
            Event::MemoSaved { .. } => Vec::new(),
            Event::TaskRetrying { node, attempt, error, wait_ms, .. } => {
                let error = clean(error);
                let wait = duration(*wait_ms);
                let what = format!("{node} attempt {attempt}: {error}");
                vec![format!("    {} {what}; again in {wait}", paint.loud("↻"))]
            }
            Event::TimerSet { node, wake, reason, .. } => {
                vec![self.aside(&waits(node, *wake, reason.as_deref()))]
            }
            Event::TaskAborted { task, node, ms, usage, .. } => {
                let label = self.ended(*task, node);
                let sign = paint.loud("✂");
                vec![self.outcome(*task, &sign, &label, *ms, " aborted", usage)]
            }
            Event::TaskFinished { task, node, ms, to, usage, .. } => {
                let label = self.ended(*task, node);
                let sign = paint.good("✓");
                vec![self.outcome(*task, &sign, &label, *ms, &describe_targets(to), usage)]
            }
            Event::TaskUndecided { task, node, ms, error, usage, .. } => {
                let label = self.ended(*task, node);
                let sign = paint.bad("✗");
                let why = format!(" finished, but its route failed: {}", clean(error));
                vec![self.outcome(*task, &sign, &label, *ms, &why, usage)]
            }
            Event::TaskSkipped { task, node, condition, to } => {
                let why = format!("skipped: `{}` is not true", clean(condition));
                let sign = paint.faint("-");
                let to = describe_targets(to);
                vec![format!("{} {sign} {node}  {}{to}", step(*task), paint.faint(&why))]
            }
            Event::TaskFailed { task, node, ms, kind, error, to, usage, .. } => {
                let label = self.ended(*task, node);
                let sign = paint.bad("✗");
                let why = format!(" {kind}: {}{}", clean(error), describe_targets(to));
                vec![self.outcome(*task, &sign, &label, *ms, &why, usage)]
            }
            Event::QuestionAsked { task, node, prompt, .. } => {
                let label = self.ended(*task, node);
                vec![format!("{} {} {label}: {}", step(*task), paint.loud("?"), clean(prompt))]
            }
            Event::QuestionAnswered { task, node, .. } => {
                vec![format!("{} {} {node} was answered", step(*task), paint.good("!"))]
            }
            Event::MessageReceived { to, by, problem } => {
                vec![format!(
                    "    {}",
                    paint.loud(&describe_message(to, by.as_deref(), problem.as_deref()))
                )]
            }
            Event::TaskEmitted { message, .. } => {
                vec![format!("    {}", paint.loud(&format!("▲ {}", clean(message))))]
            }
            Event::WorkflowChanged { changes } => {
                let changes = clean(&changes.join("; "));
                vec![format!("    {} the workflow has changed: {changes}", paint.loud("⚠"))]
            }
            // These happen while no view is open.
            Event::RunForked { .. }
            | Event::StateUpdated { .. }
            | Event::WorkflowMigrated { .. } => Vec::new(),
            Event::StepCommitted { .. } => Vec::new(),
            Event::RunFinished { status, reason, .. } => {
                // Dropped tasks no longer run.
                self.running.clear();
                vec![self.rest(*status, reason.as_deref())]
            }
        }
    }

    /// Takes a piece of a model's answer.
    pub(super) fn take_delta(&mut self, delta: &MessageDelta) {
        let MessageDelta { task, message, text, .. } = delta;
        let same = self.focus.take().filter(|it| it.message == *message);
        let tail = same.map(|it| it.tail).unwrap_or_default() + text;
        let tail = tail.split_whitespace().collect::<Vec<_>>().join(" ");
        // The next piece may begin a new word.
        let space = if text.ends_with(char::is_whitespace) { " " } else { "" };
        let start = tail.char_indices().rev().nth(TAIL_CHARACTERS_MAX - 1).map_or(0, |it| it.0);
        let tail = format!("{}{space}", &tail[start..]);
        self.focus = Some(Focus { task: *task, message: *message, tail });
    }

    /// Returns the tasks that run at time `now`, each with its line.
    pub(super) fn running(&self, now: Duration) -> impl Iterator<Item = (TaskId, String)> {
        self.running.iter().map(move |(task, it)| {
            let elapsed = now.saturating_sub(it.since);
            let elapsed = clock(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
            let mut parts = vec![it.label.clone(), elapsed];
            if it.attempt > 1 {
                parts.push(format!("attempt {}", it.attempt));
            }
            if it.tokens > 0 {
                parts.push(tokens(it.tokens));
            }
            if let Some(focus) = self.focus.as_ref().filter(|it| it.task == *task) {
                parts.push(self.paint.faint(&clean(focus.tail.trim())));
            }
            (*task, parts.join("  "))
        })
    }

    fn reported(&mut self, task: TaskId, node: &NodeName, report: &Report) -> Vec<String> {
        match report {
            Report::ModelCall { usage, .. } => {
                self.focus = self.focus.take().filter(|it| it.task != task);
                if let Some(running) = self.running.get_mut(&task) {
                    running.tokens += usage.total_tokens();
                }
                Vec::new()
            }
            Report::ToolCall { tool, input, ms, error } => {
                let call = called(tool, input, *ms, error.as_deref());
                vec![self.aside(&format!("{node} {call}"))]
            }
            Report::Warning { message } => {
                vec![format!("    {} {node}: {}", self.paint.loud("⚠"), clean(message))]
            }
            Report::Note { message } => vec![self.aside(&format!("{node}: {}", clean(message)))],
            Report::CacheHit { computed_at } => {
                vec![
                    self.aside(&format!("{node} uses the cached result of {}", clean(computed_at))),
                ]
            }
            Report::Artifact { path } => vec![self.aside(&format!("wrote {}", clean(path)))],
            // It is for programs that stream the run.
            Report::Custom { .. } => Vec::new(),
            Report::Nested { event } => self.nested(task, event),
        }
    }

    /// Returns the lines for an event of the nested run of a task. Its tasks are not in the list of running ones.
    fn nested(&mut self, task: TaskId, event: &Event) -> Vec<String> {
        match event {
            Event::TaskReported { node, report, .. } => self.reported(task, node, report),
            Event::TaskFinished { node, ms, to, .. } => {
                let to = describe_targets(to);
                vec![self.aside(&format!("✓ {node} in {}{to}", duration(*ms)))]
            }
            Event::TaskFailed { node, kind, error, to, .. } => {
                let error = clean(error);
                let to = describe_targets(to);
                vec![format!("    {} {node} {kind}: {error}{to}", self.paint.bad("✗"))]
            }
            Event::TaskRetrying { node, attempt, error, wait_ms, .. } => {
                let error = clean(error);
                let wait = duration(*wait_ms);
                let what = format!("{node} attempt {attempt}: {error}");
                vec![format!("    {} {what}; again in {wait}", self.paint.loud("↻"))]
            }
            Event::TimerSet { node, wake, reason, .. } => {
                vec![self.aside(&waits(node, *wake, reason.as_deref()))]
            }
            Event::TaskEmitted { message, .. } => {
                vec![format!("    {}", self.paint.loud(&format!("▲ {}", clean(message))))]
            }
            _ => Vec::new(),
        }
    }

    /// Removes a task that has ended, and returns its label.
    fn ended(&mut self, task: TaskId, node: &NodeName) -> String {
        self.running.remove(&task).map_or_else(|| node.to_string(), |it| it.label)
    }

    fn outcome(
        &self,
        task: TaskId,
        sign: &str,
        label: &str,
        ms: u64,
        rest: &str,
        usage: &Usage,
    ) -> String {
        let usage = tokens_and_cost(usage)
            .map(|it| self.paint.faint(&format!("  {it}")))
            .unwrap_or_default();
        format!("{} {sign} {label:<16} {:>10} {rest}{usage}", step(task), duration(ms))
    }

    fn rest(&self, status: Status, reason: Option<&str>) -> String {
        let word = self.paint.status(status);
        let reason = reason.map(|it| format!(": {}", clean(it))).unwrap_or_default();
        format!("{} {word}{reason}", self.paint.strong(&self.caption.name))
    }

    fn aside(&self, text: &str) -> String {
        format!("    {}", self.paint.faint(text))
    }

    fn resume(&self) -> String {
        let command = self.caption.resume.as_deref();
        command.map(|it| format!("  {}", self.paint.command(it))).unwrap_or_default()
    }
}

/// Returns the step of a task: concurrent tasks have the same step.
fn step(task: TaskId) -> String {
    format!("{:>3}", task.step.0)
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};

    /// Returns the screens that a person sees: after each event the permanent lines, and the
    /// running ones in brackets.
    fn screens(paint: Paint) -> String {
        let mut tree = Tree::new(sample::caption(), paint);
        let mut text = String::new();
        for (event, second) in sample::events().iter().zip(0..) {
            let now = Duration::from_secs(second);
            let lines = tree.take(event, now);
            let running: Vec<String> =
                tree.running(now).map(|(_, line)| format!("        [{line}]")).collect();
            for line in lines.into_iter().chain(running) {
                text += line.trim_end();
                text.push('\n');
            }
        }
        text
    }

    #[test]
    fn the_tree_keeps_finished_tasks_above_running_ones() {
        insta::assert_snapshot!(screens(Paint::new(false)));
    }

    #[test]
    fn colours_add_nothing_but_colours() {
        let painted = screens(Paint::new(true));
        assert_eq!(console::strip_ansi_codes(&painted), screens(Paint::new(false)).as_str());
        assert!(painted.contains("\u{1b}[32m✓"));
    }

    #[test]
    fn the_task_whose_answer_arrives_shows_its_end() {
        let mut tree = Tree::new(sample::caption(), Paint::new(false));
        let events = sample::events();
        events[1..3].iter().for_each(|it| drop(tree.take(it, Duration::ZERO)));
        let lines =
            |tree: &Tree| -> Vec<String> { tree.running(Duration::ZERO).map(|it| it.1).collect() };
        let [first, second] = lines(&tree).try_into().unwrap();
        let piece = |index: u64, message: u64, text: &str| -> MessageDelta {
            serde_json::from_value(serde_json::json!({
                "v": 1, "ts": "2026-01-01T12:00:00Z", "run": "01JABC", "task": {"step": 1, "index": index},
                "node": "ta", "attempt": 1, "message": message, "model": "lab/small", "part": "text", "text": text,
            }))
            .unwrap()
        };
        for text in ["It is ", "te", "al,\n", "\u{1b}[31mand"] {
            tree.take_delta(&piece(1, 7, text));
        }
        let [other, shown] = lines(&tree).try_into().unwrap();
        assert_eq!(other, first);
        assert!(shown.starts_with(&second) && shown.contains("  It is teal, "), "{shown:?}");
        assert!(!shown.contains('\u{1b}') && shown.ends_with("and"), "{shown:?}");
        // Another answer begins anew, a long one shows its end, and the end of the call removes it.
        tree.take_delta(&piece(1, 8, &"word ".repeat(50)));
        let [_, shown] = lines(&tree).try_into().unwrap();
        assert!(!shown.contains("teal") && shown.chars().count() < 90, "{shown:?}");
        tree.take_delta(&piece(0, 9, "No"));
        drop(tree.take(&events[3], Duration::ZERO));
        let [shown, _] = lines(&tree).try_into().unwrap();
        assert!(!shown.contains("No"), "{shown:?}");
    }

    #[test]
    fn nothing_runs_after_the_run_stops() {
        let mut tree = Tree::new(sample::caption(), Paint::new(false));
        let events = sample::events();
        let (last, earlier) = events.split_last().unwrap();
        tree.take(&earlier[1], Duration::ZERO);
        assert_eq!(tree.running(Duration::ZERO).count(), 1);
        tree.take(last, Duration::ZERO);
        assert_eq!(tree.running(Duration::ZERO).count(), 0);
    }
}
