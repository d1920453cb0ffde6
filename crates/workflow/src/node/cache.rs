//! `cache`: the result of a node is stored and reused for identical inputs.

use graphrun_core::diagnostic::Diagnostic;

use crate::{
    Caching,
    format::CacheKeys,
    kind::{CacheRefusal, NodeSettings},
    lower::environment::NodeScope,
    source::{
        reader::Data,
        report::Report,
        shape::{Section, duration_of},
    },
};

/// Reads how the node of a scope is cached.
pub(crate) fn read_cache(
    report: &mut Report,
    scope: &NodeScope<'_>,
    section: &Section<'_>,
    settings: Option<&dyn NodeSettings>,
) -> Option<Caching> {
    let yaml = section.get("cache")?;
    let caching = match &yaml.data {
        Data::Map(_) => {
            let section = Section::read::<CacheKeys>(report, yaml, "`cache`")?;
            let age_max = section.get("for").and_then(|it| report.duration(it, "`for`"));
            let key = section.get("key").and_then(|it| scope.expression(report, it));
            Caching { age_max, key }
        }
        Data::Scalar { text, plain: true } if text == "true" => Caching::default(),
        Data::Scalar { text, plain: true } if text == "false" => return None,
        _ => {
            let age_max = duration_of(yaml);
            if age_max.is_none() {
                let wanted = "`true`, a span of time such as `24h`, or `{ for, key }`";
                report.wrong_kind(yaml, "`cache`", wanted);
            }
            Caching { age_max: Some(age_max?), ..Caching::default() }
        }
    };
    let mut kinds = scope.env.registry.kinds().iter();
    let refusal =
        kinds.find_map(|it| it.kind.refuses_cache(section.get(it.key())?, &scope.env.registry));
    let of_settings = settings.and_then(|it| it.refuses_cache(&scope.env.registry));
    let is_in_folder = section.has_or_means("folder") || settings.is_some_and(has_tool_in_folder);
    let in_folder = is_in_folder.then(|| CacheRefusal {
        what: "a node with `folder`".to_owned(),
        help: "omit it: its result depends on the files of the folder",
    });
    let on_host = settings.is_some_and(is_on_host).then(|| CacheRefusal {
        what: "a command on a host".to_owned(),
        help: "omit it: the command acts on this machine each time",
    });
    let with_packages = settings.is_some_and(has_dependencies).then(|| CacheRefusal {
        what: "a node whose sandbox has `dependencies`".to_owned(),
        help: "omit it: its result depends on the packages of the repository",
    });
    let refusal = refusal.or(in_folder).or(on_host).or(with_packages).or(of_settings);
    if let (Some(CacheRefusal { what, help }), Some(key)) = (refusal, section.key("cache")) {
        let message = format!("`{}` is {what}, whose results are not cached", scope.name);
        let span = report.span(&key.range);
        let diagnostic = Diagnostic::error("GR049", message).at(span, "never used again");
        report.push(diagnostic.help(help));
        return None;
    }
    Some(caching)
}

/// Returns whether a node finds packages of a repository, which differ from run to run.
fn has_dependencies(settings: &dyn NodeSettings) -> bool {
    settings.all_sandboxes().any(|it| !it.dependencies.is_empty())
}

/// Returns whether a tool of a node runs in a folder of the run.
fn has_tool_in_folder(settings: &dyn NodeSettings) -> bool {
    settings.declared_tools().iter().any(|it| it.folder().is_some())
}

/// Returns whether a node runs a command on this machine.
fn is_on_host(settings: &dyn NodeSettings) -> bool {
    settings.host().is_some() || settings.programs().iter().any(|it| it.host_use().is_some())
}
