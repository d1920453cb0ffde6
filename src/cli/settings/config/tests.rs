use std::{fs, os::unix::fs::symlink, time::Duration};

use super::{layers::ConfigLayers, *};
use crate::cli::output::terminal::Paint;

const FULL: &str = r#"
db = "sqlite:a.db"
model = "ollama/q"
base_url = "http://box:1/v1"
lease = "1m"
[limits]
steps = 7
calls = 70
tokens = 1_000
usd = 2.5
time = "45m"
"#;

/// Returns the configuration of a trusted folder with this file.
fn config(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    layered(folder.path(), text, "", true, variables)
}

/// Returns the configuration of an untrusted folder, with a configuration file of the user.
fn untrusted_config(text: &str, own: &str, variables: &[(&str, &str)]) -> Config {
    let folder = tempfile::tempdir().unwrap();
    layered(folder.path(), text, own, false, variables).unwrap()
}

fn layered(
    folder: &std::path::Path,
    text: &str,
    own: &str,
    is_trusted: bool,
    variables: &[(&str, &str)],
) -> Result<Config, String> {
    let variable = |name: &str| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, it)| (*it).to_owned())
    };
    let layers = ConfigLayers {
        folder,
        file: Some(FolderFile { text: text.to_owned() }),
        is_trusted,
        own: (!own.is_empty()).then(|| ("own.toml".to_owned(), own.to_owned())),
        variable: &variable,
    };
    Config::of(&layers).map_err(|it| it.draw(Paint::new(false), 80))
}

/// Returns the keys that are ignored without trust.
fn withheld(config: &Config) -> Vec<String> {
    config.withheld().iter().map(|it| it.name.clone()).collect()
}

#[test]
fn a_flag_is_before_the_environment_and_that_before_the_file() {
    let config =
        config(FULL, &[("GRAPHRUN_MAX_STEPS", "8"), ("GRAPHRUN_MAX_TOKENS", "9")]).unwrap();
    let flags = RunOptions { max_steps: Some(1), ..RunOptions::default() };
    let options = config.complete(&flags).unwrap();
    assert_eq!((options.max_steps, options.max_tokens), (Some(1), Some(9)));
    assert_eq!((options.max_calls, options.max_cost), (Some(70), Some(2.5)));
    assert_eq!(options.timeout, Some(Duration::from_secs(2700)));
    assert_eq!(options.model.as_deref(), Some("ollama/q"));
}

#[test]
fn settings_are_shown_with_layers_and_without_passwords() {
    let db = ("GRAPHRUN_DB", "postgres://me:secret@db/app");
    let shown = config(FULL, &[db]).unwrap().shown();
    insta::assert_snapshot!(shown.join("\n"), @r"
    base_url = http://box:1/v1 (graphrun.toml:4:12)
    db = postgres://me:…@db/app (GRAPHRUN_DB)
    lease = 1m (graphrun.toml:5:9)
    limits.calls = 70 (graphrun.toml:8:9)
    limits.steps = 7 (graphrun.toml:7:9)
    limits.time = 45m (graphrun.toml:11:8)
    limits.tokens = 1000 (graphrun.toml:9:10)
    limits.usd = 2.5 (graphrun.toml:10:7)
    model = ollama/q (graphrun.toml:3:9)
    ");
}

#[test]
fn a_wrong_value_of_the_environment_names_its_variable() {
    let config = config("", &[("GRAPHRUN_MAX_COST", "much"), ("GRAPHRUN_TIMEOUT", "5")]);
    let error = config.unwrap().complete(&RunOptions::default()).unwrap_err();
    assert_eq!(error.exit(), Exit::Unusable);
    let text = error.draw(Paint::new(false), 80);
    assert!(text.contains("GRAPHRUN_MAX_COST is `much`: expected an amount"), "{text}");
    assert!(text.contains("GRAPHRUN_TIMEOUT is `5`: "), "{text}");
}

#[test]
fn a_flag_hides_errors_of_lower_layers() {
    let config = config("", &[("GRAPHRUN_MAX_STEPS", "x")]).unwrap();
    let flags = RunOptions { max_steps: Some(1), ..RunOptions::default() };
    assert_eq!(config.complete(&flags).unwrap().max_steps, Some(1));
}

#[test]
fn every_mistake_of_a_file_is_found_at_once_each_at_its_place() {
    let text = config(
        r#"modle = "x"
base_url = "box:1"
db = 5
limits = { step = 1, tokens = "many", usd = -1, time = "0s" }
[prices."a/b"]
input_per_million = "cheap"
output = 3
[prices.c]
input_per_million = -1
output_per_million = 1
[context]
"a/b" = 0
[limit]
"#,
        &[],
    );
    insta::assert_snapshot!(text.unwrap_err(), @r"
    error: `graphrun.toml` cannot be used
      - graphrun.toml:1:1: there is no setting `modle`; did you mean `model`?
      - graphrun.toml:2:12: `base_url` is `box:1`: expected an address, as in `http://localhost:8000/v1`
      - graphrun.toml:3:6: `db` must be a text in quotes, not a number
      - graphrun.toml:4:12: there is no setting `limits.step`; did you mean `steps`?
      - graphrun.toml:4:31: `limits.tokens` must be a number, not a text
      - graphrun.toml:4:45: `limits.usd` is `-1`: expected an amount above zero, as in `2.50`
      - graphrun.toml:4:56: `limits.time` is `0s`: expected a time above zero, as in `90s`, `1h 30m` or `30d`
      - graphrun.toml:7:1: there is no setting of a price `output`; there is input_per_million, output_per_million, cached_input_per_million, cache_write_per_million, reasoning_output_per_million, long
      - graphrun.toml:6:21: `input_per_million` must be a number of 0 or more
      - graphrun.toml:5:9: the price of `a/b` has no `output_per_million`
      - graphrun.toml:9:21: `input_per_million` must be a number of 0 or more
      - graphrun.toml:12:9: `a/b` must be a number of 1 or more
      - graphrun.toml:13:2: there is no setting `limit`; did you mean `limits`?
    help: docs/configuration.md lists the settings; nothing was started
    ");
}

#[test]
fn invalid_toml_is_reported_with_its_place() {
    let text = config("db = \"a\"\n[prices.openai/gpt-5]\ninput_per_million = 1\n", &[]);
    insta::assert_snapshot!(text.unwrap_err(), @r#"
    error: `graphrun.toml` cannot be used
      - graphrun.toml:2:15: invalid unquoted key, expected letters, numbers, `-`, `_`
      - the name of a model is quoted: `[prices."lab/model"]`
    help: docs/configuration.md lists the settings; nothing was started
    "#);
}

#[test]
fn without_a_file_there_is_no_warning() {
    let folder = std::path::Path::new(".");
    let layers =
        ConfigLayers { folder, file: None, is_trusted: false, own: None, variable: &|_| None };
    let config = Config::of(&layers).unwrap();
    assert!(config.files().is_empty() && config.shown().is_empty());
    assert_eq!(&config.prices, Prices::built_in());
}

#[test]
fn the_file_of_a_trusted_folder_is_before_that_of_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let own = "db = \"sqlite:/own.db\"\nmodel = \"own/m\"\n[limits]\ntokens = 5\nsteps = 5";
    let text = "db = \"sqlite:/folder.db\"\n[limits]\ntokens = 9";
    let config = layered(folder.path(), text, own, true, &[]).unwrap();
    insta::assert_snapshot!(config.shown().join("\n"), @r"
    db = sqlite:/folder.db (graphrun.toml:1:6)
    limits.steps = 5 (own.toml:5:9)
    limits.tokens = 9 (graphrun.toml:3:10)
    model = own/m (own.toml:2:9)
    ");
    let config = untrusted_config(text, own, &[]);
    assert_eq!(withheld(&config), ["db", "limits.tokens"]);
    assert_eq!(config.get("db").unwrap().text, "sqlite:/own.db");
    assert_eq!(config.get("limits.tokens").unwrap().text, "5");
}

#[test]
fn without_trust_a_file_sets_only_harmless_values() {
    for (setting, needs_trust) in [
        ("base_url = \"https://elsewhere.example/v1\"", true),
        ("base_url = \"http://localhost:1/v1\"", true),
        ("db = \"postgres://elsewhere.example/x\"", true),
        ("db = \"postgresql:///x\"", true),
        ("db = \"sqlite:/tmp/runs.db\"", true),
        ("db = \"sqlite:///tmp/runs.db\"", true),
        ("db = \"sqlite:../runs.db\"", true),
        ("db = \"sqlite:a/../../runs.db\"", true),
        ("db = \"sqlite:runs.db\"", false),
        ("db = \"sqlite:./a/runs.db\"", false),
        ("db = \"memory:\"", false),
        ("model = \"groq/x\"", false),
        ("lease = \"1m\"", false),
        ("limits = { steps = 5 }", false),
        ("limits = { steps = 6 }", true),
        ("limits = { calls = 50 }", false),
        ("limits = { calls = 51 }", true),
        ("limits = { tokens = 500 }", false),
        ("limits = { tokens = 501 }", true),
        ("limits = { usd = 1.5 }", false),
        ("limits = { usd = 1.51 }", true),
        ("limits = { time = \"60s\" }", false),
        ("limits = { time = \"2m\" }", true),
        ("context = { \"a/b\" = 5 }", false),
        ("providers.lab = { base_url = \"http://lab/v1\" }", false),
        ("providers.lab = { base_url = \"http://lab/v1\", key_variable = \"GROQ_API_KEY\" }", true),
        ("providers.groq = { output = \"prompted\", unsupported = [\"seed\"] }", false),
        ("providers.groq = { base_url = \"http://thief/v1\" }", true),
        ("providers.groq = { headers = { x-a = \"b\" } }", true),
        ("providers.groq = { key_header = \"x-a\" }", true),
        ("providers.ollama = { base_url = \"http://thief/v1\" }", true),
        ("providers.ollama = { key_variable = \"OPENAI_API_KEY\" }", true),
    ] {
        let own = "limits = { steps = 5, calls = 50, tokens = 500, usd = 1.5, time = \"1m\" }";
        let config = untrusted_config(setting, own, &[]);
        assert_eq!(!withheld(&config).is_empty(), needs_trust, "{setting}");
        let refused = config.check_trust(|_| true);
        assert_eq!(refused.is_err(), needs_trust, "{setting}");
        let folder = tempfile::tempdir().unwrap();
        let trusted = layered(folder.path(), setting, own, true, &[]).unwrap();
        assert!(withheld(&trusted).is_empty(), "{setting}");
    }
}

#[test]
fn a_database_behind_a_link_out_of_the_folder_needs_trust() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("clone");
    fs::create_dir(&folder).unwrap();
    symlink(outer.path(), folder.join("link")).unwrap();
    let config = layered(&folder, "db = \"sqlite:link/runs.db\"", "", false, &[]).unwrap();
    assert_eq!(withheld(&config), ["db"]);
}

#[test]
fn a_provider_has_the_settings_of_both_files() {
    let own =
        "[providers.lab]\nbase_url = \"http://lab/v1\"\n[providers.groq]\noutput = \"prompted\"";
    let config = untrusted_config("[providers.groq]\ntoken_limit = \"max_tokens\"", own, &[]);
    let groq = config.providers.get("groq").unwrap();
    assert_eq!(
        (groq.profile.output.as_str(), groq.profile.token_limit.as_str()),
        ("prompted", "max_tokens")
    );
    assert_eq!(groq.base_url.as_deref(), Some("https://api.groq.com/openai/v1"));
    assert_eq!(config.provider_places["groq"], "graphrun.toml:1:12");
    assert_eq!(config.provider_places["lab"], "own.toml:1:12");
    let redirected = "[providers.lab]\nbase_url = \"http://thief/v1\"";
    assert_eq!(withheld(&untrusted_config(redirected, own, &[])), ["providers.lab"]);
}

#[test]
fn mistakes_in_providers_are_reported_with_their_places() {
    let text = "[providers.lab]\nbase_ulr = \"http://lab/v1\"\noutput = \"yaml\"\n[providers.\"a b\"]\n[provider]\n";
    insta::assert_snapshot!(config(text, &[]).unwrap_err(), @r"
    error: `graphrun.toml` cannot be used
      - graphrun.toml:2:1: there is no setting of a provider `base_ulr`; did you mean `base_url`?
      - graphrun.toml:3:10: there is no `output` `yaml`; there is json_schema, json_object, tool, prompted
      - graphrun.toml:4:12: `a b` is no name of a provider: use letters, digits, `-` and `_`
      - graphrun.toml:5:2: there is no setting `provider`; did you mean `providers`?
    help: docs/configuration.md lists the settings; nothing was started
    ");
}

#[test]
fn settings_of_the_environment_need_no_trust() {
    let text = "base_url = \"https://elsewhere.example/v1\"\ndb = \"sqlite:/x\"";
    let variables = [("OPENAI_BASE_URL", "http://mine/v1"), ("GRAPHRUN_DB", "sqlite:/mine")];
    let config = untrusted_config(text, "", &variables);
    assert!(config.withheld().is_empty());
    assert_eq!(config.get("base_url").unwrap().text, "http://mine/v1");
}

#[test]
fn without_trust_a_price_does_not_replace_one_of_the_user() {
    let price = |input: u32| {
        format!("[prices.\"a/b\"]\ninput_per_million = {input}\noutput_per_million = 1\n")
    };
    let more = "[prices.\"a/c\"]\ninput_per_million = 3\noutput_per_million = 1\n";
    let config = untrusted_config(&(price(0) + more), &price(5), &[]);
    let input = |model: &str| config.prices.of(model).map(|it| it.tokens.input);
    assert_eq!((input("a/b"), input("a/c")), (Some(5.0), Some(3.0)));
}

#[test]
fn a_configured_figure_replaces_a_built_in_one() {
    let text = "[prices.\"openai/gpt-5\"]\ninput_per_million = 1\noutput_per_million = 2\n\
                long = { over = 9, input_per_million = 3, output_per_million = 4 }\n\
                [context]\n\"openai/gpt-5\" = 7\n";
    let figures = |config: &Config| {
        let long = config.prices.of("gpt-5").unwrap().long.map(|it| (it.over, it.tokens.output));
        (long, config.windows.of("openai/gpt-5"))
    };
    let trusted = config(text, &[]).unwrap();
    assert_eq!(figures(&trusted), (Some((9, 4.0)), Some(7)));
    assert_eq!(trusted.price_places["openai/gpt-5"], "graphrun.toml:1:9");
    assert_eq!(trusted.trusted_prices, trusted.prices);
    let untrusted = untrusted_config(text, "", &[]);
    assert_eq!(figures(&untrusted), (Some((9, 4.0)), Some(7)));
    assert_eq!(&untrusted.trusted_prices, Prices::built_in());
    let own = "[prices.gpt-5]\ninput_per_million = 5\noutput_per_million = 6\n[context]\ngpt-5 = 8";
    let own = untrusted_config(text, own, &[]);
    assert_eq!(figures(&own), (None, Some(8)));
    assert_eq!(own.window_places["openai/gpt-5"], "own.toml:5:1");
}

#[test]
fn mistakes_in_the_prices_of_long_requests_are_reported() {
    let text = "[prices.a]\ninput_per_million = 1\noutput_per_million = 2\n\
                long = { over = 0, input_per_million = 3 }\n[prices.b]\ninput_per_million = 1\n\
                output_per_million = 2\nlong = 5\n[prices.c]\ninput_per_million = 1\n\
                output_per_million = 2\nlong = { input_per_million = 3, output_per_million = 4 }\n";
    insta::assert_snapshot!(config(text, &[]).unwrap_err(), @r"
    error: `graphrun.toml` cannot be used
      - graphrun.toml:1:9: the price of long requests to `a` has no `output_per_million`
      - graphrun.toml:4:17: `over` must be a whole number above zero
      - graphrun.toml:8:8: `long` must be a table
      - graphrun.toml:12:8: the price of long requests to `c` has no `over`, a number of tokens
    help: docs/configuration.md lists the settings; nothing was started
    ");
}

#[test]
fn an_untrusted_setting_is_reported_with_place_and_remedies() {
    let config = untrusted_config(
        "model = \"x\"\nbase_url = \"https://me:pw@elsewhere.example/v1\"",
        "",
        &[],
    );
    let error = config.check_trust(|_| true).unwrap_err();
    assert_eq!(error.exit(), Exit::Unusable);
    insta::assert_snapshot!(error.draw(Paint::new(false), 80), @r"
    error: `graphrun.toml` has settings that need your trust in this folder; nothing was started
      - graphrun.toml:2:12: `base_url` is `https://me:…@elsewhere.example/v1`: it receives every request to a model, with your key
    help: remove it from the file, or read the file and run `graphrun trust`
    help: flags, the environment and your own configuration need no trust
    ");
}

#[test]
fn an_untrusted_file_only_lowers_the_limits_of_a_workflow() {
    use crate::{cli::settings::run_settings::Settings, graph::Limits};
    let own = Limits {
        steps: 10,
        calls: Some(10),
        tokens: Some(10),
        usd: None,
        time: Some(Duration::from_secs(10)),
        ..Limits::default()
    };
    for (text, flags, is_refused) in [
        ("limits = { steps = 10, calls = 10, tokens = 10, usd = 99, time = \"10s\" }", None, false),
        ("limits = { steps = 11 }", None, true),
        ("limits = { calls = 11 }", None, true),
        ("limits = { tokens = 11 }", None, true),
        ("limits = { time = \"11s\" }", None, true),
        ("limits = { steps = 11 }", Some(50), false),
    ] {
        let config = untrusted_config(text, "", &[]);
        let flags = RunOptions { max_steps: flags, ..RunOptions::default() };
        let settings = Settings {
            untrusted: config.untrusted_limits(&flags),
            options: config.complete(&flags).unwrap(),
            ..Settings::default()
        };
        assert_eq!(settings.check_limits(&own).is_err(), is_refused, "{text}");
    }
}
