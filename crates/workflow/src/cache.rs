//! `cache`: the result of a node is stored and reused for identical inputs.

use graphrun_core::{diagnostic::Diagnostic, id::NodeName};

use super::{
    Caching,
    lower::Lowering,
    reader::{Data, Yaml},
    shape::{Section, duration_of},
};
use crate::tool::BUILT_IN;

/// The keys of `cache`.
pub(super) const CACHE_KEYS: &[&str] = &["for", "key"];

/// The kinds that cannot be cached, because their results differ each time, with the alternative.
const NEVER_KEPT: &[(&str, &str)] = &[
    ("ask", "omit it: a person is asked every time"),
    ("set", "omit it: computing the fields is faster than a lookup"),
    ("map", "write it on the node that runs for each item"),
    ("use", "write it on the nodes of the used workflow"),
    ("write_files", "omit it: files exist only if they are written"),
];

impl Lowering<'_> {
    /// Reads how the current node is cached.
    pub(super) fn read_cache(&mut self, name: &NodeName, section: &Section<'_>) -> Option<Caching> {
        let yaml = section.get("cache")?;
        let caching = match &yaml.data {
            Data::Map(_) => self.read_caching(name, yaml)?,
            Data::Scalar { text, plain: true } if text == "true" => Caching::default(),
            Data::Scalar { text, plain: true } if text == "false" => return None,
            _ => {
                let age_max = duration_of(yaml);
                if age_max.is_none() {
                    let wanted = "`true`, a span of time such as `24h`, or `{ for, key }`";
                    self.report.wrong_kind(yaml, "`cache`", wanted);
                }
                Caching { age_max: Some(age_max?), ..Caching::default() }
            }
        };
        let never = NEVER_KEPT.iter().find(|(kind, _)| section.get(kind).is_some());
        let refusal = never.map(|(kind, help)| (format!("`{kind}`"), *help));
        let tool = section.get("tool").and_then(Yaml::text).filter(|it| BUILT_IN.contains(it));
        let refusal = refusal.or_else(|| {
            let help = "omit it: a file may have changed since it was read";
            Some((format!("the tool `{}`", tool?), help))
        });
        if let (Some((what, help)), Some(key)) = (refusal, section.key("cache")) {
            let message = format!("`{name}` is {what}, whose results are not cached");
            let place = self.report.place(&key.range);
            let finding = Diagnostic::error("GR049", message).at(place, "never used again");
            self.report.push(finding.help(help));
            return None;
        }
        Some(caching)
    }

    fn read_caching(&mut self, name: &NodeName, yaml: &Yaml) -> Option<Caching> {
        let section = Section::read(&mut self.report, yaml, "`cache`", CACHE_KEYS)?;
        let age_max = section.get("for").and_then(|it| self.report.duration(it, "`for`"));
        let written = self.flow.before(name);
        let key = section.get("key").and_then(|it| self.expression(it, &written));
        Some(Caching { age_max, key })
    }
}
