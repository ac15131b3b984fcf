//! Keys and values in JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Adds bytes to an object: as the string `name` if they are UTF-8, or else in base64 as `name_base64`.
pub(crate) fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
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
