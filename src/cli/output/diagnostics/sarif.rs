//! Diagnostics as SARIF 2.1.0, the exchange format of static analysis (OASIS, 2020).

use std::path::Path;

use serde_json::{Value, json};

use super::{CheckedWorkflow, advice, seen_from};
use crate::diagnostic::{CODES, Code, Diagnostic, Label, Severity, SourceSpan};

/// The URL of the schema.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Returns the log of one invocation, with paths relative to a folder.
///
/// `is_whole` means that every workflow could be read. Without it, a service that compares logs
/// would treat missing diagnostics as fixed.
pub(crate) fn log(checked: &[CheckedWorkflow], folder: &Path, is_whole: bool) -> Value {
    let results: Vec<Value> = checked.iter().flat_map(|it| results(it, folder)).collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {
                "driver": {
                    "name": "graphrun",
                    "semanticVersion": env!("CARGO_PKG_VERSION"),
                    "rules": CODES.iter().map(rule).collect::<Vec<_>>(),
                },
            },
            "invocations": [{"executionSuccessful": is_whole}],
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule(code: &Code) -> Value {
    json!({
        "id": code.as_str(),
        "shortDescription": {"text": code.title()},
        "fullDescription": {"text": code.meaning()},
        "help": {"text": code.page(), "markdown": code.page()},
    })
}

fn results(checked: &CheckedWorkflow, folder: &Path) -> Vec<Value> {
    let diagnostics = checked.diagnostics.in_order();
    diagnostics.into_iter().map(|it| result(it, &checked.workflow, folder)).collect()
}

fn result(diagnostic: &Diagnostic, workflow: &Path, folder: &Path) -> Value {
    let (first, others) = match diagnostic.labels.split_first() {
        Some((first, others)) => (located(first, folder), others),
        None => {
            (json!({"physicalLocation": {"artifactLocation": artifact(workflow, folder)}}), &[][..])
        }
    };
    let mut result = json!({
        "ruleId": diagnostic.code,
        "ruleIndex": CODES.iter().position(|it| it.as_str() == diagnostic.code),
        "level": match diagnostic.severity {
            Severity::Hint => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        },
        // Without arguments, every viewer shows braces literally.
        "message": {"text": advice(diagnostic)},
        "locations": [first],
    });
    if !others.is_empty() {
        result["relatedLocations"] = others.iter().map(|it| located(it, folder)).collect();
    }
    result
}

fn located(Label { span, text }: &Label, folder: &Path) -> Value {
    json!({
        "physicalLocation": {
            "artifactLocation": artifact(Path::new(&span.file.name), folder),
            "region": region(span),
        },
        "message": {"text": text},
    })
}

fn region(span: &SourceSpan) -> Value {
    let (line, column) = span.line_and_column();
    let (end_line, end_column) = span.end_line_and_column();
    json!({"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column})
}

/// Returns a file below the folder relative to it, so that a log is the same on every machine.
fn artifact(file: &Path, folder: &Path) -> Value {
    let path = seen_from(folder, file);
    if path.starts_with('/') {
        json!({"uri": format!("file://{}", escaped(&path))})
    } else {
        json!({"uri": escaped(&path), "uriBaseId": "%SRCROOT%"})
    }
}

/// Escapes a path for a URI (RFC 3986, section 2.3).
fn escaped(path: &str) -> String {
    let shown = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    path.bytes().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::output::diagnostics::tests::checked, diagnostic::Diagnostics};

    #[test]
    fn a_result_has_its_rule_its_place_and_the_other_places() {
        let log = log(&[checked()], Path::new("/repo"), true);
        let results = &log["runs"][0]["results"];
        insta::assert_snapshot!(serde_json::to_string_pretty(results).unwrap());
        for result in results.as_array().unwrap() {
            let rule = &log["runs"][0]["tool"]["driver"]["rules"];
            let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            assert_eq!(rule[index]["id"], result["ruleId"]);
        }
    }

    #[test]
    fn every_code_is_a_rule_with_its_page() {
        let log = log(&[], Path::new("/repo"), false);
        let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
        assert_eq!(rules.len(), CODES.len());
        insta::assert_snapshot!(serde_json::to_string_pretty(&rules[7]).unwrap());
        assert_eq!(log["runs"][0]["invocations"][0]["executionSuccessful"], false);
        assert_eq!(log["runs"][0]["results"], json!([]));
    }

    #[test]
    fn a_path_is_a_uri_and_only_one_below_the_folder_has_a_base() {
        let artifact = |file: &str| artifact(Path::new(file), Path::new("/repo")).to_string();
        assert_eq!(
            artifact("a b/é:1%.yaml"),
            r#"{"uri":"a%20b/%C3%A9%3A1%25.yaml","uriBaseId":"%SRCROOT%"}"#
        );
        assert_eq!(artifact("../x y.yaml"), r#"{"uri":"file:///x%20y.yaml"}"#);
    }

    #[test]
    fn a_diagnostic_without_a_place_is_about_the_workflow() {
        let mut diagnostics = Diagnostics::default();
        diagnostics.push(Diagnostic::error("GR006", "no node starts the graph"));
        let checked = CheckedWorkflow { workflow: "team.yaml".into(), diagnostics };
        let location =
            &log(&[checked], Path::new("/repo"), true)["runs"][0]["results"][0]["locations"][0];
        assert_eq!(
            *location,
            json!({"physicalLocation": {"artifactLocation": {"uri": "team.yaml", "uriBaseId": "%SRCROOT%"}}})
        );
    }
}
