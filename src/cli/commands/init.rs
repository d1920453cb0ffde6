//! `graphrun init [TEMPLATE] [DIR]`: writes a workflow that runs immediately, as a starting point.

mod templates;

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    iter,
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use serde_json::json;

use self::templates::Template;
use crate::{
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::{json::to_json, terminal::print_result, words::table},
        registry,
    },
    workflow,
};

/// The schema that the YAML language server of an editor uses for completion and checks.
const SCHEMA: &str = "workflow.schema.json";

/// Write a workflow to start from
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The template, by its name or its pattern [default: list all of them]
    #[arg(value_enum)]
    template: Option<Template>,
    /// The folder for its files; created if it is missing
    #[arg(default_value = ".")]
    dir: PathBuf,
}

impl Args {
    /// Writes all files of a template or none, and prints the next commands. Without a template, lists all templates.
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("init", &[Output::Text, Output::Json])?;
        let result = match &self.template {
            Some(template) => self.write(template, globals)?,
            None => list(globals)?,
        };
        print_result(&result).map_err(CliError::write)?;
        Ok(Exit::Done)
    }

    fn write(&self, template: &Template, globals: &Globals) -> Result<String, CliError> {
        let schema = to_json(&workflow::json_schema(&registry()))?;
        let mut files: Vec<(PathBuf, &str)> =
            template.files.iter().map(|(path, text)| (self.dir.join(path), *text)).collect();
        files.push((self.dir.join(SCHEMA), &schema));
        let help = format!("name another folder: `graphrun init {} DIR`", template.name);
        refuse_existing(&files)
            .and_then(|()| write_all(&files))
            .map_err(|it| it.with_help(help))?;
        if globals.output == Output::Json {
            let paths: Vec<_> = files.iter().map(|(path, _)| path.display().to_string()).collect();
            let commands: Vec<_> = template.commands.iter().map(|(it, _)| it).collect();
            return to_json(&json!({ "files": paths, "commands": commands }));
        }
        Ok(draw(self, template, &files, globals))
    }
}

/// Returns the list of all templates, each with its pattern.
fn list(globals: &Globals) -> Result<String, CliError> {
    let templates = Template::value_variants();
    if globals.output == Output::Json {
        let line = |template: &Template| json!({ "name": template.name, "pattern": template.pattern, "about": template.about });
        return to_json(&json!({ "templates": templates.iter().map(line).collect::<Vec<_>>() }));
    }
    let heading = ["TEMPLATE", "PATTERN", "PURPOSE"].map(str::to_owned).to_vec();
    let line = |it: &Template| [it.name, it.pattern, it.about].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = iter::once(heading).chain(templates.iter().map(line)).collect();
    let command = globals.stdout.command("graphrun init TEMPLATE [DIR]");
    Ok(format!("{}\n{command}\n", table(&rows)))
}

/// Fails if a file exists: nothing is overwritten.
fn refuse_existing(files: &[(PathBuf, &str)]) -> Result<(), CliError> {
    let is_there = |it: &&(PathBuf, &str)| it.0.symlink_metadata().is_ok();
    let there: Vec<String> =
        files.iter().filter(is_there).map(|(path, _)| path.display().to_string()).collect();
    if there.is_empty() {
        return Ok(());
    }
    let refused = CliError::usage("some of the files exist already; nothing was written");
    Err(refused.with_problems(there))
}

fn write_all(files: &[(PathBuf, &str)]) -> Result<(), CliError> {
    for (at, (path, text)) in files.iter().enumerate() {
        if let Err(source) = write_new(path, text) {
            // Otherwise, a second attempt would fail because some files exist.
            files[..at].iter().for_each(|(path, _)| drop(fs::remove_file(path)));
            let message = format!("could not write {}", path.display());
            return Err(CliError::new(Exit::Unusable, message).because(source));
        }
    }
    Ok(())
}

/// Writes a file whole or not at all.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| drop(fs::remove_file(path)))
}

fn draw(args: &Args, template: &Template, files: &[(PathBuf, &str)], globals: &Globals) -> String {
    let paint = globals.stdout;
    let mut lines: Vec<String> =
        files.iter().map(|(path, _)| format!("wrote {}", path.display())).collect();
    lines.push(String::new());
    if args.dir != Path::new(".") {
        lines.push(paint.command(&format!("cd {}", args.dir.display())));
    }
    for (command, about) in template.commands {
        lines.push(format!("{}  {}", paint.command(command), paint.faint(&format!("# {about}"))));
    }
    lines.join("\n") + "\n"
}
