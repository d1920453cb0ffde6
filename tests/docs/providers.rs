use graphrun::llm::PROVIDERS;

use crate::page::Page;

#[test]
fn the_table_of_providers_is_that_of_the_program() {
    let page = Page::read("docs/models.md");
    let rows: Vec<&str> =
        page.text.lines().filter(|it| it.contains("://") && it.starts_with("| `")).collect();
    let wanted: Vec<String> = PROVIDERS
        .iter()
        .map(|it| {
            let optional = if it.is_own { ", optional" } else { "" };
            let key = format!("`{}`{optional}", it.key_variable);
            format!("| `{}` | `{}` | {key} | `{}` |", it.name, it.base_url, it.output.as_str())
        })
        .collect();
    assert_eq!(rows, wanted);
}
