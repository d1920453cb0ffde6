//! Values in brackets and quotes, which may span several lines.

use std::ops::Range;

use super::{Slot, Step, scanner::Scanner};

/// The deepest nesting of brackets that is followed.
const DEPTH_MAX: usize = 64;

impl Scanner<'_> {
    /// Scans a list or mapping in brackets, from the opening one at `at`. Returns whether it is
    /// closed.
    pub(super) fn brackets(&mut self, limit: usize, depth: usize) -> bool {
        let is_map = self.text[self.at..].starts_with('{');
        let start = self.at;
        self.at += 1;
        let mut item = 0;
        loop {
            self.slot = Slot { takes_key: is_map, takes_value: !is_map, ..self.open_slot(false) };
            if !is_map {
                self.slot.path.push(Step::Item(item));
            }
            self.skip_blank(limit);
            self.slot.start = self.at;
            let Some(next) = self.text[self.at..limit].chars().next() else { return false };
            match next {
                ']' | '}' => {
                    self.pairs.push((start, self.at));
                    self.at += 1;
                    self.slot = Slot::default();
                    return true;
                }
                ',' => {
                    self.at += 1;
                    item += 1;
                    continue;
                }
                ':' => {
                    self.at += 1;
                    continue;
                }
                '[' | '{' if is_map && depth < DEPTH_MAX => {
                    // A collection cannot be a key of the format; its content has no place in the
                    // outline.
                    let before = self.parts.len();
                    self.brackets(limit, depth + 1);
                    self.parts.truncate(before);
                }
                _ if is_map => self.entry(limit, depth),
                _ => {
                    self.flow.push(Step::Item(item));
                    self.add(None, None);
                    self.flow_value(limit, depth);
                    self.flow.pop();
                }
            }
            // The cursor is in the value before it.
            self.skip_blank(limit);
            if self.at >= limit {
                return false;
            }
        }
    }

    /// Scans a key in braces, with its value if there is one.
    fn entry(&mut self, limit: usize, depth: usize) {
        let key = match self.text[self.at..].chars().next() {
            Some('"' | '\'') => self.quoted(limit),
            _ => self.flow_plain(limit),
        };
        if key.end >= limit && limit == self.text.len() {
            // A key that is being typed.
            return;
        }
        let name = self.text[key.clone()].to_owned();
        self.flow.push(Step::Key(name));
        self.add(Some(key), None);
        self.skip_blank(limit);
        if self.text[self.at..limit].starts_with(':') {
            self.at += 1;
            self.skip_blank(limit);
            self.slot = self.open_slot(false);
            self.flow_value(limit, depth);
        }
        self.flow.pop();
    }

    fn flow_value(&mut self, limit: usize, depth: usize) {
        // Anchors and tags stand before the value.
        while self.text[self.at..limit].starts_with(['&', '!']) {
            let rest = &self.text[self.at..limit];
            let ends = |it: char| it.is_whitespace() || ",[]{}".contains(it);
            self.at += rest.find(ends).unwrap_or(rest.len());
            self.skip_blank(limit);
        }
        match self.text[self.at..limit].chars().next() {
            None | Some(',' | ']' | '}') => (),
            Some('[' | '{') if depth < DEPTH_MAX => drop(self.brackets(limit, depth + 1)),
            Some('"' | '\'') => {
                let range = self.quoted(limit);
                self.fill(range);
            }
            _ => {
                let range = self.flow_plain(limit);
                self.fill(range);
            }
        }
    }

    /// Scans a text without quotes in brackets; always consumes something.
    fn flow_plain(&mut self, limit: usize) -> Range<usize> {
        let start = self.at;
        let rest = &self.text[start..limit];
        let ends = |(at, char): &(usize, char)| match char {
            ',' | '[' | ']' | '{' | '}' | '\n' => *at > 0,
            ':' => {
                let next = rest[at + 1..].chars().next();
                next.is_none_or(|it| it.is_whitespace() || ",[]{}".contains(it))
            }
            '#' => rest[..*at].ends_with(char::is_whitespace),
            _ => false,
        };
        let end = rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at);
        let first = rest.chars().next().map_or(0, char::len_utf8);
        self.at = start + end.max(first);
        start..start + rest[..end].trim_end().len()
    }

    /// Scans the inside of a text in quotes, from the opening quote at `at`.
    pub(super) fn quoted(&mut self, limit: usize) -> Range<usize> {
        let start = self.at + 1;
        self.slot.start = start;
        let quote = self.text.as_bytes()[self.at];
        let bytes = &self.text.as_bytes()[..limit];
        let mut at = start;
        while at < limit {
            match bytes[at] {
                b'\\' if quote == b'"' => at += 2,
                b'\'' if quote == b'\'' && bytes.get(at + 1) == Some(&b'\'') => at += 2,
                byte if byte == quote => {
                    self.at = at + 1;
                    return start..at;
                }
                _ => at += 1,
            }
        }
        self.at = limit;
        start..limit
    }
}
