//! Asks a model for an answer of a given shape, with a bounded number of repairs.

use std::fmt;

use serde_json::Value;

use super::{
    extract::{ExpectedKind, ExtractedValue, extract_candidates},
    schema::{SchemaCheck, answer_schema},
};
use crate::{ChatModel, ChatRequest, Message, ModelError, OutputSchema, TokenUsage};

/// Longer answers are truncated when they are sent back: a model needs no full copy of pages of prose.
const RAW_CHARS_MAX: usize = 60_000;

/// An answer that passed its check.
#[derive(Debug, Clone, PartialEq)]
pub struct StructuredAnswer<T> {
    /// The answer, as the check returned it.
    pub value: T,
    /// The text it was read from.
    pub raw: String,
    /// The usage of all rounds together.
    pub usage: TokenUsage,
    /// The number of rounds after the first.
    pub repairs: u32,
    /// The repairs of the text.
    pub warnings: Vec<String>,
    /// The deviations from the schema that the check accepted.
    pub deviations: Vec<String>,
}

/// The reason why there is no answer of the requested shape.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StructuredError {
    /// The model answered, but no answer fit the requested shape.
    #[error("the answer does not fit the request: {}", .problems.join("; "))]
    InvalidOutput {
        /// The last answer.
        raw: String,
        /// The problems of the last answer.
        problems: Vec<String>,
        /// The usage of all rounds together.
        usage: TokenUsage,
    },
    /// The model did not answer.
    #[error("the model did not answer")]
    Model {
        /// The reason.
        #[source]
        error: ModelError,
        /// The usage of all rounds together.
        usage: TokenUsage,
    },
}

/// Checks the JSON found in an answer. Fails with all its problems.
pub type AnswerCheck<'a, T> = dyn Fn(Value) -> Result<T, Vec<String>> + Send + Sync + 'a;

/// Asks a model for answers that fit a schema, and lets a check decide whether they do.
pub struct StructuredChat<'a, T> {
    /// The model.
    pub model: &'a dyn ChatModel,
    /// The schema that the model receives.
    pub schema: &'a OutputSchema,
    /// The check. **It alone decides**: a lenient reader may accept more than the schema (then the difference is a
    /// warning). Callers without a reader use [`SchemaCheck::check`].
    pub check: &'a AnswerCheck<'a, T>,
    /// How often an answer that does not pass is sent back with all its problems.
    pub repairs_max: u32,
}

impl<T> StructuredChat<'_, T> {
    /// Asks for an answer.
    ///
    /// If the answer is truncated at the limit of the request, it is requested once more with a doubled limit, which
    /// is no repair. A model that allows no more tokens is not asked again.
    ///
    /// # Errors
    ///
    /// Returns [`StructuredError::InvalidOutput`] when the repairs are used up, and [`StructuredError::Model`] at the
    /// first failure of the model itself; both contain the usage so far.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future abandons the current round.
    pub async fn ask(
        &self,
        mut request: ChatRequest,
    ) -> Result<StructuredAnswer<T>, StructuredError> {
        let Self { model, schema, check, repairs_max } = *self;
        let asked = request.messages.clone();
        let key = request.key.clone();
        let reading = AnswerParser::new(&schema.schema);
        request.output = Some(schema.clone());
        let mut usage = TokenUsage::default();
        let mut repairs = 0;
        let mut may_lengthen = true;
        loop {
            let replied = model.chat(&request).await;
            usage += replied.as_ref().map_or_else(ModelError::usage, |reply| reply.usage);

            let longer =
                replied.as_ref().err().and_then(|it| with_doubled_max_tokens(&request, it));
            if let Some(longer) = longer.filter(|_| may_lengthen) {
                request = longer;
                may_lengthen = false;
                continue;
            }
            let may_repair = repairs < repairs_max;
            match replied {
                Ok(reply) => match reading.read(&reply.text, check) {
                    Ok(ReadAnswer { value, warnings, deviations }) => {
                        let raw = reply.text;
                        return Ok(StructuredAnswer {
                            value,
                            raw,
                            usage,
                            repairs,
                            warnings,
                            deviations,
                        });
                    }
                    Err(problems) if may_repair => {
                        request.messages = repair_messages(&asked, &reply.text, &problems);
                        // The lowest temperature; only if the caller set one, because some models accept none.
                        request.settings.temperature = request.settings.temperature.map(|_| 0.0);
                    }
                    Err(problems) => {
                        return Err(StructuredError::InvalidOutput {
                            raw: reply.text,
                            problems,
                            usage,
                        });
                    }
                },
                // The model can repair it like any other invalid answer.
                Err(error)
                    if may_repair && matches!(error.reason(), ModelError::UnknownTool { .. }) =>
                {
                    request.messages = repair_messages(&asked, "", &[error.to_string()]);
                }
                Err(error) => return Err(StructuredError::Model { error, usage }),
            }
            repairs += 1;
            // Another request needs another key: the first one's would return the first answer.
            if !key.is_empty() {
                request.key = format!("{key}/repair-{repairs}");
            }
        }
    }
}

impl<T> fmt::Debug for StructuredChat<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, schema, check: _, repairs_max } = self;
        let mut shown = f.debug_struct("StructuredChat");
        shown.field("model", model).field("schema", schema).field("repairs_max", repairs_max);
        shown.finish_non_exhaustive()
    }
}

/// Returns a request for twice the tokens, if the answer was truncated at the limit of this request and not at a lower one of the
/// model.
pub fn with_doubled_max_tokens(request: &ChatRequest, error: &ModelError) -> Option<ChatRequest> {
    let ModelError::Truncated { tokens_max: None, .. } = error.reason() else { return None };
    let max_tokens = request.settings.max_tokens?.saturating_mul(2);
    let mut longer = request.clone();
    longer.settings.max_tokens = Some(max_tokens);
    if !longer.key.is_empty() {
        // Another request needs another key.
        longer.key = format!("{}/longer", longer.key);
    }
    Some(longer)
}

/// Returns the conversation that sends an answer back with all its problems.
pub fn repair_messages(previous: &[Message], raw: &str, problems: &[String]) -> Vec<Message> {
    let mut messages = previous.to_vec();
    let raw = raw.trim();
    // Some providers reject an empty message, and it has no information for the model.
    if !raw.is_empty() {
        messages.push(Message::assistant(raw.chars().take(RAW_CHARS_MAX).collect::<String>()));
    }
    messages.push(Message::user(format!(
        "Your answer cannot be used:\n- {}\n\nGive the complete answer again, as JSON and nothing else. Mend \
         only these points and keep the rest as it is.",
        problems.join("\n- ")
    )));
    messages
}

/// An answer that a check accepted.
struct ReadAnswer<T> {
    value: T,
    warnings: Vec<String>,
    deviations: Vec<String>,
}

/// The reader of answers to one schema.
struct AnswerParser {
    wanted: ExpectedKind,
    schema: Result<SchemaCheck, String>,
}

impl AnswerParser {
    fn new(schema: &Value) -> Self {
        Self {
            wanted: ExpectedKind::of_schema(&answer_schema(schema)),
            schema: SchemaCheck::new(schema),
        }
    }

    fn read<T>(
        &self,
        text: &str,
        check: &AnswerCheck<'_, T>,
    ) -> Result<ReadAnswer<T>, Vec<String>> {
        let candidates = extract_candidates(text, self.wanted).map_err(|it| vec![it])?;
        let count = candidates.len();
        // Of a draft and an answer, only the latter may fit. A value with deviations that the check accepts is the second
        // choice. The model repairs the first value.
        let mut accepted = None;
        let mut problems = None;
        for (at, candidate) in candidates.into_iter().enumerate() {
            match self.read_value(candidate, check) {
                Ok(answer) if answer.deviations.is_empty() => {
                    accepted = Some((at, answer));
                    break;
                }
                Ok(answer) => accepted = accepted.or(Some((at, answer))),
                Err(found) => problems = problems.or(Some(found)),
            }
        }
        let Some((at, mut answer)) = accepted else { return Err(problems.unwrap_or_default()) };
        if count > 1 {
            let used = if at == 0 { "the first" } else { "the first that fits" };
            let warning =
                format!("the answer contains several JSON values that differ; only {used} is used");
            answer.warnings.push(warning);
        }
        Ok(answer)
    }

    fn read_value<T>(
        &self,
        ExtractedValue { mut value, mut warnings }: ExtractedValue,
        check: &(dyn Fn(Value) -> Result<T, Vec<String>> + Send + Sync),
    ) -> Result<ReadAnswer<T>, Vec<String>> {
        let mut deviations = Vec::new();
        match &self.schema {
            Ok(schema) => {
                schema.drop_placeholder_nulls(&mut value);
                deviations = schema.problems(&value);
            }
            Err(error) => warnings.push(format!("the schema cannot be checked: {error}")),
        }
        Ok(ReadAnswer { value: check(value)?, warnings, deviations })
    }
}
