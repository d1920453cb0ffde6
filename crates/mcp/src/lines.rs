//! The output of a server that graphrun has started, watched for messages that are too long.
//!
//! The transport drops such a message without a sign. The call with this answer would run out of time, which counts as a failure that may
//! pass.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::Notify,
};

/// The messages of a server that were too long.
#[derive(Clone, Debug, Default)]
pub(super) struct LongMessages(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    count: AtomicU64,
    changed: Notify,
}

impl LongMessages {
    /// Returns how many there were.
    pub(super) fn count(&self) -> u64 {
        self.0.count.load(Ordering::Acquire)
    }

    /// Waits until there are more than that.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    pub(super) async fn more_than(&self, count: u64) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // From here on, no change is missed.
            changed.as_mut().enable();
            if self.count() > count {
                return;
            }
            changed.await;
        }
    }
}

/// An output whose lines are measured.
pub(super) struct MeasuredLines<R> {
    output: R,
    bytes_max: usize,
    /// The bytes of the current line so far.
    bytes: usize,
    long: LongMessages,
}

impl<R> MeasuredLines<R> {
    /// Counts the lines of more than `bytes_max` bytes in `long`.
    pub(super) fn new(output: R, bytes_max: usize, long: LongMessages) -> Self {
        Self { output, bytes_max, bytes: 0, long }
    }

    fn measure(&mut self, read: &[u8]) {
        for piece in read.split_inclusive(|it| *it == b'\n') {
            let was_long = self.bytes > self.bytes_max;
            let is_end = piece.ends_with(b"\n");
            self.bytes += piece.len() - usize::from(is_end);
            if self.bytes > self.bytes_max && !was_long {
                self.long.0.count.fetch_add(1, Ordering::Release);
                self.long.0.changed.notify_waiters();
            }
            if is_end {
                self.bytes = 0;
            }
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for MeasuredLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.output).poll_read(cx, buffer);
        self.measure(&buffer.filled()[before..]);
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_that_is_too_long_counts_once() {
        let long = LongMessages::default();
        let mut lines = MeasuredLines::new(tokio::io::empty(), 4, long.clone());
        for (read, count) in [
            (&b"1234\n12"[..], 0),
            (b"34", 0),
            (b"\n12345", 1),
            (b"6\n", 1),
            (b"1\n\n12345\n12345\n1", 3),
        ] {
            lines.measure(read);
            assert_eq!(long.count(), count, "{read:?}");
        }
    }
}
