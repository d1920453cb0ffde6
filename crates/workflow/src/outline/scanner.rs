//! Scans a text by indentation and brackets.

use std::ops::Range;

use super::{Part, Slot, Step};

/// An open block collection.
enum Frame {
    Map { column: usize, key: String },
    List { column: usize, item: usize },
}

impl Frame {
    fn column(&self) -> usize {
        match self {
            Self::Map { column, .. } | Self::List { column, .. } => *column,
        }
    }

    fn step(&self) -> Step {
        match self {
            Self::Map { key, .. } => Step::Key(key.clone()),
            Self::List { item, .. } => Step::Item(*item),
        }
    }
}

/// The outline found so far and the current position.
pub(super) struct Scanner<'t> {
    pub(super) text: &'t str,
    pub(super) at: usize,
    frames: Vec<Frame>,
    /// The path from the innermost frame into open brackets.
    pub(super) flow: Vec<Step>,
    pub(super) parts: Vec<Part>,
    /// The bracket at the start and the one at the end of each closed collection, in the order of their ends.
    pub(super) pairs: Vec<(usize, usize)>,
    /// Whether the text ends inside brackets, quotes or a block.
    is_open: bool,
    /// The slot at the end of the text.
    pub(super) slot: Slot,
}

impl<'t> Scanner<'t> {
    /// Scans a whole text.
    pub(super) fn run(text: &'t str) -> Self {
        // A byte order mark is no part of the first key.
        let mark = text.chars().next().filter(|it| *it == '\u{feff}');
        let mut scanner = Self {
            text,
            at: mark.map_or(0, char::len_utf8),
            frames: Vec::new(),
            flow: Vec::new(),
            parts: Vec::new(),
            pairs: Vec::new(),
            is_open: false,
            slot: Slot::default(),
        };
        while scanner.at < text.len() {
            scanner.line();
        }
        if text.is_empty() || text.ends_with('\n') && !scanner.is_open {
            scanner.free_slot(0, text.len());
        }
        scanner
    }

    fn line(&mut self) {
        let start = self.at;
        let end = self.line_end(self.at);
        let column = indent(&self.text[start..end]);
        let content = self.text[start + column..end].trim_end();
        if content.is_empty() {
            if end == self.text.len() {
                self.free_slot(column, end);
            }
            self.at = end + 1;
        } else if content.starts_with('#') || column == 0 && ["---", "..."].contains(&content) {
            self.slot = Slot::default();
            self.at = end + 1;
        } else {
            self.at = start + column;
            self.block(start, column);
        }
    }

    /// Scans a line with content, which begins at `at`.
    fn block(&mut self, line_start: usize, mut column: usize) {
        self.leave(column);
        let end = self.line_end(self.at);
        let mut is_item = false;
        while self.is_dash(end) {
            match self.frames.last_mut() {
                Some(Frame::List { column: at, item }) if *at == column => *item += 1,
                _ => self.frames.push(Frame::List { column, item: 0 }),
            }
            self.at += 1;
            self.skip_spaces(end);
            is_item = true;
            self.slot = self.open_slot(true);
            column = self.at - line_start;
        }
        if self.at >= end || self.text[self.at..].starts_with('#') {
            self.at = end + 1;
            return;
        }
        if !is_item {
            self.leave_lists(column);
        }
        if let Some((key, behind)) = self.key(end) {
            let name = self.text[key.clone()].to_owned();
            match self.frames.last_mut() {
                Some(Frame::Map { column: at, key }) if *at == column => *key = name,
                _ => self.frames.push(Frame::Map { column, key: name }),
            }
            self.add(Some(key), None);
            self.at = behind;
            self.skip_spaces(end);
            self.slot = self.open_slot(false);
            self.value(column);
        } else if is_item {
            self.add(None, None);
            let parent = self.frames.last().map_or(0, Frame::column);
            self.value(parent);
        } else {
            let at = self.at;
            self.free_slot(column, at);
            let parent = self.frames.last().map(Frame::column);
            match parent.filter(|it| *it < column) {
                Some(parent) => self.value(parent),
                // The beginning of a key.
                None => self.at = end + 1,
            }
        }
    }

    /// Scans the value at `at`, of a key or an item in a column.
    fn value(&mut self, parent: usize) {
        let end = self.line_end(self.at);
        // Anchors and tags stand before the value.
        while self.text[self.at..end].starts_with(['&', '!']) {
            self.at += self.text[self.at..end].find(' ').unwrap_or(end - self.at);
            self.skip_spaces(end);
        }
        let rest = &self.text[self.at..end];
        match rest.chars().next() {
            None => self.at = end + 1,
            Some('#') => {
                self.slot = Slot::default();
                self.at = end + 1;
            }
            Some('|' | '>') => self.block_scalar(end, parent),
            Some('[' | '{') => {
                let limit = self.limit(parent);
                let is_closed = self.brackets(limit, 0);
                self.end_value(limit, is_closed);
            }
            Some('"' | '\'') => {
                let limit = self.limit(parent);
                let range = self.quoted(limit);
                let is_closed = range.end < self.at;
                self.fill(range);
                self.end_value(limit, is_closed);
            }
            Some(_) => self.plain(parent),
        }
    }

    /// Continues behind brackets or quotes.
    fn end_value(&mut self, limit: usize, is_closed: bool) {
        self.is_open = !is_closed && limit == self.text.len();
        self.at = if is_closed { self.line_end(self.at) + 1 } else { limit };
    }

    fn plain(&mut self, parent: usize) {
        let end = self.line_end(self.at);
        let start = self.at;
        let text = uncommented(&self.text[start..end]);
        let mut range = start..start + text.len();
        if text.len() < self.text[start..end].trim_end().len() {
            self.slot = Slot::default();
        }
        self.at = end + 1;
        // The scalar continues in deeper lines that start nothing else.
        while self.at < self.text.len() {
            let line = self.at;
            let end = self.line_end(self.at);
            let column = indent(&self.text[line..end]);
            let content = uncommented(&self.text[line + column..end]);
            self.at = line + column;
            let other = content.is_empty() || self.is_dash(end) || self.key(end).is_some();
            if column <= parent || other {
                self.at = line;
                break;
            }
            range.end = line + column + content.len();
            self.at = end + 1;
        }
        self.fill(range);
    }

    fn block_scalar(&mut self, header_end: usize, parent: usize) {
        let mut range: Option<Range<usize>> = None;
        self.at = header_end + 1;
        self.slot.start = self.at.min(self.text.len());
        while self.at < self.text.len() {
            let line = self.at;
            let end = self.line_end(self.at);
            let column = indent(&self.text[line..end]);
            let content = self.text[line + column..end].trim_end();
            let cursor_is_outside =
                content.is_empty() && end == self.text.len() && column <= parent;
            if cursor_is_outside || !content.is_empty() && column <= parent {
                break;
            }
            if !content.is_empty() {
                let text_end = line + column + content.len();
                let start = range.as_ref().map_or(line + column, |it| it.start);
                self.slot.start = start;
                range = Some(start..text_end);
            }
            self.at = end + 1;
        }
        if let Some(range) = range {
            self.fill(range);
        }
    }

    /// Returns the bytes of a key on this line, and the position behind its colon.
    fn key(&self, end: usize) -> Option<(Range<usize>, usize)> {
        let rest = &self.text[self.at..end];
        let first = rest.chars().next()?;
        let (key, behind) = if first == '"' || first == '\'' {
            let close = rest[1..].find(first)? + 1;
            let behind = close + 1 + indent(&rest[close + 1..]);
            (1..close, behind)
        } else if "[]{},&*!|>%@`#?".contains(first) {
            return None;
        } else {
            let is_end = |(at, _): &(usize, &str)| {
                let next = rest[at + 1..].chars().next();
                next.is_none_or(char::is_whitespace)
            };
            let colon = rest.match_indices(':').find(is_end)?.0;
            if uncommented(rest).len() < colon {
                return None;
            }
            (0..rest[..colon].trim_end().len(), colon)
        };
        let next = rest.get(behind..)?.strip_prefix(':')?.chars().next();
        let range = self.at + key.start..self.at + key.end;
        next.is_none_or(char::is_whitespace).then_some((range, self.at + behind + 1))
    }

    fn is_dash(&self, end: usize) -> bool {
        let rest = self.text[self.at..end].strip_prefix('-');
        rest.is_some_and(|it| it.chars().next().is_none_or(char::is_whitespace))
    }

    /// Sets the slot for a column that is still empty.
    fn free_slot(&mut self, column: usize, start: usize) {
        self.leave(column);
        self.leave_lists(column);
        if self.frames.last().is_some_and(|it| it.column() < column) {
            self.slot = self.open_slot(true);
        } else {
            let outer = &self.frames[..self.frames.len().saturating_sub(1)];
            let path = outer.iter().map(Frame::step).collect();
            self.slot = Slot { path, takes_key: true, takes_value: false, start };
        }
        self.slot.start = start;
    }

    /// Returns the slot of a value that begins here.
    pub(super) fn open_slot(&self, takes_key: bool) -> Slot {
        Slot { path: self.path(), takes_key, takes_value: true, start: self.at }
    }

    fn path(&self) -> Vec<Step> {
        self.frames.iter().map(Frame::step).chain(self.flow.iter().cloned()).collect()
    }

    pub(super) fn add(&mut self, key: Option<Range<usize>>, value: Option<Range<usize>>) {
        self.parts.push(Part { path: self.path(), key, value });
    }

    /// Sets the text of the value that was added last.
    pub(super) fn fill(&mut self, range: Range<usize>) {
        let path = self.path();
        if let Some(part) = self.parts.iter_mut().rev().find(|it| it.path == path) {
            part.value = Some(range);
        }
    }

    /// Closes the collections that are indented deeper than a column.
    fn leave(&mut self, column: usize) {
        while self.frames.last().is_some_and(|it| it.column() > column) {
            self.frames.pop();
        }
    }

    /// Closes the lists whose items are in a column, where their key may be as well.
    fn leave_lists(&mut self, column: usize) {
        let ends = |it: &Frame| matches!(it, Frame::List { column: at, .. } if *at == column);
        while self.frames.last().is_some_and(ends) {
            self.frames.pop();
        }
    }

    /// Returns the end of an unclosed element: a line that is indented no deeper than its parent.
    fn limit(&self, parent: usize) -> usize {
        let mut line = self.line_end(self.at) + 1;
        while line < self.text.len() {
            let end = self.line_end(line);
            let column = indent(&self.text[line..end]);
            let content = self.text[line + column..end].trim_end();
            if !content.is_empty() && column <= parent && !content.starts_with([']', '}', '#']) {
                return line;
            }
            line = end + 1;
        }
        self.text.len()
    }

    fn line_end(&self, at: usize) -> usize {
        let at = at.min(self.text.len());
        self.text[at..].find('\n').map_or(self.text.len(), |it| at + it)
    }

    fn skip_spaces(&mut self, end: usize) {
        self.at += indent(&self.text[self.at..end]);
    }

    /// Skips white space, line ends and comments.
    pub(super) fn skip_blank(&mut self, limit: usize) {
        loop {
            let rest = &self.text[self.at..limit];
            self.at += rest.len() - rest.trim_start().len();
            // The blank before a comment may belong to a value that ends there.
            let is_behind_blank = self.text[..self.at].ends_with(char::is_whitespace);
            if !is_behind_blank || !self.text[self.at..limit].starts_with('#') {
                return;
            }
            self.at = self.line_end(self.at).min(limit);
        }
    }
}

/// Returns the number of leading spaces and tabs.
fn indent(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t']).len()
}

/// Returns a line without its comment and trailing blanks.
fn uncommented(text: &str) -> &str {
    let comment = text.match_indices('#').find(|(at, _)| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(char::is_whitespace)
    });
    text[..comment.map_or(text.len(), |(at, _)| at)].trim_end()
}
