//! The permissions that the operator gives to a workflow, and the folders and databases that the user trusts.

pub(super) mod ask;
pub(super) mod hosts;
pub(super) mod known_databases;
pub(super) mod network;
pub(super) mod permission;
pub(super) mod refusals;
pub(super) mod state_file;
pub(super) mod trusted_folders;
pub(super) mod web;
