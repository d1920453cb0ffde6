//! Prompts: minijinja templates in strict mode, compiled and checked when a workflow is loaded.
//!
//! A prompt stands alone (no includes), never escapes for HTML, and reads every assigned field of
//! the state by name, `visit`, `max_visits`, `via` and, in a dispatched task, `item`.
//!
//! [`Prompt::check`] passes over the template once: `checker` over the statements, `expressions` and its neighbours over
//! the expressions. `guards` finds the guarantees that conditions and loops prove inside their blocks. A run calls
//! [`Prompt::render`], which counts steps and bytes (`metered`, `meter`).
//!
//! ```
//! let prompt = graphrun_prompts::Prompt::compile("greet.md", "Greet {{ name }} in one line.").unwrap();
//! assert!(prompt.variables().contains("name"));
//! assert_eq!(graphrun_prompts::Prompt::compile("greet.md", "Greet {{ name").unwrap_err().code, "GR040");
//! ```

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod builtins;
mod calls;
mod checker;
mod conditions;
#[cfg(test)]
mod constructs;
mod expressions;
mod facts;
mod filters;
mod guards;
mod json;
mod macros;
mod meter;
mod metered;
mod names;
mod operations;
mod parts;
mod presence;
mod set_under;
mod shapes;
mod texts;
mod tried;
mod variables;

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as _,
    fmt,
    sync::Arc,
};

use graphrun_core::{
    graph::{FactNeeds, Input, NodeContext, RunFacts, Trigger, Visits},
    state::{State, Type},
};
use graphrun_expressions::{facts::FactsView, file::as_shown, item::INDEX, problem::Problem};
use graphrun_guard::data_limit::{DataLimit, DataLimitReached};
use minijinja::{
    AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value,
    machinery::{CodeGenerator, Token, ast::Stmt, eval, make_string_output, parse, tokenize},
    syntax::SyntaxConfig,
    value::Serde,
};
use thiserror::Error;

pub use self::checker::PromptScope;
use self::{facts::add_facts, metered::metered};

/// The name of the one template of an environment.
const TEMPLATE: &str = "prompt";

/// The longest `{{ … }}` or `{% … %}`, in bytes. The template engine and the checks recurse over
/// its syntax tree, whose depth is at most its length.
const TAG_BYTES_MAX: usize = 2_000;
/// The most `{{ … }}` and `{% … %}` of a prompt: more than any real prompt has, and few enough for
/// a fast check.
const TAGS_MAX: usize = 20_000;
/// The most `elif` of a prompt; the tree is as deep as their number.
const ELIFS_MAX: usize = 100;

/// A compiled template.
#[derive(Clone)]
pub struct Prompt {
    name: Arc<str>,
    text: Arc<str>,
    /// The variables it may read; only these parts of the state are converted.
    variables: Arc<BTreeSet<String>>,
    /// The name of the item of a dispatched task, besides `item`.
    item: Option<Arc<str>>,
    /// The type of the item, if it contains files.
    item_type: Option<Arc<Type>>,
}

/// The values that a prompt can read.
#[derive(Clone, Copy, Debug)]
pub struct PromptView<'a> {
    /// The state.
    pub state: &'a State,
    /// How often the node has run since its count was last reset, including this visit.
    pub visit: u32,
    /// The bound of `visit`.
    pub max_visits: Option<u32>,
    /// The trigger of the task.
    pub trigger: &'a Trigger,
    /// The input of the task.
    pub input: &'a Input,
    /// How often each node has run since its count was last reset.
    pub visits: &'a Visits,
    /// The facts of the run.
    pub facts: &'a RunFacts,
}

impl<'a> PromptView<'a> {
    /// The values of an attempt.
    pub fn of(ctx: &'a NodeContext) -> Self {
        Self {
            state: &ctx.state,
            visit: ctx.visit(),
            max_visits: ctx.max_visits,
            trigger: &ctx.trigger,
            input: &ctx.input,
            visits: &ctx.visits,
            facts: &ctx.facts,
        }
    }
}

/// A prompt cannot be rendered in a state.
#[derive(Debug, Error)]
#[error("the prompt `{prompt}` cannot be rendered")]
pub struct PromptError {
    prompt: String,
    source: minijinja::Error,
}

impl Prompt {
    /// Compiles a text; messages use the name.
    pub fn compile(name: &str, text: &str) -> Result<Self, Problem> {
        if let Some(problem) = too_deep(text) {
            return Err(problem);
        }
        let template = parsed(text).map_err(|error| syntax_problem(&error, text))?;
        let (_, variables) = metered(&template);
        Ok(Self {
            name: name.into(),
            text: text.into(),
            variables: Arc::new(variables),
            item: None,
            item_type: None,
        })
    }

    /// The same prompt for a dispatched task, with the name and the type of its item.
    #[must_use]
    pub fn for_item(self, item: Option<(&str, &Type)>) -> Self {
        let item_type = item.map(|(_, ty)| Arc::new(ty.clone()));
        Self { item: item.map(|(name, _)| name.into()), item_type, ..self }
    }

    /// Checks every name in the prompt against the scope. Returns also the facts that a run must save for it.
    pub fn check(&self, scope: PromptScope<'_>) -> (Vec<Problem>, FactNeeds) {
        checker::check(&self.text, scope)
    }

    /// Renders the prompt in a state.
    ///
    /// # Errors
    ///
    /// Fails when it reads an unassigned value, or when a filter refuses a value.
    pub fn render(&self, view: &PromptView<'_>) -> Result<String, PromptError> {
        let rendered = self.render_metered(view);
        rendered.map_err(|source| PromptError { prompt: self.name.to_string(), source })
    }

    fn render_metered(&self, view: &PromptView<'_>) -> Result<String, minijinja::Error> {
        // A compiled template would borrow the text next to it, and compiling takes less time than
        // rendering.
        let template = parsed(&self.text)?;
        let mut generator = CodeGenerator::new(TEMPLATE, &self.text);
        generator.compile_stmt(&metered(&template).0);
        let (instructions, blocks) = generator.finish();
        let environment = environment();
        let root = self.context(view);
        let mut text = String::new();
        let mut out = make_string_output(&mut text);
        let plain = AutoEscape::None;
        let result = eval(&environment, &instructions, root, &blocks, &mut out, plain).map(drop);
        drop(out);
        match result {
            Ok(()) => Ok(text),
            // The engine does not report which limit was reached.
            Err(error) if error.kind() == ErrorKind::OutOfFuel && error.source().is_none() => {
                let max = DataLimit::TemplateSteps.value();
                let reached = DataLimitReached { limit: DataLimit::TemplateSteps, max };
                Err(error.with_source(reached))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns its source: a path, or the place of a text in the workflow.
    pub fn source_name(&self) -> &str {
        &self.name
    }

    /// Returns the names that the template may read.
    pub fn variables(&self) -> &BTreeSet<String> {
        &self.variables
    }

    /// Returns the source text of the template.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn context(&self, view: &PromptView<'_>) -> Value {
        let mut context: BTreeMap<&str, Value> = view
            .state
            .iter()
            .filter(|(name, _)| self.variables.contains(*name))
            .map(|(name, value)| {
                let channel = view.state.schema().channel(name);
                let shown = channel.map(|it| as_shown(value, it.ty()));
                (name, Value::from(Serde(shown.as_deref().unwrap_or(value))))
            })
            .collect();
        context.insert("visit", Value::from(view.visit));
        if let Some(max_visits) = view.max_visits {
            context.insert("max_visits", Value::from(max_visits));
        }
        if let Some(item) = view.input.item() {
            let name = self.item.as_deref().unwrap_or("item");
            let shown = self.item_type.as_deref().map(|it| as_shown(item, it));
            context.insert(name, Value::from(Serde(shown.as_deref().unwrap_or(item))));
            if let Some(index) = view.facts.item_index {
                context.entry(INDEX).or_insert_with(|| Value::from(index));
            }
        }
        let counts = view.visits.iter().map(|(name, count)| (name.to_string(), count)).collect();
        add_facts(&mut context, &FactsView { facts: view.facts, trigger: view.trigger }, counts);
        Value::from(Serde(context))
    }
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prompt({})", self.name)
    }
}

/// Reports a template whose tree would be too deep for recursion, or too large.
fn too_deep(text: &str) -> Option<Problem> {
    let mut tags = 0;
    let mut elifs = 0;
    // Where the innermost `{{` or `{%` begins.
    let mut start = 0;
    let mut was_start = false;
    // Nothing behind a mistake is parsed. A comment has no tokens, and a raw block is text.
    for (token, span) in tokenize(text, false, SyntaxConfig::default()).map_while(Result::ok) {
        let is_start = matches!(token, Token::VariableStart | Token::BlockStart);
        if is_start {
            start = span.start_offset as usize;
        }
        let refused =
            |message: String, label| Some(Problem::new("GR040", start..start + 2, message, label));
        let length = (span.end_offset as usize).saturating_sub(start + 4);
        if length > TAG_BYTES_MAX && !matches!(token, Token::TemplateData(_)) {
            let message = format!("a part of a prompt has at most {TAG_BYTES_MAX} bytes");
            return refused(message, "too long");
        }
        tags += usize::from(is_start);
        if tags > TAGS_MAX {
            let message = format!("a prompt has at most {TAGS_MAX} parts in braces");
            return refused(message, "one too many");
        }
        elifs += usize::from(was_start && matches!(token, Token::Ident("elif")));
        if elifs > ELIFS_MAX {
            let message = format!("a prompt has at most {ELIFS_MAX} `elif`");
            return refused(message, "one too many");
        }
        was_start = is_start;
    }
    None
}

fn parsed(text: &str) -> Result<Stmt<'_>, minijinja::Error> {
    parse(text, TEMPLATE, SyntaxConfig::default())
}

fn environment<'a>() -> Environment<'a> {
    let mut environment = Environment::new();
    // The debug mode would copy the template and its variables into each error.
    environment.set_debug(false);
    environment.set_fuel(Some(DataLimit::TemplateSteps.value()));
    builtins::register(&mut environment);
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment
}

fn syntax_problem(error: &minijinja::Error, text: &str) -> Problem {
    let range = error.range().unwrap_or_else(|| {
        let line = error.line().unwrap_or(1).saturating_sub(1);
        let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
        let length = text[start..].lines().next().map_or(0, str::len);
        start..start + length
    });
    let message = error.detail().unwrap_or("the template cannot be parsed");
    Problem::new("GR040", range, message, "here")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use graphrun_core::{
        event::Usage,
        graph::{ErrorKind, Failure},
        id::{ChannelName, NodeName, RunId},
        state::{Channel, Reducer, Schema, Update},
        usage::TokenUsage,
    };

    use super::*;
    use graphrun_expressions::flow::{guarantee::Guarantees, written::AssignedFields};

    fn state(fields: &[(&str, serde_json::Value)]) -> State {
        let name = |name: &str| ChannelName::parse(name).unwrap();
        let channel =
            |(it, _): &(&str, _)| Channel::new(name(it), json!({}), Reducer::Replace).unwrap();
        let schema = Schema::new(fields.iter().map(channel)).unwrap();
        let write = |update: Update, (it, value): &(&str, serde_json::Value)| {
            if value.is_null() { update } else { update.write(name(it), value.clone()) }
        };
        let update = fields.iter().fold(Update::default(), write);
        schema.apply(schema.empty(), [&update]).unwrap().0
    }

    fn rendered(text: &str, trigger: &Trigger) -> Result<String, PromptError> {
        let state = state(&[
            ("code", json!({"path": "a.py", "text": "if a < b & c: 'x'"})),
            ("later", json!(null)),
        ]);
        let input = Input::State;
        let sse = NodeName::parse("sse").unwrap();
        let visits = Visits::from_iter([(sse.clone(), 4)]);
        let tokens = TokenUsage { input_tokens: 70, calls: 1, ..TokenUsage::default() };
        let facts = RunFacts {
            run: Some(RunId::parse("run-1").unwrap()),
            began: Some("2026-01-31T08:30:00Z".parse().unwrap()),
            node_usage: BTreeMap::from([(sse, Usage { tokens, cost_usd: None })]),
            ..RunFacts::default()
        };
        let view = PromptView {
            state: &state,
            visit: 2,
            max_visits: Some(3),
            trigger,
            input: &input,
            visits: &visits,
            facts: &facts,
        };
        Prompt::compile("p.md", text).unwrap().render(&view)
    }

    #[test]
    fn a_prompt_reads_the_state_the_visit_and_the_trigger() {
        let node = NodeName::parse("sse").unwrap();
        let failure = Failure::new(ErrorKind::InvalidOutput, "no JSON at all");
        let trigger = Trigger::Caught { node, failure: Box::new(failure) };
        let text = "{{ code.path }} {{ visit }}/{{ max_visits }} \
                    {{ via.node }} {{ via.reason }} {{ via.error }} {{ later is defined }}";
        assert_eq!(rendered(text, &trigger).unwrap(), "a.py 2/3 sse caught no JSON at all False");
        assert_eq!(rendered("{{ via.node is defined }}", &Trigger::Start).unwrap(), "False");
        let text = "{{ via.error.kind }}: {{ via.error.message | upper }} {{ via.error | trim }}";
        let shown = "invalid_output: NO JSON AT ALL no JSON at all";
        assert_eq!(rendered(text, &trigger).unwrap(), shown);
        let text = "{{ run.id }} {{ now() }} {{ usage.tokens }} {{ usage(\"sse\").tokens }} {{ usage(\"qa\").tokens }} \
                    {{ visits(\"sse\") }} {{ remaining.steps }}";
        let shown = "run-1 2026-01-31T08:30:00Z 0 70 0 4 0";
        assert_eq!(rendered(text, &Trigger::Start).unwrap(), shown);
    }

    #[test]
    fn comments_and_raw_blocks_may_be_long() {
        let long = "{{ x }} {% {{ ".repeat(1_000);
        for text in [format!("{{# {long} #}}"), format!("{{% raw %}}{long}{{% endraw %}}")] {
            Prompt::compile("p.md", &text).unwrap();
        }
        let filler = "x".repeat(TAG_BYTES_MAX);
        for (text, message) in [
            (format!("{{{{ '}}}}' ~ '{filler}' }}}}"), "at most 2000 bytes"),
            (format!("{{# #}}{{% if '{filler}' %}}{{% endif %}}"), "at most 2000 bytes"),
            ("{{ x }}".repeat(TAGS_MAX + 1), "at most 20000 parts"),
            (format!("{{% if x %}}{}", "{%- elif x %}".repeat(ELIFS_MAX + 1)), "100 `elif`"),
        ] {
            let problem = Prompt::compile("p.md", &text).unwrap_err();
            assert!(problem.message.contains(message), "{}", problem.message);
        }
    }

    #[test]
    fn null_is_absent() {
        let state = state(&[("items", json!([{"n": null}, {"n": 2}]))]);
        let visits = Visits::default();
        let facts = RunFacts::default();
        let input = Input::State;
        let view = PromptView {
            state: &state,
            visit: 1,
            max_visits: None,
            trigger: &Trigger::Start,
            input: &input,
            visits: &visits,
            facts: &facts,
        };
        for (text, shown) in [
            ("{% for it in items if it.n is defined %}{{ it.n + 1 }}{% endfor %}", "3"),
            ("{% for it in items if it.n is undefined %}-{% endfor %}", "-"),
            (
                "{% for it in items %}{{ it.n | default('?') }} {{ it.n | d }};{% endfor %}",
                "? ;2 2;",
            ),
            ("{{ items[0].n is none }}", "True"),
        ] {
            let rendered = Prompt::compile("p.md", text).unwrap().render(&view).unwrap();
            assert_eq!(rendered, shown, "{text}");
        }
    }

    #[test]
    fn the_check_knows_every_reason_that_a_run_gives() {
        let node = NodeName::parse("sse").unwrap();
        let triggers = [
            Trigger::Start,
            Trigger::Then { node: node.clone() },
            Trigger::Exhausted { node: node.clone(), max_visits: 3, cause: None },
            Trigger::Caught {
                node: node.clone(),
                failure: Box::new(Failure::new(ErrorKind::Other, "x")),
            },
            Trigger::Limit { error: "x".into() },
        ];
        let state = state(&[]);
        let scope = PromptScope {
            schema: state.schema(),
            written: &AssignedFields::from_iter([]),
            nodes: &BTreeSet::new(),
            node: Some(&node),
            bounded: false,
            any_item: false,
            item: None,
            known: &Guarantees::NONE,
        };
        let problems = |reason: &str| {
            let text = format!("{{{{ via.reason == \"{reason}\" }}}}");
            Prompt::compile("p.md", &text).unwrap().check(scope).0.len()
        };
        assert_eq!(problems("retried"), 1);
        assert_eq!(triggers.map(|it| problems(it.kind().as_str())), [0; 5]);
    }

    #[test]
    fn code_is_shown_as_it_is() {
        assert_eq!(rendered("{{ code.text }}", &Trigger::Start).unwrap(), "if a < b & c: 'x'");
        assert_eq!(
            rendered("{{ code | tojson }}", &Trigger::Start).unwrap(),
            r#"{"path": "a.py", "text": "if a < b & c: 'x'"}"#
        );
        assert_eq!(rendered("{{ [1] | tojson(indent=2) }}", &Trigger::Start).unwrap(), "[\n  1\n]");
    }

    #[test]
    fn the_output_of_a_template_is_bounded() {
        let doubled = format!("{{% set a = 'xxxxxxxx' %}}{}", "{% set a = a ~ a %}".repeat(40));
        let captured = "{% set a %}{{ a }}{{ a }}{% endset %}".repeat(40);
        let nested = "{% set a = [a] %}".repeat(5_000);
        let shared = "{% set a = [a, a] %}".repeat(60);
        let thousand = "{% for i in range(1000) %}";
        let loops = format!("{}x{}", thousand.repeat(3), "{% endfor %}".repeat(3));
        let raw = format!("{thousand}{thousand}{}{}", "text ".repeat(50), "{% endfor %}".repeat(2));
        let steps = DataLimit::TemplateSteps;
        for (text, limit) in [
            (doubled.as_str(), steps),
            (&format!("{{% set a = 'x' %}}{captured}"), DataLimit::TemplateBytes),
            (&format!("{{% set a = [1] %}}{shared}"), steps),
            (&loops, steps),
            (&raw, DataLimit::TemplateBytes),
            ("{{ 'x' * 90000000 }}", steps),
            ("{{ ('x' * 9000) * 9000 }}", steps),
            ("{{ ([1] * 90000000) | length }}", steps),
            ("{% set a = 'x' * 90000 %}{{ a | replace('', a) }}", steps),
            ("{% set a = 'x' * 90000 %}{{ a | replace('x', a) }}", steps),
            ("{{ ([1] * 9000) | join('x' * 90000) }}", steps),
            ("{{ 'x' | indent(900000000, first=true) }}", steps),
            ("{{ 'x' | indent(width=900000000, first=true) }}", steps),
            ("{{ [1] | batch(900000000, 1) }}", steps),
            ("{{ [1] | slice(900000000) }}", steps),
            ("{{ '%900000000d' | format(1) }}", steps),
            ("{{ '%*d' | format(900000000, 1) }}", steps),
            ("{{ ('%s' * 90000) | format('x' * 90000) }}", steps),
            (
                "{% for i in range(90000) %}{% if ('x' * 90000) == i %}{% endif %}{% endfor %}",
                steps,
            ),
            (
                "{% set a = 'x' * 900000 %}{% for i in range(900) %}{{ a | length }}{% endfor %}",
                steps,
            ),
            ("{% set a = 'x' * 900000 %}{% for i in range(900) %}{{ a[0] }}{% endfor %}", steps),
            ("{% set a = range(9000) | list %}{{ a | map('in', a) | length }}", steps),
            ("{% set a = range(9000) | list %}{{ a | select('in', a) | length }}", steps),
            (
                "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
                steps,
            ),
        ] {
            let error = rendered(text, &Trigger::Start).unwrap_err();
            let mut cause: Option<&dyn std::error::Error> = Some(&error);
            let mut reached = None;
            while let Some(error) = cause {
                reached = reached.or(error.downcast_ref::<DataLimitReached>().cloned());
                cause = error.source();
            }
            let start: String = text.chars().take(60).collect();
            assert_eq!(reached.map(|it| it.limit), Some(limit), "{start}: {error:?}");
        }
        let error = rendered(&format!("{{% set a = 1 %}}{nested}"), &Trigger::Start).unwrap_err();
        assert!(format!("{error:?}").contains("nested deeper than 100 levels"), "{error:?}");
    }

    #[test]
    fn operators_and_filters_match_the_engine() {
        let plain = Environment::new();
        for text in [
            "{{ 1 + 2 }} {{ 1.5 + 2 }} {{ 'a' + 'b' }} {{ [1] + [2, 'x'] }} {{ 2 * 3 }} {{ 2 * 1.5 }}",
            "{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1, 2] * 2 }} {{ 7 // 2 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 'a' ~ 1 }}",
            "{{ [1, 2, 3][1:] }} {{ 'abc'[::2] }} {{ [1, 2, 3][::2] }} {{ 'abc'[1] }} {{ [3, 1] | sort }}",
            "{{ 1 < 2 < 3 }} {{ 1 in [1] }} {{ 'a' not in 'abc' }} {{ 1 == 1.0 }} {{ not true }} {{ -3 }}",
            "{% for a, b in {'x': 1, 'y': [2]} | items %}{{ loop.index }}{{ a }}{{ b }};{% else %}-{% endfor %}",
            "{% set a, b = [1, 2] %}{{ a }}{{ b }}{% set c %}x{{ a }}y{% endset %}{{ c }}{{ c | length }}",
            "{% macro m(x, y=2) %}<{{ x }}{{ y }}>{{ caller() }}{% endmacro %}{% call m(1) %}in{% endcall %}",
            "{% with x = 3 %}{{ x if x > 2 else 'no' }}{% endwith %}{{ none }}{{ true }}{{ 1.0 }}{{ '<&>' }}",
            "{% filter upper %}abc{% endfilter %}{{ 'a,b' | split(',') | join('-') }}{{ '%05d' | format(3) }}",
            "{{ range(3) | list }}{{ dict(a=1) }}{{ [1, 2, 3] | batch(2, 0) }}{{ 'a' | indent(2, first=true) }}",
            "{{ [{'n': 1}, {'n': 2}] | selectattr('n', 'gt', 1) | map(attribute='n') | first }}{{ (1, 2) }}",
            "{% for i in range(4) recursive %}{{ i }}{% if i == 9 %}{{ loop([1]) }}{% endif %}{% endfor %}",
            "{{ 'a-b' | replace('-', '+') }}{{ [1, 1, 2] | unique | list }}{{ [1, 2] | sum }}{{ x | default('d') }}",
        ] {
            let expected = plain.render_str(text, ()).unwrap();
            assert_eq!(rendered(text, &Trigger::Start).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn an_undefined_name_is_an_error() {
        let error = rendered("{{ later }}", &Trigger::Start).unwrap_err();
        assert_eq!(error.to_string(), "the prompt `p.md` cannot be rendered");
        assert!(rendered("{% for it in later %}{% endfor %}", &Trigger::Start).is_err());
        // As a condition, an absent value is false.
        assert_eq!(rendered("{% if later %}x{% endif %}", &Trigger::Start).unwrap(), "");
    }
}
