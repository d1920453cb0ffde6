//! Typed state: a value per channel, the schema of the channels, and the reducers that fold the updates of a
//! step into the next state.
//!
//! Start with [`Schema`]: only it makes a new [`State`].

mod channel;
mod compact;
mod contained;
mod derive;
mod describe;
mod fields;
mod finite;
mod folding;
mod format;
mod json;
mod lazy_validator;
mod lenient;
mod measure;
mod messages;
mod misfits;
mod part;
mod range;
mod reducer;
mod sample;
mod schema;
mod schema_size;
mod types;
mod update;
mod value;

pub use self::{
    channel::{Channel, ReadAnswer},
    compact::Compact,
    contained::{contained, panic_text},
    finite::with_whole_numbers,
    format::{duration_of, is_date, is_duration, moment_of, schema_problem, validator_for},
    json::{plain_text, read_json, read_json_bytes, read_json_fields},
    lenient::{
        Choice, LENIENT, LenientFields, LenientValue, ReadError, ReadLeniently, Reader, read_as,
        read_by_schema,
    },
    measure::{FIELD_MEMORY, PART_MEMORY, RECORD_MEMORY, measure, text_memory},
    messages::RemovedMessages,
    range::{NumberRange, ShownNumber},
    reducer::{Fold, ReduceError, Reducer, UpdateForm, reserve},
    sample::{complete, smallest},
    schema::{Schema, SchemaError, StateError},
    schema_size::{always_matches, pattern_size, schema_size},
    types::{Absence, Field, OutOfRange, Record, Type},
    update::{Change, ChangeKind, NotFields, Update},
    value::{State, ViewError},
};
pub(crate) use self::{finite::to_json, measure::measure_entry};
