//! The runner of `run_tests`: pytest or node with their settings, or a command.

use std::collections::BTreeSet;

use graphrun_core::diagnostic::Diagnostic;
use graphrun_sandbox::{
    Allowed, FixedFile, Proof, ReportForm, TestCommand, TestSettings, check_path,
};
use graphrun_workflow::kind::{
    ArgumentAdvice, NodeReader, Section, SpannedText, Yaml, check_argument, read_arguments,
    read_fixed, suggestion,
};

use super::{Runner, TestRunner};

/// How values reach a command that runs tests.
const IN_TESTS: ArgumentAdvice = ArgumentAdvice {
    values: "the command reads them from the files of `artifact` or `folder`",
    shell: "run a program that does this, such as `[sh, -c, \"…\"]`",
};

/// The keys of a runner, and those of a command.
const OF_A_RUNNER: [&str; 2] = ["runner", "fixed"];
const OF_A_COMMAND: [&str; 2] = ["report", "report_path"];

pub(super) fn read_test_runner(
    reader: &mut NodeReader<'_>,
    parts: &Section<'_>,
) -> Option<TestRunner> {
    let tests = reader.value();
    let proof = parts.get("proof").and_then(|it| read_named(reader, it, "level of proof", &PROOFS));
    let is_command = parts.get("command").is_some();
    let other = if is_command { &OF_A_RUNNER[..] } else { &OF_A_COMMAND[..] };
    let mut is_clean = proof.is_some() || parts.get("proof").is_none();
    for key in other.iter().filter_map(|it| parts.key(it)) {
        let kind = if is_command { "`command`" } else { "`runner`" };
        let message = format!("`run_tests` with {kind} takes no key `{}`", key.text);
        let span = reader.report().span(&key.range);
        reader.report().push(Diagnostic::error("GR003", message).at(span, "not a key here"));
        is_clean = false;
    }
    let runner = if is_command {
        read_test_command(reader, parts, proof).map(TestRunner::Command)
    } else {
        read_runner(reader, tests, parts, proof)
    };
    let runner = runner?;
    if parts.get("baseline").is_none() {
        is_clean &= WITHOUT_BASELINE.check(reader, parts, runner.allow());
    }
    is_clean.then_some(runner)
}

/// Exceptions that do not apply, why, and what to do.
struct Refused(&'static [Allowed], &'static str, &'static str);

const WITHOUT_BASELINE: Refused = Refused(
    &[Allowed::Missing],
    "needs a `baseline`",
    "remove it, or name the tests of an earlier run as `baseline`",
);
const OF_NODE: Refused = Refused(
    &[Allowed::Conftest, Allowed::Config],
    "is an exception of pytest",
    "node takes `skip`, `xfail` and `missing`",
);
const OF_COMMANDS: Refused = Refused(
    &[Allowed::Conftest, Allowed::Config, Allowed::Xfail],
    "is an exception of a `runner`",
    "a command takes `skip` and `missing`",
);

impl Refused {
    /// Reports the first exception of `allow` that does not apply.
    fn check(
        &self,
        reader: &mut NodeReader<'_>,
        parts: &Section<'_>,
        allow: &BTreeSet<Allowed>,
    ) -> bool {
        let Self(refused, why, help) = self;
        let (Some(found), Some(yaml)) =
            (refused.iter().find(|it| allow.contains(it)), parts.get("allow"))
        else {
            return true;
        };
        let words = reader.report().words(yaml, "`allow`");
        if let Some(word) = words.iter().find(|it| it.text == found.as_str()) {
            reader.report().bad_value(word, format!("`{}` {why}", word.text), help);
        }
        false
    }
}

fn read_runner(
    reader: &mut NodeReader<'_>,
    tests: &Yaml,
    parts: &Section<'_>,
    proof: Option<Proof>,
) -> Option<TestRunner> {
    let help = "write `runner: pytest` or `runner: node`, or name a `command` and its `report`";
    let runner = parts.require(reader.report(), "runner", help);
    let runner = runner.and_then(|it| read_named(reader, it, "runner", &RUNNERS));
    if let Some(Runner::Node) = runner
        && !is_for_node(reader, parts, proof)
    {
        return None;
    }
    let fixed = parts.get("fixed").map(|it| read_fixed_files(reader, it));
    let allow = parts.get("allow").map(|it| read_allowed(reader, it));
    if let (Some(Runner::Node), Some(allow)) = (runner, &allow)
        && !OF_NODE.check(reader, parts, allow)
    {
        return None;
    }
    let default = TestSettings::default();
    let proof = proof.unwrap_or(default.proof);
    if proof == Proof::Isolated && fixed.is_none() {
        let message = "`proof: isolated` needs `fixed`: only the tests of a person run there";
        let key = parts.key("proof");
        let range = key.map_or_else(|| tests.range.clone(), |it| it.range.clone());
        let span = reader.report().span(&range);
        let diagnostic = Diagnostic::error("GR006", message).at(span, "without `fixed`");
        let help = "name the files or folders with the tests: `fixed: [tests/acceptance]`";
        reader.report().push(diagnostic.help(help));
        return None;
    }
    let runner = runner?;
    let settings = TestSettings {
        fixed: fixed.unwrap_or(Some(default.fixed))?,
        proof,
        allow: allow.unwrap_or(default.allow),
        ..default
    };
    Some(match runner {
        Runner::Pytest => TestRunner::Pytest(settings),
        Runner::Node => TestRunner::Node(settings),
    })
}

/// Returns whether the proof level exists for node's tests.
fn is_for_node(reader: &mut NodeReader<'_>, parts: &Section<'_>, proof: Option<Proof>) -> bool {
    if proof == Some(Proof::Isolated)
        && let Some(key) = parts.key("proof")
    {
        let message = "`runner: node` runs the tests in the process of the code, and `proof: isolated` is required";
        let span = reader.report().span(&key.range);
        let diagnostic = Diagnostic::error("GR009", message).at(span, "above `in_process`");
        let help = "use `runner: pytest` with `fixed` tests that start the program: they test a program in any language";
        reader.report().push(diagnostic.help(help));
        return false;
    }
    true
}

fn read_test_command(
    reader: &mut NodeReader<'_>,
    parts: &Section<'_>,
    proof: Option<Proof>,
) -> Option<TestCommand> {
    let command = parts.get("command")?;
    let argv = read_argv(reader, command);
    let help = "name the form of its report: `report: junit`, `tap`, `libtest`, `go` or `jest`";
    let report = parts.require(reader.report(), "report", help);
    let report = report.and_then(|it| read_named(reader, it, "form of a report", &REPORTS));
    if let Some(proof) = proof.filter(|it| *it > Proof::Unproven) {
        let message =
            format!("a command proves nothing, and `proof: {}` is required", proof.as_str());
        let span = parts.key("proof").map(|it| reader.report().span(&it.range))?;
        let diagnostic = Diagnostic::error("GR009", message).at(span, "above `unproven`");
        reader.report().push(diagnostic.help("use a `runner`, or remove `proof`"));
        return None;
    }
    let path = parts.get("report_path").and_then(|it| reader.report().word(it, "`report_path`"));
    if let Some(path) = &path
        && let Err(error) = check_path(&path.text)
    {
        reader.report().bad_value(path, format!("the path of the report: {error}"), "");
        return None;
    }
    if path.is_none() && report.is_some_and(ReportForm::needs_file) {
        let help = "name the file that the command writes: `report_path: report.xml`";
        parts.require(reader.report(), "report_path", help);
        return None;
    }
    let allow = parts.get("allow").map(|it| read_allowed(reader, it)).unwrap_or_default();
    if !OF_COMMANDS.check(reader, parts, &allow) {
        return None;
    }
    let report_path = path.map(|it| it.text);
    Some(TestCommand { argv: argv?, report: report?, report_path, allow })
}

/// Reads the constant arguments of the command.
fn read_argv(reader: &mut NodeReader<'_>, command: &Yaml) -> Option<Vec<String>> {
    let mut argv = Vec::new();
    for item in read_arguments(reader.report(), command, "`command`")? {
        let word = reader.report().word(item, "each argument of `command`")?;
        check_argument(reader.report(), &argv, &word, IN_TESTS);
        argv.push(word.text);
    }
    Some(argv)
}

fn read_fixed_files(reader: &mut NodeReader<'_>, yaml: &Yaml) -> Option<Vec<FixedFile>> {
    let mut files: Vec<FixedFile> = Vec::new();
    let mut is_clean = true;
    let folder = reader.open_folder();
    for word in reader.report().words(yaml, "`fixed`") {
        let read = match &folder {
            Ok(folder) => read_fixed(folder, &word.text),
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(read) => files.extend(read),
            Err(reason) => {
                refuse_fixed(reader, &word, &reason);
                is_clean = false;
            }
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files.dedup();
    is_clean.then_some(files)
}

fn refuse_fixed(reader: &mut NodeReader<'_>, word: &SpannedText, reason: &str) {
    let message = format!("the fixed tests `{}` cannot be read: {reason}", word.text);
    let span = reader.report().span(&word.range);
    let diagnostic = Diagnostic::error("GR050", message).at(span, "named here");
    let help = "name a file or a folder in the folder of the workflow";
    reader.report().push(diagnostic.help(help));
}

fn read_allowed(reader: &mut NodeReader<'_>, yaml: &Yaml) -> BTreeSet<Allowed> {
    let words = reader.report().words(yaml, "`allow`");
    words.iter().filter_map(|word| find_named(reader, word, "exception", &ALLOWED)).collect()
}

fn read_named<T: Copy>(
    reader: &mut NodeReader<'_>,
    yaml: &Yaml,
    what: &str,
    known: &WordList<T>,
) -> Option<T> {
    let word = reader.report().word(yaml, what)?;
    find_named(reader, &word, what, known)
}

fn find_named<T: Copy>(
    reader: &mut NodeReader<'_>,
    word: &SpannedText,
    what: &str,
    known: &WordList<T>,
) -> Option<T> {
    let found = known.0.iter().find(|it| known.1(**it) == word.text).copied();
    if found.is_none() {
        let help = suggestion(&word.text, known.0.iter().map(|it| known.1(*it)));
        let message = format!("there is no {what} `{}`", word.text);
        reader.report().bad_value(word, message, &help.unwrap_or_default());
    }
    found
}

/// Values with their names in a workflow.
struct WordList<T: 'static>(&'static [T], fn(T) -> &'static str);

const PROOFS: WordList<Proof> = WordList(&Proof::ALL, Proof::as_str);
const RUNNERS: WordList<Runner> = WordList(&Runner::ALL, Runner::as_str);
const REPORTS: WordList<ReportForm> = WordList(&ReportForm::ALL, ReportForm::as_str);
const ALLOWED: WordList<Allowed> = WordList(&Allowed::ALL, Allowed::as_str);
