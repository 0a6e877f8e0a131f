//! Columns that a screen has room for, and their widths.

use super::app::App;
use super::fit::wide;
use super::table::{Cell, Column, STATE, columns, wide_columns};

/// Minimum width of the first column. Other columns are left out instead.
const NARROWEST_NAME: u16 = 14;
/// Least width of the bars, of which the newest are shown.
const LEAST_BARS: u16 = 15;

/// A column and its width.
pub(super) type SizedColumn = (&'static Column, u16);

/// Chooses the columns for a screen of this width. Numbers are never cut, and names only if there is no other way.
pub(super) fn fitting(app: &App, total: u16) -> Vec<SizedColumn> {
    let total = total.saturating_sub(1);
    let mut shown: Vec<SizedColumn> =
        columns(app.rows).iter().map(|column| (column, needed(app, column))).collect();
    while taken(&shown) > total && shown.len() > 1 {
        let dearest =
            shown.iter().enumerate().skip(1).max_by_key(|(at, (column, _))| (dispensable(column), *at));
        let is_last_state = shown.len() == 2 && shown.iter().any(|(column, _)| column.name == STATE);
        match dearest {
            // A state beside half a name says more than a whole name.
            Some(_) if is_last_state => break,
            Some((at, _)) => {
                shown.remove(at);
            }
            None => break,
        }
    }
    squeeze(&mut shown, total);
    for at in 0..shown.len() {
        let wanted = wanted(app, shown[at].0);
        let left = total.saturating_sub(taken(&shown));
        shown[at].1 += wanted.saturating_sub(shown[at].1).min(left);
    }
    add_wide(app, &mut shown, total);
    shown
}

/// Adds columns for which there is room once all names are whole. First each gets what it needs, and then in their order what is of use; the
/// names take what is left.
fn add_wide(app: &App, shown: &mut Vec<SizedColumn>, total: u16) {
    let whole = shown.len() == columns(app.rows).len()
        && shown.iter().all(|(column, width)| *width >= wanted(app, column));
    let mut further: Vec<(SizedColumn, u16)> = Vec::new();
    let mut left = total.saturating_sub(taken(shown));
    for column in wide_columns(app.rows).iter().filter(|_| whole) {
        let (least, most) = match column.cell {
            Cell::Why if app.widest_why == 0 => continue,
            Cell::Why => (app.widest_why.min(column.width), app.widest_why),
            Cell::Recent => (LEAST_BARS, column.width),
            _ => (wanted(app, column), wanted(app, column)),
        };
        let least = least.max(column.title.len() as u16);
        if left > least {
            left -= least + 1;
            further.push(((column, least), most));
        }
    }
    for ((_, width), most) in &mut further {
        let more = most.saturating_sub(*width).min(left);
        (*width, left) = (*width + more, left - more);
    }
    shown.iter_mut().take(1).for_each(|(_, width)| *width += left);
    // Sentences stand at the end.
    further.sort_by_key(|((column, _), _)| column.cell == Cell::Why);
    shown.extend(further.into_iter().map(|(column, _)| column));
}

/// Cuts the first column to what is left of it.
fn squeeze(shown: &mut [SizedColumn], total: u16) {
    let over = taken(shown).saturating_sub(total);
    if let Some((_, width)) = shown.first_mut() {
        *width = width.saturating_sub(over);
    }
}

/// Columns and the blanks between them.
fn taken(shown: &[SizedColumn]) -> u16 {
    shown.iter().fold(0_u16, |sum, (_, width)| sum.saturating_add(*width).saturating_add(1)).saturating_sub(1)
}

/// Least width of a column: a number is shown whole.
fn needed(app: &App, column: &Column) -> u16 {
    match column.cell {
        Cell::Text(0) => NARROWEST_NAME,
        Cell::Text(_) => column.width,
        cell => {
            let in_sight = app.items.iter().skip(app.first).take(app.fitting);
            let widest = in_sight.map(|item| wide(&cell.show(item))).max().unwrap_or_default();
            u16::try_from(widest).unwrap_or(u16::MAX).max(column.width)
        }
    }
}

/// Width that shows the whole text of any row.
fn wanted(app: &App, column: &Column) -> u16 {
    match column.cell {
        Cell::Text(at) => app.widest.get(at).copied().unwrap_or_default(),
        _ => 0,
    }
}

/// How soon a narrow screen does without a column.
fn dispensable(column: &Column) -> u8 {
    match column.cell {
        Cell::Datagrams => 9,
        Cell::ToClients => 8,
        Cell::FromClients => 7,
        Cell::Share => 6,
        Cell::Services | Cell::Ready => 5,
        Cell::Opened => 4,
        Cell::Text(_) if column.name != STATE => 3,
        Cell::Open => 2,
        Cell::Errors => 1,
        Cell::Text(_) | Cell::Recent | Cell::Why => 0,
    }
}
