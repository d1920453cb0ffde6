//! Writes the `reports` of a workflow: files for people, rendered from the saved state of a run.
//!
//! They follow from the state alone. Nothing of them is saved with the run, and a file that cannot be written changes
//! nothing about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    checkpoint::{Checkpointer, SavedRun},
    event::Event,
    graph::{RunFacts, Visits, with_causes},
    id::RunId,
    sandbox::{Replace, SourceFile, write_files},
    state::{Schema, State},
    workflow::{ReportFile, Workflow},
};

/// When reports are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOccasion {
    /// After a step.
    Step,
    /// When the run has stopped, however it ended.
    Stop,
}

/// The reports of a run.
#[derive(Debug)]
pub(crate) struct ReportFiles {
    files: Vec<ReportFile>,
    schema: Schema,
    workflow: Arc<str>,
    out: PathBuf,
    replace: Replace,
    written: Mutex<WrittenFiles>,
}

/// What this process has written and reported so far.
#[derive(Debug, Default)]
struct WrittenFiles {
    /// The content of each report, by its name.
    contents: BTreeMap<String, String>,
    /// The files that exist.
    paths: BTreeSet<PathBuf>,
    warnings: BTreeSet<String>,
}

impl ReportFiles {
    /// Returns the reports of a workflow, below the output folder of a run.
    pub(crate) fn of(workflow: &Workflow, out: &Path, replace: Replace) -> Self {
        Self {
            files: workflow.reports.clone(),
            schema: workflow.schema.clone(),
            workflow: workflow.name.as_str().into(),
            out: out.to_owned(),
            replace,
            written: Mutex::default(),
        }
    }

    /// Returns whether an event changes what the reports of each step show.
    pub(crate) fn are_changed_by(&self, event: &Event) -> bool {
        let is_step = matches!(
            event,
            Event::RunStarted { .. }
                | Event::RunResumed { .. }
                | Event::TurnStarted { .. }
                | Event::StepCommitted { .. }
        );
        is_step && self.files.iter().any(|it| it.each_step)
    }

    /// Returns the files that this process has written.
    pub(crate) fn paths(&self) -> Vec<String> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.paths.iter().map(|it| it.display().to_string()).collect()
    }

    /// Renders the reports of an occasion from the last checkpoint, and writes those that have changed. Returns a new
    /// warning for each that cannot be written.
    pub(crate) async fn write(
        &self,
        checkpointer: &dyn Checkpointer,
        run: &RunId,
        occasion: WriteOccasion,
    ) -> Vec<String> {
        let files: Vec<&ReportFile> = self
            .files
            .iter()
            .filter(|it| it.each_step || occasion == WriteOccasion::Stop)
            .collect();
        if files.is_empty() {
            return Vec::new();
        }
        let shown = match checkpointer.load(run).await {
            Ok(saved) => ReportState::of(saved, &self.schema, Arc::clone(&self.workflow)),
            Err(error) => Err(with_causes(&error)),
        };
        let mut warnings = Vec::new();
        for file in files {
            let result = match &shown {
                Ok(shown) => self.write_one(file, shown).await,
                Err(reason) => Err(reason.clone()),
            };
            if let Err(reason) = result {
                warnings.push(format!("the report `{}` is not written: {reason}", file.path));
            }
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.retain(|it| written.warnings.insert(it.clone()));
        warnings
    }

    async fn write_one(&self, file: &ReportFile, shown: &ReportState) -> Result<(), String> {
        let ReportState { state, visits, facts } = shown;
        let content = file.render(state, visits, facts).map_err(|it| with_causes(&it))?;
        {
            let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            if written.contents.get(&file.path) == Some(&content) {
                return Ok(());
            }
        }
        let source = SourceFile { path: file.path.clone(), content: content.clone() };
        let out = self.out.clone();
        let replace = self.replace;
        let delivered =
            tokio::task::spawn_blocking(move || write_files(&out, "", &[source], replace)).await;
        let paths = match delivered {
            Ok(delivered) => delivered.map_err(|it| with_causes(&it))?,
            Err(error) => return Err(error.to_string()),
        };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.contents.insert(file.path.clone(), content);
        written.paths.extend(paths);
        Ok(())
    }
}

/// What reports can read of a run.
struct ReportState {
    state: State,
    visits: Visits,
    facts: RunFacts,
}

impl ReportState {
    fn of(saved: SavedRun, schema: &Schema, workflow: Arc<str>) -> Result<Self, String> {
        let SavedRun { summary, position, values, .. } = saved;
        let usage = position.total_usage();
        let by_node = position.used.node_usage.into_iter();
        let facts = RunFacts {
            run: Some(summary.info.id),
            workflow,
            began: position.began,
            usage,
            node_usage: by_node.map(|(node, it)| (node, it.usage)).collect(),
            ..RunFacts::default()
        };
        let state = schema.restore(values).map_err(|it| with_causes(&it))?;
        Ok(Self { state, visits: position.visits.into_iter().collect(), facts })
    }
}
