//! The standard streams of a command in a sandbox, which begin and end as files.

use graphrun_core::id::unique_id;

/// Runs the command with its streams in files, which are returned when it has ended.
///
/// Arguments: the names of the files for input and output, then the command. No value of the state
/// is among them. The streams are in `/tmp`, so that the command finds only its own files. They are cut and renamed there,
/// which needs no room: the command may have used all of it.
const SCRIPT: &str = r#"
input=$1 output=$2 errors=$3
shift 3
[[ -d /env/bin ]] && PATH=/env/bin:$PATH
exec 8</dev/null
if [[ -e $input ]]; then exec 8<"$input"; rm -- "$input"; fi
"$@" <&8 >/tmp/.stdout 2>/tmp/.stderr 8<&-
status=$?
cd /tmp
truncate --size='<1048577' .stdout .stderr
mv .stdout "$output"
mv .stderr "$errors"
exit "$status"
"#;

/// The names of the files for input and output. They cannot be guessed, so a file of the command is never taken for a
/// stream.
pub(super) struct Streams {
    pub(super) input: String,
    pub(super) output: String,
    pub(super) errors: String,
}

impl Streams {
    pub(super) fn new() -> Self {
        let id = unique_id();
        let name = |what: &str| format!("{what}-{id}");
        Self { input: name("stdin"), output: name("stdout"), errors: name("stderr") }
    }

    /// Returns the arguments of a job that runs a command with these streams.
    pub(super) fn argv(&self, command: impl Iterator<Item = String>) -> Vec<String> {
        let wrapper = ["bash", "-c", SCRIPT, "run"].map(str::to_owned);
        let names = [&self.input, &self.output, &self.errors].map(Clone::clone);
        wrapper.into_iter().chain(names).chain(command).collect()
    }
}
