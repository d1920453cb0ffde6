//! The cost of checking a workflow: parsing, every check, the prompts, the graph.
//!
//! `cargo bench --bench check`. The first table has generated workflows of a usual shape (loops,
//! parallels, matches, maps, prompts in the file), beside a floor: the same text parsed into a tree
//! of values by the same parser, without checks. Each line is the median of several rounds; both
//! sides alternate in one process. The second table has the inputs of `tests/fuzz/hostile.rs`, once each.
//! `GRAPHRUN_BENCH_ROUNDS` sets the rounds.

use std::{
    fmt::Write,
    hint::black_box,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use graphrun::{
    compile::compile,
    diagnostic::SourceFile,
    nodes::{Services, factory},
    registry,
    workflow::parse,
};
use saphyr::LoadableYamlNode;

#[path = "../tests/fuzz/hostile.rs"]
#[expect(unreachable_pub, reason = "tests use it as well")]
mod hostile;

const SIZES: [usize; 4] = [10, 50, 200, 1_000];
const ROUNDS: usize = 9;
/// The longest allowed duration of any input.
const HOSTILE_MAX: Duration = Duration::from_millis(100);

#[expect(clippy::cast_precision_loss, reason = "there are at most a thousand")]
fn main() {
    let rounds = std::env::var("GRAPHRUN_BENCH_ROUNDS").ok().and_then(|it| it.parse().ok());
    let rounds = rounds.unwrap_or(ROUNDS);
    println!(
        "{:<32} {:>12} {:>12} {:>8} {:>12}",
        "", "checked, ms", "read, ms", "ratio", "µs a node"
    );
    // Cargo adds `--bench`.
    let words: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let is_wanted = |row: &str| words.is_empty() || words.iter().any(|it| row.contains(it));
    for nodes in SIZES {
        let text = workflow(nodes);
        let what = format!("{nodes} nodes, {} kB", text.len() / 1_000);
        if !is_wanted(&what) {
            continue;
        }
        check(&text, true);
        let (mut ours, mut floor): (Vec<Duration>, Vec<Duration>) =
            (0..rounds).map(|_| (timed(|| check(&text, true)), timed(|| read(&text)))).unzip();
        let ours = median(&mut ours);
        let floor = median(&mut floor);
        let of_a_node = ours * 1_000.0 / nodes as f64;
        println!("{what:<32} {ours:>12.2} {floor:>12.2} {:>8.1} {of_a_node:>12.1}", ours / floor);
    }
    println!("\n{:<48} {:>12}", "hard inputs", "ms");
    let mut slow = 0;
    for (name, text) in hostile::inputs().into_iter().chain(hostile::crowded()) {
        if !is_wanted(&name) {
            continue;
        }
        let took = timed(|| check(&text, false));
        let mark = if took > HOSTILE_MAX { "  slow" } else { "" };
        slow += usize::from(took > HOSTILE_MAX);
        println!("{name:<48} {:>12.2}{mark}", took.as_secs_f64() * 1e3);
    }
    println!("{slow} take longer than {HOSTILE_MAX:?}");
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

/// Returns the median in milliseconds.
fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

/// Does the work of `graphrun validate` on a text.
fn check(text: &str, right: bool) {
    let file = Arc::new(SourceFile { name: "bench.yaml".into(), text: text.to_owned() });
    let registry = registry();
    match parse(file, Path::new("nowhere"), &registry) {
        Ok((workflow, warnings)) => {
            assert!(!right || warnings.is_empty(), "{warnings}");
            let factory = factory(Services::offline(), registry);
            match compile(workflow.into_graph(&factory)) {
                Ok(compiled) => drop(black_box(compiled)),
                Err(diagnostics) => assert!(!right, "{diagnostics}"),
            }
        }
        Err(diagnostics) => assert!(!right, "{diagnostics}"),
    }
}

/// The floor: parses the text into a tree of values.
fn read(text: &str) {
    drop(black_box(saphyr::MarkedYaml::load_from_str(text).unwrap()));
}

/// Returns a workflow of about `nodes` nodes: stages of ten, each a loop with a parallel and a
/// match.
fn workflow(nodes: usize) -> String {
    let stages = nodes / 10;
    let mut text = "graphrun: 1\nname: bench\ntypes:\n  Task: { title: string, hard: bool, note: string? }\n  \
                    Review: { verdict: good | poor | stuck, issues: \"[string]\", score: float }\nstate:\n  \
                    brief: string\n  log: { type: [string], merge: append, default: [] }\n"
        .to_owned();
    let mut line = |it: String| writeln!(text, "{it}").expect("writes to a text never fail");
    for at in 0..stages {
        line(format!("  plan_{at}: {{ tasks: [Task], summary: string }}"));
        line(format!("  parts_{at}: {{ type: [string], merge: append, default: [] }}"));
        line(format!(
            "  facts_{at}: string\n  draft_{at}: string\n  review_{at}: Review\n  result_{at}: string"
        ));
    }
    line("input: brief\nmodels: { m: openai/gpt-5, n: [openai/gpt-5-mini, anthropic/claude-haiku-4-5] }".into());
    line("agents: { planner: { model: m }, writer: { model: n }, critic: { model: m } }".into());
    line(format!("limits: {{ steps: {} }}", 100 + stages * 40));
    line("start: plan_0\nnodes:".into());
    for at in 0..stages {
        let next = if at + 1 == stages { "end".to_owned() } else { format!("plan_{}", at + 1) };
        line(format!(
            "  plan_{at}:\n    agent: planner\n    prompt: {{ text: \"Plan stage {at} of {{{{ brief }}}}.\" }}\n    \
             writes: plan_{at}\n    retry: 3\n    then: work_{at}\n  \
             work_{at}: {{ parallel: [[each_{at}, gather_{at}], facts_{at}, notes_{at}], then: draft_{at} }}\n  \
             each_{at}: {{ map: {{ over: plan_{at}.tasks, as: task, do: part_{at}, width: 4 }} }}\n  \
             part_{at}:\n    agent: writer\n    prompt:\n      text: |\n        Write {{{{ task.title }}}}.\n        \
             {{% if task.hard %}}Take care.{{% endif %}}\n        {{% if task.note %}}{{{{ task.note | trim }}}}{{% endif %}}\n    \
             writes: parts_{at}\n  \
             gather_{at}: {{ set: {{ log: 'parts_{at}.size() > 3 ? \"many\" : \"few\"' }} }}\n  \
             facts_{at}: {{ agent: writer, prompt: {{ text: \"Facts for {{{{ plan_{at}.summary }}}}\" }}, writes: facts_{at} }}\n  \
             notes_{at}: {{ set: {{ log: '\"stage {at}: \" + plan_{at}.summary' }} }}"
        ));
        line(format!(
            "  draft_{at}:\n    agent: writer\n    prompt:\n      text: |\n        {{% for part in parts_{at} %}}\n        \
             {{{{ loop.index }}}}. {{{{ part }}}}\n        {{% endfor %}}\n        Facts: {{{{ facts_{at} }}}}\n        \
             {{% if review_{at} is defined %}}{{% for issue in review_{at}.issues %}}Mend: {{{{ issue }}}}\n        {{% endfor %}}{{% endif %}}\n    \
             writes: draft_{at}\n    max_visits: 3\n    exhausted: result_{at}\n    then: review_{at}\n  \
             review_{at}:\n    agent: critic\n    prompt: {{ text: \"Review {{{{ draft_{at} }}}}\" }}\n    writes: review_{at}\n    \
             then: {{ match: review_{at}.verdict, to: {{ good: result_{at}, poor: route_{at}, stuck: result_{at} }} }}\n  \
             route_{at}:\n    set: {{ log: review_{at}.issues }}\n    then:\n      \
             - {{ when: review_{at}.score > 0.9 && review_{at}.issues.size() < 3, to: result_{at} }}\n      \
             - {{ when: 'visits(\"draft_{at}\") >= 2 && review_{at}.score > 0.5', to: result_{at} }}\n      - {{ to: draft_{at} }}\n  \
             result_{at}: {{ set: {{ result_{at}: 'has(draft_{at}) ? draft_{at} : \"nothing\"' }}, then: {next} }}"
        ));
    }
    text
}
