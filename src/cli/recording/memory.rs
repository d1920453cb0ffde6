//! The memory of a run that is recorded or replayed: recalled entries are part of a recording.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::{
    cli::{error::CliError, run::models},
    memory::{Batch, Embedding, Entry, EntryId, Listing, Search, Store, StoreError},
    models::{RecordingFile, Replay},
};

/// A store whose searches go through a recording.
#[derive(Debug)]
struct RecordedStore {
    store: Arc<dyn Store>,
    recording: Recording,
}

#[derive(Debug)]
enum Recording {
    Written(RecordingFile),
    Read(Replay),
}

/// Returns a store that records the entries that are recalled from another one.
///
/// # Errors
///
/// Fails when the recording cannot be written.
pub(crate) fn recorded(store: Arc<dyn Store>, path: &Path) -> Result<Arc<dyn Store>, CliError> {
    let file = RecordingFile::open(path).map_err(|error| {
        CliError::usage("the recording cannot be written; nothing was started").because(error)
    })?;
    Ok(Arc::new(RecordedStore { store, recording: Recording::Written(file) }))
}

/// Returns a store that recalls recorded entries, and writes to another one.
///
/// # Errors
///
/// Fails when the recording cannot be read.
pub(crate) fn replayed(store: Arc<dyn Store>, path: &Path) -> Result<Arc<dyn Store>, CliError> {
    let replay = models::load_recording(path)?;
    Ok(Arc::new(RecordedStore { store, recording: Recording::Read(replay) }))
}

/// Returns a search as a recording has it. The condition is left out: it is part of the workflow.
fn question(search: &Search) -> String {
    let Search { tier, module, query, limit, .. } = search;
    let line = |name: &str, it: &Option<String>| {
        it.as_ref().map(|it| format!("\n{name}: {it}")).unwrap_or_default()
    };
    format!("recall {limit} of {tier}{}{}", line("module", module), line("query", query))
}

#[async_trait]
impl Store for RecordedStore {
    async fn put(&self, batch: &Batch) -> Result<Vec<EntryId>, StoreError> {
        self.store.put(batch).await
    }

    async fn search(&self, search: &Search) -> Result<Vec<Entry>, StoreError> {
        let question = question(search);
        let failed = |error: &dyn std::error::Error| StoreError::Recording(error.to_string());
        match &self.recording {
            Recording::Written(file) => {
                let found = self.store.search(search).await?;
                file.append_answer(&search.caller, &question, &json!(found))
                    .map_err(|error| failed(&error))?;
                Ok(found)
            }
            Recording::Read(replay) => {
                let entries = |it: &Value| Vec::<Entry>::deserialize(it);
                let found = replay.look_up(&search.caller, &question, |it| entries(it).is_ok());
                let found = found.map_err(|error| failed(&error))?;
                entries(&found).map_err(|error| failed(&error))
            }
        }
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<Entry>, StoreError> {
        self.store.list(listing).await
    }

    async fn find(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        self.store.find(prefix).await
    }

    async fn approve(&self, id: &EntryId, by: &str, now: Timestamp) -> Result<(), StoreError> {
        self.store.approve(id, by, now).await
    }

    async fn remove(&self, id: &EntryId) -> Result<(), StoreError> {
        self.store.remove(id).await
    }

    async fn without_vector(
        &self,
        tier: &str,
        model: &str,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        match &self.recording {
            Recording::Written(_) => self.store.without_vector(tier, model, limit).await,
            // The recorded entries are ranked already.
            Recording::Read(_) => Ok(Vec::new()),
        }
    }

    async fn set_vectors(&self, vectors: &[(EntryId, Embedding)]) -> Result<(), StoreError> {
        self.store.set_vectors(vectors).await
    }

    async fn import(&self, entries: &[Entry]) -> Result<(), StoreError> {
        self.store.import(entries).await
    }
}
