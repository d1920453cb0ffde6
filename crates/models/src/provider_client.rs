//! The client of every provider, in each of the protocols.
//!
//! One call is one request, with two exceptions: a form of structured output that the provider
//! rejects is replaced by the next simpler one, and a parameter that it rejects by name is left out.
//! The process remembers both. Retries are the engine's. All clients of a process send their requests through one gate for each model.

use std::{fmt, sync::Arc};

use async_openai::{
    Client,
    config::{Config as _, OpenAIConfig},
    error::OpenAIError,
    traits::RequestOptionsBuilder,
};
use async_trait::async_trait;
use graphrun_guard::redact::{learn_address, redact};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use graphrun_core::usage::TokenUsage;

use super::{
    calls::settle,
    chat::{ChatModel, ChatReply, ChatRequest},
    error::ModelError,
    failure::readable,
    gate::Gate,
    protocol::Wire,
    provider::{OutputMode, Profile, Protocol},
    refused::RefusedParameters,
    secret::Secret,
    shape::{Shape, unwrap_answer},
    transport::{ExchangeLimits, Transport},
};

/// The address of a model and the settings of its requests.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The address up to and including the version, as in `https://api.openai.com/v1`. A query behind it, such as
    /// the `api-version` of Azure, is sent with each request.
    pub base_url: String,
    /// The key; an empty one is not sent.
    pub api_key: Secret,
    /// The model, as the provider names it.
    pub model: String,
    /// The provider's dialect.
    pub profile: Profile,
    /// The limits of an exchange.
    pub limits: ExchangeLimits,
}

impl ClientConfig {
    /// Creates a configuration without a key, with the default profile and limits.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            api_key: Secret::default(),
            model: model.into(),
            profile: Profile::default(),
            limits: ExchangeLimits::default(),
        }
    }
}

/// The reason why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The provider needs a key, and none is set.
    #[error(
        "no key for {provider}: set the environment variable {variable}, or use a model of a server of your \
         own (ollama/…, vllm/…, lmstudio/…), which needs none"
    )]
    NoKey {
        /// The provider.
        provider: String,
        /// The environment variable for the key.
        variable: String,
    },
    /// The address of the provider differs from account to account, and none is set.
    #[error(
        "the address of {provider} is not known: set the environment variable {variable}, as in {form}, or \
         `base_url` in `[providers.{provider}]` of your configuration"
    )]
    NoAddress {
        /// The provider.
        provider: String,
        /// The environment variable for the address.
        variable: String,
        /// The form of the address.
        form: String,
    },
    /// The name is not one of the known providers.
    #[error(
        "there is no provider {name:?}: use one of {known}, or add `[providers.{name}]` to your configuration, or set \
         OPENAI_BASE_URL to reach any other OpenAI-compatible server"
    )]
    UnknownProvider {
        /// The word before the `/`.
        name: String,
        /// The known providers.
        known: String,
    },
    /// Only the provider is named.
    #[error("no model is named after \"{provider}/\"")]
    NoModel {
        /// The provider.
        provider: String,
    },
    /// The provider has chat models only.
    #[error(
        "{provider} has no embeddings: name a model of another provider, as in \
         openai/text-embedding-3-small"
    )]
    NoEmbeddings {
        /// The provider.
        provider: String,
    },
    /// The address is invalid.
    #[error("the base URL {url:?} is not an http or https address")]
    BaseUrl {
        /// The address.
        url: String,
    },
    /// The key has characters that a header cannot contain, such as a line break.
    #[error("the key has characters that keys don't have; check for a line break or a quote in it")]
    Key,
    /// The HTTP client cannot start.
    #[error("the HTTP client cannot start")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The client of a model, at any provider and in any protocol.
pub struct ProviderClient {
    client: Client<OpenAIConfig>,
    pub(super) transport: Transport,
    pub(super) name: String,
    pub(super) model: String,
    pub(super) profile: Profile,
    /// The address and the hash of the key: the part of the name of its gates that is the same for all models.
    account: String,
}

// Implemented by hand: async-openai's `Debug` shows the address, which may contain a password.
impl fmt::Debug for ProviderClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderClient")
            .field("name", &self.name)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

impl ProviderClient {
    /// Creates a client. Nothing is sent yet.
    ///
    /// # Errors
    /// Returns [`ConfigError`] for an address or a key that cannot be used.
    pub fn new(config: ClientConfig) -> Result<Self, ConfigError> {
        let ClientConfig { base_url, api_key, model, profile, limits } = config;
        let is_http =
            |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.host().is_some();
        if !reqwest::Url::parse(&base_url).is_ok_and(|url| is_http(&url)) {
            let shown = base_url.split(['?', '#']).next().unwrap_or_default();
            return Err(ConfigError::BaseUrl { url: redact(shown).into_owned() });
        }
        learn_address(&base_url);
        let Address { base_url, query } = Address::of(&base_url, profile.protocol);
        // async-openai panics on a key that is no valid header.
        if HeaderValue::from_str(api_key.expose()).is_err() {
            return Err(ConfigError::Key);
        }
        let transport = Transport::new(base_url, query, limits, &api_key)
            .map_err(ConfigError::Transport)?
            .with_profile(&profile);
        let key = blake3::hash(api_key.expose().as_bytes()).to_hex();
        let account = format!("{base_url}?{}#{key}", query.unwrap_or_default());
        // The organisation and project are set, because async-openai would read them from the
        // environment.
        let settings = OpenAIConfig::new()
            .with_api_base(base_url)
            .with_api_key(api_key.expose())
            .with_org_id("")
            .with_project_id("");
        Ok(Self {
            client: Client::build(transport.http(), settings).with_http_service(transport.clone()),
            transport,
            name: format!("{}/{model}", profile.provider),
            model,
            profile,
            account,
        })
    }

    /// Makes one request, and returns the reply as the provider sent it.
    async fn attempt(
        &self,
        request: &ChatRequest,
        shape: &Shape<'_>,
        wire: &Wire,
        gate: &Arc<Gate>,
    ) -> Result<ChatReply, ModelError> {
        let headers = request.settings.headers.iter();
        let headers = headers.filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        });
        let mut headers: HeaderMap = headers.collect();
        if let Some(key) = self.idempotency_key(&request.key, shape) {
            headers.insert(HeaderName::from_static("idempotency-key"), key);
        }
        let transport = self.transport.for_request(request.timeout, gate);
        let transport = transport.with_deltas(&request.deltas).with_patience(request.patience);
        let body = self.exchange(transport, headers, wire).await;
        request.deltas.end();
        let read = body.and_then(|body| self.profile.protocol.read_reply(&body));
        let mut reply = read.map_err(|error| with_input(error, request))?;
        let estimated = estimate(request, reply.characters());
        let usage = &mut reply.usage;
        if usage.total_tokens() == 0 {
            *usage = estimated;
        }
        // A provider may state one of the counts only.
        for (stated, estimated) in [
            (&mut usage.input_tokens, estimated.input_tokens),
            (&mut usage.output_tokens, estimated.output_tokens),
        ] {
            if *stated == 0 && estimated > 0 {
                (*stated, usage.estimated) = (estimated, true);
            }
        }
        Ok(reply)
    }

    /// Sends a request and returns the body of its reply.
    async fn exchange(
        &self,
        transport: Transport,
        headers: HeaderMap,
        wire: &Wire,
    ) -> Result<Value, ModelError> {
        let client = |transport| self.client.clone().with_http_service(transport);
        let sent = match self.profile.protocol {
            Protocol::Chat => {
                let client = client(transport);
                client.chat().headers(headers).create_byot(wire.body.clone()).await
            }
            Protocol::Responses => {
                let client = client(transport);
                client.responses().headers(headers).create_byot(wire.body.clone()).await
            }
            Protocol::Anthropic | Protocol::Gemini => {
                return self.post(&transport, headers, wire).await;
            }
        };
        sent.map_err(|error| match error {
            OpenAIError::Boxed(error) => match error.downcast::<ModelError>() {
                Ok(error) => *error,
                Err(error) => {
                    let message = readable(&error.to_string());
                    ModelError::Transient { after: None, message }
                }
            },
            error => unexpected(&error),
        })
    }

    /// Returns the gate of a model.
    pub(super) fn gate(&self, model: &str) -> Arc<Gate> {
        Gate::shared(&self.gate_name(model))
    }

    fn gate_name(&self, model: &str) -> String {
        format!("{} {model}", self.account)
    }

    /// Sends a request that async-openai does not have.
    pub(super) async fn post(
        &self,
        transport: &Transport,
        mut headers: HeaderMap,
        wire: &Wire,
    ) -> Result<Value, ModelError> {
        let config = self.client.config();
        for (name, value) in &config.headers() {
            headers.entry(name).or_insert_with(|| value.clone());
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let url = format!("{}{}", config.api_base(), wire.path);
        let request = transport.http().post(url).headers(headers).body(wire.body.to_string());
        transport.post(request.build().map_err(|it| unexpected(&it))?).await
    }

    /// Returns the key as a header. A request in another form or without a parameter is another request, so it has
    /// another key. A key that is no valid header is replaced by its hash, which names the same request.
    fn idempotency_key(&self, key: &str, shape: &Shape<'_>) -> Option<HeaderValue> {
        if key.is_empty() {
            return None;
        }
        let form = if shape.mode == self.profile.output {
            String::new()
        } else {
            format!("/{}", shape.mode.as_str())
        };
        let key = format!("{key}{form}{}", shape.refused.key());
        let hash = || HeaderValue::from_str(&blake3::hash(key.as_bytes()).to_hex());
        HeaderValue::from_str(&key).or_else(|_| hash()).ok()
    }
}

#[async_trait]
impl ChatModel for ProviderClient {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        self.profile.protocol.check_attachments(request)?;
        let model = request.model.as_deref().unwrap_or(&self.model);
        let gate_name = self.gate_name(model);
        let gate = self.gate(model);
        let mut refused = RefusedParameters::known(&gate_name);
        let has_tools = !request.tools.is_empty();
        let mut mode = refused.output(has_tools, self.profile.output);
        let mut has_entered = false;
        loop {
            // Each request enters by itself: one that was rejected for its form says that the provider is up.
            let tokens = estimate(request, 0).input_tokens;
            let until = request.patience.and_then(|it| it.until);
            let permit = gate.enter_until(until, request.is_repeat && !has_entered, tokens).await?;
            has_entered = true;
            request.admission.admit().await;
            let shape = Shape { model, profile: &self.profile, mode, refused: &refused };
            let formed = shape.formed(request);
            let wire = self.profile.protocol.shape(&formed, &shape);
            let replied = self.attempt(request, &shape, &wire, &gate).await;
            let is_offered = formed.tools.len() > request.tools.len();
            if is_offered && replied.as_ref().is_ok_and(is_text) {
                // The provider ignores the tools, or the model does. The text may be an answer all the same.
                tracing::info!(model, "the model does not call the tool for its answer");
                refused.learn_output(&gate_name, has_tools, OutputMode::Prompted);
            }
            let done = replied.and_then(|reply| finish(reply, request, model));
            permit.learn(done.as_ref());
            let error = match done {
                Err(error) => error,
                done => return done,
            };
            if let Some(parameter) = refused.learn(&gate_name, &error, &wire.body, &self.profile) {
                tracing::info!(model, parameter, "the provider rejects this parameter");
                continue;
            }
            let below = mode.below().filter(|_| request.output.is_some());
            let (Some(below), Some(rejection)) = (below, Rejection::of(&error, mode)) else {
                let asked = request.settings.max_tokens;
                let sent = asked.map(|it| refused.most_tokens(it));
                return Err(with_tokens_max(error, sent.filter(|_| sent < asked)));
            };
            tracing::info!(
                model,
                from = mode.as_str(),
                to = below.as_str(),
                "the provider rejects this form of output"
            );
            if rejection == Rejection::Form {
                refused.learn_output(&gate_name, has_tools, below);
            }
            mode = below;
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// A base URL in its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Address<'a> {
    /// The part that the path of a request is appended to.
    base_url: &'a str,
    query: Option<&'a str>,
}

impl<'a> Address<'a> {
    fn of(base_url: &'a str, protocol: Protocol) -> Self {
        let base_url = base_url.split('#').next().unwrap_or_default();
        let (base_url, query) = base_url.split_once('?').unwrap_or((base_url, ""));
        let query = Some(query).filter(|it| !it.is_empty());
        let base_url = base_url.trim_end_matches('/');
        // Azure shows the whole address of a model to copy, with the path that each request has.
        let path = match protocol {
            Protocol::Chat => "/chat/completions",
            Protocol::Responses => "/responses",
            Protocol::Anthropic => "/messages",
            // Google's own address of the chat completions.
            Protocol::Gemini => "/openai",
        };
        let known = [path, "/embeddings"];
        let base_url = known.iter().find_map(|it| base_url.strip_suffix(it)).unwrap_or(base_url);
        Self { base_url, query }
    }
}

/// The rejected part of a structured request.
#[derive(Debug, PartialEq, Eq)]
enum Rejection {
    /// The form itself: the provider rejects it every time.
    Form,
    /// This schema in this form.
    Schema,
}

impl Rejection {
    fn of(error: &ModelError, mode: OutputMode) -> Option<Self> {
        let message = match error.reason() {
            ModelError::BadRequest { status: 400 | 422, message } => message,
            // A gateway finds no endpoint with tools.
            ModelError::NotFound { message } if mode == OutputMode::Tool => message,
            _ => return None,
        };
        let message = message.to_lowercase();
        let of_tools: &[&str] = if mode == OutputMode::Tool { &["tool", "function"] } else { &[] };
        let names_it = [
            "response_format",
            "response format",
            "json_schema",
            "json schema",
            "json_object",
            "structured output",
            "json mode",
            "response mime type",
            "output_config",
            "output_format",
            "text.format",
            "responsejsonschema",
            "response_json_schema",
            "response_schema",
            "response_mime_type",
        ];
        let is_schema =
            ["schema for response_format", "invalid schema", "schema is too", "grammar"];
        let has = |words: &[&str]| words.iter().any(|it| message.contains(it));
        if has(&is_schema) {
            return Some(Self::Schema);
        }
        (has(&names_it) || has(of_tools)).then_some(Self::Form)
    }
}

/// Returns the reply that the caller gets: tools have the names of the request, and an answer is as it was asked for.
fn finish(reply: ChatReply, request: &ChatRequest, model: &str) -> Result<ChatReply, ModelError> {
    let mut reply = settle(reply, request)?;
    if let Some(output) = &request.output
        && (reply.tool_calls.is_empty() || !request.tool_choice.allows_calls())
    {
        reply.text = unwrap_answer(reply.text, output);
    }
    if reply.model.is_empty() {
        model.clone_into(&mut reply.model);
    }
    Ok(reply)
}

/// Returns whether a reply calls no tool, also not in a way that the provider rejects.
fn is_text(reply: &ChatReply) -> bool {
    reply.tool_calls.is_empty() && !reply.finish.is_failed_generation()
}

/// Returns an error of building a request. The transport reports its own.
fn unexpected(error: &impl std::error::Error) -> ModelError {
    ModelError::BadRequest { status: 0, message: readable(&error.to_string()) }
}

/// Returns the failure of an answer with the most tokens that its model allows, if it was truncated there.
fn with_tokens_max(error: ModelError, tokens_max: Option<u32>) -> ModelError {
    match error {
        ModelError::Truncated { text, usage, .. } => {
            ModelError::Truncated { text, usage, tokens_max }
        }
        ModelError::Charged { error, usage, cost_usd } => ModelError::Charged {
            error: Box::new(with_tokens_max(*error, tokens_max)),
            usage,
            cost_usd,
        },
        error => error,
    }
}

/// Returns the failure of an answer with an estimate of its request, if the provider has counted no tokens of it. A failure
/// before the answer has no usage, and gets none.
fn with_input(error: ModelError, request: &ChatRequest) -> ModelError {
    let usage = error.usage();
    let cost_usd = error.cost_usd();
    if usage.calls == 0 || usage.input_tokens > 0 {
        return error;
    }
    let input_tokens = estimate(request, 0).input_tokens;
    error.charged(TokenUsage { input_tokens, estimated: true, ..usage }, cost_usd)
}

/// Estimates the usage of a request and of the characters that the model has written.
fn estimate(request: &ChatRequest, written: u64) -> TokenUsage {
    let length = |it: u64| usize::try_from(it).unwrap_or(usize::MAX);
    TokenUsage::estimate(length(request.characters()), length(written))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, BufRead as _, BufReader, Read as _, Write as _},
        net::TcpListener,
        thread,
    };

    use serde_json::json;

    use super::*;
    use crate::{Message, RequestSettings, with_doubled_max_tokens};

    /// Starts a server with one reply for each request, and returns its address.
    fn server(replies: Vec<(u16, Value)>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for (status, body) in replies {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = BufReader::new(stream.try_clone().unwrap());
                let mut length = 0;
                loop {
                    let mut line = String::new();
                    request.read_line(&mut line).unwrap();
                    match line.trim().to_lowercase().split_once(':') {
                        None if line.trim().is_empty() => break,
                        Some(("content-length", value)) => length = value.trim().parse().unwrap(),
                        _ => {}
                    }
                }
                io::copy(&mut request.take(length), &mut io::sink()).unwrap();
                let body = body.to_string();
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} -\r\ncontent-length: {length}\r\nconnection: close");
                write!(stream, "{head}\r\n\r\n{body}").unwrap();
            }
        });
        format!("http://{address}/v1")
    }

    #[tokio::test]
    async fn a_limit_beyond_that_of_the_model_is_not_doubled() {
        let message =
            "max_tokens is too large: 10000. This model supports at most 8192 completion tokens";
        let rejected = json!({"error": {"message": message}});
        let truncated =
            json!({"choices": [{"message": {"content": "Te"}, "finish_reason": "length"}]});
        let replies = vec![(400, rejected), (200, truncated.clone()), (200, truncated)];
        let client = ProviderClient::new(ClientConfig::new(server(replies), "small")).unwrap();
        for (asked, tokens_max) in [(10_000, Some(8192)), (100, None)] {
            let request = ChatRequest {
                messages: vec![Message::user("Which colour?")],
                settings: RequestSettings { max_tokens: Some(asked), ..RequestSettings::default() },
                ..ChatRequest::default()
            };
            let error = client.chat(&request).await.unwrap_err();
            let ModelError::Truncated { tokens_max: found, .. } = error.reason() else {
                panic!("{error:?}");
            };
            assert_eq!(*found, tokens_max);
            let longer = with_doubled_max_tokens(&request, &error);
            assert_eq!(longer.is_some(), tokens_max.is_none());
        }
    }
}
