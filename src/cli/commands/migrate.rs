//! `graphrun migrate RUN WORKFLOW.yaml`.

use std::path::PathBuf;

use serde::Serialize;

use crate::{
    checkpoint::{GraphOutline, Mapping, RunInfo, last_records},
    cli::{
        arguments::{
            globals::{Globals, Output},
            migrate_flags::{DropFlag, MapFlag, Names, migrate_command},
            options::RunOptions,
            set::{SetArgs, SetFlag, SetKind},
        },
        error::CliError,
        exit::Exit,
        output::{
            diagnostics::print_warnings,
            json::to_json,
            terminal::{Paint, print_result},
            words::{clean, shell_word},
        },
        people::questions::QuestionLine,
        process::runtime::block_on,
        run::{loaded, origin::Origin},
        settings::database::Database,
    },
    engine::{MigrationResult, Remedy, ReviseError, RunError},
    id::{NodeName, RunId, Step},
};

/// Migrate a run to a workflow that changed in a way that breaks it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name or the id of the run
    run: String,
    /// The workflow that the run continues with
    #[arg(value_name = "WORKFLOW.yaml")]
    workflow: PathBuf,
    /// The new name of a node or a field, and of everything below it; the same name accepts that
    /// it has changed
    #[arg(long, value_name = "OLD=NEW")]
    map: Vec<MapFlag>,
    /// A node to continue without, or a field whose value is discarded
    #[arg(long, value_name = "NAME")]
    drop: Vec<DropFlag>,
    /// A node, by its old name, whose tasks start again and ask their questions again
    #[arg(long, value_name = "NODE", value_parser = NodeName::parse_path)]
    again: Vec<NodeName>,
    /// The value of a field, as JSON: a text needs quotes, as in 'title="x"'
    #[arg(long, value_name = "FIELD=JSON")]
    set: Vec<SetFlag>,
    /// Print the changes without making them
    #[arg(long)]
    dry_run: bool,
}

/// The result of the migration, as JSON.
#[derive(Debug, Serialize)]
struct MigrationReport {
    run: RunId,
    name: String,
    workflow: String,
    dry_run: bool,
    step: Step,
    next: Vec<NodeName>,
    /// The nodes of the next step whose results are kept.
    finished: Vec<NodeName>,
    changes: Vec<String>,
    questions: Vec<QuestionLine>,
    resume: Option<String>,
}

impl Args {
    /// Migrates a run to another workflow, in place, and does not resume it.
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("migrate", &[Output::Text, Output::Json])?;
        let database = globals.database()?;
        let checkpointer = database.open_for(&self.run)?;
        block_on(async {
            let info = checkpointer.find(&self.run).await?.info;
            let origin = Origin::of(&info)?;
            let loaded = loaded::load(&self.workflow)?;
            let graph = loaded::check(&self.workflow)
                .map_err(|error| loaded::refuse(&self.workflow, error))?;
            print_warnings(graph.warnings(), globals.stderr);
            let set = SetArgs::of(self.set.clone()).read(graph.schema(), SetKind::Whole)?;
            let old = info.graph.as_deref().cloned().unwrap_or_default();
            let names = Names::new(&old, &GraphOutline::of(&graph));
            let mapping = names.read(&self.map, &self.drop)?;
            let mapping = self.again.iter().cloned().fold(mapping, Mapping::again);
            let mapping = set.into_iter().fold(mapping, |mapping, (field, value)| match value {
                Some(value) => mapping.set(field, value),
                None => mapping,
            });
            let engine = globals.engine(graph, checkpointer.clone())?;
            let title = loaded.workflow.name.clone();
            let migrated = if self.dry_run {
                engine.try_migration(&info.id, &mapping).await
            } else {
                let options = with_mapped_pauses(origin.options.clone(), &mapping);
                let permissions = origin.permissions.clone();
                let origin = Origin::new(&self.workflow, &origin.out, options)?;
                let origin = Origin { permissions, ..origin };
                let origin = origin.with_fields_of(&loaded.workflow).to_json()?;
                engine.migrate(&info.id, &mapping, Some(origin)).await
            };
            let migrated = migrated.map_err(|error| refused(error, &info, self, &database))?;
            let report = self.report(info, title, migrated, &database);
            let text = match globals.output {
                Output::Json => to_json(&report)?,
                _ => report.draw(globals.stdout),
            };
            print_result(&text).map_err(CliError::write)?;
            Ok(Exit::Done)
        })
    }

    fn report(
        &self,
        info: RunInfo,
        workflow: String,
        migrated: MigrationResult,
        database: &Database,
    ) -> MigrationReport {
        let MigrationResult { position, differences, records, questions } = migrated;
        let finished = last_records(&records).filter(|it| it.outcome.is_final());
        let database = database.clone().with_permissions_of(&info);
        // The next turn of a thread needs no command first.
        let resume = database.command("resume", &info.name);
        let resume = resume.filter(|_| !position.frontier.is_empty());
        MigrationReport {
            run: info.id,
            workflow,
            dry_run: self.dry_run,
            step: position.step,
            next: position.frontier.into_iter().map(|it| it.node).collect(),
            finished: finished.map(|it| it.node.clone()).collect(),
            changes: differences.into_iter().map(|it| it.what).collect(),
            questions: questions.into_iter().map(QuestionLine::from).collect(),
            resume,
            name: info.name,
        }
    }
}

/// Returns the options with the breakpoints renamed to the new nodes.
fn with_mapped_pauses(options: RunOptions, mapping: &Mapping) -> RunOptions {
    let named = |names: Vec<String>| -> Vec<String> {
        let names = names.iter().filter_map(|it| NodeName::parse_path(it).ok());
        names.filter_map(|it| mapping.new_name_of(&it)).map(|it| it.to_string()).collect()
    };
    let before = named(options.pause_before);
    let after = named(options.pause_after);
    RunOptions { pause_before: before, pause_after: after, ..options }
}

fn refused(error: RunError, info: &RunInfo, args: &Args, database: &Database) -> CliError {
    let RunError::NoCounterpart { differences, .. } = &error else {
        let is_over = matches!(error, RunError::Revise(ReviseError::AtItsEnd));
        let refused = CliError::from(error);
        return if is_over { refused.with_exit(Exit::NotResumable) } else { refused };
    };
    let first = differences.iter().filter(|it| it.breaks.is_some());
    let remedies: Vec<Remedy> = first.filter_map(|it| it.remedies.first().cloned()).collect();
    let mut given: Vec<String> = args.map.iter().map(|it| format!(" --map {it}")).collect();
    given.extend(args.drop.iter().map(|it| format!(" --drop {it}")));
    given.extend(args.again.iter().map(|it| format!(" --again {it}")));
    given.extend(args.set.iter().map(|it| format!(" --set {}", shell_word(&it.to_string()))));
    let command = migrate_command(database, &info.name, &args.workflow, &remedies);
    let command = command.filter(|_| !remedies.is_empty()).map(|it| it + &given.concat());
    let help = command.map(|it| format!("to settle all of these: {it}"));
    help.into_iter().fold(CliError::from(error), CliError::with_help)
}

impl MigrationReport {
    fn draw(&self, paint: Paint) -> String {
        let Self { name, workflow, step, .. } = self;
        let would = if self.dry_run { "would be" } else { "is" };
        let mut lines =
            vec![format!("{name} {would} migrated to {}, by step {step}", clean(workflow))];
        lines.extend(self.changes.iter().map(|it| format!("  - {}", clean(it))));
        let shown = |node: &NodeName| {
            if self.finished.contains(node) { format!("{node} (done)") } else { node.to_string() }
        };
        let next: Vec<String> = self.next.iter().map(shown).collect();
        if next.is_empty() {
            lines.push("next: a turn of the thread".to_owned());
        } else {
            lines.push(format!("next: {}", next.join(", ")));
        }
        let keys: Vec<&str> = self.questions.iter().map(|it| it.key.as_str()).collect();
        if !keys.is_empty() {
            lines.push(format!("open: {}", keys.join(", ")));
        }
        if self.dry_run {
            lines.push("nothing was changed".to_owned());
        } else if let Some(resume) = &self.resume {
            lines.push(format!("continue with: {}", paint.command(resume)));
        }
        lines.join("\n") + "\n"
    }
}
