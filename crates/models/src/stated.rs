//! The usage that providers and programs state, as far as it can be right.
//!
//! The limits of a run follow this usage, so a number that cannot be right must not reach them: a negative cost would leave
//! a limit without effect. Such a number counts as not stated. Tokens are then estimated from the texts, and the cost
//! follows from prices.

use serde_json::Value;

use super::{TokenUsage, lenient::whole_number};

/// The most tokens of one call, for each count that is stated.
pub const STATED_TOKENS_MAX: u64 = 1_000_000_000;
/// The highest cost of one call that is stated, in US dollars.
pub const STATED_COST_USD_MAX: f64 = 10_000.0;
/// The most characters of an ignored number in a warning.
const SHOWN_CHARACTERS_MAX: usize = 40;

/// Reads the usage of a call, and notes the numbers that cannot be right.
///
/// ```
/// use graphrun_models::{StatedUsage, TokenUsage};
/// use serde_json::json;
///
/// let mut stated = StatedUsage::default();
/// assert_eq!(stated.count("input_tokens", Some(&json!(12))), Some(12));
/// assert_eq!(stated.count("output_tokens", Some(&json!(-5))), None);
/// assert_eq!(stated.cost("cost_usd", Some(&json!(-100))), None);
/// assert_eq!(stated.usage(TokenUsage::default()), None);
/// let warning = stated.warning("`coder`").unwrap();
/// assert_eq!(warning, "`coder` states usage that cannot be right; ignored: `output_tokens` -5, `cost_usd` -100");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatedUsage {
    ignored: Vec<String>,
    is_count_ignored: bool,
}

impl StatedUsage {
    /// Returns a count of tokens, if it is stated and can be right: a whole number up to [`STATED_TOKENS_MAX`], also as a
    /// text. Without it, the [usage](Self::usage) is unknown.
    pub fn count(&mut self, name: &str, value: Option<&Value>) -> Option<u64> {
        let value = value.filter(|it| is_stated(it))?;
        let count = tokens(value);
        if count.is_none() {
            self.ignore(name, &value.to_string());
            self.is_count_ignored = true;
        }
        count
    }

    /// Returns a part of another count, such as the cached tokens. It is 0 if it is not stated or cannot be right; the
    /// other counts stand.
    pub fn part(&mut self, name: &str, value: Option<&Value>) -> u64 {
        let Some(value) = value.filter(|it| is_stated(it)) else { return 0 };
        tokens(value).unwrap_or_else(|| {
            self.ignore(name, &value.to_string());
            0
        })
    }

    /// Returns a cost in US dollars, if it is stated and can be right: a number from 0 to [`STATED_COST_USD_MAX`], also as
    /// a text.
    pub fn cost(&mut self, name: &str, value: Option<&Value>) -> Option<f64> {
        let value = value.filter(|it| is_stated(it))?;
        let number = match value {
            Value::String(text) => text.trim().parse::<f64>().ok(),
            Value::Number(number) => number.as_f64(),
            _ => return None,
        };
        let cost = number.filter(|it| (0.0..=STATED_COST_USD_MAX).contains(it));
        if cost.is_none() {
            self.ignore(name, &value.to_string());
        }
        cost
    }

    /// Returns the usage that was made of the counts; `None` if one of them was ignored. Cached tokens that are no part of
    /// the input are ignored.
    pub fn usage(&mut self, usage: TokenUsage) -> Option<TokenUsage> {
        if self.is_count_ignored {
            return None;
        }
        let TokenUsage { cached_input_tokens: cached, input_tokens: input, .. } = usage;
        if cached <= input {
            return Some(usage);
        }
        self.ignored.push(format!("{cached} cached tokens of {input} input tokens"));
        Some(TokenUsage { cached_input_tokens: 0, ..usage })
    }

    /// Returns a warning that names the ignored numbers, if there are any.
    pub fn warning(&self, caller: &str) -> Option<String> {
        let ignored = self.ignored.join(", ");
        (!ignored.is_empty())
            .then(|| format!("{caller} states usage that cannot be right; ignored: {ignored}"))
    }

    /// Returns whether a count was ignored, so that the usage is unknown.
    #[cfg(feature = "openai")]
    pub(super) fn has_ignored_count(&self) -> bool {
        self.is_count_ignored
    }

    fn ignore(&mut self, name: &str, value: &str) {
        let mut shown: String = value.chars().take(SHOWN_CHARACTERS_MAX).collect();
        if shown.len() < value.len() {
            shown.push('…');
        }
        self.ignored.push(format!("`{name}` {shown}"));
    }
}

fn is_stated(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        _ => true,
    }
}

fn tokens(value: &Value) -> Option<u64> {
    whole_number(value).filter(|it| *it <= STATED_TOKENS_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_and_costs_that_cannot_be_right_are_ignored() {
        let mut stated = StatedUsage::default();
        for value in [json!(12), json!(12.0), json!("12"), json!(STATED_TOKENS_MAX), json!(0)] {
            assert!(stated.count("n", Some(&value)).is_some(), "{value}");
        }
        for value in [Value::Null, json!(""), json!(" ")] {
            assert_eq!(stated.count("n", Some(&value)), None);
            assert_eq!(stated.cost("n", Some(&value)), None);
        }
        for value in [json!(0), json!("0.5"), json!(1e4)] {
            assert!(stated.cost("n", Some(&value)).is_some(), "{value}");
        }
        assert_eq!(stated, StatedUsage::default());
        for value in [json!(-5), json!("many"), json!(u64::MAX), json!(1e30), json!(true)] {
            assert_eq!(stated.count("n", Some(&value)), None, "{value}");
        }
        for value in [json!(12.5), json!("12.5"), json!("12.many"), json!("12.")] {
            assert_eq!(stated.count("n", Some(&value)), None, "{value}");
        }
        for value in [json!(-100), json!(-1e308), json!("NaN"), json!("inf"), json!(1e5)] {
            assert_eq!(stated.cost("n", Some(&value)), None, "{value}");
        }
        assert_eq!(stated.ignored.len(), 14);
        assert_eq!(stated.usage(TokenUsage::default()), None);
    }

    #[test]
    fn parts_that_cannot_be_right_leave_the_other_counts() {
        let mut stated = StatedUsage::default();
        assert_eq!(stated.part("cached", Some(&json!(-1))), 0);
        let usage = TokenUsage { input_tokens: 5, cached_input_tokens: 6, ..TokenUsage::default() };
        let whole = TokenUsage { cached_input_tokens: 0, ..usage };
        assert_eq!(stated.usage(usage), Some(whole));
        assert_eq!(stated.ignored, ["`cached` -1", "6 cached tokens of 5 input tokens"]);
    }
}
