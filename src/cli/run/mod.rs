//! A run at a terminal: its models, its folders, its engine, and its journal.

pub(super) mod costs;
pub(super) mod dependencies;
pub(super) mod drive;
pub(super) mod figures;
pub(super) mod item_writers;
pub(super) mod models;
pub(super) mod names;
pub(super) mod needs;
pub(super) mod new_run;
pub(super) mod origin;
pub(super) mod prepare;
pub(super) mod report_files;
pub(super) mod run_folders;
pub(super) mod steps;
