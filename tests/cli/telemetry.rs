//! Spans and metrics for a collector of OpenTelemetry.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    net::{TcpListener, TcpStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use graphrun::telemetry::Telemetry;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::{
    cli::{
        collector::{Answers, Collector, Series, attributes, series},
        program::{Ended, Place, workflow},
        provider::answer_with,
    },
    examples::agent_tool,
    support::packages,
};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs the software team with recorded answers.
fn dev_team(place: &Place, variables: &[(&str, &str)]) -> Ended {
    let brief = format!("brief=@{ROOT}/tests/recordings/dev_team/brief.md");
    let replay = format!("{ROOT}/tests/recordings/dev_team/tech_lead.jsonl");
    let graph = format!("{ROOT}/graphs/dev_team.yaml");
    let args = ["execute", &graph, "-i", &brief, "--replay", &replay, "--output", "json"];
    Ended::of(place.command(args).envs(variables.iter().copied()))
}

/// Runs the workflow `agent` with a provider that answers with a text.
fn agent(place: &Place, answer: &str, variables: &[(&str, &str)]) -> Ended {
    let provider = TcpListener::bind(crate::support::new_loopback()).unwrap();
    let url = format!("http://{}/v1", provider.local_addr().unwrap());
    let answer = answer.to_owned();
    let answering = thread::spawn(move || answer_with(&mut provider.accept().unwrap().0, &answer));
    let args = ["execute", &workflow("agent"), "-i", "brief=Why otters?", "--output", "json"];
    let mut command = place.command(args);
    let ended = Ended::of(command.env("OPENAI_BASE_URL", url).envs(variables.iter().copied()));
    answering.join().unwrap();
    ended
}

/// Draws spans as a tree. Those of parallel tasks are in the order of their names.
fn tree(spans: &[Span]) -> String {
    fn draw(spans: &[Span], parent: &[u8], depth: usize, drawing: &mut String) {
        let mut children: Vec<&Span> =
            spans.iter().filter(|it| it.parent_span_id == parent).collect();
        if children.iter().any(|it| it.name.starts_with("invoke_agent")) {
            children.sort_by_key(|it| &it.name);
        }
        for child in children {
            writeln!(drawing, "{}{}", "  ".repeat(depth), child.name).unwrap();
            draw(spans, &child.span_id, depth + 1, drawing);
        }
    }
    let mut drawing = String::new();
    draw(spans, &[], 0, &mut drawing);
    drawing
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found = spans.iter().find(|it| it.name == name);
    found.unwrap_or_else(|| panic!("no `{name}`:\n{}", tree(spans)))
}

#[test]
fn the_run_of_the_team_is_one_trace_with_the_right_parents() {
    let place = Place::new();
    let collector = Collector::start(Answers::Ok);
    let ended = dev_team(&place, &[(ENDPOINT, &collector.url())]);
    assert_eq!(ended.code, 0, "{ended}");
    assert!(!ended.stderr.contains("warning"), "{ended}");
    let spans = collector.spans();
    insta::assert_snapshot!("trace_of_the_team", tree(&spans));

    let ids: BTreeMap<&[u8], &Span> = spans.iter().map(|it| (&it.span_id[..], it)).collect();
    assert_eq!(ids.len(), spans.len(), "each span is sent once");
    for span in &spans {
        assert_eq!(span.trace_id, spans[0].trace_id, "{}", span.name);
        if let Some(parent) = ids.get(&span.parent_span_id[..]) {
            let is_within = parent.start_time_unix_nano <= span.start_time_unix_nano
                && span.end_time_unix_nano <= parent.end_time_unix_nano;
            assert!(is_within, "{} is not within {}", span.name, parent.name);
        }
    }
    // Each call that the run counts is a span.
    let calls = spans.iter().filter(|it| it.name.starts_with("chat ")).count();
    assert_eq!(ended.json()["usage"]["calls"], json!(calls), "{ended}");

    let run = attributes(&named(&spans, "invoke_workflow dev_team").attributes);
    assert_eq!(run["gen_ai.operation.name"], "invoke_workflow");
    assert_eq!(run["gen_ai.workflow.name"], "dev_team");
    assert_eq!(json!(run["graphrun.run.id"]), ended.json()["run"]);
    assert_eq!(run["graphrun.run.status"], "done");
    let resource = collector.resource();
    assert_eq!(resource["service.name"], "graphrun");
    assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
}

/// A published collector, from `PyPI`.
const ROTEL: &str = "rotel==0.0.1a15";

#[test]
fn a_published_collector_understands_the_trace() {
    let place = Place::new();
    let [http, grpc] = [(); 2].map(|()| TcpListener::bind(crate::support::new_loopback()).unwrap());
    let [http, grpc] = [http, grpc].map(|it| it.local_addr().unwrap().to_string());
    let log = place.path("rotel.log");
    let mut rotel = Command::new(packages::pypi(ROTEL).join("rotel/rotel-agent"))
        .args(["start", "--otlp-http-endpoint", &http, "--otlp-grpc-endpoint", &grpc])
        .args(["--exporter", "blackhole", "--debug-log", "traces"])
        .args(["--debug-log-verbosity", "detailed"])
        .stdout(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    while TcpStream::connect(&http).is_err() {
        assert!(rotel.try_wait().unwrap().is_none(), "it serves {http}");
        thread::sleep(Duration::from_millis(20));
    }
    let ended = dev_team(&place, &[(ENDPOINT, &format!("http://{http}"))]);
    // It writes the remaining spans before it ends.
    signal::kill(Pid::from_raw(rotel.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(rotel.wait().unwrap().success());
    assert_eq!(ended.code, 0, "{ended}");
    assert!(!ended.stderr.contains("warning"), "{ended}");
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("-> service.name: Str(graphrun)"), "{log}");
    insta::assert_snapshot!("trace_of_the_team", tree(&logged_spans(&log)));
}

/// Reads what the collector writes about each span, in the order of their start.
fn logged_spans(log: &str) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for line in log.lines() {
        if line.starts_with("Span #") {
            spans.push(Span::default());
        }
        let (Some(span), Some((key, value))) = (spans.last_mut(), line.split_once(':')) else {
            continue;
        };
        let value = value.trim().to_owned();
        match key.trim() {
            "ID" => span.span_id = value.into_bytes(),
            "Parent ID" => span.parent_span_id = value.into_bytes(),
            "Name" => span.name = value,
            "Start time" => span.start_time_unix_nano = value.parse().unwrap(),
            _ => (),
        }
    }
    spans.sort_by_key(|it| it.start_time_unix_nano);
    spans
}

#[test]
fn spans_and_metrics_of_a_call_have_the_standard_names() {
    let place = Place::new();
    let collector = Collector::start(Answers::Ok);
    let ended = agent(&place, "They float.", &[(ENDPOINT, &collector.url())]);
    assert_eq!(ended.code, 0, "{ended}");
    let spans = collector.spans();
    let agent = named(&spans, "invoke_agent write");
    let found = attributes(&agent.attributes);
    assert_eq!(found["gen_ai.agent.name"], "writer");
    assert_eq!(found["graphrun.node.name"], "write");
    let call = named(&spans, "chat gpt-5-mini");
    assert_eq!(call.parent_span_id, agent.span_id);
    assert_eq!(call.kind, SpanKind::Client as i32);
    let found = attributes(&call.attributes);
    for (name, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "openai"),
        ("gen_ai.request.model", "gpt-5-mini"),
        ("gen_ai.response.finish_reasons", "[stop]"),
    ] {
        assert_eq!(found[name], value, "{name}");
    }
    let tokens = |kind: &str| found[&format!("gen_ai.usage.{kind}_tokens")].clone();

    let metrics = collector.metrics();
    let durations = series(&metrics, "gen_ai.client.operation.duration");
    assert_eq!(durations.len(), 1, "{durations:?}");
    assert_eq!((durations[0].count, durations[0].bounds[0]), (1, 0.01));
    assert!(!durations[0].attributes.contains_key("error.type"));
    let usage = series(&metrics, "gen_ai.client.token.usage");
    assert_eq!(usage.len(), 2, "{usage:?}");
    for Series { attributes, sum, bounds, .. } in usage {
        assert_eq!(attributes["gen_ai.provider.name"], "openai");
        assert_eq!(attributes["gen_ai.request.model"], "gpt-5-mini");
        assert_eq!(format!("{sum}i"), tokens(&attributes["gen_ai.token.type"]));
        assert_eq!(bounds.last(), Some(&67_108_864.0));
    }
}

#[test]
fn a_failed_call_is_an_error_of_its_span_and_of_its_metric() {
    let place = Place::new();
    let collector = Collector::start(Answers::Ok);
    let provider = Collector::start(Answers::Status(401));
    let args = ["execute", &workflow("agent"), "-i", "brief=x"];
    let variables = [(ENDPOINT, collector.url()), ("OPENAI_BASE_URL", provider.url())];
    let ended = Ended::of(place.command(args).envs(variables));
    assert_ne!(ended.code, 0, "{ended}");
    let spans = collector.spans();
    for (name, error) in [("chat gpt-5-mini", "auth"), ("invoke_agent write", "credentials")] {
        let span = named(&spans, name);
        assert_eq!(attributes(&span.attributes)["error.type"], error, "{name}");
        assert_eq!(span.status.as_ref().unwrap().code, StatusCode::Error as i32, "{name}");
    }
    let durations = series(&collector.metrics(), "gen_ai.client.operation.duration");
    assert_eq!(durations[0].attributes["error.type"], "auth");
}

#[test]
fn content_is_sent_only_if_it_is_asked_for() {
    let place = Place::new();
    for (value, is_sent) in [(None, false), (Some("false"), false), (Some("true"), true)] {
        let collector = Collector::start(Answers::Ok);
        let url = collector.url();
        let mut variables = vec![(ENDPOINT, url.as_str()), ("RUST_LOG", "trace")];
        variables.extend(value.map(|it| (CONTENT, it)));
        let ended = agent(&place, "They float.", &variables);
        assert_eq!(ended.code, 0, "{ended}");
        let (_, bodies) = collector.heads_and_bodies();
        assert_eq!(bodies.contains("Why otters?"), is_sent, "{value:?}");
        assert_eq!(bodies.contains("They float."), is_sent, "{value:?}");
        // The log never has it.
        assert!(!ended.stderr.contains("Why otters?"), "{ended}");
        if is_sent {
            let spans = collector.spans();
            let call = attributes(&named(&spans, "chat gpt-5-mini").attributes);
            let json = |name: &str| serde_json::from_str::<Value>(&call[name]).unwrap();
            let parts = json!([{"type": "text", "content": "Answer this: Why otters?"}]);
            let input = json("gen_ai.input.messages");
            assert_eq!(input, json!([{"role": "user", "parts": parts}]));
            assert_eq!(json("gen_ai.output.messages")[0]["finish_reason"], "stop");
        }
    }
}

#[tokio::test]
async fn the_content_of_a_tool_call_is_that_of_its_span() {
    for content in ["false", "true"] {
        let collector = Collector::start(Answers::Ok);
        let url = collector.url();
        let telemetry = Telemetry::from_variables(|name| match name {
            ENDPOINT => Some(url.clone()),
            CONTENT => Some(content.to_owned()),
            _ => None,
        });
        let telemetry = telemetry.unwrap().unwrap();
        let subscriber = tracing_subscriber::registry().with(telemetry.layer(|_| false));
        let guard = crate::support::subscriber::subscribe(subscriber);
        agent_tool::run("Have you a bowler, or a fez?").await.unwrap();
        drop(guard);
        telemetry.shut_down(std::time::Duration::from_secs(60)).unwrap();
        let spans = collector.spans();
        let mut calls = spans.iter().filter(|it| it.name == "execute_tool stock.count");
        let found: Vec<_> = calls.by_ref().map(|it| attributes(&it.attributes)).collect();
        assert!(found.iter().all(|it| it["gen_ai.tool.name"] == "stock.count"), "{found:?}");
        let is_bowler = |it: &&BTreeMap<String, String>| !it.contains_key("error.type");
        let bowler = found.iter().find(is_bowler).unwrap_or_else(|| panic!("{}", tree(&spans)));
        let sent =
            (bowler.get("gen_ai.tool.call.arguments"), bowler.get("gen_ai.tool.call.result"));
        match content {
            "true" => {
                assert!(sent.0.unwrap().contains("bowler"), "{sent:?}");
                assert!(sent.1.unwrap().contains("pieces"), "{sent:?}");
            }
            _ => assert_eq!(sent, (None, None)),
        }
        assert!(found.iter().any(|it| it.contains_key("error.type")), "there is no fez");
        let ids: BTreeMap<&[u8], &str> =
            spans.iter().map(|it| (&it.span_id[..], it.name.as_str())).collect();
        for call in spans.iter().filter(|it| it.name == "execute_tool stock.count") {
            let parent = ids.get(&call.parent_span_id[..]);
            assert_eq!(parent, Some(&"invoke_agent answer"), "{}", tree(&spans));
        }
    }
}

#[test]
fn a_run_is_below_the_span_of_its_caller() {
    const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let place = Place::new();
    let collector = Collector::start(Answers::Ok);
    let url = collector.url();
    let variables = [(ENDPOINT, &*url), ("TRACEPARENT", CALLER), ("TRACESTATE", "vendor=7")];
    let ended = agent(&place, "They float.", &variables);
    assert_eq!(ended.code, 0, "{ended}");
    let spans = collector.spans();
    let run = named(&spans, "invoke_workflow agent");
    assert_eq!(run.parent_span_id, 0xb7ad_6b71_6920_3331_u64.to_be_bytes());
    for span in &spans {
        let trace = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128;
        assert_eq!(span.trace_id, trace.to_be_bytes(), "{}", span.name);
        assert_eq!(span.trace_state, "vendor=7", "{}", span.name);
    }

    // A caller that does not sample decides for the run, and metrics count all calls.
    let collector = Collector::start(Answers::Ok);
    let url = collector.url();
    let unsampled = CALLER.replace("-01", "-00");
    let ended = agent(&place, "So.", &[(ENDPOINT, &url), ("TRACEPARENT", &unsampled)]);
    assert_eq!(ended.code, 0, "{ended}");
    assert_eq!(collector.spans(), []);
    let durations = series(&collector.metrics(), "gen_ai.client.operation.duration");
    assert_eq!(durations[0].count, 1);
}

#[test]
fn all_parts_of_a_run_have_its_conversation() {
    let place = Place::new();
    let collector = Collector::start(Answers::Ok);
    let url = collector.url();
    let variables = || [(ENDPOINT, url.as_str())];
    let args = ["execute", &workflow("asks"), "-i", "brief=x", "--run-id", "run-1"];
    assert_eq!(place.run_with(args, variables()).code, 3);
    let args = ["resume", "run-1", "--answer", "help=stop"];
    let ended = place.run_with(args, variables());
    assert_eq!(ended.code, 0, "{ended}");
    let spans = collector.spans();
    let runs: Vec<&Span> = spans.iter().filter(|it| it.name == "invoke_workflow asks").collect();
    assert_eq!(runs.len(), 2);
    let conversations =
        runs.iter().map(|span| attributes(&span.attributes)["gen_ai.conversation.id"].clone());
    assert_eq!(conversations.collect::<Vec<_>>(), ["run-1", "run-1"]);
    assert_ne!(runs[0].trace_id, runs[1].trace_id);
    // The second process links to the span of the first one.
    assert_eq!(runs[0].links, []);
    let [link] = &runs[1].links[..] else { panic!("{:?}", runs[1].links) };
    assert_eq!((&link.trace_id, &link.span_id), (&runs[0].trace_id, &runs[0].span_id));
    assert!(!attributes(&runs[1].attributes).contains_key("first_trace"));
}

#[test]
fn no_key_is_sent_or_reaches_a_program() {
    const KEY: &str = "canary-7f3A9c2b-QuietOtter";
    const HEADER: &str = "canary-51e8-LoudHeron";
    let place = Place::new();
    let collector = Collector::start(Answers::Ok);
    let url = collector.url();
    let headers = format!("api-key={HEADER},x-team=otters");
    let variables = [
        (ENDPOINT, url.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", &headers),
        ("OPENAI_API_KEY", KEY),
        (CONTENT, "true"),
    ];
    let ended = agent(&place, &format!("{KEY} and {HEADER}"), &variables);
    assert_eq!(ended.code, 0, "{ended}");
    let (heads, bodies) = collector.heads_and_bodies();
    assert!(heads.contains(HEADER) && heads.contains("otters"), "{heads}");
    assert!(bodies.contains("[redacted] and [redacted]"), "{bodies}");
    for key in [KEY, HEADER] {
        assert!(!bodies.contains(key), "{bodies}");
        assert!(!ended.stdout.contains(key) && !ended.stderr.contains(key), "{ended}");
    }

    // Neither a sandbox nor a command on this machine has them.
    let printing = "graphrun: 1\nname: printing\nstate: { boxed: string, seen: string }\noutput: [boxed, seen]\n\
                    sandboxes: { box: {} }\nhosts: { here: { allow: [printenv], approve: never } }\nstart: print\nnodes:\n\
                    \x20 print: { run: [env], in: box, writes: { boxed: stdout }, then: again }\n\
                    \x20 again: { run: [printenv], in: here, writes: { seen: stdout }, then: end }\n";
    fs::write(place.path("printing.yaml"), printing).unwrap();
    let args = ["execute", "printing.yaml", "--allow-host", "here", "--output", "json"];
    let variables = variables.into_iter().chain([("TRACEPARENT", "00-0af7-b7ad-01")]);
    let ended = Ended::of(place.command(args).envs(variables));
    assert_eq!(ended.code, 0, "{ended}");
    for field in ["boxed", "seen"] {
        let seen = ended.json()["state"][field].as_str().unwrap().to_owned();
        assert!(seen.contains("PATH="), "{seen}");
        assert!(!seen.contains("OTEL") && !seen.contains("TRACEPARENT"), "{seen}");
    }
}

#[test]
fn a_collector_that_does_not_work_costs_a_run_one_warning() {
    let never = Collector::start(Answers::Never);
    let failing = Collector::start(Answers::Status(500));
    let busy = Collector::start(Answers::Status(503));
    let pages = Collector::start(Answers::Page);
    for (url, reason) in [
        (Collector::gone(), "Connection refused"),
        (never.url(), "the program ended before an answer came"),
        (failing.url(), "it answered 500 Internal Server Error"),
        (busy.url(), "it answered 503 Service Unavailable"),
        (pages.url(), "the answer is a page of HTML; name the address of an OTLP receiver"),
    ] {
        let place = Place::new();
        let ended = agent(&place, "They float.", &[(ENDPOINT, &url)]);
        assert_eq!(
            (ended.code, &ended.json()["state"]["answer"]),
            (0, &json!("They float.")),
            "{ended}"
        );
        let warnings: Vec<&str> =
            ended.stderr.lines().filter(|it| it.contains("warning")).collect();
        assert_eq!(warnings.len(), 1, "{ended}");
        let expected = format!("warning: 4 of 4 spans did not reach {url}/v1/traces: ");
        assert!(warnings[0].starts_with(&expected), "{ended}");
        assert!(warnings[0].contains(reason), "{reason}: {ended}");
    }
}

#[test]
fn spans_that_the_collector_rejects_are_a_warning() {
    let place = Place::new();
    let collector = Collector::start(Answers::RejectsTwo);
    let ended = agent(&place, "So.", &[(ENDPOINT, &collector.url())]);
    assert_eq!(ended.code, 0, "{ended}");
    let expected = format!(
        "warning: 2 spans or values were not accepted by {}/v1/traces: it rejected them: the quota is used up",
        collector.url()
    );
    assert!(ended.stderr.contains(&expected), "{ended}");
}

#[test]
fn a_variable_that_cannot_be_used_is_a_warning() {
    for (name, value, expected) in [
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "grpc",
            "OTEL_EXPORTER_OTLP_PROTOCOL is `grpc`; the protocol is `http/protobuf`",
        ),
        (ENDPOINT, "not an address", "the variables of OpenTelemetry cannot be used"),
    ] {
        let place = Place::new();
        let collector = Collector::start(Answers::Ok);
        let ended = agent(&place, "So.", &[(ENDPOINT, &collector.url()), (name, value)]);
        assert_eq!(ended.code, 0, "{ended}");
        let expected = format!("warning: no telemetry is sent: {expected}");
        assert!(ended.stderr.contains(&expected), "{ended}");
        assert_eq!(collector.spans(), []);
    }
}

#[test]
fn nothing_is_sent_unless_an_address_is_set() {
    let place = Place::new();
    let collector = Collector::start(Answers::Ok);
    let url = collector.url();
    for variables in [
        &[("OTEL_SERVICE_NAME", "team")][..],
        &[(ENDPOINT, &*url), ("OTEL_SDK_DISABLED", "true")],
        &[(ENDPOINT, &*url), ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "none")],
    ] {
        let ended = agent(&place, "So.", variables);
        assert_eq!(ended.code, 0, "{ended}");
        assert!(!ended.stderr.contains("warning"), "{ended}");
    }
    let (heads, _) = collector.heads_and_bodies();
    assert_eq!(heads, "");
}

#[test]
fn the_variables_of_the_sdk_have_their_effect() {
    let run = |more: &[(&str, &str)]| {
        let place = Place::new();
        let collector = Collector::start(Answers::Ok);
        let url = collector.url();
        let ended = agent(&place, "So.", &[&[(ENDPOINT, &*url)], more].concat());
        assert_eq!(ended.code, 0, "{ended}");
        collector
    };
    let named = run(&[
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment.name=lab%2Cwest"),
        ("OTEL_SERVICE_NAME", "otters%2C"),
    ]);
    let resource = named.resource();
    assert_eq!(resource["service.name"], "otters%2C");
    assert_eq!(resource["deployment.environment.name"], "lab,west");
    let other = run(&[("OTEL_RESOURCE_ATTRIBUTES", "service.name=other")]);
    assert_eq!(other.resource()["service.name"], "other");

    let none = run(&[("OTEL_TRACES_SAMPLER", "always_off")]);
    assert_eq!(none.spans(), []);
    assert_eq!(series(&none.metrics(), "gen_ai.client.operation.duration")[0].count, 1);
    let all = run(&[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "1.0")]);
    assert_eq!(all.spans().len(), 4);

    let each = run(&[("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")]);
    assert_eq!((each.spans().len(), each.count_of("/v1/traces")), (4, 4));
}

/// Metrics are sent during a run, not only at its end: the second answer comes after they have arrived.
#[test]
fn metrics_are_sent_at_the_interval_of_their_variable() {
    let place = Place::new();
    let collector = Collector::start(Answers::Ok);
    let text = fs::read_to_string(workflow("agent")).unwrap();
    let second =
        "\n  again: { agent: writer, prompt: { text: Again }, writes: answer, then: end }\n";
    let text = text.trim_end().strip_suffix("end").unwrap().to_owned() + "again" + second;
    fs::write(place.path("twice.yaml"), text).unwrap();
    let provider = TcpListener::bind(crate::support::new_loopback()).unwrap();
    let url = format!("http://{}/v1", provider.local_addr().unwrap());
    let endpoint = collector.url();
    let ended = thread::scope(|threads| {
        threads.spawn(|| {
            answer_with(&mut provider.accept().unwrap().0, "One.");
            let (mut call, _) = provider.accept().unwrap();
            let begun = Instant::now();
            while collector.count_of("/v1/metrics") == 0
                && begun.elapsed() < Duration::from_secs(50)
            {
                thread::sleep(Duration::from_millis(10));
            }
            answer_with(&mut call, "Two.");
        });
        let variables = [
            (ENDPOINT, endpoint.as_str()),
            ("OPENAI_BASE_URL", &url),
            ("OTEL_METRIC_EXPORT_INTERVAL", "20"),
        ];
        let args = ["execute", "twice.yaml", "-i", "brief=x", "--output", "json"];
        Ended::of(place.command(args).envs(variables))
    });
    assert_eq!(ended.code, 0, "{ended}");
    // Once for each interval with values, and at the end.
    assert!(collector.count_of("/v1/metrics") > 1);
}
