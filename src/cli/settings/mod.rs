//! The configuration file and the environment, the database, and the folders of the user.

pub(super) mod config;
pub(super) mod database;
pub(super) mod environment;
pub(super) mod run_settings;
pub(super) mod user_folders;
