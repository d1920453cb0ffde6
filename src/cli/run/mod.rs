//! A run at a terminal: its models, its folders, its engine, and its journal.

mod costs;
pub(super) mod dependencies;
pub(super) mod drive;
pub(super) mod figures;
mod follow;
pub(super) mod loaded;
pub(super) mod models;
mod names;
mod needs;
pub(super) mod new_run;
pub(super) mod origin;
pub(super) mod process_gone;
pub(super) mod report_files;
pub(super) mod run_folders;
pub(super) mod stopped;
