//! The tables of one kind of data, and how they are created.

use crate::migrations::Migrations;

/// The tables of one kind of data. Each kind has a separate schema, so that several kinds can share a database.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// The schema, unless the URL names another one.
    pub(super) schema: &'static str,
    /// The table with the version of the format. Its name tells the kinds of data apart.
    pub(super) format_table: &'static str,
    /// The other tables, which the user must be able to read and write.
    pub(super) names: &'static [&'static str],
    /// The statements that create them.
    pub(super) sql: &'static str,
    pub(super) migrations: Migrations,
    pub(super) owned: Option<OwnedRunQueries>,
}

/// How to find a run that a process owns.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnedRunQueries {
    /// The statement that prevents processes from acquiring runs.
    pub(super) lock: &'static str,
    /// The query for the id of such a run.
    pub(super) run: &'static str,
}

impl Tables {
    /// The tables in their first format.
    pub const fn new(
        schema: &'static str,
        format_table: &'static str,
        names: &'static [&'static str],
        sql: &'static str,
    ) -> Self {
        Self { schema, format_table, names, sql, migrations: Migrations(&[]), owned: None }
    }
}
