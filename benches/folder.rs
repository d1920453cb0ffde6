//! The time of a command in a large folder: with the folder mounted, and with a copy of its files.
//!
//! `cargo bench --bench folder -- MIB`. Each line is the median of several runs; both sides alternate.
//! The copy includes the reading of the files, as for a node.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use graphrun::sandbox::{FolderContent, FolderFile, Job, Limits, ProgramEnd, Sandbox};
use tokio_util::sync::CancellationToken;

const ROUNDS: usize = 5;
const FILE_BYTES: usize = 256 << 10;
const MIB_DEFAULT: usize = 256;

fn main() {
    let mib = std::env::args().skip(1).find_map(|it| it.parse().ok()).unwrap_or(MIB_DEFAULT);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sandbox = Sandbox::probe().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let paths = fill(folder.path(), mib);
    // Room for a copy, which a node would not have.
    let limits = Limits { work_bytes: 8 << 30, memory_bytes: 16 << 30, ..Limits::default() };
    let argv = ["wc", "--bytes", "0/0.bin"].map(str::to_owned).to_vec();
    let mut mounted = Vec::new();
    let mut copied = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let job = Job {
            argv: argv.clone(),
            limits: limits.clone(),
            mounted: Some(folder.path().to_owned()),
            ..Job::default()
        };
        runtime.block_on(run(&sandbox, &job));
        mounted.push(began.elapsed());

        let began = Instant::now();
        let job = Job {
            argv: argv.clone(),
            limits: limits.clone(),
            folder: read(folder.path(), &paths).into(),
            ..Job::default()
        };
        runtime.block_on(run(&sandbox, &job));
        copied.push(began.elapsed());
    }
    let mounted = median(mounted);
    let copied = median(copied);
    println!("{mib} MiB in {} files: milliseconds of a command", paths.len());
    println!("mounted {mounted:>10.1}\ncopied  {copied:>10.1}\nratio   {:>10.1}", copied / mounted);
}

async fn run(sandbox: &Sandbox, job: &Job) {
    let finished = sandbox.run(job, &CancellationToken::new()).await.unwrap();
    assert_eq!(finished.end, ProgramEnd::Exited(0), "{}", finished.output);
    assert_eq!(finished.output, format!("{FILE_BYTES} 0/0.bin\n"));
}

fn fill(root: &Path, mib: usize) -> Vec<PathBuf> {
    let count = (mib << 20).div_ceil(FILE_BYTES);
    let write = |at: usize| {
        let path = PathBuf::from(format!("{}/{}.bin", at / 100, at % 100));
        fs::create_dir_all(root.join(&path).parent().unwrap()).unwrap();
        fs::write(root.join(&path), vec![b'x'; FILE_BYTES]).unwrap();
        path
    };
    (0..count).map(write).collect()
}

fn read(root: &Path, paths: &[PathBuf]) -> Vec<FolderFile> {
    let one = |path: &PathBuf| {
        let bytes = fs::read(root.join(path)).unwrap().into();
        let content = FolderContent::File { bytes, is_executable: false };
        FolderFile { path: path.clone(), content }
    };
    paths.iter().map(one).collect()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1000.0
}
