//! Label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.

use std::collections::BTreeMap;

/// Term of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    /// Also true for missing labels.
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl Requirement {
    /// Whether labels satisfy the term.
    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let number = value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Test::Greater(bound) => number.is_some_and(|number| number > *bound),
            Test::Less(bound) => number.is_some_and(|number| number < *bound),
        }
    }
}

/// Parses a selector; the error is the server's text.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut tokens = tokens(text).into_iter().peekable();
    let mut requirements = Vec::new();
    loop {
        match tokens.next().as_deref() {
            None => return Ok(requirements),
            Some("!") => {
                let key = identifier(tokens.next(), "identifier")?;
                requirements.push(Requirement { key, test: Test::Absent });
            }
            Some(word) if is_symbol(word) => {
                return Err(format!("found '{word}', expected: !, identifier, or 'end of string'"));
            }
            Some(key) => {
                let test = test(&mut tokens)?;
                requirements.push(Requirement { key: key.to_owned(), test });
            }
        }
        match tokens.next().as_deref() {
            None => return Ok(requirements),
            Some(",") if tokens.peek().is_some() => {}
            Some(",") => return Err("found '', expected: identifier after ','".to_owned()),
            Some(other) => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
        }
    }
}

fn test(tokens: &mut std::iter::Peekable<impl Iterator<Item = String>>) -> Result<Test, String> {
    let operator = match tokens.peek().map(String::as_str) {
        None | Some(",") => return Ok(Test::Exists),
        Some(_) => tokens.next().unwrap_or_default(),
    };
    let value = |word: Option<String>| match word {
        Some(word) if is_symbol(&word) => Err(format!("found '{word}', expected: identifier")),
        word => Ok(word.unwrap_or_default()),
    };
    match operator.as_str() {
        // `key=` selects the empty value, also before a comma.
        "=" | "==" | "!=" => {
            let wanted = if tokens.peek().is_none_or(|next| next == ",") {
                String::new()
            } else {
                value(tokens.next())?
            };
            Ok(if operator == "!=" { Test::NotIn(vec![wanted]) } else { Test::In(vec![wanted]) })
        }
        "in" => Ok(Test::In(values(tokens)?)),
        "notin" => Ok(Test::NotIn(values(tokens)?)),
        ">" | "<" => {
            let word = value(tokens.next())?;
            let bound = word.parse().map_err(|_| {
                format!("values[0]: Invalid value: \"{word}\": for 'Gt', 'Lt' operators, the value must be an integer")
            })?;
            Ok(if operator == ">" { Test::Greater(bound) } else { Test::Less(bound) })
        }
        other => Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
    }
}

fn values(tokens: &mut impl Iterator<Item = String>) -> Result<Vec<String>, String> {
    match tokens.next().unwrap_or_default().as_str() {
        "(" => {}
        other => return Err(format!("found '{other}', expected: '('")),
    }
    let mut values = Vec::new();
    loop {
        values.push(identifier(tokens.next(), "',', ')' or identifier")?);
        match tokens.next().unwrap_or_default().as_str() {
            "," => {}
            ")" => return Ok(values),
            other => return Err(format!("found '{other}', expected: ',' or ')'")),
        }
    }
}

fn identifier(word: Option<String>, expected: &str) -> Result<String, String> {
    match word {
        Some(word) if !is_symbol(&word) => Ok(word),
        word => Err(format!("found '{}', expected: {expected}", word.unwrap_or_default())),
    }
}

fn is_symbol(word: &str) -> bool {
    word.starts_with(|first| "=!(),<>".contains(first))
}

/// Splits a selector into words and symbols; a run of symbols is split into the longest known ones.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else if "=!(),<>".contains(first) {
            1
        } else {
            rest.find(|next: char| next.is_whitespace() || "=!(),<>".contains(next)).unwrap_or(rest.len())
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token.to_owned());
        rest = after.trim_start();
    }
    tokens
}
