//! Leaks: memory, open files, processes.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// A growth above this, and by a fifth, is a leak.
const GROWTH_MIN_KB: u64 = 8 << 10;

/// The resources of a process at some moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Kilobytes of anonymous memory.
    memory_kb: u64,
    descriptors: u64,
}

impl Sample {
    /// Samples a process; none if it is gone.
    pub(crate) fn of(process: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:"))?;
        let memory_kb = line.trim().strip_suffix(" kB")?.parse().ok()?;
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
        let descriptors = descriptors.filter(|it| is_counted(&it.path())).count() as u64;
        Some(Self { memory_kb, descriptors })
    }
}

/// Excludes pipes: those to child processes come and go with them.
fn is_counted(descriptor: &Path) -> bool {
    let target = fs::read_link(descriptor).unwrap_or_default();
    let target = target.to_string_lossy();
    !["pipe:", "socket:", "/dev/null", "/proc/"].iter().any(|it| target.starts_with(it))
}

/// Compares the first quarter of all samples with the last. Fails if the resources have grown.
pub(crate) fn compare(what: &str, samples: &[Sample]) {
    let quarter = samples.len() / 4;
    assert!(quarter > 0, "{what} was seen {} times only", samples.len());
    let first = &samples[..quarter];
    let last = &samples[samples.len() - quarter..];
    let memory = |of: &[Sample]| median(of.iter().map(|it| it.memory_kb));
    let descriptors = |of: &[Sample]| median(of.iter().map(|it| it.descriptors));
    let before = memory(first);
    let after = memory(last);
    let opened = descriptors(first);
    let open = descriptors(last);
    println!(
        "{what}, seen {} times: {before} kB at first and {after} kB at last, {opened} descriptors and {open}",
        samples.len()
    );
    assert!(after < before + GROWTH_MIN_KB.max(before / 5), "{what} takes more and more memory");
    assert!(open <= opened + 2, "{what} opens more and more");
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values[values.len() / 2]
}

/// Waits until no other process has the marker in its arguments or environment.
pub(crate) fn assert_gone(marker: &str, within: Duration) {
    let started = Instant::now();
    loop {
        let left = marked(marker);
        if left.is_empty() {
            return;
        }
        assert!(started.elapsed() < within, "these are left behind: {left:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the processes with a marker, and the zombies of this process: it did not wait for them.
fn marked(marker: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = process.path();
        let name = process.file_name().to_string_lossy().into_owned();
        let read = |file: &str| fs::read(path.join(file)).unwrap_or_default();
        let has = |bytes: Vec<u8>| bytes.windows(marker.len()).any(|it| it == marker.as_bytes());
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        let mut fields = stat.rsplit_once(") ").map_or("", |it| it.1).split(' ');
        let is_own_zombie = fields.next() == Some("Z") && fields.next() == Some(&own);
        if name != own && (is_own_zombie || has(read("cmdline")) || has(read("environ"))) {
            found.push(stat);
        }
    }
    found
}
