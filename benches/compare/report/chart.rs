//! Chart of Sheave relative to HAProxy and nginx, row by row, as SVG: work per second on the left, work per second of the
//! proxy's processor time on the right. The axis is logarithmic, so that twice and half as much are bars of the same length.
//!
//! The chart has its own background, for light and dark pages, and uses no external font.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Circumstances;
use crate::entrant::Subject;
use crate::failure::Failure;
use crate::results::{Results, RowResult};
use crate::sample::{Metric, Summary};

const WIDTH: i32 = 960;
const HEAD: i32 = 76;
const LINE: i32 = 42;
const FOOT: i32 = 66;
const BAR: i32 = 13;

/// Panels with their left edges, next to the names of the rows.
const PANELS: [(Panel, i32); 2] = [(Panel::Rate, 130), (Panel::PerCpu, 555)];

/// Axis from 0.5x to 4x. Longer bars are cut, with their value beside them.
const OCTAVE: i32 = 110;
const BELOW: i32 = 1;
const ABOVE: i32 = 2;

const PAPER: RGBColor = RGBColor(250, 250, 248);
const INK: RGBColor = RGBColor(36, 41, 47);
const GREY: RGBColor = RGBColor(110, 119, 129);
const RULE: RGBColor = RGBColor(216, 220, 224);
const PEERS: [(Subject, &str, RGBColor); 2] = [
    (Subject::Haproxy, "to HAProxy", RGBColor(9, 105, 178)),
    (Subject::Nginx, "to nginx", RGBColor(26, 127, 55)),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

type Painted = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Ratio of a panel.
#[derive(Clone, Copy, PartialEq)]
enum Panel {
    Rate,
    PerCpu,
}

/// Draws the chart of all rows that compare subjects, as SVG text.
pub(crate) fn draw(results: &Results, circumstances: &Circumstances) -> Result<String, Failure> {
    let rows: Vec<_> = results.rows.iter().filter(|row| !row.row.is_of_scenes()).collect();
    let bottom = HEAD + LINE * rows.len() as i32;
    let mut svg = String::new();
    {
        let size = (WIDTH as u32, (bottom + FOOT) as u32);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        head(&area)
            .and_then(|()| PANELS.iter().try_for_each(|(panel, left)| axis(&area, *panel, *left, bottom)))
            .and_then(|()| body(&area, &rows, results))
            .and_then(|()| foot(&area, bottom, circumstances))
            .and_then(|()| area.present())
            .map_err(|error| Failure::Unsupported(format!("the chart: {error}")))?;
    }
    Ok(svg)
}

fn head(area: &Area<'_>) -> Painted {
    area.fill(&PAPER)?;
    say(area, "Sheave relative to HAProxy and nginx", (16, 22), 22, &INK, HPos::Left)?;
    for (index, (_, name, colour)) in PEERS.iter().enumerate() {
        let left = 685 + 130 * index as i32;
        area.draw(&Rectangle::new([(left, 16), (left + 12, 28)], colour.filled()))?;
        say(area, name, (left + 18, 22), 16, &INK, HPos::Left)?;
    }
    Ok(())
}

/// Draws lines at 0.5x, 1x, 2x and 4x with their labels, and the panel's title.
fn axis(area: &Area<'_>, panel: Panel, left: i32, bottom: i32) -> Painted {
    let title = match panel {
        Panel::Rate => "work per second",
        Panel::PerCpu => "work per second of its processor time (idle: per KiB)",
    };
    say(area, title, (left, 46), 16, &INK, HPos::Left)?;
    for (step, label) in (-BELOW..=ABOVE).zip(["0.5x", "1x", "2x", "4x"]) {
        let x = left + (step + BELOW) * OCTAVE;
        let colour = if step == 0 { &GREY } else { &RULE };
        area.draw(&PathElement::new([(x, HEAD - 6), (x, bottom)], colour.stroke_width(1)))?;
        say(area, label, (x, HEAD - 14), 14, &GREY, HPos::Center)?;
    }
    Ok(())
}

fn body(area: &Area<'_>, rows: &[&RowResult], results: &Results) -> Painted {
    let workers = results.workers.first().copied().unwrap_or(1);
    for (index, row) in rows.iter().enumerate() {
        let top = HEAD + LINE * index as i32;
        say(area, row.row.name, (16, top + LINE / 2), 16, &INK, HPos::Left)?;
        for (panel, left) in PANELS {
            let bars = PEERS.iter().filter_map(|(peer, _, colour)| {
                ratio(row, workers, *peer, panel).map(|ratio| (ratio, colour))
            });
            let bars: Vec<_> = bars.collect();
            let first = top + (LINE - (BAR + 2) * bars.len() as i32) / 2;
            for (place, (ratio, colour)) in bars.into_iter().enumerate() {
                bar(area, left, first + (BAR + 2) * place as i32, ratio, colour)?;
            }
        }
    }
    Ok(())
}

/// Draws a bar from 1x to the median, a line for the interval, and the value at the right end.
fn bar(area: &Area<'_>, left: i32, top: i32, ratio: Summary, colour: &RGBColor) -> Painted {
    let one = left + BELOW * OCTAVE;
    let at = |value: f64| {
        let octaves = value.log2().clamp(f64::from(-BELOW), f64::from(ABOVE));
        one + (octaves * f64::from(OCTAVE)).round() as i32
    };
    let (end, low, high) = (at(ratio.median), at(ratio.low), at(ratio.high));
    // A bar of length zero would be invisible.
    let corners = [(one.min(end), top), (one.max(end).max(one.min(end) + 2), top + BAR)];
    area.draw(&Rectangle::new(corners, colour.filled()))?;
    let middle = top + BAR / 2;
    area.draw(&PathElement::new([(low, middle), (high, middle)], INK.stroke_width(1)))?;
    let figure = format!("{:.2}x", ratio.median);
    say(area, &figure, (one.max(end).max(high) + 6, middle + 1), 14, &INK, HPos::Left)
}

/// Ratio of a row; inverted for cost, so that more is better. Idle connections have no rate, but cost memory. In an open loop,
/// the rate is the same for all.
fn ratio(row: &RowResult, workers: usize, peer: Subject, panel: Panel) -> Option<Summary> {
    let series = |subject| row.series.get(&row.row.entrant(subject, workers));
    let (ours, theirs) = series(Subject::Sheave).zip(series(peer))?;
    let summary = match panel {
        Panel::Rate if row.row.open_loop.is_some() => None,
        Panel::Rate => ours.ratio(theirs, Metric::Rate),
        Panel::PerCpu => theirs.ratio(ours, Metric::ProcessCost).or(theirs.ratio(ours, Metric::IdleKib)),
    };
    summary.filter(|ratio| ratio.low > 0.0)
}

fn foot(area: &Area<'_>, bottom: i32, circumstances: &Circumstances) -> Painted {
    say(area, &circumstances.sentence(), (16, bottom + 26), 14, &GREY, HPos::Left)?;
    let peers = circumstances.peers();
    let peers = format!(
        "{peers}; medians of paired rounds, with their intervals; a bar to the right of 1x: Sheave is ahead"
    );
    say(area, &peers, (16, bottom + 44), 14, &GREY, HPos::Left)
}

fn say(area: &Area<'_>, text: &str, at: (i32, i32), size: i32, colour: &RGBColor, from: HPos) -> Painted {
    let style = ("sans-serif", size).into_font().color(colour).pos(Pos::new(from, VPos::Center));
    area.draw_text(text, &style, at)
}
