//! Conversion of sent JSON to the JSON that a Go type would write: types are checked, unknown fields dropped, empty
//! fields omitted, and times normalized.

mod time;

use serde_json::{Map, Value, json};

use super::schema::{Field, Presence, Schema, Struct};

/// Decoded value.
pub(super) struct Decoded {
    pub value: Value,
    /// Paths of unknown fields, such as `spec.ports[0].zap`.
    pub unknown: Vec<String>,
}

/// Decodes `value` as the type of `schema`. The error is the text of Go's JSON decoder.
pub(super) fn decode(schema: &Schema, value: &Value) -> Result<Decoded, String> {
    let mut reader = Reader { unknown: Vec::new() };
    let value = reader.read(schema, value, "", "")?;
    Ok(Decoded { value, unknown: reader.unknown })
}

/// Zero value of a Go type.
pub(super) fn zero(schema: &Schema) -> Value {
    match schema {
        Schema::Text => json!(""),
        Schema::Flag => json!(false),
        Schema::Int32 | Schema::Int64 | Schema::IntOrText => json!(0),
        Schema::Struct(known) => Value::Object(
            known
                .fields
                .iter()
                .filter(|(_, field)| field.presence == Presence::Always)
                .map(|(name, field)| (name.clone(), zero(&field.schema)))
                .collect(),
        ),
        _ => Value::Null,
    }
}

struct Reader {
    unknown: Vec<String>,
}

impl Reader {
    fn read(&mut self, schema: &Schema, value: &Value, path: &str, owner: &str) -> Result<Value, String> {
        if value.is_null() {
            return Ok(zero(schema));
        }
        let wrong = |go_type: &str| Err(mismatch(value, go_type, path, owner));
        match schema {
            Schema::Opaque => Ok(value.clone()),
            Schema::Text if !value.is_string() => wrong("string"),
            Schema::Flag if !value.is_boolean() => wrong("bool"),
            Schema::Int32 if value.as_i64().is_none_or(|number| i32::try_from(number).is_err()) => {
                wrong("int32")
            }
            Schema::Int64 if value.as_i64().is_none() => wrong("int64"),
            Schema::IntOrText if !value.is_string() && value.as_i64().is_none() => wrong("int32"),
            Schema::Text | Schema::Flag | Schema::Int32 | Schema::Int64 | Schema::IntOrText => {
                Ok(value.clone())
            }
            Schema::Time => time::seconds(value).map(Value::String),
            Schema::MicroTime => time::micros(value).map(Value::String),
            Schema::List(items, _) => match value.as_array() {
                None => wrong("[]object"),
                Some(given) => given
                    .iter()
                    .enumerate()
                    .map(|(index, item)| self.read(items, item, &format!("{path}[{index}]"), owner))
                    .collect(),
            },
            Schema::Map { values, .. } => match value.as_object() {
                None => wrong("map[string]string"),
                Some(given) => {
                    let mut read = Map::new();
                    for (key, value) in given {
                        read.insert(key.clone(), self.read(values, value, &joined(path, key), owner)?);
                    }
                    Ok(Value::Object(read))
                }
            },
            Schema::Struct(known) => match value.as_object() {
                None => wrong(known.go_name),
                Some(given) => self.read_struct(known, given, path),
            },
        }
    }

    fn read_struct(
        &mut self,
        known: &Struct,
        given: &Map<String, Value>,
        path: &str,
    ) -> Result<Value, String> {
        let mut read = Map::new();
        for (name, field) in &known.fields {
            if let Some(value) =
                self.read_field(field, given.get(name), &joined(path, name), known.go_name)?
            {
                read.insert(name.clone(), value);
            }
        }
        for (name, value) in given {
            if known.fields.contains_key(name) {
                continue;
            }
            if known.open {
                read.insert(name.clone(), value.clone());
            } else {
                self.unknown.push(joined(path, name));
            }
        }
        Ok(Value::Object(read))
    }

    fn read_field(
        &mut self,
        field: &Field,
        given: Option<&Value>,
        path: &str,
        owner: &str,
    ) -> Result<Option<Value>, String> {
        let given = given.filter(|value| !value.is_null());
        let Some(given) = given else {
            return Ok((field.presence == Presence::Always).then(|| zero(&field.schema)));
        };
        let value = self.read(&field.schema, given, path, owner)?;
        Ok((field.presence != Presence::NonZero || says_something(&value)).then_some(value))
    }
}

/// Error of Go's decoder for a value of another type. It shows numbers that do not fit, but no other values.
fn mismatch(value: &Value, go_type: &str, path: &str, owner: &str) -> String {
    let found = match value {
        Value::Number(number) if go_type.starts_with("int") => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Null | Value::Object(_) => "object".to_owned(),
    };
    let field = without_indexes(path);
    format!("json: cannot unmarshal {found} into Go struct field {owner}.{field} of type {go_type}")
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_i64() != Some(0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Path as in Go's decoder: `spec.ports.port` for `spec.ports[0].port`.
fn without_indexes(path: &str) -> String {
    let mut kept = String::with_capacity(path.len());
    let mut inside = false;
    for character in path.chars() {
        match character {
            '[' => inside = true,
            ']' => inside = false,
            other if !inside => kept.push(other),
            _ => {}
        }
    }
    kept
}
