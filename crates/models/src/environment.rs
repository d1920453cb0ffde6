//! Makes a client from a model's name and the environment. Only this file of the module reads the
//! environment.

use super::openai::{Config, ConfigError, OpenAiCompatible};
use super::profile::{PROVIDERS, Profile, Provider};
use super::secret::Secret;

/// Makes the client for a model named as in `openai/gpt-5-mini`, `ollama/llama3.2` or
/// `openrouter/anthropic/claude-sonnet-4.5`.
///
/// The word before the first `/` is the provider ([`PROVIDERS`]); a name without one is OpenAI's.
/// The key comes from the provider's variable (`OPENAI_API_KEY`, `GROQ_API_KEY`, …), and
/// `<PROVIDER>_BASE_URL` replaces the provider's address. While `OPENAI_BASE_URL` is set, names of
/// unknown providers are sent there unchanged.
///
/// # Errors
/// Returns [`ConfigError`], which says what to set.
pub fn from_env(model: &str) -> Result<OpenAiCompatible, ConfigError> {
    OpenAiCompatible::new(from_variables(model, &|name| std::env::var(name).ok())?)
}

/// Like [`from_env`], but reads any set of variables and returns only the configuration.
///
/// # Errors
/// Returns [`ConfigError`], which says what to set.
pub fn from_variables(
    model: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, ConfigError> {
    let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let (provider, model) = split(model, variable("OPENAI_BASE_URL").is_some())?;
    if model.is_empty() {
        return Err(ConfigError::NoModel { provider: provider.name });
    }
    let base_url = variable(&format!("{}_BASE_URL", provider.name.to_uppercase()))
        .unwrap_or_else(|| provider.base_url.to_owned());
    let key = variable(provider.key_variable);
    // A server on this machine (a proxy, a test double) needs no key, even if the provider does.
    if key.is_none() && !provider.is_own && !is_local(&base_url) {
        let (provider, variable) = (provider.name, provider.key_variable);
        return Err(ConfigError::NoKey { provider, variable });
    }
    Ok(Config {
        api_key: Secret::new(key.unwrap_or_default().trim()),
        profile: Profile::from(provider),
        ..Config::new(base_url, model)
    })
}

fn split(model: &str, has_base_url: bool) -> Result<(&'static Provider, &str), ConfigError> {
    let openai = &PROVIDERS[0];
    let Some((name, rest)) = model.split_once('/') else { return Ok((openai, model)) };
    match PROVIDERS.iter().find(|provider| provider.name == name) {
        Some(provider) => Ok((provider, rest)),
        None if has_base_url => Ok((openai, model)),
        None => Err(ConfigError::UnknownProvider { name: name.to_owned() }),
    }
}

/// Returns whether an address is on this machine.
pub(super) fn is_local(base_url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(base_url) else { return false };
    let Some(host) = url.host_str() else { return false };
    let host = host.trim_matches(['[', ']']);
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(model: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        from_variables(model, &variable).map_err(|error| error.to_string())
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

    #[test]
    fn the_key_of_an_own_server_is_sent_if_there_is_one() {
        let key = |variables: &[(&str, &str)]| {
            config("vllm/q", variables).map(|it| it.api_key.expose().to_owned())
        };
        assert_eq!(key(&[("VLLM_API_KEY", "own-key-of-vllm")]), Ok("own-key-of-vllm".to_owned()));
        assert_eq!(key(&[("OPENAI_API_KEY", "k")]), Ok(String::new()));
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
    }
}
