//! `graphrun runs update RUN`.

use serde::Serialize;

use crate::{
    cli::{
        arguments::{
            globals::{Globals, Output},
            set::{SetArgs, SetKind},
        },
        error::CliError,
        exit::Exit,
        output::{json::to_json, terminal::print_result},
        process::runtime::block_on,
        run::{loaded, origin::Origin},
    },
    id::{NodeName, RunId, Step},
    state::Update,
};

/// Change the state of a stopped run like the update of a node
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name or the id of the run
    run: String,
    #[command(flatten)]
    set: SetArgs,
    /// Write this as the update of the node: its routes select the next nodes
    #[arg(long = "as", value_name = "NODE")]
    node: Option<String>,
}

/// The result of the update, as JSON.
#[derive(Debug, Serialize)]
struct UpdateOutput {
    run: RunId,
    name: String,
    step: Step,
    next: Vec<NodeName>,
    resume: Option<String>,
}

impl Args {
    /// Changes the state of a stopped run like the update of a node.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("runs update", &[Output::Text, Output::Json])?;
            if self.set.is_empty() && self.node.is_none() {
                return Err(CliError::usage("there is nothing to update")
                    .with_help("use `--set FIELD=JSON`, `--clear FIELD` or `--as NODE`"));
            }
            let database = globals.database()?;
            let checkpointer = database.open_for(&self.run)?;
            let info = checkpointer.find(&self.run).await?.info;
            let path = Origin::of(&info)?.workflow;
            let graph = loaded::check(&path)
                .map_err(|it| loaded::refuse(&path, it).with_exit(Exit::NotResumable))?;
            let mut update = Update::default();
            for (channel, value) in self.set.read(graph.schema(), SetKind::Write)? {
                match value {
                    Some(value) => update = update.write(channel, value),
                    None => update.clears.push(channel),
                }
            }
            let node = self.node.as_deref().map(NodeName::parse_path).transpose();
            let node = node.map_err(|error| {
                CliError::usage("`--as` is not the name of a node").because(error)
            })?;
            let engine = globals.engine(graph, checkpointer)?;
            let position = engine.update(&info.id, update, node.as_ref()).await?;
            let resume = database.with_permissions_of(&info).command("resume", &info.name);
            let updated = UpdateOutput {
                run: info.id,
                step: position.step,
                next: position.frontier.into_iter().map(|it| it.node).collect(),
                resume,
                name: info.name,
            };
            let text = match globals.output {
                Output::Json => to_json(&updated)?,
                _ => updated.draw(),
            };
            print_result(&text).map_err(CliError::write)?;
            Ok(Exit::Done)
        })
    }
}

impl UpdateOutput {
    fn draw(&self) -> String {
        let Self { name, step, .. } = self;
        if self.next.is_empty() {
            return format!("{name}: step {step} was made by hand; nothing is left to run\n");
        }
        let next: Vec<&str> = self.next.iter().map(NodeName::as_str).collect();
        let next = next.join(", ");
        let resume = self.resume.as_ref().map(|it| format!("continue with: {it}\n"));
        format!(
            "{name}: step {step} was made by hand; next: {next}\n{}",
            resume.unwrap_or_default()
        )
    }
}
