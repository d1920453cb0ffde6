//! The design that the code follows, as an architect writes it.

use graphrun_core::state::{ReadLeniently, Reader};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The design of a project. A new one replaces the old one as a whole; it is never a patch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TechnicalSpec {
    /// The name of the project, valid as a package name.
    pub project_name: String,
    /// The technologies, and the reasons for them.
    pub tech_stack: Vec<Technology>,
    /// The data that it stores.
    pub data_models: Vec<DataModel>,
    /// Its interface for others: HTTP routes, or the functions and commands of a library.
    pub api_contracts: Vec<ApiContract>,
    /// The architecture decisions.
    pub adrs: Vec<DecisionRecord>,
}

/// One part of the tech stack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Technology {
    /// The purpose: "storage".
    pub name: String,
    /// The technology: `SQLite`.
    pub technology: String,
    /// The reason for this choice.
    pub justification: String,
}

/// A kind of data that the project stores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DataModel {
    /// The name of the type.
    pub entity_name: String,
    /// The meaning.
    pub description: String,
    /// The fields.
    pub fields: Vec<DataField>,
}

/// A field of a data model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DataField {
    /// The name in code.
    pub field_name: String,
    /// The type in code.
    pub field_type: String,
    /// Whether it may be missing.
    pub nullable: bool,
}

/// A part of the interface that the project offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiContract {
    /// The kind of call: an HTTP method, or CALL for a function and RUN for a command.
    pub method: String,
    /// The route, the signature or the command line.
    pub path: String,
    /// Its purpose, its result, and its errors.
    pub summary: String,
    /// Whether the caller must be authenticated.
    pub requires_auth: bool,
}

/// An architecture decision record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[doc(alias = "Adr")]
pub struct DecisionRecord {
    /// The decision, in a few words.
    pub title: String,
    /// The reason why a decision was necessary.
    pub context: String,
    /// The decision.
    pub decision: String,
    /// The consequences, good and bad.
    pub consequences: String,
}

impl ReadLeniently for TechnicalSpec {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        reader.object(answer, |spec| Self {
            project_name: spec.required_text("project_name"),
            tech_stack: spec.value("tech_stack"),
            data_models: spec.value("data_models"),
            api_contracts: spec.value("api_contracts"),
            adrs: spec.value("adrs"),
        })
    }
}

impl ReadLeniently for Technology {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        reader.object(answer, |part| Self {
            name: part.required_text("name"),
            technology: part.required_text("technology"),
            justification: part.text("justification"),
        })
    }
}

impl ReadLeniently for DataModel {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        reader.object(answer, |model| Self {
            entity_name: model.required_text("entity_name"),
            description: model.text("description"),
            fields: model.value("fields"),
        })
    }
}

impl ReadLeniently for DataField {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        reader.object(answer, |field| Self {
            field_name: field.required_text("field_name"),
            field_type: field.required_text("field_type"),
            nullable: field.flag("nullable").unwrap_or_default(),
        })
    }
}

impl ReadLeniently for ApiContract {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        reader.object(answer, |contract| Self {
            method: contract.required_text("method"),
            path: contract.required_text("path"),
            summary: contract.text("summary"),
            requires_auth: contract.flag("requires_auth").unwrap_or_default(),
        })
    }
}

/// A plain sentence becomes a record with that title.
impl ReadLeniently for DecisionRecord {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        let answer = match answer {
            Value::String(sentence) => {
                reader.warn("a text was read as a decision without its reasons");
                json!({ "title": sentence, "decision": sentence })
            }
            other => other,
        };
        reader.object(answer, |record| Self {
            title: record.required_text("title"),
            context: record.text("context"),
            decision: record.text("decision"),
            consequences: record.text("consequences"),
        })
    }
}
