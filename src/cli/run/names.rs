//! Pronounceable names for runs: an adjective and an animal.

/// Sixty-four of each: short, common, lower case and inoffensive.
const ADJECTIVES: [&str; 64] = [
    "agile", "amber", "apt", "azure", "bold", "brave", "breezy", "bright", "brisk", "calm",
    "candid", "civil", "clever", "cosy", "crisp", "daring", "deft", "eager", "early", "easy",
    "fair", "fleet", "fluent", "fond", "frank", "fresh", "gentle", "glad", "golden", "grand",
    "happy", "hardy", "honest", "humble", "jolly", "keen", "kind", "lively", "loyal", "lucid",
    "lucky", "mellow", "merry", "mild", "modest", "neat", "nimble", "noble", "patient", "placid",
    "polite", "proud", "quick", "quiet", "ready", "robust", "serene", "sober", "steady", "sunny",
    "swift", "tidy", "vivid", "witty",
];

const ANIMALS: [&str; 64] = [
    "alpaca", "badger", "bear", "beaver", "bison", "bobcat", "camel", "cat", "condor", "coyote",
    "crane", "cricket", "deer", "dolphin", "dove", "duck", "eagle", "egret", "elk", "falcon",
    "ferret", "finch", "fox", "gazelle", "gecko", "goose", "hare", "hawk", "heron", "ibex", "ibis",
    "jay", "kestrel", "kiwi", "koala", "lark", "lemur", "lion", "llama", "lynx", "magpie",
    "marmot", "marten", "moose", "newt", "ocelot", "oriole", "osprey", "otter", "owl", "panda",
    "puffin", "quail", "rabbit", "raven", "robin", "salmon", "seal", "stork", "swan", "tapir",
    "turtle", "walrus", "wren",
];

/// The attempts before a number is added to a name.
const TRIES_MAX: u32 = 8;

/// Returns a random name for the given attempt. After several taken names, it ends in a number.
pub(crate) fn speakable(attempt: u32) -> String {
    let adjective = pick(&ADJECTIVES);
    let animal = pick(&ANIMALS);
    if attempt < TRIES_MAX {
        format!("{adjective}-{animal}")
    } else {
        format!("{adjective}-{animal}-{}", rand::random_range(100..100_000))
    }
}

fn pick(words: &[&'static str]) -> &'static str {
    words[rand::random_range(0..words.len())]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_word_is_there_once_and_can_be_typed() {
        for words in [ADJECTIVES, ANIMALS] {
            assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), 64);
            assert!(words.iter().all(|it| it.bytes().all(|byte| byte.is_ascii_lowercase())));
        }
    }

    #[test]
    fn late_tries_have_far_more_names_to_choose_from() {
        assert_eq!(speakable(0).matches('-').count(), 1);
        assert_eq!(speakable(TRIES_MAX).matches('-').count(), 2);
    }
}
