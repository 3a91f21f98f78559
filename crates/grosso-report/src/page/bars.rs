//! Bar charts in two columns.

use core::fmt::Write;

use super::escape;

/// Rows of bars in two columns.
#[derive(Clone, Debug)]
pub struct BarChart {
    /// Heading of the chart.
    pub title: String,
    /// Columns of bars.
    pub columns: [Column; 2],
    /// Name and bars of each row.
    pub rows: Vec<(String, [Bar; 2])>,
}

/// Heading and scale of a column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Text above the column.
    pub heading: &'static str,
    /// Value of the longest bar.
    pub greatest: f64,
}

impl Column {
    /// Creates a column in which the largest of these values gets the longest bar.
    #[must_use]
    pub fn new(heading: &'static str, values: impl Iterator<Item = f64>) -> Self {
        Self { heading, greatest: values.fold(f64::MIN_POSITIVE, f64::max) }
    }
}

/// Median and maximum of a series of measurements.
#[derive(Clone, Copy, Debug)]
pub struct Middle {
    /// Median value.
    pub median: f64,
    /// Maximum value.
    pub max: f64,
}

/// Bar that consists of one part or several adjacent parts.
#[derive(Clone, Debug)]
pub struct Bar {
    /// CSS class, name and value of each part.
    parts: Vec<(&'static str, Option<&'static str>, f64)>,
    /// Individual measurements, drawn as dots. The bar shows their median.
    dots: Vec<f64>,
    /// Value at which the bar ends and its label begins.
    end: f64,
    label: String,
}

impl Bar {
    /// Creates a bar that shows the median of several measurements.
    #[must_use]
    pub fn middle(
        class: &'static str,
        middle: impl Into<Middle>,
        dots: impl Iterator<Item = f64>,
        label: String,
    ) -> Self {
        let Middle { median, max } = middle.into();
        let parts = vec![(class, None, median)];
        Self { parts, dots: dots.collect(), end: max, label }
    }

    /// Creates a bar with several parts, each of which has a class, a name and a value.
    #[must_use]
    pub fn parts<'a>(
        parts: impl IntoIterator<Item = &'a (&'static str, &'static str, f64)>,
        label: String,
    ) -> Self {
        let parts = parts.into_iter().map(|&(class, name, value)| (class, Some(name), value));
        let parts: Vec<_> = parts.collect();
        let end = parts.iter().map(|(.., value)| value).sum();
        Self { parts, dots: Vec::new(), end, label }
    }

    /// Draws the bar at `x`. A bar for the value `greatest` would have the length `longest`.
    fn draw(&self, text: &mut String, (x, y): (f64, usize), longest: f64, greatest: f64) {
        let length = |value: f64| match value.is_finite() && greatest > 0.0 {
            true => longest * value / greatest,
            false => 0.0,
        };
        let middle = y + THICK / 2 + 5;
        let mut from = x;
        // Writing to a string never fails, here and below.
        for (class, name, value) in &self.parts {
            let _ = write!(
                text,
                "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{THICK}\"",
                length(*value),
            );
            let _ = match name {
                Some(name) => writeln!(text, "><title>{name} {value:.3}</title></rect>"),
                None => writeln!(text, "/>"),
            };
            from += length(*value);
        }
        let (behind, label) = (x + length(self.end) + GAP, escape(&self.label.replace("NaN", "-")));
        let _ = writeln!(text, "<text x=\"{behind:.1}\" y=\"{middle}\">{label}</text>");
        for dot in &self.dots {
            let (x, y) = (x + length(*dot), y + THICK / 2);
            let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y}\" r=\"3\"/>");
        }
    }
}

impl BarChart {
    /// Returns the chart with its title as HTML. Each column is a separate drawing; they are side by side, or stacked
    /// on a narrow page.
    #[must_use]
    pub fn draw(&self) -> String {
        let title = escape(&self.title);
        let mut text = format!("<h2>{title}</h2>\n<div class=\"pair\">");
        for (index, column) in self.columns.iter().enumerate() {
            self.draw_column(&mut text, index, *column);
        }
        text + "</div>\n"
    }

    /// Draws one column, with the name of each row above its bar.
    fn draw_column(&self, text: &mut String, index: usize, column: Column) {
        let height = HEAD + ROW * self.rows.len();
        let longest = (WIDTH - LABEL) as f64;
        let heading = escape(column.heading);
        let title = escape(&self.title);
        let _ = write!(
            text,
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}: {heading}\">\n\
             <text class=\"head\" x=\"0\" y=\"16\">{heading}</text>\n"
        );
        for (i, (name, bars)) in self.rows.iter().enumerate() {
            let (y, name) = (HEAD + i * ROW, escape(name));
            let _ = writeln!(text, "<text x=\"0\" y=\"{}\">{name}</text>", y + NAME - 6);
            bars[index].draw(text, (0.0, y + NAME), longest, column.greatest);
        }
        text.push_str("</svg>\n");
    }
}

/// Style sheet for the two drawings in a chart.
pub const STYLE: &str = "
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: .8rem 1.5rem; }
.pair svg { width: 100%; min-width: 0; height: auto; }
@media (max-width: 799px) { .pair { grid-template-columns: 1fr; } }
";

/// Dimensions of a drawing: its width, the space for a bar's label, and the heights of heading, name and row.
const WIDTH: usize = 400;
const LABEL: usize = 130;
const GAP: f64 = 8.0;
const HEAD: usize = 26;
const NAME: usize = 22;
const THICK: usize = 18;
const ROW: usize = NAME + THICK + 6;
