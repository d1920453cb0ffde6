//! What all stores have in common: what a written entry becomes, and which words a query has.

use std::collections::BTreeMap;

use jiff::Timestamp;
use unicode_normalization::UnicodeNormalization as _;

use super::{
    Approval, Batch, Entry, NewEntry, StoreError,
    store::{CANDIDATES_MAX, ENTRIES_MAX, TEXT_BYTES_MAX, VALUE_BYTES_MAX},
};

/// How much of the weight of a repeated word counts (BM25, the value of SQLite).
pub(crate) const K1: f64 = 1.2;
/// How much the length of a text counts (BM25, the value of SQLite).
pub(crate) const B: f64 = 0.75;

/// A word that so many entries have is dropped from a query, if others are rarer.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) const COMMON: usize = super::CANDIDATES_MAX / 5;

/// The most expired entries that one write removes.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) const EXPIRED_MAX: usize = 1_000;

/// How little the first ranks of a list count more than later ones (reciprocal rank fusion, the usual value).
const FUSION: f64 = 60.0;

/// The most words of a query.
const WORDS_MAX: usize = 32;

/// Returns the entry that a store keeps in place of `known`; none if that one stays.
pub(crate) fn written(known: Option<&Entry>, new: &NewEntry, now: Timestamp) -> Option<Entry> {
    let known = known.filter(|it| !it.is_expired(now));
    let is_of_person = new.approval == Approval::Approved;
    if known.is_some_and(|it| it.approval == Approval::Approved) && !is_of_person {
        return None;
    }
    let NewEntry { tier, module, text, value, confidence, approval, keep, source, .. } =
        new.clone();
    let approved_by = match (&source, is_of_person) {
        (super::Source::Person { name }, true) => Some(name.clone()),
        _ => None,
    };
    let expires = keep.filter(|_| !is_of_person).and_then(|it| now.checked_add(it).ok());
    Some(Entry {
        id: new.id(),
        tier,
        module: module.filter(|it| !it.is_empty()),
        text,
        value,
        confidence,
        approval,
        approved_by,
        source,
        created: known.map_or(now, |it| it.created),
        updated: now,
        expires,
    })
}

/// Changes an entry as a person's approval does.
pub(crate) fn approve(entry: &mut Entry, by: &str, now: Timestamp) {
    entry.approval = Approval::Approved;
    entry.approved_by = Some(by.to_owned());
    (entry.updated, entry.expires) = (now, None);
}

/// Checks the entries of a batch and its size.
pub(crate) fn check_batch(batch: &Batch) -> Result<(), StoreError> {
    check_count(batch.entries.len())?;
    batch.entries.iter().try_for_each(NewEntry::check)
}

/// Checks whole entries and their number.
pub(crate) fn check_entries(entries: &[Entry]) -> Result<(), StoreError> {
    check_count(entries.len())?;
    entries.iter().try_for_each(Entry::check)
}

impl NewEntry {
    /// Checks what every store checks before it writes an entry.
    ///
    /// # Errors
    ///
    /// Names the first problem: the name of the tier, an empty text, a confidence that is not between 0 and 1, or a part that
    /// is too large.
    pub fn check(&self) -> Result<(), StoreError> {
        check(&self.tier, self.confidence, &self.text, self.value.as_ref())
    }
}

impl Entry {
    /// Checks what every store checks before it imports an entry.
    ///
    /// # Errors
    ///
    /// As [`NewEntry::check`].
    pub fn check(&self) -> Result<(), StoreError> {
        check(&self.tier, self.confidence, &self.text, self.value.as_ref())
    }
}

/// Returns whether a workflow can declare a tier of this name.
pub(crate) fn is_tier_name(name: &str) -> bool {
    let is_part = |it: char| it.is_ascii_alphanumeric() || "_-".contains(it);
    name.starts_with(|it: char| it.is_ascii_alphabetic()) && name.chars().all(is_part)
}

fn check_count(count: usize) -> Result<(), StoreError> {
    if count > ENTRIES_MAX { Err(StoreError::TooMany(count)) } else { Ok(()) }
}

fn check(
    tier: &str,
    confidence: Option<f64>,
    text: &str,
    value: Option<&serde_json::Value>,
) -> Result<(), StoreError> {
    if !is_tier_name(tier) {
        return Err(StoreError::TierName(tier.to_owned()));
    }
    if text.trim().is_empty() {
        return Err(StoreError::NoText);
    }
    if let Some(confidence) = confidence.filter(|it| !(0.0..=1.0).contains(it)) {
        return Err(StoreError::Confidence(confidence));
    }
    let bytes = value.map_or(0, |it| it.to_string().len());
    for (what, bytes, bytes_max) in
        [("text", text.len(), TEXT_BYTES_MAX), ("value", bytes, VALUE_BYTES_MAX)]
    {
        if bytes > bytes_max {
            return Err(StoreError::TooLarge { what, bytes, bytes_max });
        }
    }
    Ok(())
}

/// Fuses the ranks of two lists, the best first. Items of one group have the same score; their ids decide.
///
/// An item gets `1 / (60 + rank)` from each list that has it (Cormack, Clarke and Büttcher, 2009).
pub(crate) fn fused<T: Ord + Copy>(by_words: &[T], by_vectors: &[T]) -> Vec<Vec<T>> {
    let mut scores: BTreeMap<T, f64> = BTreeMap::new();
    for list in [by_words, by_vectors] {
        let mut rank = 0.0;
        for item in list {
            rank += 1.0;
            *scores.entry(*item).or_default() += 1.0 / (FUSION + rank);
        }
    }
    let mut scored: Vec<(T, f64)> = scores.into_iter().collect();
    scored.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    scored.truncate(CANDIDATES_MAX);
    let groups = scored.chunk_by(|(_, a), (_, b)| a.total_cmp(b).is_eq());
    groups.map(|group| group.iter().map(|(item, _)| *item).collect()).collect()
}

/// Orders items by the similarity of their vectors and then by their ids. Those without any similarity are left out.
pub(crate) fn nearest<T, I: Ord>(mut found: Vec<(f64, I, T)>) -> Vec<T> {
    found.retain(|(similarity, ..)| *similarity > 0.0);
    found.sort_by(|(a, first, _), (b, second, _)| b.total_cmp(a).then_with(|| first.cmp(second)));
    found.into_iter().map(|(.., item)| item).take(CANDIDATES_MAX).collect()
}

/// Returns the words of a text in lower case, in their order. A letter is the same with its accent as a second character.
pub(crate) fn all_words(text: &str) -> Vec<String> {
    let composed: String = text.nfc().collect();
    let words = composed.split(|it: char| !it.is_alphanumeric()).filter(|it| !it.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Returns the words of a text in lower case, each once, in their order.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in all_words(text) {
        if !words.contains(&word) {
            words.push(word);
            if words.len() == WORDS_MAX {
                break;
            }
        }
    }
    words
}

/// Returns the words that few entries have; if all are common, the longest one, which probably says most.
///
/// Each word comes with the number of entries that have it, counted up to [`COMMON`].
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn rare<W: AsRef<str>>(counted: Vec<(W, usize)>) -> Vec<(W, usize)> {
    // A word that no entry has must not hide the others.
    let found = counted.into_iter().filter(|(_, count)| *count > 0);
    let (common, rare): (Vec<_>, Vec<_>) = found.partition(|(_, count)| *count >= COMMON);
    if rare.is_empty() {
        return common
            .into_iter()
            .max_by_key(|(word, _)| word.as_ref().len())
            .into_iter()
            .collect();
    }
    rare
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranks_of_both_lists_are_added_up() {
        // Both lists have 2, so it comes first; 1 and 4 are the first of one list each.
        let groups = fused(&[1, 2, 3], &[4, 2]);
        assert_eq!(groups, [vec![2], vec![1, 4], vec![3]]);
        assert_eq!(fused(&[3, 1], &[]), [vec![3], vec![1]]);
        assert_eq!(fused(&[], &[3, 1]), [vec![3], vec![1]]);
        // Ranks 1 and 3 together count more than twice rank 2.
        assert_eq!(fused(&[1, 2, 3], &[3, 2, 1]), [vec![1, 3], vec![2]]);
        let many: Vec<usize> = (0..2 * CANDIDATES_MAX).collect();
        assert_eq!(fused(&many, &[]).len(), CANDIDATES_MAX);
    }

    #[test]
    fn entries_need_a_text_a_tier_and_a_possible_confidence() {
        let source = super::super::Source::Person { name: "ana".to_owned() };
        let of = |tier: &str, text: &str, confidence| {
            let entry = NewEntry::of(tier, text.into(), source.clone());
            NewEntry { confidence, ..entry }.check().map_err(|it| it.to_string())
        };
        assert_eq!(of("core-2", "x", Some(1.0)), Ok(()));
        for text in ["", "  ", "\n\t"] {
            assert_eq!(of("core", text, None).unwrap_err(), "the text of an entry is empty");
        }
        for tier in ["", "bad tier", "2", "-x", "é"] {
            let error = of(tier, "x", None).unwrap_err();
            assert!(error.contains("is not the name of a tier"), "{error}");
        }
        for confidence in [7.0, -0.1, f64::NAN] {
            let error = of("core", "x", Some(confidence)).unwrap_err();
            assert!(error.ends_with("which is not between 0 and 1"), "{error}");
        }
    }

    #[test]
    fn equal_similarities_are_ordered_by_id() {
        let found =
            vec![(0.5, "b", 1), (0.9, "c", 2), (0.5, "a", 3), (0.0, "d", 4), (-0.5, "e", 5)];
        assert_eq!(nearest(found), [2, 3, 1]);
    }
}
