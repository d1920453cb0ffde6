//! The commands: one file each, all of the same shape.

/// Declares the commands, in the order of the help. The arguments of a command have its description as their doc comment,
/// and a method `run`.
macro_rules! commands {
    ($visibility:vis enum Command { $($command:ident($args:ty),)+ }) => {
        #[derive(Debug, ::clap::Subcommand)]
        $visibility enum Command {
            $($command($args),)+
        }

        impl Command {
            $visibility fn run(self, globals: &Globals) -> Result<Exit, CliError> {
                match self {
                    $(Self::$command(args) => args.run(globals),)+
                }
            }
        }
    };
}

mod approve;
mod chat;
mod completions;
mod doctor;
mod eval;
mod execute;
mod explain;
mod fmt;
mod fork;
mod graph;
mod init;
mod lsp;
mod mcp;
mod memory;
mod message;
mod migrate;
mod models;
mod plan;
mod prepare;
mod render;
mod resume;
mod retry;
mod runs;
mod schema;
mod test;
mod trust;
mod validate;

use super::{arguments::globals::Globals, error::CliError, exit::Exit};

commands! {
    pub(super) enum Command {
        Execute(execute::Args),
        Chat(chat::Args),
        Resume(resume::Args),
        Approve(approve::ApproveArgs),
        Reject(approve::RejectArgs),
        Retry(retry::Args),
        Message(message::Args),
        Fork(fork::Args),
        Migrate(migrate::Args),
        Init(init::Args),
        Validate(validate::Args),
        Fmt(fmt::Args),
        Explain(explain::Args),
        Plan(plan::Args),
        Prepare(prepare::Args),
        Graph(graph::Args),
        Render(render::Args),
        Schema(schema::Args),
        Test(test::Args),
        Eval(eval::Args),
        Runs(runs::Args),
        Memory(memory::Args),
        Mcp(mcp::Args),
        Models(models::Args),
        Doctor(doctor::Args),
        Trust(trust::Args),
        Lsp(lsp::Args),
        Completions(completions::Args),
    }
}
