//! A page of a list, whose items are passed on one at a time: as a tree of plain values, a page of slices can take a hundred
//! megabytes.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Metadata of a page.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page {
    /// Version of the whole list.
    #[serde(default)]
    pub(super) resource_version: String,
    /// Token of the next page; empty on the last page.
    #[serde(default, rename = "continue")]
    pub(super) next: String,
}

/// Parses a page and passes each item to `take`.
pub(super) fn read(text: &[u8], take: impl FnMut(Value)) -> Result<Page, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let page = reader.deserialize_map(PageVisitor(take))?;
    reader.end()?;
    Ok(page)
}

struct PageVisitor<F>(F);

impl<'de, F: FnMut(Value)> Visitor<'de> for PageVisitor<F> {
    type Value = Page;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Page, A::Error> {
        let mut page = Page::default();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "metadata" => page = map.next_value()?,
                "items" => map.next_value_seed(Items(&mut self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(page)
    }
}

struct Items<'a, F>(&'a mut F);

impl<'de, F: FnMut(Value)> DeserializeSeed<'de> for Items<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // A list without items may contain null.
        deserializer.deserialize_option(self)
    }
}

impl<'de, F: FnMut(Value)> Visitor<'de> for Items<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the items of a list")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element()? {
            (self.0)(item);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn items(text: &str) -> (Page, Vec<Value>) {
        let mut items = Vec::new();
        (read(text.as_bytes(), |item| items.push(item)).unwrap(), items)
    }

    #[test]
    fn a_page_says_how_it_goes_on() {
        let text = r#"{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7",
            "continue":"eyJ2","remainingItemCount":3},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}"#;
        let (page, items) = items(text);
        assert_eq!(page, Page { resource_version: "7".to_owned(), next: "eyJ2".to_owned() });
        assert_eq!(items, [json!({"metadata": {"name": "a"}}), json!({"metadata": {"name": "b"}})]);
    }

    #[test]
    fn the_items_may_stand_before_the_metadata_or_be_null() {
        let (page, found) =
            items(r#"{"items":[{}],"kind":"PoolList","metadata":{"continue":"","resourceVersion":"9"}}"#);
        assert_eq!((page.resource_version.as_str(), page.next.as_str(), found.len()), ("9", "", 1));
        assert!(items(r#"{"metadata":{"resourceVersion":"9"},"items":null}"#).1.is_empty());
    }

    #[test]
    fn half_a_page_is_no_page() {
        assert!(read(br#"{"metadata":{"resourceVersion":"7"},"items":[{}"#, drop).is_err());
        assert!(read(b"<html>", drop).is_err());
    }
}
