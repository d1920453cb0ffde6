//! A store in the memory of the process, for tests and for programs that keep nothing.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    Approval, Batch, Embedding, Entry, EntryId, Listing, Search, Store, StoreError,
    rules::{self, B, K1, all_words, words},
    store::{CANDIDATES_MAX, ENTRIES_MAX, VECTORS_MAX},
};

/// Keeps entries in the memory of the process.
///
/// A search ranks by BM25, as the SQLite store does, but does not reduce words to their stems.
#[derive(Debug, Default)]
pub struct InMemoryStore(Mutex<Content>);

#[derive(Debug, Default)]
struct Content {
    entries: BTreeMap<EntryId, Entry>,
    vectors: BTreeMap<EntryId, Embedding>,
    keys: BTreeSet<String>,
}

impl InMemoryStore {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    /// Returns the entries that fit a search, the best first.
    fn ranked<'c>(&'c self, entries: Vec<&'c Entry>, search: &Search) -> Vec<&'c Entry> {
        if search.is_for_newest() {
            let mut entries = entries;
            entries.sort_by(|a, b| by_age(a, b));
            return entries;
        }
        let query = search.query.as_deref().unwrap_or_default();
        let Some(embedding) = &search.embedding else { return ranked(entries, query) };
        let by_words = ranked(entries.clone(), query);
        let by_words: Vec<&EntryId> = by_words.into_iter().map(|it| &it.id).collect();
        let by_words = &by_words[..by_words.len().min(CANDIDATES_MAX)];
        let mut having: Vec<(&Entry, &Embedding)> = entries
            .into_iter()
            .filter_map(|it| Some((it, self.vectors.get(&it.id)?)))
            .filter(|(_, it)| it.model == embedding.model)
            .collect();
        having.sort_by(|(a, _), (b, _)| by_age(a, b));
        having.truncate(VECTORS_MAX);
        let similar = having
            .into_iter()
            .map(|(entry, it)| (embedding.vector.similarity(&it.vector), &entry.id, &entry.id));
        let groups = rules::fused(by_words, &rules::nearest(similar.collect()));
        // The items of a group are in the order of their ids.
        groups.concat().into_iter().map(|it| &self.entries[it]).collect()
    }
}

#[async_trait]
impl Store for InMemoryStore {
    async fn put(&self, batch: &Batch) -> Result<Vec<EntryId>, StoreError> {
        rules::check_batch(batch)?;
        let mut content = self.content();
        if content.keys.insert(batch.key.clone()) {
            let content = &mut *content;
            content.entries.retain(|_, it| !it.is_expired(batch.now));
            content.vectors.retain(|id, _| content.entries.contains_key(id));
            for new in &batch.entries {
                let known = content.entries.get(&new.id());
                if let Some(entry) = rules::written(known, new, batch.now) {
                    content.entries.insert(entry.id.clone(), entry);
                }
                if let Some(embedding) = &new.embedding {
                    content.vectors.insert(new.id(), embedding.clone());
                }
            }
        }
        Ok(batch.entries.iter().map(super::NewEntry::id).collect())
    }

    async fn search(&self, search: &Search) -> Result<Vec<Entry>, StoreError> {
        let content = self.content();
        let fits = |entry: &&Entry| {
            entry.tier == search.tier
                && !entry.is_expired(search.now)
                && search.module().is_none_or(|module| entry.module.as_deref() == Some(module))
        };
        let entries: Vec<&Entry> = content.entries.values().filter(fits).collect();
        let mut found = Vec::new();
        for entry in content.ranked(entries, search).into_iter().take(CANDIDATES_MAX) {
            if found.len() >= search.limit.min(ENTRIES_MAX) {
                break;
            }
            if search.filter.accepts(entry)? {
                found.push(entry.clone());
            }
        }
        Ok(found)
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<Entry>, StoreError> {
        let content = self.content();
        let follows = |entry: &Entry| match &listing.after {
            None => true,
            Some((updated, id)) => (entry.updated, &entry.id) < (*updated, id),
        };
        let fits = |entry: &&Entry| {
            !entry.is_expired(listing.now)
                && listing.tier.as_ref().is_none_or(|tier| entry.tier == *tier)
                && (!listing.pending || entry.approval == Approval::Pending)
                && follows(entry)
        };
        let mut found: Vec<&Entry> = content.entries.values().filter(fits).collect();
        found.sort_by(|a, b| (b.updated, &b.id).cmp(&(a.updated, &a.id)));
        Ok(found.into_iter().take(listing.limit.min(ENTRIES_MAX)).cloned().collect())
    }

    async fn find(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        let content = self.content();
        let found = content.entries.values().filter(|it| it.id.as_str().starts_with(prefix));
        Ok(found.take(2).cloned().collect())
    }

    async fn approve(&self, id: &EntryId, by: &str, now: Timestamp) -> Result<(), StoreError> {
        let mut content = self.content();
        let entry = content.entries.get_mut(id).ok_or_else(|| StoreError::Unknown(id.clone()))?;
        rules::approve(entry, by, now);
        Ok(())
    }

    async fn remove(&self, id: &EntryId) -> Result<(), StoreError> {
        let mut content = self.content();
        content.vectors.remove(id);
        content.entries.remove(id).map(drop).ok_or_else(|| StoreError::Unknown(id.clone()))
    }

    async fn import(&self, entries: &[Entry]) -> Result<(), StoreError> {
        rules::check_entries(entries)?;
        let mut content = self.content();
        content.entries.extend(entries.iter().map(|it| (it.id.clone(), it.clone())));
        Ok(())
    }

    async fn without_vector(
        &self,
        tier: &str,
        model: &str,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let content = self.content();
        let lacks = |entry: &&Entry| {
            entry.tier == tier && content.vectors.get(&entry.id).is_none_or(|it| it.model != model)
        };
        Ok(content.entries.values().filter(lacks).take(limit).cloned().collect())
    }

    async fn set_vectors(&self, vectors: &[(EntryId, Embedding)]) -> Result<(), StoreError> {
        let mut content = self.content();
        let content = &mut *content;
        let known = vectors.iter().filter(|(id, _)| content.entries.contains_key(id));
        content.vectors.extend(known.cloned());
        Ok(())
    }
}

/// Returns the entries that have a word of the query, the best first.
fn ranked<'e>(entries: Vec<&'e Entry>, query: &str) -> Vec<&'e Entry> {
    let wanted = words(query);
    let texts: Vec<Vec<String>> = entries.iter().map(|it| all_words(&it.text)).collect();
    let length = |it: &Vec<String>| count(it.len());
    let average = texts.iter().map(length).sum::<f64>() / count(texts.len().max(1));
    let mut scores = vec![0.0; texts.len()];
    for word in &wanted {
        let frequencies =
            texts.iter().map(|words| count(words.iter().filter(|it| *it == word).count()));
        let frequencies: Vec<f64> = frequencies.collect();
        let having = count(frequencies.iter().filter(|it| **it > 0.0).count());
        let weight = (1.0 + (count(texts.len()) - having + 0.5) / (having + 0.5)).ln();
        for ((score, frequency), text) in scores.iter_mut().zip(frequencies).zip(&texts) {
            let norm = K1 * (1.0 - B + B * length(text) / average.max(1.0));
            *score += weight * frequency * (K1 + 1.0) / (frequency + norm);
        }
    }
    let mut scored: Vec<(f64, &Entry)> =
        scores.into_iter().zip(entries).filter(|(score, _)| *score > 0.0).collect();
    scored.sort_by(|(a, first), (b, second)| match b.total_cmp(a) {
        Ordering::Equal => by_age(first, second),
        order => order,
    });
    scored.into_iter().map(|(_, entry)| entry).collect()
}

/// Orders entries from the newest on.
fn by_age(a: &Entry, b: &Entry) -> Ordering {
    (b.updated, &b.id).cmp(&(a.updated, &a.id))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn count(number: usize) -> f64 {
    number as f64
}
