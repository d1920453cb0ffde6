//! Asks the program to stop while a model is slow, or code is tested. One signal lets running work finish, a second one
//! drops it; either way the run can be resumed, and finished tasks do not run again.

use crate::program::{Ended, Home, StderrLines, pid_of, processes, provider::Provider, send};
use futures_util::future;
use nix::sys::signal::{
    Signal::{self, SIGINT, SIGTERM},
    killpg,
};
use tokio::process::Child;

/// The requests that come after the design, which is the second step.
const AFTER_DESIGN: [&str; 4] = ["run-1/3/sse/0", "run-1/5/sse/0", "run-1/7/tl/0", "run-1/8/qa/0"];

#[tokio::test]
async fn the_first_signal_only_lets_running_tasks_finish() {
    for (signal, word, code) in [(SIGINT, "interrupted", 130), (SIGTERM, "terminated", 143)] {
        let mut run = Run::held_at_the_design().await;
        run.is_sent(signal, word).await;
        run.provider.release();
        let stopped = run.ends().await;

        assert_eq!(stopped.ended.code, Some(code), "{}", stopped.ended.stderr);
        let report = stopped.ended.report();
        assert_eq!((&report["status"], &report["steps"]), (&"interrupted".into(), &2.into()));
        let resume = format!("continue with: graphrun resume {}", report["name"].as_str().unwrap());
        assert!(stopped.ended.stderr.contains(&resume), "{}", stopped.ended.stderr);
        assert_eq!(stopped.asked_until_done().await, AFTER_DESIGN);
    }
}

#[tokio::test]
async fn the_second_signal_ends_it_though_the_model_never_answers() {
    for (signal, word, code) in [(SIGINT, "interrupted", 130), (SIGTERM, "terminated", 143)] {
        let mut run = Run::held_at_the_design().await;
        run.is_sent(signal, word).await;
        run.is_sent(signal, "stopping at once").await;
        let stopped = run.ends().await;

        assert_eq!(stopped.ended.code, Some(code), "{}", stopped.ended.stderr);
        let report = stopped.ended.report();
        assert_eq!((&report["status"], &report["steps"]), (&"interrupted".into(), &1.into()));
        let mut left = AFTER_DESIGN.map(str::to_owned).to_vec();
        left.insert(0, "run-1/2/ta/1".to_owned());
        assert_eq!(stopped.asked_until_done().await, left, "QC had finished beside TA");
    }
}

#[tokio::test]
async fn ctrl_c_in_a_terminal_spares_the_tests_of_the_code() {
    // Every process below them: the probe of the sandbox, Python on the host, and the processes inside.
    let at_work = ["bwrap", "python3", "bash"];
    future::join_all(at_work.map(|name| async move {
        let home = Home::new();
        let provider = Provider::start("retry").await;
        let mut program = home.execute(&provider.base_url).process_group(0).spawn().unwrap();
        let mut said = StderrLines::by(&mut program);
        said.until("unit_tests started").await;
        processes::until_below(&program, name).await;
        killpg(pid_of(&program), SIGINT).unwrap();
        let stopped = Run { home, provider, program, said }.ends().await;

        let Stopped { ended, .. } = &stopped;
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        assert!(ended.stderr.contains("21 of 24 tests passed"), "{name}: {}", ended.stderr);
        assert_eq!(stopped.asked_until_done().await, AFTER_DESIGN[1..]);
    }))
    .await;
}

/// A run under way.
struct Run {
    home: Home,
    provider: Provider,
    program: Child,
    said: StderrLines,
}

struct Stopped {
    ended: Ended,
    home: Home,
}

impl Run {
    /// A run whose QC has finished, and whose TA waits for its model.
    async fn held_at_the_design() -> Self {
        let home = Home::new();
        let provider = Provider::holding("retry", "ta").await;
        let mut program = home.execute(&provider.base_url).spawn().unwrap();
        let mut said = StderrLines::by(&mut program);
        said.until("qc finished").await;
        provider.until_held().await;
        Self { home, provider, program, said }
    }

    /// Sends a signal, and waits for what the program says to it.
    async fn is_sent(&mut self, signal: Signal, words: &str) {
        send(&self.program, signal);
        self.said.until(words).await;
    }

    async fn ends(self) -> Stopped {
        let (output, stderr) = tokio::join!(self.program.wait_with_output(), self.said.all());
        let ended = Ended { stderr, ..output.unwrap().into() };
        Stopped { ended, home: self.home }
    }
}

impl Stopped {
    /// Brings the run to its end, and gives back which requests that took.
    async fn asked_until_done(&self) -> Vec<String> {
        let provider = Provider::start("retry").await;
        Ended::of(self.home.resume(&provider.base_url)).await.done();
        let calls = provider.asked().into_iter();
        // The name of the model follows the key of the task.
        calls.map(|it| it.trim_end_matches("/openai/stand-in").to_owned()).collect()
    }
}
