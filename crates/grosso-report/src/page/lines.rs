//! Line charts.

use core::fmt::Write;

use super::escape;

/// Lines that share a horizontal axis.
#[derive(Clone, Debug)]
pub struct LineChart {
    /// Heading of the chart.
    pub title: String,
    /// Positions along the axis, and their labels.
    pub labels: Vec<(f64, String)>,
    /// Lines, each in a different color.
    pub lines: Vec<PlotLine>,
}

/// Line in a [`LineChart`].
#[derive(Clone, Debug)]
pub struct PlotLine {
    /// Name of the line, shown in the line's color.
    pub name: String,
    /// Points of the line from left to right, each with its position along the axis and its value.
    pub points: Vec<(f64, f64)>,
}

impl LineChart {
    /// Returns the chart with its title as HTML.
    #[must_use]
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let highest = points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
        let places = points().map(|point| point.0).chain(self.labels.iter().map(|label| label.0));
        let farthest = places.fold(1.0, f64::max);
        let across = |x: f64| LEFT + (RIGHT - LEFT) * x / farthest;
        let down = |y: f64| BOTTOM - (BOTTOM - TOP) * y / highest;
        let mut text = open(&self.title, HEIGHT);
        let _ = writeln!(text, "<path class=\"axis\" d=\"M{LEFT} {TOP} V{BOTTOM} H{RIGHT}\"/>");
        for tick in [highest / 2.0, highest] {
            let _ = writeln!(
                text,
                "<text x=\"0\" y=\"{:.1}\">{}</text>",
                down(tick) + 5.0,
                digits(tick)
            );
        }
        for (x, label) in &self.labels {
            let (x, y) = (across(*x) - 8.0, BOTTOM + 20.0);
            let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y}\">{}</text>", escape(label));
        }
        for (i, PlotLine { name, points }) in self.lines.iter().enumerate() {
            let class = format!("h{}", i % COLOURS);
            let path = points.iter().map(|(x, y)| format!("{:.1} {:.1}", across(*x), down(*y)));
            let path = path.collect::<Vec<_>>().join(" L");
            if !path.is_empty() {
                let _ = writeln!(text, "<path class=\"{class}\" d=\"M{path}\"/>");
            }
            if points.len() <= DOTS_MAX {
                for (x, y) in points {
                    let (x, y) = (across(*x), down(*y));
                    let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
                }
            }
            let (x, y) = (RIGHT + 15.0, TOP + 15.0 + 20.0 * i as f64);
            let _ = writeln!(
                text,
                "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>",
                escape(name)
            );
        }
        text + "</svg></div>\n"
    }
}

/// Opens a drawing that is `WIDTH` units wide and `height` units high.
#[must_use]
pub fn open(title: &str, height: usize) -> String {
    let title = escape(title);
    format!(
        "<h2>{title}</h2>\n<div class=\"wide\">\
         <svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n"
    )
}

/// Formats a number with about three digits.
fn digits(value: f64) -> String {
    match value {
        0.0..10.0 => format!("{value:.1}"),
        10.0..1e6 => format!("{value:.0}"),
        _ => format!("{:.1}M", value / 1e6),
    }
}

/// Width of a drawing.
const WIDTH: usize = 880;
const HEIGHT: usize = 260;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 640.0;
const TOP: f64 = 15.0;
const BOTTOM: f64 = 225.0;
/// Number of line colors.
const COLOURS: usize = 8;
/// Maximum number of points for which dots are drawn. Lines with more points have none.
const DOTS_MAX: usize = 16;
