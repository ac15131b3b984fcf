//! JSON of the commands; docs/command.md lists all fields.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use criba::{FilterInfo, TableExpiries};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::expiry::millis;
use crate::failure::Result;

/// The version of the form of all objects. Fields are added without a new one.
pub(crate) const VERSION: u32 = 1;

/// An object, with the version of its form.
#[derive(Serialize)]
pub(crate) struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    object: T,
}

impl<T> Versioned<T> {
    pub(crate) fn new(object: T) -> Self {
        Self { version: VERSION, object }
    }
}

/// Prints one object as JSON, on several lines.
///
/// # Errors
/// [`Failure::Output`](crate::Failure::Output).
pub fn print(object: &impl Serialize, out: &mut dyn Write) -> Result<()> {
    let versioned = Versioned::new(object);
    serde_json::to_writer_pretty(&mut *out, &versioned).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

/// Prints one object, on one line.
pub(crate) fn print_line(object: &impl Serialize, out: &mut dyn Write) -> Result<()> {
    serde_json::to_writer(&mut *out, &Versioned::new(object)).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

/// Adds bytes to an object: as the string `name` if they are UTF-8, or else in base64 as `name_base64`.
pub(crate) fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// Adds when the entries of a table expire, in milliseconds since 1970.
pub(crate) fn insert_expiries(object: &mut Map<String, Value>, expiries: Option<TableExpiries>) {
    for (name, expiry) in [
        ("earliest_expires", expiries.map(|expiries| expiries.earliest)),
        ("quarter_expires", expiries.and_then(|expiries| expiries.quarter)),
        ("all_expires", expiries.and_then(|expiries| expiries.all)),
    ] {
        object.insert(name.into(), expiry.map(millis).into());
    }
}

/// The state of a table's filter.
pub(crate) fn filter(filter: &FilterInfo) -> Value {
    match filter {
        FilterInfo::None => json!({ "state": "none" }),
        FilterInfo::Active {
            kind,
            hash,
            generation,
            geometry,
            bytes,
            predicted_rate,
            bumped,
            prefixes,
            stored,
            ..
        } => json!({
            "state": "active",
            "kind": kind.to_string(),
            "hash": hash.to_string(),
            "generation": generation,
            "m": geometry.m,
            "k": geometry.k,
            "bytes": bytes,
            "fpr_predicted": predicted_rate,
            "bumped": bumped,
            "prefixes": prefixes,
            "stored_bytes": stored.bytes,
            "stored_fpr_predicted": stored.predicted_rate,
        }),
        FilterInfo::NotResident { kind, hash, stored, .. } => json!({
            "state": "not resident",
            "kind": kind.to_string(),
            "hash": hash.to_string(),
            "stored_bytes": stored.bytes,
            "stored_fpr_predicted": stored.predicted_rate,
        }),
        FilterInfo::Degraded { reason } => json!({ "state": "degraded", "reason": reason }),
        other => json!({ "state": other.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_have_another_name() {
        let mut object = Map::new();
        insert_bytes(&mut object, "key", "日本\t".as_bytes());
        insert_bytes(&mut object, "value", b"\xff\x00");
        assert_eq!(Value::Object(object).to_string(), r#"{"key":"日本\t","value_base64":"/wA="}"#);
    }
}
