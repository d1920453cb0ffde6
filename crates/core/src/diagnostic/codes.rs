//! Every code of a diagnostic, and the page that explains it.
//!
//! The pages are files in `docs/codes`; `graphrun explain` prints the same text. A new code is a
//! new page and a line in [`CODES`]; a code never changes its meaning.

/// A code and its page.
///
/// ```
/// use graphrun_core::diagnostic::Code;
///
/// let code = Code::find("GR010").unwrap();
/// assert_eq!(code.title(), "there is no such node");
/// assert!(code.wrong().starts_with("graphrun: 1\n"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    code: &'static str,
    page: &'static str,
}

/// The codes with the files of their pages.
macro_rules! pages {
    ($($code:literal)*) => {
        &[$(Code {
            code: $code,
            page: include_str!(concat!("../../../../docs/codes/", $code, ".md")),
        }),*]
    };
}

/// Every code, in order.
#[rustfmt::skip] // a line for each range
pub const CODES: &[Code] = pages! {
    // The shape of the file.
    "GR001" "GR002" "GR003" "GR004" "GR005" "GR006" "GR007" "GR008" "GR009"
    // Names.
    "GR010" "GR011" "GR012" "GR013" "GR014" "GR015" "GR016" "GR017" "GR018" "GR019"
    // Expressions and cases.
    "GR020" "GR021" "GR022" "GR023" "GR024" "GR025" "GR026" "GR027" "GR028" "GR029"
    // The graph, and what flows through it.
    "GR030" "GR031" "GR032" "GR033" "GR034" "GR035" "GR036" "GR037" "GR038" "GR039"
    // Prompts and safety.
    "GR040" "GR041" "GR042" "GR045" "GR046" "GR047" "GR048" "GR049" "GR050" "GR051"
    "GR052" "GR053" "GR054"
    // Sizes and places.
    "GR055" "GR056" "GR057" "GR058" "GR059"
    // Workflows in workflows.
    "GR070" "GR071" "GR072" "GR073" "GR074" "GR077"
    // Cases.
    "GR080" "GR081" "GR082" "GR083" "GR084" "GR085"
    // Names, continued.
    "GR110" "GR111" "GR112" "GR113" "GR114"
    // Expressions and cases, continued.
    "GR120"
    // The graph, where the range above is full.
    "GR130" "GR131" "GR132" "GR133" "GR134" "GR135" "GR136" "GR138" "GR139"
    "GR140" "GR141"
};

impl Code {
    /// Returns the code of that name, such as `GR010`.
    pub fn find(name: &str) -> Option<&'static Self> {
        CODES.iter().find(|it| it.code == name)
    }

    /// Returns its name, such as `GR010`.
    pub fn as_str(&self) -> &'static str {
        self.code
    }

    /// Returns the title: the problem in a few words.
    pub fn title(&self) -> &'static str {
        let heading = self.page.lines().next().unwrap_or_default();
        heading.split_once(": ").map_or(heading, |(_, title)| title)
    }

    /// Returns the explanation, as Markdown.
    pub fn meaning(&self) -> &'static str {
        let (_, body) = self.page.split_once('\n').unwrap_or_default();
        until_heading(body)
    }

    /// Why it is worth a diagnostic, as Markdown.
    pub fn reason(&self) -> &'static str {
        self.section("Why it matters")
    }

    /// Returns a small workflow that has this mistake and no other.
    pub fn wrong(&self) -> &'static str {
        self.example("Wrong")
    }

    /// Returns the same workflow without the mistake.
    pub fn right(&self) -> &'static str {
        self.example("Right")
    }

    /// Returns the whole page, as Markdown.
    pub fn page(&self) -> &'static str {
        self.page
    }

    fn section(&self, heading: &str) -> &'static str {
        let start = format!("\n## {heading}\n");
        self.page.split_once(&start).map_or("", |(_, body)| until_heading(body))
    }

    fn example(&self, heading: &str) -> &'static str {
        let section = self.section(heading);
        let block = section.strip_prefix("```yaml\n").and_then(|it| it.strip_suffix("```"));
        block.unwrap_or_default()
    }
}

fn until_heading(text: &str) -> &str {
    text.split("\n## ").next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        assert!(CODES.windows(2).all(|pair| pair[0].code < pair[1].code));
        assert_eq!(Code::find("GR999"), None);
    }

    #[test]
    fn a_page_has_its_code_a_title_and_four_parts() {
        for code in CODES {
            let name = code.as_str();
            let title = code.title();
            assert!(code.page.starts_with(&format!("# {name}: {title}\n")), "{name}");
            assert!(title.starts_with(char::is_lowercase) && !title.ends_with('.'), "{name}");
            let parts = [code.meaning(), code.reason(), code.wrong(), code.right()];
            assert!(parts.iter().all(|it| !it.is_empty()), "{name}: {parts:?}");
            let whole = format!(
                "# {name}: {title}\n\n{}\n\n## Why it matters\n\n{}\n\n\
                 ## Wrong\n\n```yaml\n{}```\n\n## Right\n\n```yaml\n{}```\n",
                parts[0], parts[1], parts[2], parts[3]
            );
            assert_eq!(code.page, whole, "{name} has something else, or in another order");
        }
    }

    #[test]
    fn a_page_fits_a_terminal() {
        for code in CODES {
            let long = code.page.lines().find(|it| it.chars().count() > 100);
            assert_eq!(long, None, "{}", code.as_str());
        }
    }
}
