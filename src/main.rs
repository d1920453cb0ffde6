//! The `graphrun` program.

fn main() -> std::process::ExitCode {
    graphrun::cli::main()
}
