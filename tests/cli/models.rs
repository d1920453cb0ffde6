//! `graphrun models`: what can be used here, and what a workflow needs.

use std::{fs, net::TcpListener, thread};

use serde_json::{Value, json};

use crate::cli::{
    program::{Place, workflow},
    provider::{answer_with, read_request},
};

const KEY: &str = "sk-a-key-of-the-tests";

/// Creates a folder with a configuration of the user.
fn place_with(own: &str) -> Place {
    let place = Place::new();
    let folder = place.path(".XDG_CONFIG_HOME/graphrun");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), own).unwrap();
    place
}

fn named<'v>(list: &'v Value, name: &str) -> &'v Value {
    list.as_array().unwrap().iter().find(|it| it["name"] == name).unwrap()
}

#[test]
fn every_provider_is_listed_with_the_sources_of_its_settings() {
    let place = place_with("[providers.lab]\nbase_url = \"https://lab.example/v1\"\n");
    let variables = [("GROQ_API_KEY", KEY), ("OLLAMA_BASE_URL", "http://me:secret-word@box:1/v1")];
    let ended = place.run_with(["models", "--output", "json"], variables);
    assert_eq!(ended.code, 0, "{ended}");
    assert!(!ended.stdout.contains(KEY) && !ended.stdout.contains("secret-word"), "{ended}");
    let providers = &ended.json()["providers"];
    let groq = named(providers, "groq");
    assert_eq!((&groq["usable"], &groq["key"]), (&json!(true), &json!("set")));
    let lab = named(providers, "lab");
    assert_eq!((&lab["usable"], &lab["key"]), (&json!(true), &json!("none")));
    let place_of_lab = lab["settings_from"].as_str().unwrap();
    assert!(place_of_lab.ends_with("config.toml:1:12"), "{place_of_lab}");
    let ollama = named(providers, "ollama");
    assert_eq!(ollama["address"], "http://me:…@box:1/v1");
    assert_eq!(ollama["address_from"], "OLLAMA_BASE_URL");
    let azure = named(providers, "azure");
    assert_eq!((&azure["usable"], &azure["address"]), (&json!(false), &Value::Null));
    assert!(azure["problem"].as_str().unwrap().contains("AZURE_BASE_URL"), "{azure}");
}

#[test]
fn the_models_of_a_workflow_are_tried() {
    let good = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", good.local_addr().unwrap());
    let own = format!("model = \"lab/small\"\n[providers.lab]\nbase_url = \"{address}\"\n");
    let place = place_with(&own);
    let server = thread::spawn(move || {
        let request = answer_with(&mut good.accept().unwrap().0, "OK");
        let mut refused = good.accept().unwrap().0;
        read_request(&mut refused);
        let body = "{\"error\": {\"message\": \"no such key\"}}";
        std::io::Write::write_all(
            &mut refused,
            format!("HTTP/1.1 401 No\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes(),
        )
        .unwrap();
        request
    });
    let args = ["models", "--try", "--output", "json"];
    let ended = place.run(args);
    assert_eq!(ended.code, 0, "{ended}");
    let small = named(&ended.json()["models"], "lab/small").clone();
    assert_eq!(small["try"]["class"], "answer");
    assert!(small["try"]["latency_ms"].is_u64(), "{small}");
    let ended = place.run(args);
    assert_eq!(ended.code, 5, "{ended}");
    let small = &ended.json()["models"][0]["try"];
    assert_eq!((&small["class"], ended.stdout.contains("no such key")), (&json!("auth"), true));
    let request = server.join().unwrap();
    assert!(request.contains("\"model\":\"small\""), "{request}");
}

#[test]
fn a_slow_server_delays_no_other_trial() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", server.local_addr().unwrap());
    let place = place_with(&format!("[providers.lab]\nbase_url = \"{address}\"\n"));
    let server = thread::spawn(move || {
        // The first request is not answered before the second has arrived.
        let mut calls = [server.accept().unwrap().0, server.accept().unwrap().0];
        for call in &mut calls {
            answer_with(call, "OK");
        }
    });
    let args = ["models", "--model", "lab/a", "--model", "lab/b", "--try", "--output", "json"];
    let ended = place.run(args);
    assert_eq!(ended.code, 0, "{ended}");
    server.join().unwrap();
}

#[test]
fn each_model_has_its_figures_and_their_sources() {
    let own = "[context]\n\"lab/small\" = 9_000\n[prices.\"openai/gpt-5\"]\ninput_per_million = 1\n\
               output_per_million = 2\nlong = { over = 5, input_per_million = 3, output_per_million = 4 }\n";
    let place = place_with(own);
    let names = ["lab/small", "openai/gpt-5", "gpt-5-mini", "lab/large"];
    let models = names.iter().flat_map(|it| ["--model", it]);
    let args: Vec<&str> = ["models"].into_iter().chain(models).collect();
    let text = place.run(&args).stdout;
    let listed = place.run([&args[..], &["--output", "json"]].concat()).json()["models"].clone();
    let figures = |name: &str| named(&listed, name)["figures"].clone();
    let small = figures("lab/small");
    assert_eq!((&small["context"], &small["price"]), (&json!(9_000), &Value::Null));
    assert!(small["context_from"].as_str().unwrap().ends_with("config.toml:2:1"), "{small}");
    let gpt = figures("openai/gpt-5");
    let price = json!({"input_per_million": 1.0, "output_per_million": 2.0,
        "long": {"input_per_million": 3.0, "output_per_million": 4.0, "over": 5}});
    assert_eq!((&gpt["price"], &gpt["context_from"]), (&price, &json!("built in")));
    let mini = figures("gpt-5-mini");
    assert_eq!((&mini["context"], &mini["price_from"]), (&json!(400_000), &json!("built in")));
    assert!(mini["as_of"].is_string() && mini["origin"][0].is_string(), "{mini}");
    let unknown = figures("lab/large");
    assert_eq!((&unknown["context"], &unknown["as_of"]), (&Value::Null, &Value::Null));
    assert!(text.contains("400.0k tokens, $0.25 / $2.00 per million (built in, 20"), "{text}");
    assert!(text.contains("context ?, price ?"), "{text}");
    assert!(text.contains("9.0k tokens, price ? ("), "{text}");
}

#[test]
fn a_workflow_without_a_usable_model_is_unusable() {
    let place = Place::new();
    let ended = place.run(["models", &workflow("agent")]);
    assert_eq!(ended.code, 5, "{ended}");
    assert!(ended.stdout.contains("openai/gpt-5-mini  unusable  write"), "{ended}");
    assert!(ended.stdout.contains("set the environment variable OPENAI_API_KEY"), "{ended}");
    let ended = place.run_with(["models", &workflow("agent")], [("OPENAI_API_KEY", KEY)]);
    assert_eq!(ended.code, 0, "{ended}");
}

#[test]
fn a_configured_provider_is_known_to_the_checks() {
    let file = "graphrun: 1\nname: a\nstate: { q: string, a: string }\ninput: q\noutput: a\n\
                agents: { w: { model: opnai/small } }\nstart: w\n\
                nodes: { w: { agent: w, prompt: { text: \"{{ q }}\" }, writes: a, then: end } }\n";
    let place = place_with("");
    fs::write(place.path("a.yaml"), file).unwrap();
    let checked = place.run(["validate", "a.yaml"]);
    assert!(format!("{checked}").contains("GR012"), "{checked}");
    let place = place_with("[providers.opnai]\nbase_url = \"http://localhost:1/v1\"\n");
    fs::write(place.path("a.yaml"), file).unwrap();
    let checked = place.run(["validate", "a.yaml"]);
    assert!(!format!("{checked}").contains("GR012"), "{checked}");
}
