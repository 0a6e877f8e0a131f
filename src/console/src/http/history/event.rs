//! An event of the timeline: what changed on this gateway, when, and which Service it concerns.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sheave_control::text::one_line;

use crate::views::change::{Change, ChangeKind};

/// Limit of each text in bytes. Reasons and messages come from others.
const LONGEST: usize = 400;

/// An event, as it is kept in memory and in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    /// When it was noticed.
    pub(super) time: Timestamp,
    /// `namespace/name`; none if it concerns the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) service: Option<String>,
    /// Kind of that object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    #[serde(flatten)]
    pub(super) change: Change,
}

/// The object that a change concerns: `namespace/name` and kind. None is the gateway.
pub(super) type Concerned = Option<(String, String)>;

/// A change, and what it concerns.
pub(super) type Found = (Concerned, Change);

impl Event {
    pub(super) fn new(time: Timestamp, (concerned, mut change): Found) -> Self {
        let texts = [&mut change.subject, &mut change.from, &mut change.to];
        texts.into_iter().flatten().for_each(|text| one_line(text, LONGEST));
        let (service, source) = concerned.unzip();
        Self { time, service, source, change }
    }

    /// Bytes that it takes in memory, roughly.
    pub(super) fn size(&self) -> usize {
        let Change { subject, from, to, .. } = &self.change;
        let texts = [&self.service, &self.source, subject, from, to];
        size_of::<Self>() + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

/// Changes of one kind that a Service may have at once before they become one event.
const OF_A_SERVICE: usize = 10;
/// Equal changes that Services may have at once before they become one event.
const OF_SERVICES: usize = 50;

/// Summarizes many equal changes of the same moment: a large Deployment that is scaled, or a gateway that takes over every address, would
/// otherwise push everything else out of the timeline.
pub(super) fn summarize(found: Vec<Found>) -> Vec<Found> {
    let in_services = merge(found, OF_A_SERVICE, Clone::clone);
    merge(in_services, OF_SERVICES, |_| None)
}

/// Merges changes that differ only in their subject and in what they concern, if there are more than `most`. `common` is what the merged
/// change concerns; only changes for which it is the same are merged.
fn merge(found: Vec<Found>, most: usize, common: impl Fn(&Concerned) -> Concerned) -> Vec<Found> {
    let key = |(concerned, change): &Found| {
        let subject = change.subject.as_deref().and_then(|subject| common_part(change.change, subject));
        let subject = subject.map(str::to_owned);
        (common(concerned), Change { subject, count: None, ..change.clone() })
    };
    let mut sizes = BTreeMap::<Found, usize>::new();
    for one in found.iter().filter(|(concerned, _)| concerned.is_some()) {
        *sizes.entry(key(one)).or_default() += one.1.count.unwrap_or(1);
    }
    sizes.retain(|_, size| *size > most);
    let mut merged: Vec<Found> =
        found.into_iter().filter(|one| one.0.is_none() || !sizes.contains_key(&key(one))).collect();
    let summary = |((concerned, change), count)| (concerned, Change { count: Some(count), ..change });
    merged.extend(sizes.into_iter().map(summary));
    merged
}

/// The part of a subject that equal changes have in common: the field of a setting, and the reason of a Problem.
fn common_part(kind: ChangeKind, subject: &str) -> Option<&str> {
    match kind {
        ChangeKind::Setting => Some(subject),
        ChangeKind::Problem => subject.split(": ").next(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(service: usize, number: usize) -> Found {
        let concerned = Some((format!("shop/web-{service}"), "Service".to_owned()));
        let change = Change::new(ChangeKind::Endpoint, None, Some("Ready".to_owned()));
        (concerned, change.of(&format!("10.0.0.{number}:80")))
    }

    fn texts(found: Vec<Found>) -> Vec<String> {
        let text = |(concerned, change): Found| {
            format!("{} {}", concerned.map_or_else(|| "-".to_owned(), |it| it.0), change.to_text())
        };
        summarize(found).into_iter().map(text).collect()
    }

    #[test]
    fn a_few_endpoints_are_named_and_many_are_counted() {
        assert_eq!(
            texts((0..2).map(|it| endpoint(1, it)).collect()),
            ["shop/web-1 endpoint 10.0.0.0:80 added: Ready", "shop/web-1 endpoint 10.0.0.1:80 added: Ready"]
        );
        assert_eq!(
            texts((0..11).map(|it| endpoint(1, it)).collect()),
            ["shop/web-1 11 endpoints added: Ready"]
        );
    }

    #[test]
    fn the_same_change_of_many_services_is_one_event_of_the_gateway() {
        let state = |service: usize| {
            let to = Some("broken: none of 2 endpoints is ready".to_owned());
            (
                Some((format!("shop/web-{service}"), "Service".to_owned())),
                Change::new(ChangeKind::State, Some("ok".to_owned()), to),
            )
        };
        let found = (0..51).map(state).collect();
        assert_eq!(texts(found).len(), 1);
        assert_eq!(texts((0..50).map(state).collect()).len(), 50);
        let endpoints = (0..60).map(|service| endpoint(service, service)).collect();
        assert_eq!(texts(endpoints), ["- 60 endpoints added: Ready"]);
    }

    #[test]
    fn texts_of_others_are_short_and_of_one_line() {
        let change = Change::new(ChangeKind::Gateway, None, Some("a\n".to_owned() + &"x".repeat(5000)));
        let event = Event::new(Timestamp::UNIX_EPOCH, (None, change));
        let text = event.change.to.as_deref().unwrap();
        assert!(text.len() <= LONGEST && text.starts_with("a x"), "{text}");
        assert!(event.size() < 1024);
    }
}
