//! Checksums of the tables besides the journal: a database does not detect a flipped bit in a
//! value.

use graphrun_engine::storage::rules::Head;

/// A checksum that detects damage, not malice; the hash chain of the journal detects malice.
pub(crate) type Checksum = [u8; 8];

/// Returns the checksum of the stored info of a run.
pub(crate) fn of_info(id: &str, name: &str, info: &[u8]) -> Checksum {
    sum(&[id.as_bytes(), name.as_bytes(), info])
}

/// Returns the checksum of a head. It covers the run id, so that a row cannot replace that of
/// another run.
pub(crate) fn of_head(
    run: &str,
    head: &Head,
    before_open: u64,
    hash: &[u8],
    run_status: &str,
) -> Checksum {
    let numbers = [head.number, before_open, head.step.0, head.seq].map(u64::to_le_bytes);
    sum(&[run.as_bytes(), numbers.as_flattened(), hash, run_status.as_bytes()])
}

/// Returns the checksum of a lease: damage must not turn a present owner into an absent one.
pub(crate) fn of_lease(run: &str, fence: u64, owner: Option<&str>, until: i64) -> Checksum {
    let owned = [u8::from(owner.is_some())];
    let owner = owner.unwrap_or_default().as_bytes();
    sum(&[run.as_bytes(), &fence.to_le_bytes(), &owned, owner, &until.to_le_bytes()])
}

/// Returns the checksum of an inbox message.
pub(crate) fn of_message(run: &str, message: &str) -> Checksum {
    sum(&[run.as_bytes(), message.as_bytes()])
}

/// Returns the checksum of the kept values of a run. It covers the hash of their entry, which proves the entries
/// before it.
pub(crate) fn of_values(run: &str, number: u64, hash: &[u8], values: &[u8]) -> Checksum {
    sum(&[run.as_bytes(), &number.to_le_bytes(), hash, values])
}

fn sum(parts: &[&[u8]]) -> Checksum {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    *hasher.finalize().as_bytes().first_chunk().expect("a hash is longer")
}
