//! Makes a client from a model's name and the environment. Only this file of the crate reads the
//! environment.

use super::{Provider, Providers};
use crate::{
    provider_client::{ClientConfig, ConfigError, ProviderClient},
    secret::Secret,
};

/// Makes the client for a model named as in `openai/gpt-5-mini`, `ollama/llama3.2` or
/// `openrouter/anthropic/claude-sonnet-4.5`.
///
/// The word before the first `/` is a [built-in provider](Providers::built_in); a name without one is OpenAI's.
/// The key comes from the provider's variable (`OPENAI_API_KEY`, `GROQ_API_KEY`, …), and
/// `<PROVIDER>_BASE_URL` replaces the provider's address. While `OPENAI_BASE_URL` is set, names of
/// unknown providers are sent there unchanged.
///
/// # Errors
/// Returns [`ConfigError`], which says what to set.
pub fn from_env(model: &str) -> Result<ProviderClient, ConfigError> {
    let variable = |name: &str| std::env::var(name).ok();
    ProviderClient::new(Providers::built_in().config(model, &variable)?)
}

impl Providers {
    /// Returns the configuration of a model, with the key and the address from these variables, as
    /// [`from_env`] does.
    ///
    /// # Errors
    /// Returns [`ConfigError`], which says what to set.
    pub fn config(
        &self,
        model: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ClientConfig, ConfigError> {
        let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let by_default = || {
            // A name without a known provider is one of OpenAI's, or of the server in its place.
            let openai = self.get(Self::DEFAULT).filter(|_| variable("OPENAI_BASE_URL").is_some());
            openai.map(|it| (Self::DEFAULT, it, model))
        };
        let Some((name, provider, model)) = self.split(model).or_else(by_default) else {
            let name = model.split('/').next().unwrap_or_default().to_owned();
            let known = self.names().collect::<Vec<_>>().join(", ");
            return Err(ConfigError::UnknownProvider { name, known });
        };
        let name = name.to_owned();
        if model.is_empty() {
            return Err(ConfigError::NoModel { provider: name });
        }
        let address = Self::address_variable(&name);
        let Some(base_url) = variable(&address).or_else(|| provider.base_url.clone()) else {
            let form = provider.address_form.clone();
            let form = form.unwrap_or_else(|| "http://localhost:8000/v1".to_owned());
            return Err(ConfigError::NoAddress { provider: name, variable: address, form });
        };
        let key = provider.key_variable.as_deref().and_then(variable);
        // A server on this machine (a proxy, a test double) needs no key, even if the provider does.
        if key.is_none()
            && !is_local(&base_url)
            && let Provider { key_variable: Some(key), key_optional: false, .. } = provider
        {
            return Err(ConfigError::NoKey { provider: name, variable: key.clone() });
        }
        Ok(ClientConfig {
            api_key: Secret::new(key.unwrap_or_default().trim()),
            profile: provider.profile_at(&base_url),
            ..ClientConfig::new(base_url, model)
        })
    }

    /// Returns the environment variable that replaces the address of a provider.
    pub fn address_variable(name: &str) -> String {
        format!("{}_BASE_URL", name.to_uppercase().replace('-', "_"))
    }
}

/// Returns whether an address is on this machine.
pub(crate) fn is_local(base_url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(base_url) else { return false };
    let Some(host) = url.host_str() else { return false };
    let host = host.trim_matches(['[', ']']);
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProviderSettings, TokenLimit, provider::Protocol};

    fn config(model: &str, variables: &[(&str, &str)]) -> Result<ClientConfig, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Providers::built_in().config(model, &variable).map_err(|error| error.to_string())
    }

    #[test]
    fn a_model_finds_its_provider_key_and_address() {
        let cases = [
            (
                "gpt-5-mini",
                ("OPENAI_API_KEY", "k"),
                "openai",
                "https://api.openai.com/v1",
                "gpt-5-mini",
            ),
            ("ollama/llama3.2", ("X", ""), "ollama", "http://localhost:11434/v1", "llama3.2"),
            ("ollama/q", ("OLLAMA_BASE_URL", "http://box:1/v1"), "ollama", "http://box:1/v1", "q"),
            (
                "openrouter/anthropic/claude-sonnet-4.5",
                ("OPENROUTER_API_KEY", "k"),
                "openrouter",
                "https://openrouter.ai/api/v1",
                "anthropic/claude-sonnet-4.5",
            ),
            (
                "meta-llama/Llama-3",
                ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"),
                "openai",
                "http://127.0.0.1:9/v1",
                "meta-llama/Llama-3",
            ),
        ];
        for (model, variable, provider, base_url, name) in cases {
            let config = config(model, &[variable]).unwrap();
            assert_eq!(
                (config.profile.provider.as_str(), config.base_url.as_str(), config.model.as_str()),
                (provider, base_url, name)
            );
        }
    }

    /// Servers in the place of OpenAI or Google have chat completions, unless their protocol is given.
    #[test]
    fn a_native_protocol_holds_at_the_address_of_its_provider() {
        let own = |name: &str| {
            let provider = Providers::built_in().get(name).unwrap();
            (format!("{}_BASE_URL", name.to_uppercase()), provider.base_url.clone().unwrap())
        };
        let protocol = |model: &str, key: &str, variables: &[(&str, &str)]| {
            let variables = [&[(key, "k")], variables].concat();
            config(model, &variables).unwrap().profile.protocol.as_str()
        };
        for (model, key, native, elsewhere) in [
            ("openai/gpt-5", "OPENAI_API_KEY", "responses", "chat"),
            ("gemini/gemini-3-pro", "GEMINI_API_KEY", "gemini", "chat"),
            ("anthropic/claude-opus-5", "ANTHROPIC_API_KEY", "anthropic", "anthropic"),
            ("groq/m", "GROQ_API_KEY", "chat", "chat"),
        ] {
            let (variable, address) = own(model.split('/').next().unwrap());
            assert_eq!(protocol(model, key, &[]), native, "{model}");
            let same = format!("{address}/");
            assert_eq!(protocol(model, key, &[(&variable, &same)]), native, "{model}");
            let other = [(variable.as_str(), "https://proxy.example/v1")];
            assert_eq!(protocol(model, key, &other), elsewhere, "{model}");
        }
        assert_eq!(
            protocol("llama", "OPENAI_API_KEY", &[("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")]),
            "chat"
        );
        let configured = |settings: ProviderSettings, variables: &[(&str, &str)]| {
            let mut providers = Providers::default();
            providers.add("openai", settings);
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found
                    .map(|(_, it)| (*it).to_owned())
                    .or_else(|| Some("k".to_owned()).filter(|_| name.ends_with("_KEY")))
            };
            providers.config("openai/m", &variable).unwrap().profile.protocol
        };
        let other = Some("https://proxy.example/v1".to_owned());
        let address = ProviderSettings { base_url: other.clone(), ..ProviderSettings::default() };
        assert_eq!(configured(address.clone(), &[]), Protocol::Chat);
        let both = ProviderSettings { protocol: Some(Protocol::Responses), ..address };
        assert_eq!(configured(both.clone(), &[]), Protocol::Responses);
        let moved = [("OPENAI_BASE_URL", "https://other.example/v1")];
        assert_eq!(configured(both, &moved), Protocol::Responses);
        let chat =
            ProviderSettings { protocol: Some(Protocol::Chat), ..ProviderSettings::default() };
        assert_eq!(configured(chat, &[]), Protocol::Chat);
    }

    #[test]
    fn a_server_in_the_place_of_openai_gets_max_tokens() {
        let elsewhere = [("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")];
        for model in ["openai/gpt-5-mini", "meta-llama/Llama-3"] {
            let limit = config(model, &elsewhere).unwrap().profile.token_limit;
            assert_eq!(limit, TokenLimit::MaxTokens, "{model}");
        }
    }

    #[test]
    fn the_key_of_an_own_server_is_sent_if_there_is_one() {
        let key = |variables: &[(&str, &str)]| {
            config("vllm/q", variables).map(|it| it.api_key.expose().to_owned())
        };
        assert_eq!(key(&[("VLLM_API_KEY", "own-key-of-vllm")]), Ok("own-key-of-vllm".to_owned()));
        assert_eq!(key(&[("OPENAI_API_KEY", "k")]), Ok(String::new()));
    }

    #[test]
    fn a_configured_provider_needs_a_key_if_it_names_a_variable() {
        let mut providers = Providers::default();
        let base_url = Some("https://lab.example/v1".to_owned());
        let keyless = ProviderSettings { base_url, ..ProviderSettings::default() };
        let key_variable = Some("LAB_KEY".to_owned());
        providers.add("lab", keyless.clone());
        providers.add("lab-2", ProviderSettings { key_variable, ..keyless });
        let set = |name: &str| (name == "LAB_2_BASE_URL").then(|| "https://two.example".to_owned());
        assert_eq!(providers.config("lab/m", &set).unwrap().base_url, "https://lab.example/v1");
        let error = providers.config("lab-2/m", &set).unwrap_err().to_string();
        assert!(error.contains("LAB_KEY"), "{error}");
        let with_key =
            |name: &str| set(name).or_else(|| (name == "LAB_KEY").then(|| "k".to_owned()));
        assert_eq!(providers.config("lab-2/m", &with_key).unwrap().base_url, "https://two.example");
    }

    #[test]
    fn missing_requirements_are_named_with_a_remedy() {
        assert_eq!(
            config("groq/llama", &[("OPENAI_API_KEY", "k")]).unwrap_err(),
            "no key for groq: set the environment variable GROQ_API_KEY, or use a model of a server of your \
             own (ollama/…, vllm/…, lmstudio/…), which needs none"
        );
        assert_eq!(
            config("openai/gpt-5", &[("OPENAI_BASE_URL", "https://proxy.example/v1")]).unwrap_err(),
            "no key for openai: set the environment variable OPENAI_API_KEY, or use a model of a server of \
             your own (ollama/…, vllm/…, lmstudio/…), which needs none"
        );
        let unknown = config("opnai/gpt-5", &[]).unwrap_err();
        assert!(unknown.contains("\"opnai\"") && unknown.contains("openrouter"), "{unknown}");
        assert_eq!(config("ollama/", &[]).unwrap_err(), "no model is named after \"ollama/\"");
        assert_eq!(
            config("azure/small", &[("AZURE_OPENAI_API_KEY", "k")]).unwrap_err(),
            "the address of azure is not known: set the environment variable AZURE_BASE_URL, as in \
             https://RESOURCE.openai.azure.com/openai/v1, or `base_url` in `[providers.azure]` of your configuration"
        );
    }
}
