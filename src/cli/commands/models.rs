//! `graphrun models [WORKFLOW]`.

use std::{
    collections::BTreeMap,
    env,
    path::PathBuf,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde::Serialize;

use crate::{
    cli::{
        arguments::{
            globals::{Globals, Output},
            options::RunOptions,
        },
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            terminal::{Paint, print_result},
            words::{clean, table},
        },
        process::runtime::block_on,
        run::{
            figures::ModelFigures,
            loaded,
            models::{client, embedding_client},
        },
        settings::{config::Config, database::shown_setting, run_settings::Settings},
    },
    models::{
        ChatModel as _, ChatRequest, ConfigError, EmbeddingModel as _, EmbeddingRequest, Message,
        ModelError, Provider, Providers, RequestSettings,
    },
    workflow::Workflow,
};

/// The longest duration of a trial.
const TRIAL_TIME: Duration = Duration::from_secs(60);
/// The most tokens of a trial's answer. A reasoning model needs some before the first word.
const TRIAL_TOKENS: u32 = 1024;

/// List the providers of models, and the models that a workflow needs
///
/// The exit code is 5 if an agent of the workflow has no usable model, or if a trial fails.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// List the models of this workflow, too
    workflow: Option<PathBuf>,
    /// List this model, too; can be given several times
    #[arg(long, value_name = "MODEL")]
    model: Vec<String>,
    /// Send a short request to each listed model; this may cost money
    #[arg(long = "try")]
    is_trial: bool,
}

/// The result of the command.
#[derive(Debug, Serialize)]
struct Listing {
    providers: Vec<ProviderRow>,
    models: Vec<ModelRow>,
}

/// A provider.
#[derive(Debug, PartialEq, Serialize)]
struct ProviderRow {
    name: String,
    /// Whether requests can be sent to it.
    usable: bool,
    address: Option<String>,
    /// The source of the address: a variable, a place in a file, or `built in`.
    address_from: String,
    key_variable: Option<String>,
    key: Key,
    /// The place in a file that configures it, or `built in`.
    settings_from: String,
    /// Why it cannot be used.
    problem: Option<String>,
}

/// Whether there is a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Key {
    Set,
    Missing,
    Optional,
    None,
}

/// A model.
#[derive(Debug, Serialize)]
struct ModelRow {
    name: String,
    purpose: Purpose,
    /// The nodes that may ask it.
    nodes: Vec<String>,
    usable: bool,
    /// Why it cannot be used.
    problem: Option<String>,
    figures: ModelFigures,
    #[serde(rename = "try")]
    trial: Option<Trial>,
}

/// What a model is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Purpose {
    Answers,
    Embeddings,
}

/// The models that are listed.
#[derive(Default)]
struct UsedModels {
    /// The nodes of each model.
    nodes: BTreeMap<(String, Purpose), Vec<String>>,
    /// The lists of models, of which each needs one that is usable.
    lists: Vec<(Vec<String>, Purpose)>,
}

/// The outcome of a request.
#[derive(Debug, Serialize)]
struct Trial {
    /// `answer`, `vectors`, or the kind of the failure.
    class: &'static str,
    latency_ms: u128,
    /// The failure.
    problem: Option<String>,
}

impl Args {
    /// Prints the providers and the models.
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("models", &[Output::Text, Output::Json])?;
        // A trial sends keys, so it needs the trust that a run needs.
        let settings = if self.is_trial {
            globals.settings(&RunOptions::default())?
        } else {
            globals.settings_to_plan()?
        };
        let config = globals.config()?;
        let mut used = UsedModels::default();
        let given = self.model.iter().chain(&settings.options.model);
        used.nodes.extend(given.map(|it| ((it.clone(), Purpose::Answers), Vec::new())));
        if let Some(path) = &self.workflow {
            used.add_workflow(&loaded::load(path)?.workflow);
        }
        let rows = used.nodes.into_iter();
        let rows =
            rows.map(|((name, purpose), nodes)| row(name, purpose, nodes, &settings, config));
        let mut rows: Vec<ModelRow> = rows.collect();
        if self.is_trial {
            // At once, so that a silent server delays no other trial.
            let trials = rows.iter_mut().filter(|it| it.usable).map(|row| async {
                row.trial = Some(trial(&row.name, row.purpose, &settings).await);
            });
            block_on(async {
                join_all(trials).await;
                Ok(())
            })?;
        }
        let variable = |name: &str| env::var(name).ok().filter(|it| !it.trim().is_empty());
        let providers = config.providers.iter();
        let providers = providers.map(|(name, it)| describe(name, it, config, &variable)).collect();
        let works = |model: &String, purpose: Purpose| {
            let row = rows.iter().find(|it| it.name == *model && it.purpose == purpose);
            row.is_some_and(|it| it.usable && it.trial.as_ref().is_none_or(Trial::is_answer))
        };
        let trials = rows.iter().filter_map(|it| it.trial.as_ref());
        let is_good =
            used.lists.iter().all(|(models, purpose)| models.iter().any(|it| works(it, *purpose)))
                && trials.into_iter().all(Trial::is_answer)
                && (!self.is_trial || rows.iter().all(|it| it.usable || !it.nodes.is_empty()));
        let listing = Listing { providers, models: rows };
        let text = match globals.output {
            Output::Json => to_json(&listing)?,
            Output::Text | Output::Jsonl | Output::Sarif | Output::Github => {
                draw(&listing, globals.stdout)
            }
        };
        print_result(&text).map_err(CliError::write)?;
        Ok(if is_good { Exit::Done } else { Exit::Unusable })
    }
}

impl UsedModels {
    fn add_workflow(&mut self, workflow: &Workflow) {
        for (node, definition) in workflow.all_nodes() {
            let embeddings = definition.settings.embeddings();
            for model in embeddings.map(|it| it.models).unwrap_or_default() {
                let key = (model.to_owned(), Purpose::Embeddings);
                self.nodes.entry(key).or_default().push(node.to_string());
                self.lists.push((vec![model.to_owned()], Purpose::Embeddings));
            }
            let Some(used) = definition.settings.models() else { continue };
            for model in used.models {
                let key = (model.clone(), Purpose::Answers);
                self.nodes.entry(key).or_default().push(node.to_string());
            }
            self.lists.push((used.models.to_vec(), Purpose::Answers));
        }
    }
}

impl Trial {
    fn is_answer(&self) -> bool {
        self.problem.is_none()
    }
}

/// Describes a provider: its address and its key, and where they come from.
fn describe(
    name: &str,
    provider: &Provider,
    config: &Config,
    variable: &dyn Fn(&str) -> Option<String>,
) -> ProviderRow {
    let configured = config.provider_places.get(name).cloned();
    let settings_from = configured.unwrap_or_else(|| "built in".to_owned());
    let base_url = config.get("base_url").filter(|_| name == Providers::DEFAULT);
    let from_variable = Providers::address_variable(name);
    let (address, address_from) = match (base_url, variable(&from_variable)) {
        (Some(it), _) => (Some(it.text.clone()), it.layer.clone()),
        (None, Some(address)) => (Some(address), from_variable),
        (None, None) => (provider.base_url.clone(), settings_from.clone()),
    };
    let key = match &provider.key_variable {
        None => Key::None,
        Some(name) if variable(name).is_some() => Key::Set,
        Some(_) if provider.key_optional => Key::Optional,
        Some(_) => Key::Missing,
    };
    let with_address = |name: &str| match base_url {
        Some(url) if name == "OPENAI_BASE_URL" => Some(url.text.clone()),
        _ => variable(name),
    };
    // Any name will do: only the provider decides.
    let found = config.providers.config(&format!("{name}/model"), &with_address);
    ProviderRow {
        name: name.to_owned(),
        usable: found.is_ok(),
        address: address.map(|it| shown_setting(&it)),
        address_from,
        key_variable: provider.key_variable.clone(),
        key,
        settings_from,
        problem: found.err().map(|it| it.to_string()),
    }
}

fn row(
    name: String,
    purpose: Purpose,
    nodes: Vec<String>,
    settings: &Settings,
    config: &Config,
) -> ModelRow {
    let problem = match purpose {
        Purpose::Answers => client(&name, settings).err(),
        Purpose::Embeddings => embedding_client(&name, settings).err(),
    };
    let problem = problem.map(|it| it.to_string());
    let figures = ModelFigures::of(&name, config);
    ModelRow { usable: problem.is_none(), name, purpose, nodes, problem, figures, trial: None }
}

/// Sends a short request.
async fn trial(model: &str, purpose: Purpose, settings: &Settings) -> Trial {
    let began = Instant::now();
    let (class, problem) = match purpose {
        Purpose::Answers => ("answer", ask(model, settings).await.err()),
        Purpose::Embeddings => ("vectors", embed(model, settings).await.err()),
    };
    let class = problem.as_ref().map_or(class, |it| it.kind().as_str());
    let problem = problem.map(|it| it.to_string());
    Trial { class, latency_ms: began.elapsed().as_millis(), problem }
}

async fn embed(model: &str, settings: &Settings) -> Result<(), ModelError> {
    let texts = vec!["OK".to_owned()];
    let timeout = Some(TRIAL_TIME);
    let request = EmbeddingRequest { texts, timeout, ..EmbeddingRequest::default() };
    let client = embedding_client(model, settings).map_err(|it| unusable(&it))?;
    client.embed(&request).await.map(drop)
}

fn unusable(error: &ConfigError) -> ModelError {
    ModelError::Unavailable { message: error.to_string() }
}

async fn ask(model: &str, settings: &Settings) -> Result<(), ModelError> {
    let request = ChatRequest {
        messages: vec![Message::user("Answer with the word OK and nothing else.")],
        settings: RequestSettings { max_tokens: Some(TRIAL_TOKENS), ..RequestSettings::default() },
        timeout: Some(TRIAL_TIME),
        ..ChatRequest::default()
    };
    let client = client(model, settings).map_err(|it| unusable(&it))?;
    client.chat(&request).await.map(drop)
}

fn draw(listing: &Listing, paint: Paint) -> String {
    let verdict = |usable: bool| if usable { paint.good("ok") } else { paint.bad("unusable") };
    let providers = listing.providers.iter().map(|provider| {
        let key = match (&provider.key_variable, provider.key) {
            (Some(name), Key::Set) => format!("{name} is set"),
            (Some(name), Key::Optional) => format!("{name} is not needed"),
            (Some(name), _) => format!("{name} is not set"),
            (None, _) => "no key".to_owned(),
        };
        let address = provider.address.as_deref().unwrap_or("no address");
        let address = format!("{} ({})", clean(address), clean(&provider.address_from));
        vec![provider.name.clone(), verdict(provider.usable), address, key]
    });
    let mut text = table(&providers.collect::<Vec<_>>());
    let models = listing.models.iter().map(|model| {
        let works = model.usable && model.trial.as_ref().is_none_or(Trial::is_answer);
        let trial = model.trial.as_ref().map(|it| format!("{} in {} ms", it.class, it.latency_ms));
        let nodes = model.nodes.join(", ");
        let trial = trial.unwrap_or_default();
        vec![clean(&model.name), verdict(works), clean(&nodes), model.figures.shown(), trial]
    });
    let models: Vec<Vec<String>> = models.collect();
    if !models.is_empty() {
        text = format!("{text}\n{}", table(&models));
    }
    let problems = listing.models.iter().filter_map(|model| {
        let failed = model.trial.as_ref().and_then(|it| it.problem.as_ref());
        let problem = clean(model.problem.as_ref().or(failed)?);
        Some(format!("{} {}: {problem}\n", paint.command("help:"), clean(&model.name)))
    });
    text + &problems.collect::<String>()
}
