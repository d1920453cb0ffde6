//! `wait`: waits for a time. The run is saved, and no process has to be active meanwhile.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{
        Command, Contract, ErrorKind, Node, NodeContext, NodeDescription, NodeError, SideEffects,
    },
    state::{Type, duration_of, moment_of},
    words,
};
use graphrun_workflow::{
    Expression, ExpressionView, Registry,
    kind::{
        CacheRefusal, Computation, Data, Keys, Kind, MakeContext, NodeReader, NodeSettings, Yaml,
        describe,
        values::{Either, Moment, WaitTime},
    },
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde_json::json;

/// The kind `wait`.
#[derive(Debug)]
pub(crate) struct WaitKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct WaitKeys {
    /// Waits for a span of time, such as `1h`, or until a time. The run is saved meanwhile.
    wait: Either<WaitTime, WaitParts>,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct WaitParts {
    /// The time: a day, which begins at midnight in UTC, or a text such as `2026-01-31T08:30:00Z`.
    until: Moment,
}

/// A node that waits.
#[derive(Clone, Debug)]
pub struct WaitNode {
    /// When the wait ends.
    pub end: WaitEnd,
    /// The end as the workflow has it.
    pub source: String,
}

/// When the wait of a node ends.
#[derive(Clone, Debug)]
pub enum WaitEnd {
    /// After this time.
    After(Duration),
    /// After the span of time that an expression gives.
    AfterValue(Expression),
    /// At this time.
    At(Timestamp),
    /// At the time that an expression gives.
    AtValue(Expression),
}

/// The form of the end of a wait.
struct Form {
    key: &'static str,
    what: &'static str,
    ty: Type,
    is_valid: fn(&str) -> bool,
    help: &'static str,
}

impl Form {
    fn of_duration() -> Self {
        Self {
            key: "`wait`",
            what: "a span of time such as `90s`, `10m` or `24h`",
            ty: Type::Duration,
            is_valid: |it| duration_of(it).is_some(),
            help: "write `1h`, or an expression of the type `duration`, or a text such as `string(minutes) + \"m\"`; \
                   `{ until: … }` waits until a time",
        }
    }

    fn of_moment() -> Self {
        Self {
            key: "`until`",
            what: "a day such as `2026-01-31`, or a time such as `2026-01-31T08:30:00Z`",
            ty: Type::Date,
            is_valid: |it| moment_of(it).is_some(),
            help: "write an expression of the type `date`, or a text such as `2026-01-31T08:30:00Z`",
        }
    }

    /// Reads an expression for the end of a wait.
    fn read(&self, reader: &mut NodeReader<'_>, yaml: &Yaml) -> Option<Expression> {
        // No expression for a time begins with a digit.
        if yaml.text().is_some_and(|it| it.starts_with(|it: char| it.is_ascii_digit())) {
            reader.report().wrong_kind(yaml, self.key, self.what);
            return None;
        }
        let value = reader.expression_for(yaml, &self.ty)?;
        let problem = match value.ty() {
            Type::String => None,
            Type::Enum(texts) => texts
                .iter()
                .find(|it| !(self.is_valid)(it))
                .map(|it| format!("{} is {}, and never \"{it}\"", self.key, self.what)),
            ty if ty.fits(&self.ty) => None,
            ty => Some(format!("{} is {}, and this is {}", self.key, self.what, describe(ty))),
        };
        if let Some(message) = problem {
            let span = reader.report().span(&yaml.range);
            let diagnostic = Diagnostic::error("GR022", message).at(span, "no time");
            reader.report().push(diagnostic.help(self.help));
        }
        Some(value)
    }
}

impl Kind for WaitKind {
    fn key(&self) -> &'static str {
        "wait"
    }

    fn keys(&self) -> Keys {
        Keys::of::<WaitKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let yaml = reader.value();
        if matches!(yaml.data, Data::Map(_)) {
            let parts = reader.parts()?;
            let help = "write `wait: { until: due }`";
            let until = parts.require(reader.report(), "until", help)?;
            let text = until.text().unwrap_or_default();
            let end = match moment_of(text) {
                Some(time) => WaitEnd::At(time),
                None => WaitEnd::AtValue(Form::of_moment().read(reader, until)?),
            };
            return Some(Arc::new(WaitNode { end, source: text.to_owned() }));
        }
        let text = yaml.text().unwrap_or_default();
        // `PT1H` may be the name of a field, too.
        let fixed = duration_of(text).filter(|_| !reader.has_value(text));
        let end = match fixed.map(|it| (it.is_positive(), it.unsigned_abs())) {
            Some((true, duration)) => WaitEnd::After(duration),
            Some((false, _)) => {
                let form = Form::of_duration();
                reader.report().wrong_kind(yaml, form.key, form.what);
                return None;
            }
            None => WaitEnd::AfterValue(Form::of_duration().read(reader, yaml)?),
        };
        Some(Arc::new(WaitNode { end, source: text.to_owned() }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        Some(CacheRefusal::of_kind(self, "omit it: it only waits"))
    }
}

impl NodeSettings for WaitNode {
    fn make(&self, _: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(self.clone()))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        Some(Vec::new())
    }

    /// It computes nothing: the time decides nothing but when the run continues.
    fn computes(&self) -> Option<Vec<Computation>> {
        Some(Vec::new())
    }

    fn detail(&self) -> Option<String> {
        Some(match &self.end {
            WaitEnd::After(duration) => words::duration(*duration),
            WaitEnd::AfterValue(_) => self.source.clone(),
            WaitEnd::At(_) | WaitEnd::AtValue(_) => format!("until {}", self.source),
        })
    }
}

impl WaitNode {
    /// Returns the time that an expression gives.
    fn value<T>(
        &self,
        ctx: &NodeContext,
        expression: &Expression,
        read: fn(&str) -> Option<T>,
        what: &str,
    ) -> Result<T, NodeError> {
        let value = expression.evaluate(&ExpressionView::of(ctx))?;
        value.as_str().and_then(read).ok_or_else(|| {
            NodeError::permanent(format!("`{}` is {value}, which is no {what}", self.source))
        })
    }
}

/// The key of the only wait of a node.
const KEY: &str = "wait";

#[async_trait]
impl Node for WaitNode {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        match &self.end {
            WaitEnd::After(duration) => ctx.wait_for(KEY, *duration)?,
            WaitEnd::AfterValue(value) => {
                let duration = self.value(&ctx, value, duration_of, "span of time")?;
                ctx.wait_for(KEY, Duration::try_from(duration).unwrap_or_default())?;
            }
            WaitEnd::At(time) => ctx.wait_until(KEY, *time)?,
            WaitEnd::AtValue(value) => {
                ctx.wait_until(KEY, self.value(&ctx, value, moment_of, "day or time")?)?;
            }
        }
        Ok(Command::default())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription {
            kind: "wait",
            contract: Contract { reads: None, writes: Some(Vec::new()) },
            calls_max: Some(0),
            side_effects: SideEffects::Nothing,
            fingerprint: json!(self.source),
            ..NodeDescription::default()
        }
    }
}
