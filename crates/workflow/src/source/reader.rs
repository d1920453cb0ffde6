//! Reads YAML into a tree in which every key and value has its span.
//!
//! Scalars stay text: the meaning of a plain `off` or `5_000` depends on the key, so the reader
//! changes nothing. Aliases are followed; tags are refused.

mod advice;
mod brackets;
mod cut;
mod mistake;

use std::{
    collections::BTreeMap,
    ops::{Add, Range},
};

use graphrun_core::diagnostic::Diagnostic;
use graphrun_guard::data_limit::DataLimit;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput};

use self::{
    advice::{advice, hidden_blank},
    brackets::ParsedText,
    cut::{Cut, NextEntry},
    mistake::Mistake,
};
use super::report::Report;

/// What YAML does with an expression without quotes in braces.
const ENDS_AT_COMMA: &str = "YAML ends this value at its comma";

/// The deepest nesting of lists and mappings.
const DEPTH_MAX: usize = 32;

/// A value and its bytes in the file.
#[derive(Clone, Debug)]
pub struct Yaml {
    /// The bytes.
    pub range: Range<usize>,
    /// The value.
    pub data: Data,
}

/// A value of YAML. The meaning of a scalar depends on its key, so it stays text.
#[derive(Clone, Debug)]
pub enum Data {
    /// No value.
    Null,
    /// A text, a number, a bool.
    Scalar {
        /// The text without quotes.
        text: String,
        /// Whether it is neither quoted nor a block.
        plain: bool,
    },
    /// A list.
    List(Vec<Yaml>),
    /// A mapping, in the order of the file.
    Map(Vec<Entry>),
}

/// An entry of a mapping.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: SpannedText,
    /// The value.
    pub value: Yaml,
}

/// A text and its bytes in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpannedText {
    /// The text.
    pub text: String,
    /// The bytes.
    pub range: Range<usize>,
}

/// Reads the file of the report; `None` if it cannot be parsed, which is reported.
pub(crate) fn read(report: &mut Report) -> Option<Yaml> {
    let file = std::sync::Arc::clone(&report.file);
    if let Err(reached) = DataLimit::FileBytes.check(file.text.len() as u64) {
        report.push_limit("the file", &reached, &(0..0));
        return None;
    }
    let ParsedText { text, offsets } = ParsedText::of(&file.text);
    let events = Parser::new_from_str(&text);
    let size = Size::default();
    let mut reader = Reader { events, offsets, anchors: BTreeMap::new(), size, report };
    reader.document().ok()
}

impl Yaml {
    /// Returns the text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.data {
            Data::Scalar { text, .. } => Some(text),
            Data::Null | Data::List(_) | Data::Map(_) => None,
        }
    }

    /// Returns the text of a scalar with its place.
    pub fn word(&self) -> Option<SpannedText> {
        self.text().map(|text| SpannedText { text: text.to_owned(), range: self.range.clone() })
    }

    /// Returns the value of a key, if this is a mapping with that key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|it| it.key.text == key).map(|it| &it.value)
    }

    /// Returns the entries of a mapping; none for other values.
    pub fn entries(&self) -> &[Entry] {
        match &self.data {
            Data::Map(entries) => entries,
            Data::Null | Data::Scalar { .. } | Data::List(_) => &[],
        }
    }

    /// Returns the items of a list; none for other values.
    pub fn items(&self) -> &[Self] {
        match &self.data {
            Data::List(items) => items,
            Data::Null | Data::Scalar { .. } | Data::Map(_) => &[],
        }
    }

    /// Returns a text, the texts of a list, or the keys of a mapping.
    pub(crate) fn words(&self) -> Vec<&str> {
        match &self.data {
            Data::Map(entries) => entries.iter().map(|it| it.key.text.as_str()).collect(),
            Data::List(items) => items.iter().filter_map(Self::text).collect(),
            Data::Scalar { .. } | Data::Null => self.text().into_iter().collect(),
        }
    }

    /// Returns the pairs of texts of a mapping; otherwise each text with itself.
    pub fn text_pairs(&self) -> Vec<(&str, &str)> {
        match &self.data {
            Data::Map(entries) => {
                let texts = entries.iter().map(|it| (it.key.text.as_str(), it.value.text()));
                texts.filter_map(|(key, value)| Some((key, value?))).collect()
            }
            _ => self.words().into_iter().map(|it| (it, it)).collect(),
        }
    }

    /// Returns the bytes of the file for some bytes of this scalar's text.
    ///
    /// A text with escapes or folded lines differs from its form in the file; then the result is
    /// the whole scalar.
    pub(crate) fn within(&self, file: &str, inner: &Range<usize>) -> Range<usize> {
        let Some(text) = self.text() else { return self.range.clone() };
        for quotes in [0, 1] {
            let start = self.range.start + quotes;
            if file.get(start..start + text.len()) == Some(text) {
                return start + inner.start..start + inner.end.max(inner.start);
            }
        }
        self.within_block(file, text, inner).unwrap_or_else(|| self.range.clone())
    }

    /// Like [`Self::within`], for a `|` block, whose lines are indented in the file.
    fn within_block(&self, file: &str, text: &str, inner: &Range<usize>) -> Option<Range<usize>> {
        let start = self.range.start;
        let indent = start - file.get(..start)?.rfind('\n').map_or(0, |at| at + 1);
        let mut in_text = 0;
        let mut in_file = start;
        let mut found = None;
        for (at, line) in text.split_inclusive('\n').enumerate() {
            let written = file.get(in_file..)?;
            let spaces = written.bytes().take_while(|it| *it == b' ').count();
            in_file += if at == 0 { 0 } else { spaces.min(indent) };
            if !file.get(in_file..)?.starts_with(line.trim_end_matches('\n')) {
                return None;
            }
            let next = in_text + line.len();
            if found.is_none() && inner.start < next {
                found = Some(in_file + inner.start - in_text);
            }
            if let (Some(found), true) = (found, inner.end <= next) {
                return Some(found..(in_file + inner.end - in_text).max(found));
            }
            (in_text, in_file) = (next, in_file + line.len());
        }
        None
    }

    /// How many levels of lists and mappings are below this value.
    fn depth(&self) -> usize {
        let entries = self.entries().iter().map(|it| &it.value);
        self.items().iter().chain(entries).map(|it| 1 + it.depth()).max().unwrap_or(0)
    }

    fn size(&self) -> Size {
        let own = Size { nodes: 1, bytes: self.text().map_or(0, str::len) as u64 };
        let items = self.items().iter().map(Self::size);
        let entry =
            |it: &Entry| it.value.size() + Size { nodes: 1, bytes: it.key.text.len() as u64 };
        items.chain(self.entries().iter().map(entry)).fold(own, Size::add)
    }
}

/// The size of a file after its aliases are expanded.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    nodes: u64,
    /// The bytes of its texts.
    bytes: u64,
}

impl Add for Size {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { nodes: self.nodes + other.nodes, bytes: self.bytes + other.bytes }
    }
}

/// The file cannot be parsed further; the report has the reason.
struct Hopeless;

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    /// The byte offset of each character, because the parser counts characters.
    offsets: Vec<usize>,
    anchors: BTreeMap<usize, Yaml>,
    size: Size,
    report: &'a mut Report,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Yaml, Hopeless> {
        let root = loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => (),
                (Event::StreamEnd, range) => return self.hopeless(&range, "the file is empty"),
                (event, range) => break self.value(event, range, 0)?,
            }
        };
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(root),
                (Event::DocumentStart(_), range) => {
                    return self.hopeless(&range, "a file contains one workflow, not several");
                }
                _ => (),
            }
        }
    }

    fn value(
        &mut self,
        event: Event<'a>,
        range: Range<usize>,
        depth: usize,
    ) -> Result<Yaml, Hopeless> {
        self.grow(Size { nodes: 1, bytes: 0 }, &range)?;
        self.check_depth(depth, &range)?;
        let (anchor, value) = match event {
            Event::Scalar(mut text, style, anchor, tag) => {
                if let Some(tag) = tag.map(|it| it.to_string()) {
                    self.refuse_tag(&range, &tag);
                    if text.is_empty() && tag.starts_with('!') && !tag.starts_with("!!") {
                        // Without a value behind it, the tag itself was meant as the value.
                        text = tag.into();
                    }
                }
                (anchor, self.scalar(&text, style, range))
            }
            Event::SequenceStart(anchor, tag) => {
                if let Some(tag) = tag {
                    self.refuse_tag(&range, &tag.to_string());
                }
                (anchor, self.list(range.start, depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                if let Some(tag) = tag {
                    self.refuse_tag(&range, &tag.to_string());
                }
                (anchor, self.map(range.start, depth)?)
            }
            Event::Alias(anchor) => return self.alias(anchor, &range, depth),
            _ => return self.hopeless(&range, "a value is missing"),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, range: Range<usize>) -> Yaml {
        self.report.refuse_secret(text, &range);
        let plain = style == ScalarStyle::Plain;
        if plain && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
            return Yaml { range, data: Data::Null };
        }
        Yaml { range, data: Data::Scalar { text: text.to_owned(), plain } }
    }

    fn list(&mut self, start: usize, depth: usize) -> Result<Yaml, Hopeless> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, range) => {
                    let end = range.end.max(start);
                    return Ok(Yaml { range: start..end, data: Data::List(items) });
                }
                (event, range) => items.push(self.value(event, range, depth + 1)?),
            }
        }
    }

    fn map(&mut self, start: usize, depth: usize) -> Result<Yaml, Hopeless> {
        let mut entries = Vec::new();
        let mut keys: BTreeMap<String, Range<usize>> = BTreeMap::new();
        let file = std::sync::Arc::clone(&self.report.file);
        let in_braces = file.text.get(start..).is_some_and(|it| it.starts_with('{'));
        let mut cut = Cut::default();
        loop {
            let (event, range) = self.next()?;
            if event == Event::MappingEnd {
                for entry in cut.rest() {
                    self.add(entry, &mut entries, &mut keys);
                }
                let end = range.end.max(start);
                return Ok(Yaml { range: start..end, data: Data::Map(entries) });
            }
            let is_text = matches!(event, Event::Scalar(..));
            let key = self.value(event, range, depth + 1)?;
            let (event, range) = self.next()?;
            let mut value = self.value(event, range, depth + 1)?;
            let written = self.report.file.text.get(key.range.clone()).unwrap_or_default();
            let text = key.text().unwrap_or(written).to_owned();
            if !is_text {
                self.refuse_key(&key.range);
                continue;
            }
            if value.range.is_empty() {
                // An absent value takes the place of its key.
                value.range = key.range.clone();
            }
            let entry = Entry { key: SpannedText { text, range: key.range }, value };
            if !in_braces {
                self.add(entry, &mut entries, &mut keys);
                continue;
            }
            match cut.next(entry, &file.text) {
                NextEntry::Entries(found) => {
                    for entry in found {
                        self.add(entry, &mut entries, &mut keys);
                    }
                }
                NextEntry::Nothing => (),
                NextEntry::End(range) => self.mend(&range, &mut entries),
            }
        }
    }

    /// Adds an entry to a mapping without that key.
    fn add(
        &mut self,
        entry: Entry,
        entries: &mut Vec<Entry>,
        keys: &mut BTreeMap<String, Range<usize>>,
    ) {
        let SpannedText { text, range } = &entry.key;
        if let Some(first) = keys.get(text) {
            self.refuse_twice(text, range, &first.clone());
        } else {
            keys.insert(text.clone(), range.clone());
            entries.push(entry);
        }
    }

    /// Joins a value that YAML has split at a comma, and reports it.
    fn mend(&mut self, range: &Range<usize>, entries: &mut [Entry]) {
        let text = self.report.file.text[range.clone()].trim_end().to_owned();
        let cut = entries.iter_mut().find(|it| it.value.range.start == range.start);
        let Some(Entry { key, value }) = cut else { return };
        let end = value.range.end;
        let help = if text.contains(['"', '\\', '\n']) {
            "quote it: put the whole value in quotes".to_owned()
        } else {
            format!("quote it: `{}: \"{text}\"`", key.text)
        };
        *value = Yaml { range: range.clone(), data: Data::Scalar { text, plain: true } };
        let diagnostic = Diagnostic::error("GR001", ENDS_AT_COMMA);
        let diagnostic = diagnostic.at(self.report.span(&(end..end + 1)), "the value ends here");
        self.report.push(diagnostic.help(help));
    }

    fn alias(
        &mut self,
        anchor: usize,
        range: &Range<usize>,
        depth: usize,
    ) -> Result<Yaml, Hopeless> {
        let Some((size, inner)) = self.anchors.get(&anchor).map(|it| (it.size(), it.depth()))
        else {
            return self.hopeless(range, "an alias is inside the value it names");
        };
        self.check_depth(depth + inner, range)?;
        self.grow(size, range)?;
        Ok(self.anchors[&anchor].clone())
    }

    fn check_depth(&mut self, depth: usize, range: &Range<usize>) -> Result<(), Hopeless> {
        if depth > DEPTH_MAX {
            return self.hopeless(range, &format!("nested deeper than {DEPTH_MAX} levels"));
        }
        Ok(())
    }

    /// Counts the size of the next value. Texts outside of aliases are no larger than the file.
    fn grow(&mut self, by: Size, range: &Range<usize>) -> Result<(), Hopeless> {
        self.size = self.size + by;
        let nodes = DataLimit::YamlNodes.check(self.size.nodes);
        nodes.and(DataLimit::FileBytes.check(self.size.bytes)).map_err(|reached| {
            self.report.push_limit("the file with its aliases expanded", &reached, range);
            Hopeless
        })
    }

    fn refuse_tag(&mut self, range: &Range<usize>, tag: &str) {
        self.report.push(
            Diagnostic::error(
                "GR001",
                format!("YAML reads `{tag}` as a tag, which has no meaning here"),
            )
            .at(self.report.span(range), "starts with `!`")
            .help("quote the whole value"),
        );
    }

    fn refuse_key(&mut self, range: &Range<usize>) {
        self.report.push(
            Diagnostic::error("GR005", "a key is a text")
                .at(self.report.span(range), "no text")
                .help("a value that starts with `{` or `[` must be quoted"),
        );
    }

    fn refuse_twice(&mut self, key: &str, second: &Range<usize>, first: &Range<usize>) {
        self.report.repeated.insert(first.start);
        self.report.push(
            Diagnostic::error("GR002", format!("the key `{key}` is given twice"))
                .at(self.report.span(second), "again")
                .at(self.report.span(first), "first"),
        );
    }

    fn next(&mut self) -> Result<(Event<'a>, Range<usize>), Hopeless> {
        match self.events.next_event() {
            Some(Ok((event, Span { start, end }))) => {
                let start = self.offset(start);
                Ok((event, start..self.offset(end).max(start)))
            }
            Some(Err(error)) => {
                let at = self.offset(*error.marker());
                if let Some(hidden) = hidden_blank(&self.report.file.text, at) {
                    let message = "an invisible character follows this colon in place of a blank";
                    let span = self.report.span(&hidden);
                    let diagnostic = Diagnostic::error("GR001", message).at(span, "no blank");
                    self.report.push(diagnostic.help("replace it with a blank"));
                    return Err(Hopeless);
                }
                if let Some(mistake) = Mistake::of(error.info(), &self.report.file.text, at) {
                    let Mistake { message, range, label, help } = mistake;
                    let span = self.report.span(&range);
                    self.report
                        .push(Diagnostic::error("GR001", message).at(span, label).help(help));
                    return Err(Hopeless);
                }
                let diagnostic = Diagnostic::error("GR001", error.info())
                    .at(self.report.span(&(at..at)), "the YAML is invalid from here");
                let help = advice(error.info(), &self.report.file.text, at);
                self.report.push(Diagnostic { help, ..diagnostic });
                Err(Hopeless)
            }
            None => Ok((Event::StreamEnd, 0..0)),
        }
    }

    fn offset(&self, marker: Marker) -> usize {
        self.offsets.get(marker.index()).or(self.offsets.last()).copied().unwrap_or_default()
    }

    fn hopeless<T>(&mut self, range: &Range<usize>, message: &str) -> Result<T, Hopeless> {
        self.report.push(Diagnostic::error("GR001", message).at(self.report.span(range), "here"));
        Err(Hopeless)
    }
}
