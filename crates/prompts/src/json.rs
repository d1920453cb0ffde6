//! The `tojson` filter: as minijinja's, less the escapes that only HTML needs. A model should see
//! `a < b`, not `a \u003c b`.

use std::io;

use minijinja::{Error, ErrorKind, Value, value::Kwargs};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

#[expect(clippy::needless_pass_by_value, reason = "the signature of a filter")]
pub(super) fn tojson(
    value: &Value,
    indent: Option<i128>,
    options: Kwargs,
) -> Result<String, Error> {
    let indent = match indent {
        None => options.get("indent")?,
        given => given,
    };
    options.assert_all_used()?;
    let mut json = Vec::new();
    let written = match indent {
        Some(width) => {
            // No number may fail: it may be computed.
            let indent = " ".repeat(usize::try_from(width.clamp(0, 16)).unwrap_or(0));
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut json, formatter))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut json, SpacedFormatter)),
    };
    let text = written.map_err(io::Error::from).and_then(|()| {
        String::from_utf8(json).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    });
    text.map_err(|error| {
        Error::new(ErrorKind::InvalidOperation, "this is not JSON").with_source(error)
    })
}

/// One line, with a blank after `:` and `,`.
struct SpacedFormatter;

impl Formatter for SpacedFormatter {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}
