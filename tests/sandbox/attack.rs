//! One attack: what its head says, and how its run is judged.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use graphrun::sandbox::{Collect, Job, JobResult, Limits, Mount, ProgramEnd, Sandbox, SourceFile};
use tokio_util::sync::CancellationToken;

use crate::sandbox::host::{Host, leftovers};

/// Time beyond its limit after which even a busy machine must have ended a run.
const TOLERANCE: Duration = Duration::from_secs(1);

/// A program that tries to break out.
#[derive(Debug)]
pub(crate) struct Attack {
    /// Name of its file.
    pub(crate) name: String,
    /// Whether it must succeed without a sandbox.
    pub(crate) breaks_out: bool,
    source: String,
    helper: String,
    outcomes: Vec<String>,
    limits: Limits,
    collect: Vec<String>,
    at_most: Option<Duration>,
}

impl Attack {
    /// Reads the program and its head, lines of the form `# key: value`.
    pub(crate) fn read(path: &Path) -> Self {
        let source = fs::read_to_string(path).unwrap();
        let mut attack = Self {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            breaks_out: false,
            helper: fs::read_to_string(path.with_file_name("attack.py")).unwrap(),
            outcomes: vec!["passed".to_owned()],
            limits: Limits { wall: Duration::from_secs(20), ..Limits::default() },
            collect: Vec::new(),
            at_most: None,
            source: source.clone(),
        };
        let head = source.lines().map_while(|line| line.strip_prefix("# "));
        for (key, value) in head.filter_map(|line| line.split_once(": ")) {
            let number = || value.parse::<u64>().unwrap();
            match key {
                "expect" => attack.outcomes = value.split(' ').map(str::to_owned).collect(),
                "outside" => attack.breaks_out = value == "breach",
                "wall" => attack.limits.wall = Duration::from_secs(number()),
                "at_most" => attack.at_most = Some(Duration::from_secs(number())),
                "memory_mib" => attack.limits.memory_bytes = number() << 20,
                "processes" => attack.limits.processes = number(),
                "collect" => attack.collect.push(value.to_owned()),
                // A sentence with a colon.
                _ => {}
            }
        }
        attack
    }

    /// Runs the attack in the sandbox and says everything that is wrong afterwards.
    pub(crate) async fn run(&self, sandbox: &Sandbox, host: &Host) -> Vec<String> {
        let marker = format!("graphrun-attack-{}-{}", self.name, std::process::id());
        let mut env: BTreeMap<String, String> = host.targets();
        env.insert("RUN_MARKER".to_owned(), marker.clone());
        let file = |path: &str, content: &str| SourceFile {
            path: path.to_owned(),
            content: content.to_owned(),
        };
        let job = Job {
            argv: ["python3", "main.py", &marker].map(str::to_owned).into(),
            files: vec![file("main.py", &self.source), file("attack.py", &self.helper)],
            env,
            read_only: vec![Mount { host: host.packages(), inside: "/env".into() }],
            limits: self.limits.clone(),
            collect: Collect { work: self.collect.clone(), ..Collect::default() },
            ..Job::default()
        };
        let started = Instant::now();
        let finished = match sandbox.run(&job, &CancellationToken::new()).await {
            Ok(finished) => finished,
            Err(error) => {
                return vec![format!(
                    "{error}: {}",
                    std::error::Error::source(&error).map_or_else(String::new, ToString::to_string)
                )];
            }
        };
        let mut complaints = self.judge(&finished, started.elapsed());
        // No waiting here: the run is over when nothing of it is left, not a moment later.
        complaints.extend(
            leftovers(&marker).into_iter().map(|process| format!("left behind: {process}")),
        );
        complaints
    }

    fn judge(&self, finished: &JobResult, took: Duration) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut complain = |is_wrong: bool, complaint: String| {
            if is_wrong {
                complaints.push(complaint);
            }
        };
        let output = &finished.output;
        let end = name_of(finished.end);
        complain(
            !self.outcomes.iter().any(|expected| *expected == end),
            format!("ended as {end}: {output}"),
        );
        complain(output.contains("BREACH"), output.clone());
        complain(output.contains("UNEXPECTED"), output.clone());
        complain(!output.contains("held: "), format!("says nothing: {output}"));
        complain(
            output.chars().any(|letter| letter.is_control() && letter != '\n' && letter != '\t'),
            format!("{output:?}"),
        );
        complain(output.len() > 200 << 10, format!("{} bytes of output", output.len()));
        complain(
            !finished.collected.is_empty(),
            format!("{:?} came out", finished.collected.keys()),
        );
        let longest = self.at_most.unwrap_or(self.limits.wall) + TOLERANCE;
        complain(took > longest, format!("took {took:?}, more than {longest:?}"));
        complaints
    }

    /// Runs the attack as a plain program and returns its output.
    pub(crate) fn run_outside(&self, host: &Host) -> String {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("main.py"), &self.source).unwrap();
        fs::write(folder.path().join("attack.py"), &self.helper).unwrap();
        let output = Command::new("/usr/bin/python3")
            .arg("main.py")
            .current_dir(folder.path())
            .envs(host.targets())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }
}

fn name_of(end: ProgramEnd) -> &'static str {
    match end {
        ProgramEnd::Exited(0) => "passed",
        ProgramEnd::Exited(_) => "failed",
        ProgramEnd::Signaled(_) => "signaled",
        ProgramEnd::TimedOut => "timed-out",
        ProgramEnd::OutOfMemory => "out-of-memory",
        ProgramEnd::OutputLimit => "output-limit",
    }
}
