//! The providers of models: addresses, keys and dialects, all of it data; and the figures of their models.
//!
//! `providers.toml` has the built-in ones, `models.toml` the figures. A configuration adds others, or replaces single settings, in the same
//! form, so one reader ([`ProviderSettings::read`]) reads both. Any other OpenAI-compatible server can be used by
//! its address with [`Profile::default`].

mod models;
mod profile;
mod settings;

#[cfg(feature = "openai")]
mod connect;

use std::{collections::BTreeMap, sync::LazyLock};

use toml_edit::Document;

pub(crate) use self::settings::TableReader;
pub use self::{
    models::{KnownModel, full_name},
    profile::{OutputMode, Parameter, Profile, Protocol, SystemRole, TokenLimit},
    settings::{ProviderSettings, TableProblem, header_problem},
};

#[cfg(feature = "openai")]
pub use self::connect::from_env;
#[cfg(feature = "openai")]
pub(super) use self::connect::is_local;

/// The providers that every program knows.
const BUILT_IN: &str = include_str!("providers.toml");

/// The table of the families, beside those of the providers.
const FAMILIES: &str = "families";

/// A provider with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// The address, up to and including the version. `None` if it differs from account to account.
    pub base_url: Option<String>,
    /// The form of such an address.
    pub address_form: Option<String>,
    /// The environment variable with the key, if there is a key.
    pub key_variable: Option<String>,
    /// Whether it answers without a key, too, as a server on the user's own machine does. A key is sent to it if the
    /// variable is set.
    pub key_optional: bool,
    /// The provider's dialect.
    pub profile: Profile,
    /// The protocol at another address than its own, if it differs: of servers that take the place of the provider.
    pub protocol_elsewhere: Option<Protocol>,
}

impl Provider {
    /// Returns whether an address is its own.
    pub(crate) fn is_at(&self, address: &str) -> bool {
        let plain = |it: &str| it.trim_end_matches('/').to_owned();
        self.base_url.as_deref().map(plain) == Some(plain(address))
    }

    /// Returns its dialect at an address.
    pub fn profile_at(&self, address: &str) -> Profile {
        let elsewhere = self.profile_elsewhere().filter(|_| !self.is_at(address));
        elsewhere.unwrap_or_else(|| self.profile.clone())
    }

    /// Returns its dialect at other addresses than its own, if it differs.
    pub fn profile_elsewhere(&self) -> Option<Profile> {
        self.protocol_elsewhere.map(|protocol| Profile { protocol, ..self.profile.clone() })
    }

    /// Returns whether it answers only requests with a key.
    pub fn needs_key(&self) -> bool {
        self.key_variable.is_some() && !self.key_optional
    }
}

/// Providers by name: the word before the first `/` of a model's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Providers(BTreeMap<String, Provider>);

impl Default for Providers {
    /// Returns the built-in providers.
    fn default() -> Self {
        Self::built_in().clone()
    }
}

impl Providers {
    /// The provider of a name without one.
    pub const DEFAULT: &'static str = "openai";

    /// Returns the providers that every program knows.
    ///
    /// ```
    /// use graphrun_models::Providers;
    ///
    /// let groq = Providers::built_in().get("groq").expect("it is built in");
    /// assert_eq!(groq.key_variable.as_deref(), Some("GROQ_API_KEY"));
    /// ```
    ///
    /// # Panics
    /// Never: a test reads the table.
    pub fn built_in() -> &'static Self {
        static PROVIDERS: LazyLock<Providers> = LazyLock::new(|| {
            let document = document();
            let mut providers = Providers(BTreeMap::new());
            for (name, item) in document.iter().filter(|(name, _)| *name != FAMILIES) {
                let table = item.as_table_like().expect("each provider is a table");
                let mut problems = Vec::new();
                providers.add(name, ProviderSettings::read(table, &mut problems));
                assert!(problems.is_empty(), "{name}: {problems:?}");
            }
            providers
        });
        &PROVIDERS
    }

    /// Returns the provider of this name.
    pub fn get(&self, name: &str) -> Option<&Provider> {
        self.0.get(name)
    }

    /// Returns the providers in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Provider)> {
        self.0.iter().map(|(name, provider)| (name.as_str(), provider))
    }

    /// Returns the names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Adds a provider, or replaces the settings of a known one that are given.
    pub fn add(&mut self, name: &str, settings: ProviderSettings) {
        let provider = self.0.entry(name.to_owned()).or_insert_with(|| Provider {
            base_url: None,
            address_form: None,
            key_variable: None,
            key_optional: false,
            protocol_elsewhere: None,
            profile: Profile { provider: name.to_owned(), ..Profile::default() },
        });
        settings.apply(provider);
    }

    /// Splits the name of a model into its provider and the provider's own name of it. `None` for an unknown provider.
    pub fn split<'m>(&self, model: &'m str) -> Option<(&str, &Provider, &'m str)> {
        let (name, rest) = model.split_once('/').unwrap_or((Self::DEFAULT, model));
        let (name, provider) = self.0.get_key_value(name)?;
        Some((name, provider, rest))
    }
}

/// A family of models that accept fewer parameters than their provider.
#[derive(Debug)]
struct Family {
    starts_with: Vec<String>,
    /// A part of the names of similar models that accept them.
    except: String,
    unsupported: Vec<Parameter>,
}

impl Family {
    fn all() -> &'static [Self] {
        static ALL: LazyLock<Vec<Family>> = LazyLock::new(|| {
            let document = document();
            let tables = document.get(FAMILIES).and_then(toml_edit::Item::as_array_of_tables);
            let texts = |item: Option<&toml_edit::Item>| -> Vec<String> {
                let array = item.and_then(toml_edit::Item::as_array);
                array.into_iter().flatten().filter_map(|it| Some(it.as_str()?.to_owned())).collect()
            };
            let family = |table: &toml_edit::Table| Family {
                starts_with: texts(table.get("starts_with")),
                except: table["except"].as_str().unwrap_or_default().to_owned(),
                unsupported: texts(table.get("unsupported"))
                    .iter()
                    .map(|it| Parameter::parse(it).expect("the table names parameters"))
                    .collect(),
            };
            tables.into_iter().flatten().map(family).collect()
        });
        &ALL
    }

    fn has(&self, model: &str) -> bool {
        let name = model.rsplit('/').next().unwrap_or(model);
        !name.contains(&self.except)
            && self.starts_with.iter().any(|it| name.starts_with(it.as_str()))
    }
}

fn document() -> Document<&'static str> {
    Document::parse(BUILT_IN).expect("the table of the providers is valid, as a test proves")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_is_whole() {
        let providers = Providers::built_in();
        assert_eq!(providers.iter().count(), 16);
        for (name, provider) in providers.iter() {
            let Provider { base_url, address_form, key_variable, .. } = provider;
            assert!(base_url.is_some() != address_form.is_some(), "{name} needs an address");
            assert!(key_variable.is_some() && provider.profile.provider == name, "{name}");
        }
        assert_eq!(Family::all().len(), 2);
        assert!(Family::all().iter().all(|it| !it.except.is_empty() && !it.unsupported.is_empty()));
    }

    #[test]
    fn a_setting_that_is_not_given_stays() {
        let mut providers = Providers::default();
        let base_url = Some("https://gateway.example/v1".to_owned());
        providers.add("mistral", ProviderSettings { base_url, ..ProviderSettings::default() });
        let changed = providers.get("mistral");
        let built_in = Providers::built_in().get("mistral");
        let changed = changed.unwrap();
        let built_in = built_in.unwrap();
        assert_eq!(changed.base_url.as_deref(), Some("https://gateway.example/v1"));
        assert_eq!(changed.profile, built_in.profile);
        assert_eq!(changed.key_variable, built_in.key_variable);
    }
}
