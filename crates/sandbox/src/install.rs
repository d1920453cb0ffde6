//! Builds a Python environment: a folder with an interpreter, packages, and their compiled files.
//!
//! All of it happens outside the sandbox, with programs and packages that the operator trusts.

use std::{fs, path::Path};

use tokio::process::Command;

use super::{
    cache_entry::make_readable,
    host_tool::run_tool,
    interpreter::Interpreter,
    packages::PYTHON_INSIDE,
    python_error::{PythonError, io_error},
};

/// The path of an environment inside.
pub(super) const INSIDE: &str = "/env";
/// Builds an environment in a new folder.
pub(super) async fn build(
    interpreter: &Interpreter,
    requirements: &[String],
    folder: &Path,
) -> Result<(), PythonError> {
    // Without pip: the standard library can do this everywhere, and distributions often leave out the rest.
    let mut command = Command::new(&interpreter.executable);
    command.args(["-I", "-m", "venv", "--without-pip", "--symlinks"]).arg(folder);
    run_tool("make a virtual environment", command).await?;

    let site_packages = folder.join(interpreter.site_packages());
    if !requirements.is_empty() {
        let mut install = installer(interpreter, folder, &site_packages).await?;
        install.args(requirements);
        run_tool("install packages", install).await.map_err(|error| match error {
            PythonError::Tool { detail, .. } => PythonError::Install { detail },
            error => error,
        })?;
    }
    fs::write(site_packages.join("graphrun-project.pth"), more_paths())
        .map_err(io_error("write the search path"))?;

    // The sandbox cannot write here, so each run would compile again any file that is not compiled now. The compiled
    // files are not compared with their sources, and contain the path inside the sandbox.
    let mut compile = Command::new(folder.join("bin/python3"));
    compile.args([
        "-I",
        "-m",
        "compileall",
        "-q",
        "-q",
        "--invalidation-mode",
        "unchecked-hash",
        "-s",
    ]);
    compile.arg(folder).args(["-p", INSIDE]).arg(&site_packages);
    // Packages may contain files for other versions of Python, which do not compile and are never loaded.
    let _ = run_tool("compile the packages", compile).await;
    make_readable(folder).map_err(io_error("make the environment readable"))
}

/// Returns the lines that make the packages of a lock file importable, if they are mounted, and then the project, with its
/// packages at the top or in `src`. These paths are at the end of the search path, so a project's `json.py` hides nothing.
fn more_paths() -> String {
    // `site` runs lines that begin with `import`. Some packages need the `.pth` files beside them.
    format!(
        "import os, site; os.path.isdir('{PYTHON_INSIDE}') and site.addsitedir('{PYTHON_INSIDE}')\n/box\n/box/src\n"
    )
}

/// Returns a pip that installs into the environment, complete except for the names of the packages. The available pip
/// depends on the distribution: the interpreter's own, one from the standard library, or another interpreter's.
async fn installer(
    interpreter: &Interpreter,
    folder: &Path,
    site_packages: &Path,
) -> Result<Command, PythonError> {
    const OPTIONS: [&str; 8] = [
        "install",
        "--quiet",
        "--no-input",
        "--no-compile",
        "--disable-pip-version-check",
        "--no-warn-script-location",
        "--only-binary",
        ":all:",
    ];
    let python = folder.join("bin/python3");
    let command = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    };
    let works = async |command| run_tool("look for pip", command).await.is_ok();

    if works(command(&interpreter.executable, &["-m", "pip", "--version"])).await {
        let mut pip = command(&interpreter.executable, &["-m", "pip"]);
        pip.args(OPTIONS).arg("--target").arg(site_packages);
        return Ok(pip);
    }
    if works(command(&python, &["-I", "-m", "ensurepip"])).await {
        let mut pip = command(&python, &["-I", "-m", "pip"]);
        pip.args(OPTIONS);
        return Ok(pip);
    }
    if works(command(Path::new("pip3"), &["--version"])).await {
        let mut pip = command(Path::new("pip3"), &["--python"]);
        pip.arg(&python).args(OPTIONS);
        return Ok(pip);
    }
    Err(PythonError::NoPip { python: interpreter.executable.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn packages_are_installed_where_the_interpreter_has_no_pip() {
        let folder = tempfile::tempdir().unwrap();
        let mut interpreter = Interpreter::find().await.unwrap();
        build(&interpreter, &[], &folder.path().join("bare")).await.unwrap();
        interpreter.executable = folder.path().join("bare/bin/python3");
        let environment = folder.path().join("environment");
        build(&interpreter, &["iniconfig".to_owned()], &environment).await.unwrap();
        assert!(environment.join(interpreter.site_packages()).join("iniconfig").is_dir());
    }
}
