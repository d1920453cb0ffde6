//! The client for the embeddings of every provider that has some.

use async_trait::async_trait;
use reqwest::header::HeaderMap;

use super::{EmbeddingModel, EmbeddingReply, EmbeddingRequest};
use crate::{ClientConfig, ConfigError, ModelError, Protocol, ProviderClient};

/// A model for embeddings, at any provider with OpenAI's or Google's form of requests.
///
/// It shares everything with [`ProviderClient`]: the transport, the limits, and the gate of the model.
#[derive(Debug)]
pub struct EmbeddingClient(ProviderClient);

impl EmbeddingClient {
    /// Creates a client. Nothing is sent yet.
    ///
    /// # Errors
    /// Returns [`ConfigError`] for a provider without embeddings, and for an address or a key that cannot be used.
    pub fn new(config: ClientConfig) -> Result<Self, ConfigError> {
        match config.profile.protocol {
            Protocol::Anthropic => {
                Err(ConfigError::NoEmbeddings { provider: config.profile.provider })
            }
            Protocol::Chat | Protocol::Responses | Protocol::Gemini => {
                ProviderClient::new(config).map(Self)
            }
        }
    }
}

#[async_trait]
impl EmbeddingModel for EmbeddingClient {
    async fn embed(&self, request: &EmbeddingRequest) -> Result<EmbeddingReply, ModelError> {
        let Self(client) = self;
        let protocol = client.profile.protocol;
        let model = client.model.as_str();
        let gate = client.gate(model);
        let permit = gate.enter(request.is_repeat, request.estimate().input_tokens).await?;
        let transport = client.transport.for_request(request.timeout, &gate);
        let wire = protocol.shape_embeddings(model, &request.texts);
        let body = client.post(&transport, HeaderMap::new(), &wire).await;
        let read = body.and_then(|it| protocol.read_embeddings(&it, request.texts.len()));
        permit.learn(read.as_ref());
        let mut reply = read?;
        if reply.usage.total_tokens() == 0 {
            reply.usage = request.estimate();
        }
        if reply.model.is_empty() {
            model.clone_into(&mut reply.model);
        }
        Ok(reply)
    }

    fn name(&self) -> &str {
        &self.0.name
    }
}
