//! The settings that no flag gives, the database, and the folders of the user.

pub(super) mod config;
pub(super) mod database;
pub(super) mod environment;
pub(super) mod state_file;
pub(super) mod user_folders;
