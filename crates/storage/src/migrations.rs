//! The migrations of stored formats.

/// The statements that bring the tables of each format to the next one. The first format is 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migrations(pub(crate) &'static [&'static str]);

impl Migrations {
    /// Returns the format that the migrations lead to.
    pub(crate) fn format(self) -> u32 {
        u32::try_from(self.0.len()).expect("migrations are few") + 1
    }

    /// Returns the migrations that a database of this format lacks, or why this program cannot use
    /// it.
    pub(crate) fn missing(self, format: u32) -> Result<&'static [&'static str], String> {
        let lacks = |applied: u32| self.0.get(usize::try_from(applied).ok()?..);
        format.checked_sub(1).and_then(lacks).ok_or_else(|| {
            let newest = self.format();
            format!(
                "it has format {format}, but this program supports formats up to {newest}; use the \
                 program that wrote it"
            )
        })
    }
}

/// Returns why a database cannot be migrated now.
pub(crate) fn still_owned(format: u32, run: &str) -> String {
    format!(
        "it has format {format}, and an older program owns run `{run}`; wait until that run \
         stops, or stop it"
    )
}
