//! Reads a stream of server-sent events (the format of the HTML standard, section 9.2).
//!
//! It differs from the standard in two points. Bytes that are not UTF-8 are replaced, because one broken character is no
//! reason to pay for the whole answer again. A line that is no field is returned: it is an error page or a raw error.

/// A part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SseItem {
    /// An event with data.
    Event {
        /// Its name; empty for most.
        name: String,
        /// Its data, lines joined.
        data: String,
    },
    /// A line that is no field.
    Stray(String),
}

/// Collects the lines of a stream into events.
#[derive(Debug, Default)]
pub(super) struct SseReader {
    /// The bytes of lines that are not read yet.
    buffer: Vec<u8>,
    /// The length of the buffer's beginning without the end of a line.
    searched: usize,
    /// Whether the last line ended with a carriage return, so that a line feed may belong to it.
    after_return: bool,
    name: String,
    data: Option<String>,
}

impl SseReader {
    /// Adds bytes, and returns the completed items.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Vec<SseItem> {
        self.buffer.extend_from_slice(bytes);
        let mut items = Vec::new();
        let mut start = 0;
        while let Some(at) = self.buffer[self.searched..].iter().position(|it| b"\r\n".contains(it))
        {
            let end = self.searched + at;
            let is_return = self.buffer[end] == b'\r';
            // The line feed of a line that has ended already.
            let is_second = end == start && self.after_return && !is_return;
            if !is_second {
                let line = String::from_utf8_lossy(&self.buffer[start..end]).into_owned();
                items.extend(self.line(&line));
            }
            self.after_return = is_return;
            start = end + 1;
            self.searched = start;
        }
        self.buffer.drain(..start);
        self.searched = self.buffer.len();
        if !self.buffer.is_empty() {
            self.after_return = false;
        }
        items
    }

    /// Returns the number of bytes that wait for the end of their event.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.buffer.len() + self.data.as_ref().map_or(0, String::len)
    }

    /// Reads the last line of a stream that ended without the end of the line. The event before the end counts, too: some
    /// servers forget the empty line behind their last event.
    pub(super) fn finish(mut self) -> Vec<SseItem> {
        let rest = std::mem::take(&mut self.buffer);
        let line = String::from_utf8_lossy(&rest).into_owned();
        let mut items: Vec<SseItem> = self.line(&line).into_iter().collect();
        items.extend(self.event());
        items
    }

    fn line(&mut self, line: &str) -> Option<SseItem> {
        let line = line.trim_start_matches('\u{feff}');
        if line.is_empty() {
            return self.event();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            // A comment keeps the connection alive.
            "" | "id" | "retry" => None,
            "event" => {
                value.clone_into(&mut self.name);
                None
            }
            "data" => {
                match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    none => *none = Some(value.to_owned()),
                }
                None
            }
            _ => Some(SseItem::Stray(line.to_owned())),
        }
    }

    fn event(&mut self) -> Option<SseItem> {
        let name = std::mem::take(&mut self.name);
        let data = self.data.take()?;
        Some(SseItem::Event { name, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str) -> SseItem {
        SseItem::Event { name: name.into(), data: data.into() }
    }

    #[test]
    fn events_are_the_same_in_any_pieces() {
        let text = ": ping\n\nevent: a\ndata: {\"x\":\ndata:1}\n\nid: 7\r\nretry: 5\r\ndata: zwei \u{e4}\r\n\r\ndata\r\rdata: last";
        let expected =
            [event("a", "{\"x\":\n1}"), event("", "zwei \u{e4}"), event("", ""), event("", "last")];
        for size in 1..text.len() {
            let mut reader = SseReader::default();
            let mut items: Vec<SseItem> =
                text.as_bytes().chunks(size).flat_map(|it| reader.add(it)).collect();
            items.extend(reader.finish());
            assert_eq!(items, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_line_that_is_no_field_and_a_broken_character_are_returned() {
        let mut reader = SseReader::default();
        let items = reader.add(b"{\"error\": \"busy\"}\ndata: te\xffal\n\n");
        let stray = SseItem::Stray("{\"error\": \"busy\"}".into());
        assert_eq!(items, [stray, event("", "te\u{fffd}al")]);
        assert_eq!(reader.add(b"data: 12345\nda"), []);
        assert_eq!(reader.waiting_bytes(), 7);
    }
}
