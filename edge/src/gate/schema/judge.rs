//! A schema, compiled, and what it says of an answer.

use std::fmt;

use jsonschema::{
    PatternOptions, Retrieve, Uri, Validator,
    error::{TypeKind, ValidationError, ValidationErrorKind},
};
use serde_json::Value;

use super::{
    Fault, Kind, bounds,
    json::{Broken, Json},
};

/// Most bytes of one compiled pattern, and of the table that matching it builds.
const PATTERN_PROGRAM_BYTES_MAX: usize = 64 * 1024;
const PATTERN_TABLE_BYTES_MAX: usize = 256 * 1024;
/// Longest place and expectation that are told, in bytes.
const TOLD_BYTES_MAX: usize = 256;

/// What is wrong with an answer: how, where, and what was expected there.
pub(super) struct Wrong {
    pub(super) kind: Kind,
    pub(super) at: String,
    pub(super) expected: String,
}

/// Nothing is fetched, from nowhere.
struct Nowhere;

impl Retrieve for Nowhere {
    fn retrieve(&self, _: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("nothing is fetched".into())
    }
}

/// A schema that answers are judged by.
pub(super) struct Judge {
    schema: Value,
    validator: Validator,
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").finish_non_exhaustive()
    }
}

impl Judge {
    /// Compiles a schema. Of `format` nothing is asserted, as the drafts since 2019 have it.
    pub(super) fn new(text: &str) -> Result<Self, Fault> {
        if text.len() > bounds::SCHEMA_BYTES_MAX {
            return Err(Fault::TooLarge);
        }
        let mut json = Json::new(false);
        if json.push(text) == Err(Broken::TooDeep) {
            return Err(Fault::TooDeep);
        }
        let schema: Value = serde_json::from_str(text).map_err(|_| Fault::Invalid)?;
        bounds::check(&schema)?;
        let patterns = PatternOptions::regex()
            .size_limit(PATTERN_PROGRAM_BYTES_MAX)
            .dfa_size_limit(PATTERN_TABLE_BYTES_MAX);
        let options = jsonschema::options()
            .should_validate_formats(false)
            .with_pattern_options(patterns)
            .with_retriever(Nowhere);
        let validator = options.build(&schema).map_err(|error| fault(&error))?;
        Ok(Self { schema, validator })
    }

    /// Judges a text that is known to be one JSON value.
    pub(super) fn judge(&self, text: &str) -> Result<(), Wrong> {
        let answer: Value = serde_json::from_str(text).map_err(|_| Wrong {
            kind: Kind::Syntax,
            at: String::new(),
            expected: "expected numbers and escapes that can be represented".to_owned(),
        })?;
        if bounds::steps(&self.schema, &answer).is_none() {
            let expected = "expected an answer that can be judged by its schema with bounded work".to_owned();
            return Err(Wrong { kind: Kind::Bound, at: String::new(), expected });
        }
        self.validator.validate(&answer).map_err(|error| Wrong {
            kind: Kind::Schema,
            at: shortened(error.instance_path().as_str().to_owned()),
            expected: shortened(expectation(&error)),
        })
    }
}

fn fault(error: &ValidationError<'_>) -> Fault {
    match error.kind() {
        ValidationErrorKind::Referencing(_) => Fault::Reference,
        ValidationErrorKind::Format { .. }
        | ValidationErrorKind::Pattern { .. }
        | ValidationErrorKind::RegexEngineFailure { .. } => Fault::Pattern,
        ValidationErrorKind::PropertyNames { error } => fault(error),
        _ => Fault::Invalid,
    }
}

/// What the schema asks for there, in the schema's own words: nothing of the answer.
fn expectation(error: &ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::Required { property } => format!("expected a member {property}"),
        ValidationErrorKind::Type { kind: TypeKind::Single(kind) } => {
            format!("expected a value of type {kind}")
        }
        ValidationErrorKind::Type { kind: TypeKind::Multiple(kinds) } => {
            let kinds: Vec<_> = kinds.iter().map(|kind| kind.to_string()).collect();
            format!("expected a value of type {}", kinds.join(" or "))
        }
        ValidationErrorKind::AdditionalProperties { .. }
        | ValidationErrorKind::UnevaluatedProperties { .. } => {
            "expected no other members than the schema has".to_owned()
        }
        ValidationErrorKind::Enum { options } => format!("expected one of {options}"),
        ValidationErrorKind::Constant { expected_value } => format!("expected {expected_value}"),
        ValidationErrorKind::Pattern { pattern } => format!("expected text that matches {pattern}"),
        ValidationErrorKind::Minimum { limit } => format!("expected at least {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("expected at most {limit}"),
        ValidationErrorKind::ExclusiveMinimum { limit } => format!("expected more than {limit}"),
        ValidationErrorKind::ExclusiveMaximum { limit } => format!("expected less than {limit}"),
        ValidationErrorKind::MinLength { limit } => format!("expected at least {limit} characters"),
        ValidationErrorKind::MaxLength { limit } => format!("expected at most {limit} characters"),
        ValidationErrorKind::MinItems { limit } => format!("expected at least {limit} elements"),
        ValidationErrorKind::MaxItems { limit } => format!("expected at most {limit} elements"),
        ValidationErrorKind::UniqueItems => "expected no element twice".to_owned(),
        ValidationErrorKind::AnyOf { .. } => "expected one of the forms of `anyOf`".to_owned(),
        ValidationErrorKind::OneOfNotValid { .. } => "expected one of the forms of `oneOf`".to_owned(),
        ValidationErrorKind::OneOfMultipleValid { .. } => {
            "expected only one of the forms of `oneOf`".to_owned()
        }
        ValidationErrorKind::FalseSchema => "expected nothing there".to_owned(),
        other => format!("expected what `{}` of the schema asks for", other.keyword()),
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > TOLD_BYTES_MAX {
        let end = (0..=TOLD_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}
