//! Continue tokens, with the start and the revision of the next page (k8s.io/apiserver `pkg/storage/continue.go`).

use serde_json::{Value, json};

use crate::apiserver::status::Status;

/// A decoded token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// `None` to continue with the newest revision.
    pub(super) revision: Option<u64>,
    /// First key of the page, relative to the namespace.
    pub(super) start: String,
}

impl Token {
    /// Encodes the token; `slash` precedes the key.
    pub(super) fn encode(&self, slash: &str) -> String {
        let revision = self.revision.map_or_else(|| json!(-1), |revision| json!(revision));
        // Written by hand, since Go's encoder preserves the order of fields and some clients decode tokens.
        let start = json!(format!("{slash}{}", self.start));
        base64(format!(r#"{{"v":"meta.k8s.io/v1","rv":{revision},"start":{start}}}"#).as_bytes())
    }

    /// Decodes a token.
    pub(super) fn decode(text: &str) -> Result<Self, Status> {
        let invalid = |why: &str| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = unbase64(text).ok_or_else(|| invalid("illegal base64 data"))?;
        let token: Value = serde_json::from_slice(&bytes).map_err(|_| {
            let first = bytes.first().copied().map_or(' ', char::from);
            invalid(&format!("invalid character '{first}' looking for beginning of value"))
        })?;
        let start = token["start"].as_str().ok_or_else(|| invalid("start is missing"))?;
        Ok(Self { revision: token["rv"].as_u64(), start: start.trim_start_matches('/').to_owned() })
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// RFC 4648 section 5 without padding.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, &byte| (bits << 8) | u32::from(byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            let digit = (bits >> (18 - 6 * place)) & 63;
            text.push(char::from(ALPHABET[digit as usize]));
        }
    }
    text
}

fn unbase64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for digit in text.bytes() {
        let value = ALPHABET.iter().position(|&known| known == digit)?;
        bits = (bits << 6) | u32::try_from(value).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 255).ok()?);
        }
    }
    Some(bytes)
}
