//! Text tables that are described by their columns.

/// A column of a table with rows of type `R`.
///
/// The heading and the rows are padded to the same widths, so that each heading stays above its figures.
pub(crate) struct Column<R> {
    /// Lines of the heading, from top to bottom. Missing lines are left empty. A line that is wider than the column
    /// starts at the column's left edge and extends over the following columns.
    title: &'static [&'static str],
    /// Width in characters, including the space that separates columns.
    width: usize,
    is_left: bool,
    /// Returns the cell's text for a row.
    of: fn(&R) -> String,
}

impl<R> Column<R> {
    /// Creates a column whose texts are left-aligned.
    pub(crate) const fn left(
        title: &'static [&'static str],
        width: usize,
        of: fn(&R) -> String,
    ) -> Self {
        Self { title, width, is_left: true, of }
    }

    /// Creates a column whose texts are right-aligned.
    pub(crate) const fn right(
        title: &'static [&'static str],
        width: usize,
        of: fn(&R) -> String,
    ) -> Self {
        Self { title, width, is_left: false, of }
    }

    /// Pads a text to the width of the column.
    fn padded(&self, text: &str) -> String {
        let width = self.width;
        if self.is_left { format!("{text:<width$}") } else { format!("{text:>width$}") }
    }
}

/// Appends a table: the heading, and a line for each row.
pub(crate) fn write<'a, R: 'a>(
    columns: &[Column<R>],
    rows: impl IntoIterator<Item = &'a R>,
    text: &mut String,
) {
    write_heading(columns, text);
    rows.into_iter().for_each(|row| write_line(columns, row, text));
}

/// Appends the lines of the heading.
pub(crate) fn write_heading<R>(columns: &[Column<R>], text: &mut String) {
    let lines = columns.iter().map(|column| column.title.len()).max().unwrap_or_default();
    for number in 0..lines {
        let (mut line, mut start) = (String::new(), 0);
        for column in columns {
            let title = column.padded(column.title.get(number).copied().unwrap_or_default());
            let shown = title.trim_start();
            if !shown.is_empty() {
                let position = start + title.len() - shown.len();
                line = format!("{:<position$}{shown}", line.trim_end());
            }
            start += column.width;
        }
        *text += line.trim_end();
        text.push('\n');
    }
}

/// Appends a row as one line. A cell as wide as its column shifts the following cells to the right.
pub(crate) fn write_line<R>(columns: &[Column<R>], row: &R, text: &mut String) {
    let mut line = String::new();
    for column in columns {
        let cell = column.padded(&(column.of)(row));
        if !line.is_empty() && !line.ends_with(' ') && !cell.starts_with(' ') {
            line.push(' ');
        }
        line += &cell;
    }
    *text += line.trim_end();
    text.push('\n');
}

/// Returns a report on made-up figures as text. Checks that it fits a terminal, and that its tables are the same as
/// those in `tests/tables`.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_kept<F: crate::report::Findings>(
    name: &str,
    report: &crate::report::Report<F>,
) -> String {
    let mut tables = String::new();
    report.findings.write(&mut tables);
    assert_text_kept(name, &tables);
    let text = report.table();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

/// Checks that a text is the same as the one in `tests/tables`.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_text_kept(name: &str, text: &str) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables");
    let path = folder.join(name).with_extension("txt");
    if std::env::var_os("GROSSO_WRITE_DOCUMENTS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let command = "GROSSO_WRITE_DOCUMENTS=1 cargo test -p grosso-lab --lib";
    assert!(kept == text, "{}: if the change is wanted, run {command}\n{text}", path.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column<(&str, f64)>; 3] = [
        Column::left(&["name"], 6, |row| row.0.into()),
        Column::right(&["  a wide title", "tenths"], 7, |row| format!("{:.1}", row.1)),
        Column::right(&["", "whole"], 7, |row| format!("{:.0}", row.1)),
    ];

    #[test]
    fn headings_are_above_their_figures() {
        let mut text = String::new();
        write(&COLUMNS, &[("one", 1.0), ("two", 2.5)], &mut text);
        let expected = "\
name    a wide title
       tenths  whole
one       1.0      1
two       2.5      2
";
        assert_eq!(text, expected);
    }

    #[test]
    fn texts_that_fill_their_columns_stay_apart() {
        let mut text = String::new();
        write_line(&COLUMNS, &("longer", 1_234_567.0), &mut text);
        assert_eq!(text, "longer 1234567.0 1234567\n");
        text.clear();
        write_line(&[Column::left(&[], 9, |_: &()| String::new())], &(), &mut text);
        assert_eq!(text, "\n", "lines do not end with spaces");
    }
}
