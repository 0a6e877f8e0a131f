//! Table on the terminal: one line per figure, with its mark if it has one.

/// Figure.
pub(crate) struct Row {
    case: String,
    what: String,
    value: f64,
    unit: &'static str,
    /// Maximum of the figure.
    mark: Option<f64>,
    note: String,
}

impl Row {
    /// Figure without a mark.
    pub(crate) fn new(case: &str, what: &str, value: f64, unit: &'static str) -> Self {
        let (case, what) = (case.to_owned(), what.to_owned());
        Self { case, what, value, unit, mark: None, note: String::new() }
    }

    /// Sets the maximum, if `counts`.
    pub(crate) fn at_most(mut self, mark: f64, counts: bool) -> Self {
        self.mark = counts.then_some(mark);
        self
    }

    /// Sets a remark.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Whether it exceeds its mark.
    pub(crate) fn missed(&self) -> bool {
        self.mark.is_some_and(|mark| self.value > mark)
    }
}

/// Prints the titles.
pub(crate) fn print_head() {
    println!("{:<34} {:<34} {:>10} {:<5} {:>10}", "case", "figure", "value", "", "mark");
}

/// Prints a line.
pub(crate) fn print_row(row: &Row) {
    let mark = match row.mark {
        None => String::new(),
        Some(mark) if row.missed() => format!("MISSED {mark}"),
        Some(mark) => format!("<= {mark}"),
    };
    let value = if row.value.fract() == 0.0 { format!("{}", row.value) } else { format!("{:.2}", row.value) };
    println!("{:<34} {:<34} {value:>10} {:<5} {mark:>10}  {}", row.case, row.what, row.unit, row.note);
}
