use graphrun::models::Providers;

use crate::docs::page::Page;

#[test]
fn the_table_of_providers_is_that_of_the_program() {
    let page = Page::read("docs/models.md");
    let rows: Vec<&str> =
        page.text.lines().filter(|it| it.contains("://") && it.starts_with("| `")).collect();
    let wanted: Vec<String> = Providers::built_in()
        .iter()
        .map(|(name, it)| {
            let address = it.base_url.as_ref().or(it.address_form.as_ref()).expect("one is there");
            let optional = if it.key_optional { ", optional" } else { "" };
            let key = it.key_variable.as_ref().expect("each built-in provider has one");
            let output = it.profile.output.as_str();
            let protocol = it.profile.protocol.as_str();
            format!("| `{name}` | `{address}` | `{key}`{optional} | `{protocol}` | `{output}` |")
        })
        .collect();
    assert_eq!(rows, wanted);
}
