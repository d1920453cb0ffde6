//! Limits on the size of data, set by environment variables, one for each.
//!
//! They are set once per process, before any input is read: a workflow cannot raise them.

use std::{collections::BTreeMap, env};

use crate::{
    cli::{arguments::values::parse_count, error::CliError, exit::Exit},
    data_limit::{DataLimit, set_data_limits},
};

/// Sets the limits that the environment defines. The others keep their defaults.
///
/// # Errors
///
/// Fails with every variable that has an invalid value.
pub(crate) fn set_from_environment() -> Result<(), CliError> {
    let text = |name: &str| env::var_os(name).map(|it| it.to_string_lossy().into_owned());
    let values = read(text).map_err(refused)?;
    set_data_limits(values).map_err(|error| refused(vec![error.to_string()]))
}

/// Returns the limits that a layer of the configuration sets, by the names of the variables.
fn read(text: impl Fn(&str) -> Option<String>) -> Result<BTreeMap<DataLimit, u64>, Vec<String>> {
    let mut values = BTreeMap::new();
    let mut problems = Vec::new();
    for limit in DataLimit::ALL {
        let variable = limit.variable();
        let Some(text) = text(&variable).filter(|it| !it.trim().is_empty()) else { continue };
        match parse(limit, text.trim()) {
            Ok(value) => drop(values.insert(limit, value)),
            Err(problem) => problems.push(format!("{variable} is `{text}`: {problem}")),
        }
    }
    if problems.is_empty() { Ok(values) } else { Err(problems) }
}

fn parse(limit: DataLimit, text: &str) -> Result<u64, String> {
    let value = parse_count(text)?;
    if value > limit.highest_value() {
        return Err(format!("the highest value of this limit is {}", limit.highest_value()));
    }
    Ok(value)
}

fn refused(problems: Vec<String>) -> CliError {
    CliError::new(
        Exit::Unusable,
        "the limits on the size of data cannot be set; nothing was started",
    )
    .with_problems(problems)
    .with_help("docs/configuration.md lists the limits and their defaults")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::terminal::Paint;

    fn read_pairs(pairs: &[(&str, &str)]) -> Result<BTreeMap<DataLimit, u64>, Vec<String>> {
        read(|name| pairs.iter().find(|(it, _)| *it == name).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn the_environment_sets_limits_by_their_names() {
        let set = [
            ("GRAPHRUN_LIMIT_INPUT_BYTES", " 1_000 "),
            ("GRAPHRUN_LIMIT_VALUE_DEPTH", "96"),
            ("GRAPHRUN_LIMIT_MAP_ITEMS", ""),
        ];
        let expected = [(DataLimit::InputBytes, 1_000), (DataLimit::ValueDepth, 96)];
        assert_eq!(read_pairs(&set), Ok(expected.into()));
    }

    #[test]
    fn every_wrong_limit_of_the_environment_is_named() {
        let problems = read_pairs(&[
            ("GRAPHRUN_LIMIT_INPUT_BYTES", "64M"),
            ("GRAPHRUN_LIMIT_VALUE_DEPTH", "97"),
            ("GRAPHRUN_LIMIT_MAP_ITEMS", "0"),
        ]);
        let error = refused(problems.unwrap_err());
        assert_eq!(error.exit(), Exit::Unusable);
        insta::assert_snapshot!(error.draw(Paint::new(false), 80), @r"
        error: the limits on the size of data cannot be set; nothing was started
          - GRAPHRUN_LIMIT_INPUT_BYTES is `64M`: expected a whole number above zero, as in `200000`
          - GRAPHRUN_LIMIT_VALUE_DEPTH is `97`: the highest value of this limit is 96
          - GRAPHRUN_LIMIT_MAP_ITEMS is `0`: expected a whole number above zero, as in `200000`
        help: docs/configuration.md lists the limits and their defaults
        ");
    }

    #[test]
    fn the_docs_list_every_limit_with_its_default() {
        let docs = include_str!("../../../docs/configuration.md");
        let rows: Vec<&str> =
            docs.lines().filter(|it| it.starts_with("| `GRAPHRUN_LIMIT_")).collect();
        let expected: Vec<String> = DataLimit::ALL
            .iter()
            .map(|limit| format!("| `{}` | {} |", limit.variable(), grouped(limit.default_value())))
            .collect();
        for (row, expected) in rows.iter().zip(&expected) {
            assert!(row.starts_with(expected.as_str()), "{row}\nis to begin with\n{expected}");
        }
        assert_eq!(rows.len(), expected.len());
    }

    /// Returns a number in groups of three digits, as it may be written in a setting.
    fn grouped(number: u64) -> String {
        let digits = number.to_string();
        let groups: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|it| str::from_utf8(it).unwrap()).collect();
        groups.join("_")
    }
}
