//! Merges the layers: the environment, the file of the folder, the file of the user.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Config, ConfigValue, FILE, KEYS, file,
    trust::{withhold, withhold_provider},
};
use crate::{
    beneath::{BeneathError, Folder, read_named},
    cli::{
        allow::trusted_folders::TrustedFolders,
        error::CliError,
        exit::Exit,
        settings::{
            database::shown_setting,
            user_folders::{UserFolders, is_absent},
        },
    },
    data_limit::DataLimit,
    models::{ContextWindows, Price, Prices, Providers, full_name},
    redact::learn_address,
};

/// The key of the cost limit.
const COST_LIMIT: &str = "limits.usd";

/// The content of a folder's `graphrun.toml`.
#[derive(Clone, Debug)]
pub(crate) struct FolderFile {
    /// Its text.
    pub(crate) text: String,
}

/// The sources of a configuration.
pub(super) struct ConfigLayers<'a> {
    /// The working directory.
    pub(super) folder: &'a Path,
    /// The file of the folder.
    pub(super) file: Option<FolderFile>,
    /// Whether the user trusts the folder with this file.
    pub(super) is_trusted: bool,
    /// The file of the user: its name in messages, and its text.
    pub(super) own: Option<(String, String)>,
    /// The environment.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
}

impl ConfigLayers<'_> {
    /// Returns whether a variable of the environment has a value.
    fn is_set(&self, variable: &str) -> bool {
        (self.variable)(variable).is_some_and(|it| !it.trim().is_empty())
    }
}

impl FolderFile {
    /// Reads the file of a folder, if there is one. A symbolic link out of the folder is refused.
    ///
    /// # Errors
    ///
    /// Fails when the file exists and cannot be read.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, CliError> {
        let read = Folder::open(folder)
            .and_then(|folder| folder.read_text(Path::new(FILE), DataLimit::FileBytes));
        match read {
            Ok(text) => Ok(Some(Self { text })),
            Err(BeneathError::Missing) => Ok(None),
            Err(error) => {
                let message = format!("`{FILE}` cannot be read; nothing was started");
                Err(CliError::new(Exit::Unusable, message).because(error))
            }
        }
    }
}

impl Config {
    /// Reads the environment, the file of the working directory and that of the user.
    ///
    /// # Errors
    ///
    /// Fails with all mistakes in a file, each with its position.
    pub(crate) fn read() -> Result<Self, CliError> {
        let user = UserFolders::find();
        let folder = Path::new(".");
        let file = FolderFile::read(folder)?;
        let is_trusted = match &file {
            Some(file) => is_trusted(folder, file, &user)?,
            None => false,
        };
        let own = own_file(user.config_file())?;
        let variable = |name: &str| env::var(name).ok();
        Self::of(&ConfigLayers { folder, file, is_trusted, own, variable: &variable })
    }

    /// Returns the settings of a folder's file, as they are shown before the user trusts it.
    ///
    /// # Errors
    ///
    /// Fails with all mistakes in the file.
    pub(crate) fn trusted_settings(file: &FolderFile) -> Result<Vec<String>, CliError> {
        let parsed = file::parse(&file.text, FILE).map_err(|it| unusable(FILE, it))?;
        let settings = parsed.settings.iter();
        let mut shown: Vec<String> =
            settings.map(|(name, it)| format!("{name} = {}", shown_setting(&it.text))).collect();
        shown.extend(parsed.prices.keys().map(|model| format!("the price of {model}")));
        shown.extend(parsed.context.keys().map(|model| format!("the context of {model}")));
        shown.extend(parsed.providers.iter().map(|(name, it)| {
            let address = it.settings.base_url.as_deref().map(shown_setting);
            let address = address.map(|it| format!(" at {it}")).unwrap_or_default();
            format!("the provider {name}{address}")
        }));
        Ok(shown)
    }

    pub(super) fn of(layers: &ConfigLayers<'_>) -> Result<Self, CliError> {
        let ConfigLayers { file, own, variable, .. } = layers;
        let mut config = Self {
            prices: Prices::built_in().clone(),
            windows: ContextWindows::built_in().clone(),
            ..Self::default()
        };
        let mut providers = Providers::default();
        if let Some((name, text)) = own {
            let parsed = file::parse(text, name).map_err(|it| unusable(name, it))?;
            config.files.push(format!("`{name}`"));
            config.settings = parsed.settings;
            config.add_figures(&parsed.prices, &parsed.context, true);
            config.hosts = parsed.hosts.into_iter().map(|(name, it)| (name, it.0)).collect();
            for (name, it) in parsed.providers {
                providers.add(&name, it.settings);
                config.provider_places.insert(name, it.place);
            }
        }
        let has_own_limit = config.settings.contains_key(COST_LIMIT);
        config.trusted_prices = config.prices.clone();
        if let Some(file) = file {
            config.add_folder_file(file, layers, &mut providers)?;
        }
        for key in KEYS.iter().filter(|it| layers.is_set(it.variable)) {
            let text = variable(key.variable).unwrap_or_default();
            let layer = key.variable.to_owned();
            config.settings.insert(key.name, ConfigValue { text, layer, is_untrusted: false });
        }
        let of_default = config.get("base_url").map(|it| it.text.as_str());
        let addresses = providers.iter().filter_map(|(_, it)| it.base_url.as_deref());
        addresses.chain(of_default).for_each(learn_address);
        config.providers = Arc::new(providers);
        let is_of_user = |it: &ConfigValue| !it.is_untrusted;
        config.is_cost_limited = has_own_limit || config.get(COST_LIMIT).is_some_and(is_of_user);
        Ok(config)
    }

    /// Adds the file of the folder. A harmful setting of an untrusted one is withheld.
    fn add_folder_file(
        &mut self,
        file: &FolderFile,
        layers: &ConfigLayers<'_>,
        providers: &mut Providers,
    ) -> Result<(), CliError> {
        let ConfigLayers { folder, is_trusted, .. } = *layers;
        let parsed = file::parse(&file.text, FILE).map_err(|it| unusable(FILE, it))?;
        if !parsed.hosts.is_empty() {
            let problem = |(_, place): &(_, String)| {
                format!("{place}: only your own configuration allows commands on this machine")
            };
            return Err(unusable(FILE, parsed.hosts.values().map(problem).collect()));
        }
        let trust = if is_trusted { " (trusted)" } else { "" };
        self.files.push(format!("`{FILE}`{trust}"));
        self.add_figures(&parsed.prices, &parsed.context, is_trusted);
        if is_trusted {
            self.trusted_prices = self.prices.clone();
        }
        for (name, it) in parsed.providers {
            let is_known = providers.get(&name).is_some();
            let withheld = withhold_provider(&name, &it, is_known).filter(|_| !is_trusted);
            if let Some(withheld) = withheld {
                self.withheld.push(withheld);
            } else {
                providers.add(&name, it.settings);
                self.provider_places.insert(name, it.place);
            }
        }
        for (name, mut value) in parsed.settings {
            let Some(key) = KEYS.iter().find(|it| it.name == name) else { continue };
            let own = self.settings.get(name);
            let withheld = if is_trusted { None } else { withhold(key, &value, own, folder) };
            match withheld {
                // A setting that the environment replaces has no effect, so it does no harm.
                Some(_) if layers.is_set(key.variable) => {}
                Some(withheld) => self.withheld.push(withheld),
                None => {
                    value.is_untrusted = !is_trusted;
                    self.settings.insert(name, value);
                }
            }
        }
        Ok(())
    }

    /// Adds prices and context windows of models. Untrusted ones do not replace those of the user: a cost limit depends
    /// on correct prices.
    fn add_figures(
        &mut self,
        prices: &BTreeMap<String, (Price, String)>,
        windows: &BTreeMap<String, (u64, String)>,
        is_trusted: bool,
    ) {
        let own = (self.price_places.clone(), self.window_places.clone());
        for (model, (price, place)) in prices {
            if is_trusted || !own.0.contains_key(full_name(model).as_ref()) {
                self.prices.set(model, *price);
                self.price_places.insert(full_name(model).into_owned(), place.clone());
            }
        }
        for (model, (tokens, place)) in windows {
            if is_trusted || !own.1.contains_key(full_name(model).as_ref()) {
                self.windows.set(model, *tokens);
                self.window_places.insert(full_name(model).into_owned(), place.clone());
            }
        }
    }
}

fn is_trusted(folder: &Path, file: &FolderFile, user: &UserFolders) -> Result<bool, CliError> {
    let trusted = TrustedFolders::load(user)?;
    let folder = fs::canonicalize(folder).map_err(|error| {
        CliError::new(Exit::Unusable, "the current folder is gone").because(error)
    })?;
    Ok(trusted.trusts(&folder, &file.text))
}

/// Returns the path and the text of the user's configuration, if there is one.
fn own_file(path: Option<PathBuf>) -> Result<Option<(String, String)>, CliError> {
    let Some(path) = path else { return Ok(None) };
    let name = path.display().to_string();
    match read_named(&path, DataLimit::FileBytes) {
        Ok(text) => Ok(Some((name, text))),
        Err(BeneathError::Io(error)) if is_absent(&error) => Ok(None),
        Err(error) => {
            let message = format!("`{name}` cannot be read; nothing was started");
            Err(CliError::new(Exit::Unusable, message).because(error))
        }
    }
}

fn unusable(name: &str, problems: Vec<String>) -> CliError {
    CliError::new(Exit::Unusable, format!("`{name}` cannot be used"))
        .with_problems(problems)
        .with_help("docs/configuration.md lists the settings; nothing was started")
}
