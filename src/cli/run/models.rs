//! The models of a run: providers, or a recording.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, iter,
    path::Path,
    sync::Arc,
};

use crate::{
    cases::RecordedModels,
    cli::{
        error::CliError,
        exit::Exit,
        settings::{config::Config as UserConfig, run_settings::Settings},
    },
    graph::{ErrorKind, Failure},
    id::NodeName,
    models::{
        ChatModel, ChatReply, ChatRequest, ClientConfig, ConfigError, EmbeddingClient,
        EmbeddingModel, EmbeddingRecorder, ModelError, ProviderClient, ProviderSettings,
        Providers as KnownProviders, Recorder, RecordingError, RecordingFile, Replay,
    },
    nodes::ModelSource,
    workflow::Program,
};

/// The models of a run, and which of them may cost money.
#[derive(Debug)]
pub(crate) struct ConnectedModels {
    pub(crate) source: Arc<dyn ModelSource>,
    /// The usable models; none for a recording.
    usable: BTreeSet<String>,
}

impl ConnectedModels {
    /// Returns the usable models; none for a recording.
    pub(crate) fn usable(&self) -> &BTreeSet<String> {
        &self.usable
    }

    /// Returns whether calls to a model of that name may cost money.
    pub(crate) fn may_be_paid(&self, model: &str) -> bool {
        self.usable.contains(model)
    }
}

/// Reads a recording to replay.
///
/// # Errors
///
/// Fails when it cannot be read.
pub(crate) fn load_recording(path: &Path) -> Result<Replay, CliError> {
    let replay = Replay::load(path);
    replay.map_err(|error| CliError::usage("the recording cannot be replayed").because(error))
}

/// Connects every model that agents may use, and reports everything that is missing.
///
/// An agent with several models needs one of them; the others are fallbacks.
///
/// # Errors
///
/// Fails when an agent has no usable model, or a recording cannot be used.
pub(crate) fn connect<'a>(
    agents: impl Iterator<Item = (&'a NodeName, &'a [String])>,
    embeddings: impl Iterator<Item = (&'a NodeName, BTreeSet<&'a str>)>,
    mut programs: impl Iterator<Item = &'a Program>,
    settings: &Settings,
) -> Result<ConnectedModels, CliError> {
    if let Some(path) = &settings.options.replay {
        let replay = load_recording(path)?;
        let source = Arc::new(RecordedModels::new(replay));
        return Ok(ConnectedModels { source, usable: BTreeSet::new() });
    }
    let mut providers = Providers::default();
    if let (Some(path), Some(_)) = (&settings.options.record, programs.next()) {
        let recording = RecordingFile::open(path).map_err(|it| not_recorded(problem_of(&it)))?;
        providers.recording = Some(recording);
    }
    // The agents of each list of failures: one missing key is reported once.
    let mut unusable: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for (node, models) in agents {
        let mut failures = Vec::new();
        for model in models {
            match providers.connect(model, settings) {
                Ok(()) => (),
                Err(Obstacle::Model(problem)) => failures.push(problem),
                Err(Obstacle::Recording(problem)) => return Err(not_recorded(problem)),
            }
        }
        if failures.len() == models.len() {
            unusable.entry(failures).or_default().push(format!("`{node}`"));
        }
    }
    if unusable.is_empty() {
        providers.connect_embeddings(embeddings, settings)?;
        let usable = providers.models.iter().filter(|(_, it)| it.is_ok());
        let usable = usable.map(|(name, _)| name).chain(providers.embeddings.keys());
        let usable = usable.cloned().collect();
        return Ok(ConnectedModels { source: Arc::new(providers), usable });
    }
    let problems = unusable.into_iter().flat_map(|(failures, agents)| {
        // Each on its own line, because a long line is cut.
        let leads =
            iter::once(format!("{}: ", agents.join(", "))).chain(iter::repeat("or ".into()));
        leads.zip(failures).map(|(lead, failure)| lead + &failure).collect::<Vec<_>>()
    });
    Err(CliError::new(Exit::Unusable, "agents have no usable model; nothing was started")
        .with_problems(problems.collect())
        .with_help(
            "choose a model for every agent with `--model`, as in `--model ollama/llama3.2`",
        ))
}

/// Returns a source for workflows that are only inspected.
pub(crate) fn unconnected() -> Arc<dyn ModelSource> {
    Arc::new(Providers::default())
}

fn problem_of(error: &RecordingError) -> String {
    Failure::of(ErrorKind::Recording, error).message
}

fn not_recorded(problem: String) -> CliError {
    CliError::new(Exit::Unusable, "the recording cannot be written; nothing was started")
        .because(problem)
        .with_help("name another file with `--record`")
}

/// Returns the client of a model, with the providers and the address of the settings.
///
/// # Errors
///
/// Fails with what to set.
pub(crate) fn client(model: &str, settings: &Settings) -> Result<ProviderClient, ConfigError> {
    config(model, settings).and_then(ProviderClient::new)
}

/// Returns the client of a model for embeddings.
///
/// # Errors
///
/// Fails with what to set, and for a provider without embeddings.
pub(crate) fn embedding_client(
    model: &str,
    settings: &Settings,
) -> Result<EmbeddingClient, ConfigError> {
    config(model, settings).and_then(EmbeddingClient::new)
}

fn config(model: &str, settings: &Settings) -> Result<ClientConfig, ConfigError> {
    // Here, the environment was already checked for the URL, before the file.
    let variable = |name: &str| match (name, &settings.base_url) {
        ("OPENAI_BASE_URL", Some(url)) => Some(url.clone()),
        _ => env::var(name).ok(),
    };
    settings.providers.config(model, &variable)
}

/// Returns the providers of a configuration, each with the protocol of the address that the environment gives it.
pub(crate) fn providers_at_their_addresses(config: &UserConfig) -> Arc<KnownProviders> {
    let base_url = config.get("base_url").map(|it| it.text.clone());
    let address = |name: &str| {
        let of_default = base_url.clone().filter(|_| name == KnownProviders::DEFAULT);
        of_default.or_else(|| env::var(KnownProviders::address_variable(name)).ok())
    };
    let mut providers = KnownProviders::clone(&config.providers);
    for (name, provider) in config.providers.iter() {
        let address = address(name).filter(|it| !it.trim().is_empty());
        let profile = address.map(|it| provider.profile_at(&it));
        if let Some(profile) = profile.filter(|it| *it != provider.profile) {
            let protocol = Some(profile.protocol);
            providers.add(name, ProviderSettings { protocol, ..ProviderSettings::default() });
        }
    }
    Arc::new(providers)
}

/// Models by their names in a workflow.
#[derive(Debug, Default)]
struct Providers {
    models: BTreeMap<String, Result<Arc<dyn ChatModel>, Obstacle>>,
    /// The models for embeddings, all of them usable.
    embeddings: BTreeMap<String, Arc<dyn EmbeddingModel>>,
    /// Where the exchanges with programs are recorded.
    recording: Option<RecordingFile>,
}

/// Why a model cannot be used.
#[derive(Clone, Debug)]
enum Obstacle {
    /// The model is unknown or has no key.
    Model(String),
    /// Its replies cannot be recorded.
    Recording(String),
}

impl Providers {
    /// Connects a model, once.
    fn connect(&mut self, model: &str, settings: &Settings) -> Result<(), Obstacle> {
        let connected =
            self.models.entry(model.to_owned()).or_insert_with(|| Self::client(model, settings));
        connected.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Connects the models that make vectors for nodes.
    fn connect_embeddings<'a>(
        &mut self,
        nodes: impl Iterator<Item = (&'a NodeName, BTreeSet<&'a str>)>,
        settings: &Settings,
    ) -> Result<(), CliError> {
        let mut unusable: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (node, models) in nodes {
            for model in models {
                match Self::embedding_client(model, settings) {
                    Ok(client) => drop(self.embeddings.insert(model.to_owned(), client)),
                    Err(Obstacle::Model(problem)) => {
                        unusable.entry(problem).or_default().push(format!("`{node}`"));
                    }
                    Err(Obstacle::Recording(problem)) => return Err(not_recorded(problem)),
                }
            }
        }
        if unusable.is_empty() {
            return Ok(());
        }
        let problems = unusable.into_iter();
        let problems = problems.map(|(problem, nodes)| format!("{}: {problem}", nodes.join(", ")));
        let message = "a model for embeddings cannot be used; nothing was started";
        Err(CliError::new(Exit::Unusable, message)
            .with_problems(problems.collect())
            .with_help("name another model in `embeddings` of the tier, or remove `embeddings`"))
    }

    fn embedding_client(
        model: &str,
        settings: &Settings,
    ) -> Result<Arc<dyn EmbeddingModel>, Obstacle> {
        let client = embedding_client(model, settings);
        let client = client.map_err(|error| Obstacle::Model(error.to_string()))?;
        match &settings.options.record {
            None => Ok(Arc::new(client)),
            Some(path) => EmbeddingRecorder::wrap(Arc::new(client), model, path)
                .map(|it| Arc::new(it) as Arc<dyn EmbeddingModel>)
                .map_err(|error| Obstacle::Recording(problem_of(&error))),
        }
    }

    fn client(model: &str, settings: &Settings) -> Result<Arc<dyn ChatModel>, Obstacle> {
        let client = client(model, settings)
            .map_err(|error: ConfigError| Obstacle::Model(error.to_string()))?;
        match &settings.options.record {
            None => Ok(Arc::new(client)),
            Some(path) => Recorder::wrap(Arc::new(client), path)
                .map(|it| Arc::new(it) as Arc<dyn ChatModel>)
                .map_err(|error| Obstacle::Recording(problem_of(&error))),
        }
    }
}

impl ModelSource for Providers {
    fn model(&self, name: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        let unusable = |message: String| ModelError::Unavailable { message };
        match self.models.get(name) {
            Some(model) => model.clone().map_err(|obstacle| match obstacle {
                Obstacle::Model(problem) | Obstacle::Recording(problem) => unusable(problem),
            }),
            None => Err(unusable(format!("`{name}` is not connected"))),
        }
    }

    fn embeddings(&self, name: &str) -> Result<Arc<dyn EmbeddingModel>, ModelError> {
        let unusable = || ModelError::Unavailable { message: format!("`{name}` is not connected") };
        self.embeddings.get(name).cloned().ok_or_else(unusable)
    }

    fn record_program(
        &self,
        request: &ChatRequest,
        outcome: &Result<ChatReply, ModelError>,
    ) -> Result<(), ModelError> {
        self.recording.as_ref().map_or(Ok(()), |it| it.append(request, outcome))
    }
}
