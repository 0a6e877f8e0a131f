//! Prometheus text, rendered at each scrape from values held elsewhere. A series exists exactly as long as its frontend. A recorder of
//! the `metrics` crate cannot do that: a held handle keeps its series, and idle series cannot be dropped. Measurements of the event loop
//! itself are in the recorder, and are appended. Totals of all frontends have the prefix `sheave_gateway_`.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};

use super::families::{Family, FamilyKind};

/// Size of a chunk in bytes.
const CHUNK: usize = 64 << 10;

/// Prometheus text under construction, which is kept as a whole or sent in chunks.
#[derive(Default)]
pub struct Exposition {
    text: String,
    send: Option<Box<dyn FnMut(String) -> bool>>,
    unwanted: bool,
}

impl Exposition {
    /// Sends the text in chunks until `send` returns false.
    pub(crate) fn sent_by(send: impl FnMut(String) -> bool + 'static) -> Self {
        Self { send: Some(Box::new(send)), ..Self::default() }
    }

    /// Starts a family; its samples follow.
    pub(crate) fn family(&mut self, family: &Family) -> Samples<'_> {
        self.open(family.name.into(), family.kind, family.help)
    }

    /// Starts the family with the totals of `family` over all frontends.
    pub(crate) fn total_of(&mut self, family: &Family) -> Samples<'_> {
        let name = family.name.strip_prefix("sheave_").unwrap_or(family.name);
        let help = format!("{} of all frontends together, those that have left included.", family.name);
        self.open(format!("sheave_gateway_{name}").into(), family.kind, &help)
    }

    fn open(&mut self, name: Cow<'static, str>, kind: FamilyKind, help: &str) -> Samples<'_> {
        let kind = match kind {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
        };
        // Writing to a String cannot fail.
        writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}").ok();
        Samples { exposition: self, name }
    }

    /// Appends families in text form.
    pub(crate) fn append(&mut self, text: &str) {
        self.text.push_str(text);
        self.send_full();
    }

    /// The rest that has not been sent; `None` if sending failed.
    pub fn finish(self) -> Option<String> {
        (!self.unwanted).then_some(self.text)
    }

    fn send_full(&mut self) {
        if let Some(send) = &mut self.send
            && self.text.len() >= CHUNK
        {
            // The next chunk will be as long.
            let next = String::with_capacity(self.text.capacity());
            let text = std::mem::replace(&mut self.text, next);
            self.unwanted = self.unwanted || !send(text);
        }
    }
}

/// Values of a histogram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buckets<const N: usize> {
    /// Upper bounds in seconds, each with the count above the previous bound.
    pub(crate) within: [(f64, u64); N],
    /// Count above the last bound.
    pub(crate) beyond: u64,
    pub(crate) sum: f64,
}

/// Samples of one family.
pub(crate) struct Samples<'a> {
    exposition: &'a mut Exposition,
    name: Cow<'static, str>,
}

impl Samples<'_> {
    /// Adds one series.
    pub(crate) fn add(&mut self, labels: &[(&str, &str)], value: u64) -> &mut Self {
        self.add_line("", "", labels, value)
    }

    /// Adds one series with rendered labels and a fractional value.
    pub(crate) fn add_fraction(&mut self, labels: &str, value: f64) {
        self.add_line("", labels, &[], value);
    }

    /// Adds one series whose first labels are already rendered.
    pub(crate) fn add_to(&mut self, first: &str, more: &[(&str, &str)], value: u64) -> &mut Self {
        self.add_line("", first, more, value)
    }

    /// Whether the receiver has gone, so that further text is dropped.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.exposition.unwanted
    }

    /// Adds the series of a histogram with rendered labels.
    pub(crate) fn add_histogram<const N: usize>(&mut self, labels: &str, buckets: &Buckets<N>) {
        let mut count = 0;
        for (bound, within) in buckets.within {
            count += within;
            self.add_line("_bucket", labels, &[("le", &bound.to_string())], count);
        }
        count += buckets.beyond;
        self.add_line("_bucket", labels, &[("le", "+Inf")], count);
        self.add_line("_sum", labels, &[], buckets.sum);
        self.add_line("_count", labels, &[], count);
    }

    /// Writes one line in place, without temporary strings, since a scrape may have a million lines.
    fn add_line(
        &mut self,
        suffix: &str,
        first: &str,
        more: &[(&str, &str)],
        value: impl Display,
    ) -> &mut Self {
        let Self { exposition, name } = self;
        let text = &mut exposition.text;
        text.push_str(name);
        text.push_str(suffix);
        if !first.is_empty() || !more.is_empty() {
            text.push('{');
            text.push_str(first);
            text.push_str(if first.is_empty() || more.is_empty() { "" } else { "," });
            push_labels(text, more);
            text.push('}');
        }
        // Writing to a String cannot fail.
        writeln!(text, " {value}").ok();
        exposition.send_full();
        self
    }
}

/// Renders labels as they appear between the braces.
pub(crate) fn render(labels: &[(&str, &str)]) -> String {
    let mut rendered = String::new();
    push_labels(&mut rendered, labels);
    rendered
}

fn push_labels(text: &mut String, labels: &[(&str, &str)]) {
    for (index, (label, value)) in labels.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { "," });
        text.push_str(label);
        text.push_str("=\"");
        push_escaped(text, value);
        text.push('"');
    }
}

fn push_escaped(text: &mut String, value: &str) {
    for part in value.split_inclusive(['\\', '"', '\n']) {
        let plain = part.strip_suffix(['\\', '"', '\n']).unwrap_or(part);
        text.push_str(plain);
        text.push_str(match &part[plain.len()..] {
            "\\" => r"\\",
            "\"" => "\\\"",
            "\n" => "\\n",
            _ => "",
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::metrics::families::{CONNECT_SECONDS, PROBLEMS};

    #[test]
    fn label_values_are_escaped() {
        let mut text = Exposition::default();
        text.family(&PROBLEMS).add(&[("reason", "a\"b\\c\nd"), ("other", "\n\"\\")], 1);
        let expected = "sheave_problems{reason=\"a\\\"b\\\\c\\nd\",other=\"\\n\\\"\\\\\"} 1\n";
        assert!(text.finish().unwrap().ends_with(expected));
    }

    #[test]
    fn buckets_of_a_histogram_count_up() {
        let mut text = Exposition::default();
        let buckets = Buckets { within: [(0.001, 2), (0.5, 0), (1.0, 3)], beyond: 1, sum: 2.5 };
        text.family(&CONNECT_SECONDS).add_histogram("", &buckets);
        let expected = "_bucket{le=\"0.001\"} 2\n_bucket{le=\"0.5\"} 2\n_bucket{le=\"1\"} 5\n_bucket{le=\"+Inf\"} 6\n_sum 2.5\n_count 6\n";
        let text = text.finish().unwrap();
        let samples: String = text.lines().skip(2).map(|line| format!("{line}\n")).collect();
        assert_eq!(samples.replace("sheave_tcp_connect_seconds", ""), expected);
    }

    #[test]
    fn the_labels_of_a_histogram_stand_before_the_bound() {
        let mut text = Exposition::default();
        let buckets = Buckets { within: [(0.001, 2)], beyond: 0, sum: 0.001 };
        text.family(&CONNECT_SECONDS).add_histogram("a=\"b\"", &buckets);
        let expected = "_bucket{a=\"b\",le=\"0.001\"} 2\n_bucket{a=\"b\",le=\"+Inf\"} 2\n_sum{a=\"b\"} 0.001\n_count{a=\"b\"} 2\n";
        let text = text.finish().unwrap();
        let samples: String = text.lines().skip(2).map(|line| format!("{line}\n")).collect();
        assert_eq!(samples.replace("sheave_tcp_connect_seconds", ""), expected);
    }

    #[test]
    fn what_is_sent_in_chunks_is_the_whole() {
        let fill = |text: &mut Exposition| {
            for value in 0..10_000 {
                text.family(&PROBLEMS).add_to("a=\"b\"", &[("c", "d")], value);
            }
        };
        let mut whole = Exposition::default();
        fill(&mut whole);
        let (sender, sent) = std::sync::mpsc::channel();
        let mut chunked = Exposition::sent_by(move |chunk| sender.send(chunk).is_ok());
        fill(&mut chunked);
        let rest = chunked.finish().unwrap();
        let chunks: Vec<String> = sent.into_iter().collect();
        assert!(chunks.len() > 1 && chunks.iter().all(|chunk| (CHUNK..2 * CHUNK).contains(&chunk.len())));
        assert_eq!(chunks.concat() + &rest, whole.finish().unwrap());

        let mut unwanted = Exposition::sent_by(|_| false);
        fill(&mut unwanted);
        assert!(unwanted.finish().is_none(), "part of the text must not pass for the whole");
    }
}
