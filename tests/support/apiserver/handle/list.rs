//! GET of one object, and of a collection in pages.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use serde_json::json;

use super::super::faults::Past;
use super::super::reply::{JSON, Reply};
use super::super::selector::Selector;
use super::super::status::Status;
use super::super::store::shelf::Entries;
use super::super::store::{Entry, Shelf};
use super::negotiate::Form;
use super::options::{self, Moment};
use super::{Call, represent};

mod token;
use token::Token;

/// GET of one object.
pub(super) fn get(call: &Call<'_>) -> Result<Reply, Status> {
    let name = call.target.name.as_deref().unwrap_or_default();
    let moment = options::moment(call.query, None)?;
    let faults = call.shared.faults();
    let mut world = call.world();
    let current = world.store.revision();
    if let Moment::NotOlderThan(revision) | Moment::Exactly(revision) = moment
        && revision > current
    {
        return Err(options::too_large(revision, current));
    }
    let key = call.key(name);
    let entry = match (&faults.past, moment) {
        (Some(past), Moment::Any) => {
            past.shelves.get(&call.served.shelf).and_then(|shelf| shelf.get(&key)).cloned()
        }
        _ => world.store.get(&call.served, &key),
    };
    let entry = entry.ok_or_else(|| Status::not_found(&call.served.kind, name))?;
    let mut bytes = Vec::new();
    represent::whole(&call.served, call.form, &entry, &mut bytes);
    bytes.push(b'\n');
    Ok(Reply::bytes(200, JSON, bytes))
}

/// Answers 429 to the first list or watch of a new custom kind, if enabled.
pub(super) fn check_storage(call: &Call<'_>) -> Result<(), Status> {
    let first = call.served.fresh.swap(false, std::sync::atomic::Ordering::SeqCst);
    if first && call.shared.faults().slow_definitions {
        let text = "storage is (re)initializing";
        return Err(Status::new(429, "TooManyRequests", text).retry_after(1));
    }
    Ok(())
}

/// GET of a collection.
pub(super) fn list(call: &Call<'_>) -> Result<Reply, Status> {
    let query = call.query;
    options::validate(query, false)?;
    let selector = Selector::parse(&call.served, query.get("labelSelector"), query.get("fieldSelector"))?;
    check_storage(call)?;
    let limit = query.get("limit").parse().ok().filter(|limit| *limit > 0);
    let faults = call.shared.faults();
    let mut world = call.world();
    let current = world.store.revision();
    let shelf = world.store.shelf(&call.served.shelf);
    let mut page = if query.get("continue").is_empty() {
        first_page(call, shelf, current, limit, faults.past.as_ref())?
    } else {
        next_page(call, shelf, current)?
    };
    if page.unlimited {
        page.limit = None;
    } else {
        page.limit = limit;
    }
    Ok(Reply::bytes(200, JSON, page.write(call, &selector)))
}

/// Page of a list.
struct Page<'a> {
    entries: Cow<'a, Entries>,
    revision: u64,
    /// First key; empty to start at the beginning.
    start: String,
    limit: Option<usize>,
    /// Whether the client's limit is ignored, as by caches at resourceVersion 0.
    unlimited: bool,
}

fn first_page<'a>(
    call: &Call<'_>,
    shelf: &'a Shelf,
    current: u64,
    limit: Option<usize>,
    past: Option<&'a Past>,
) -> Result<Page<'a>, Status> {
    let page =
        |entries, revision| Page { entries, revision, start: String::new(), limit: None, unlimited: false };
    let present = || Cow::Borrowed(shelf.entries());
    match options::moment(call.query, limit)? {
        Moment::Any => Ok(match past {
            Some(past) => {
                let entries = past.shelves.get(&call.served.shelf);
                let entries = entries.map_or_else(|| Cow::Owned(Entries::new()), Cow::Borrowed);
                Page { unlimited: true, ..page(entries, past.revision) }
            }
            None => Page { unlimited: true, ..page(present(), current) },
        }),
        Moment::NotOlderThan(revision) | Moment::Exactly(revision) if revision > current => {
            Err(options::too_large(revision, current))
        }
        Moment::Newest | Moment::NotOlderThan(_) => Ok(page(present(), current)),
        Moment::Exactly(revision) => {
            let entries = shelf.entries_at(revision).map_err(|_| {
                Status::new(410, "Expired", "The resourceVersion for the provided list is too old.")
            })?;
            Ok(page(entries, revision))
        }
    }
}

fn next_page<'a>(call: &Call<'_>, shelf: &'a Shelf, current: u64) -> Result<Page<'a>, Status> {
    let resource_version = call.query.get("resourceVersion");
    if !resource_version.is_empty() && resource_version != "0" {
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    let token = Token::decode(call.query.get("continue"))?;
    let start = format!("{}{}", call.prefix().unwrap_or_default(), token.start);
    let revision = token.revision.unwrap_or(current);
    let entries = shelf.entries_at(revision).map_err(|_| {
        let text = "The provided continue parameter is too old to display a consistent list result. You can start a \
                    new list without the continue parameter, or use the continue token in this response to retrieve \
                    the remainder of the results. Continuing with the provided token results in an inconsistent list \
                    - objects that were created, modified, or deleted between the time the first chunk was returned \
                    and now may show up in the list.";
        let mut status = Status::new(410, "Expired", text);
        status.continue_token = Some(Token { revision: None, start: token.start.clone() }.encode(""));
        status
    })?;
    Ok(Page { entries, revision, start, limit: None, unlimited: false })
}

impl Page<'_> {
    /// The page as JSON.
    fn write(&self, call: &Call<'_>, selector: &Selector) -> Vec<u8> {
        let prefix = call.prefix().unwrap_or_default();
        let from = if self.start.is_empty() { prefix.as_str() } else { self.start.as_str() };
        let range = self.entries.range::<str, _>((Bound::Included(from), Bound::Unbounded));
        let mut matching = range
            .take_while(|(key, _)| key.starts_with(&prefix))
            .map(|(_, entry)| entry)
            .filter(|entry| selector.matches(entry));
        let items: Vec<&Arc<Entry>> = matching.by_ref().take(self.limit.unwrap_or(usize::MAX)).collect();
        let remaining = matching.count();
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if call.served.kind.custom {
            metadata["continue"] = json!("");
        }
        if let (Some(last), true) = (items.last(), remaining > 0) {
            let start = format!("{}\0", &last.key[prefix.len()..]);
            // Keys of cached kinds begin with a slash. Events are read from etcd.
            let slash = if call.served.shelf == "events" { "" } else { "/" };
            metadata["continue"] = json!(Token { revision: Some(self.revision), start }.encode(slash));
            if selector.is_empty() {
                metadata["remainingItemCount"] = json!(remaining);
            }
        }
        let kind = &call.served.kind;
        let (name, api_version) = match call.form {
            Form::Whole => (format!("{}List", kind.kind), kind.api_version()),
            Form::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        };
        let head =
            format!(r#"{{"kind":"{name}","apiVersion":"{api_version}","metadata":{metadata},"items":["#);
        let mut bytes = head.into_bytes();
        for (index, entry) in items.into_iter().enumerate() {
            if index > 0 {
                bytes.push(b',');
            }
            represent::item(&call.served, call.form, entry, &mut bytes);
        }
        bytes.extend_from_slice(b"]}\n");
        bytes
    }
}
