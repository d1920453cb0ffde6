//! The order of files by the words of a query.
//!
//! The measure is Okapi BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009) over
//! the texts, with the words of a path counted as [`PATH_WEIGHT`] occurrences in the text. Files that tell what the
//! repository is follow after those with matches.

use std::{cmp::Ordering, collections::BTreeMap};

use super::stack;

/// How fast further occurrences of a word add less.
const K1: f64 = 1.2;
/// How much longer texts count less.
const B: f64 = 0.75;
/// A word in the path of a file counts as this many in its text.
const PATH_WEIGHT: u32 = 5;

/// The distinct words of a query, each with its number.
pub(super) struct QueryWords(BTreeMap<String, usize>);

impl QueryWords {
    pub(super) fn of(query: &str) -> Self {
        let mut numbers = BTreeMap::new();
        for word in words(query) {
            let next = numbers.len();
            numbers.entry(word).or_insert(next);
        }
        Self(numbers)
    }

    /// Returns how many different words of the query a text contains.
    pub(super) fn count_in(&self, text: &str) -> usize {
        let mut counts = vec![0; self.0.len()];
        self.add_to(&mut counts, text, 1);
        counts.into_iter().filter(|it| *it > 0).count()
    }

    /// Counts the words of a text; returns how many words it has, of the query or not.
    fn add_to(&self, counts: &mut [u32], text: &str, weight: u32) -> u32 {
        let mut length = 0;
        for word in words(text) {
            length += 1;
            if let Some(at) = self.0.get(&word) {
                counts[*at] += weight;
            }
        }
        length
    }
}

/// Files with what decides about their order.
pub(super) struct Ranking<'a> {
    words: &'a QueryWords,
    files: Vec<FileWords<'a>>,
}

struct FileWords<'a> {
    path: &'a str,
    length: u32,
    /// The occurrences of each word of the query.
    counts: Vec<u32>,
}

impl<'a> Ranking<'a> {
    pub(super) fn new(words: &'a QueryWords) -> Self {
        Self { words, files: Vec::new() }
    }

    pub(super) fn add(&mut self, path: &'a str, text: &str) {
        let mut counts = vec![0; self.words.0.len()];
        let length = self.words.add_to(&mut counts, text, 1);
        self.words.add_to(&mut counts, path, PATH_WEIGHT);
        self.files.push(FileWords { path, length, counts });
    }

    /// Returns the files that matter, the most important one first: those with words of the query, then those that tell
    /// what the repository is. Without a query all files matter.
    pub(super) fn in_order(&self) -> Vec<&'a str> {
        let is_query_empty = self.words.0.is_empty();
        let weights = self.word_weights();
        let lengths: f64 = self.files.iter().map(|it| f64::from(it.length)).sum();
        let average = lengths.max(1.0) / number(self.files.len()).max(1.0);
        let mut ranked: Vec<(f64, bool, &str)> = self
            .files
            .iter()
            .map(|it| (it.score(&weights, average), stack::is_overview(it.path), it.path))
            .filter(|(score, is_overview, _)| is_query_empty || *is_overview || *score > 0.0)
            .collect();
        ranked.sort_by(|one, other| {
            let by_score = other.0.partial_cmp(&one.0).unwrap_or(Ordering::Equal);
            let nearness = |it: &(f64, bool, &'a str)| (!it.1, stack::depth(it.2), it.2);
            by_score.then_with(|| nearness(one).cmp(&nearness(other)))
        });
        ranked.into_iter().map(|(_, _, path)| path).collect()
    }

    /// Returns the weight of each word: rare ones tell more.
    fn word_weights(&self) -> Vec<f64> {
        let files = number(self.files.len());
        let weight = |at: usize| {
            let having = number(self.files.iter().filter(|it| it.counts[at] > 0).count());
            ((files - having + 0.5) / (having + 0.5)).ln_1p()
        };
        (0..self.words.0.len()).map(weight).collect()
    }
}

impl FileWords<'_> {
    fn score(&self, weights: &[f64], average: f64) -> f64 {
        let norm = K1 * (1.0 - B + B * f64::from(self.length) / average);
        let part = |(weight, count): (&f64, &u32)| {
            let count = f64::from(*count);
            weight * count * (K1 + 1.0) / (count + norm)
        };
        weights.iter().zip(&self.counts).map(part).sum()
    }
}

/// Returns a number of files, of which a walk visits far less than 2³².
fn number(files: usize) -> f64 {
    f64::from(u32::try_from(files).unwrap_or(u32::MAX))
}

/// Returns the words of a text in lower case; `parseHttpRequest` and `parse_http_request` have three.
fn words(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|it: char| !it.is_alphanumeric());
    parts.flat_map(parts_of_name).map(str::to_lowercase)
}

/// Splits a name before each capital letter that follows a small one.
fn parts_of_name(name: &str) -> impl Iterator<Item = &str> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let mut letters = rest.char_indices().peekable();
        letters.peek()?;
        let mut end = rest.len();
        while let Some((_, letter)) = letters.next() {
            if let Some((at, next)) = letters.peek()
                && letter.is_lowercase()
                && next.is_uppercase()
            {
                end = *at;
                break;
            }
        }
        let (part, after) = rest.split_at(end);
        rest = after;
        Some(part)
    })
}
