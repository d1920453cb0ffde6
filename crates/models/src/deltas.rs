//! The pieces of an answer, as they arrive.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use graphrun_core::event::MessagePart;
use graphrun_guard::redact::{redact, settled};

use super::chat::characters;

/// The longest text that is held back because it may be a part of a key.
const HELD_BYTES_MAX: usize = 16 * 1024;

/// Takes the pieces of one answer, without waiting.
pub trait AnswerReader: fmt::Debug + Send + Sync {
    /// Takes a piece. Keys are removed from it.
    fn take(&self, part: MessagePart, text: &str);

    /// Returns whether pieces are wanted. If not, only [`heartbeat`](Self::heartbeat) is called.
    fn is_watched(&self) -> bool {
        true
    }

    /// Notes that a piece has arrived.
    fn heartbeat(&self) {}
}

/// Where the pieces of an answer go; nowhere by default. It is no part of the request: two requests that differ in it are
/// equal.
///
/// A model that has its answer in pieces [sends](Self::send) each of them, and [ends](Self::end) the answer. A key that is
/// split over several pieces is removed, too, so a piece may wait for the next one.
#[derive(Clone, Debug, Default)]
pub struct AnswerSink {
    buffer: Option<Arc<DeltaBuffer>>,
    /// The number of blanks at the end of the text or of the arguments so far.
    blanks: Arc<AtomicU64>,
}

#[derive(Debug)]
struct DeltaBuffer {
    reader: Arc<dyn AnswerReader>,
    held: Mutex<Option<(MessagePart, String)>>,
    /// The number of characters that have arrived.
    characters: AtomicU64,
}

impl PartialEq for AnswerSink {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl AnswerSink {
    /// Creates the sink of one answer.
    pub fn to(reader: Arc<dyn AnswerReader>) -> Self {
        let held = Mutex::default();
        let characters = AtomicU64::new(0);
        let buffer = Some(Arc::new(DeltaBuffer { reader, held, characters }));
        Self { buffer, blanks: Arc::default() }
    }

    /// Returns the same sink for another request.
    #[cfg(feature = "openai")]
    pub(crate) fn for_request(&self) -> Self {
        Self { buffer: self.buffer.clone(), blanks: Arc::default() }
    }

    /// Returns the number of blanks at the end of the text so far.
    #[cfg(feature = "openai")]
    pub(crate) fn blanks(&self) -> u64 {
        self.blanks.load(Ordering::Relaxed)
    }

    /// Sends a piece of the answer.
    pub fn send(&self, part: MessagePart, text: &str) {
        self.note_blanks(text, part == MessagePart::Text);
        let Some(pending) = &self.buffer else { return };
        pending.count(text);
        if text.is_empty() || !pending.reader.is_watched() {
            return;
        }
        let mut held = pending.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_some_and(|it| it.0 != part) {
            pending.flush(&mut held);
        }
        let (_, waiting) = held.get_or_insert_with(|| (part, String::new()));
        waiting.push_str(text);
        let safe = settled(waiting);
        let safe = if waiting.len() - safe > HELD_BYTES_MAX { waiting.len() } else { safe };
        if safe > 0 {
            let rest = waiting.split_off(safe);
            let text = std::mem::replace(waiting, rest);
            pending.reader.take(part, &redact(&text));
        }
    }

    /// Counts a piece of the answer that is not shown, such as one of the arguments of a call.
    #[cfg(feature = "openai")]
    pub(crate) fn count(&self, text: &str) {
        self.note_blanks(text, true);
        if let Some(pending) = &self.buffer {
            pending.count(text);
        }
    }

    /// Counts the blanks at the end of the text or of the arguments of a call.
    fn note_blanks(&self, text: &str, may_continue: bool) {
        let end = text.trim_end();
        let blanks = u64::try_from(text.len() - end.len()).unwrap_or(u64::MAX);
        if may_continue && end.is_empty() {
            self.blanks.fetch_add(blanks, Ordering::Relaxed);
        } else {
            self.blanks.store(blanks, Ordering::Relaxed);
        }
    }

    /// Returns the number of characters that have arrived, shown or not.
    pub fn characters(&self) -> u64 {
        self.buffer.as_ref().map_or(0, |it| it.characters.load(Ordering::Relaxed))
    }

    /// Sends the rest of the text. The answer is whole, or its model has failed.
    pub fn end(&self) {
        if let Some(pending) = &self.buffer {
            pending.flush(&mut pending.held.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl DeltaBuffer {
    fn count(&self, text: &str) {
        // Some servers send empty pieces to keep a connection open.
        if text.is_empty() {
            return;
        }
        self.reader.heartbeat();
        self.characters.fetch_add(characters(text), Ordering::Relaxed);
    }

    fn flush(&self, held: &mut Option<(MessagePart, String)>) {
        if let Some((part, text)) = held.take().filter(|it| !it.1.is_empty()) {
            self.reader.take(part, &redact(&text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    #[derive(Debug, Default)]
    struct Texts(Mutex<Vec<(MessagePart, String)>>);

    impl AnswerReader for Texts {
        fn take(&self, part: MessagePart, text: &str) {
            self.0.lock().unwrap().push((part, text.to_owned()));
        }
    }

    fn sent(pieces: &[(MessagePart, &str)]) -> Vec<(MessagePart, String)> {
        let texts = Arc::new(Texts::default());
        let deltas = AnswerSink::to(Arc::clone(&texts) as _);
        for (part, text) in pieces {
            deltas.send(*part, text);
        }
        deltas.end();
        std::mem::take(&mut *texts.0.lock().unwrap())
    }

    #[test]
    fn the_pieces_joined_are_the_text() {
        let text = MessagePart::Text;
        let reasoning = MessagePart::Reasoning;
        let pieces =
            [(reasoning, "Sea"), (reasoning, " or"), (text, "Te"), (text, "al, 青い"), (text, "")];
        let taken = sent(&pieces);
        let part = |wanted| -> String {
            taken.iter().filter(|it| it.0 == wanted).map(|it| it.1.as_str()).collect()
        };
        assert_eq!((part(reasoning).as_str(), part(text).as_str()), ("Sea or", "Teal, 青い"));
        assert_eq!(taken[0], (reasoning, "Sea ".to_owned()), "a word waits for its end only");
        // A long text without any end of a word does not wait for ever.
        let long = "x".repeat(HELD_BYTES_MAX + 1);
        assert_eq!(sent(&[(text, &long)]), [(text, long.clone())]);
    }

    #[test]
    fn a_key_in_pieces_is_removed() {
        let key = "split-horse-battery-staple";
        let _secret = Secret::new(key);
        for cut in 1..key.len() {
            let pieces = [(MessagePart::Text, "It is "), (MessagePart::Text, &key[..cut])];
            let taken = sent(&[pieces.as_slice(), &[(MessagePart::Text, &key[cut..])]].concat());
            let text: String = taken.into_iter().map(|it| it.1).collect();
            assert_eq!(text, "It is [redacted]", "cut at {cut}");
        }
    }
}
