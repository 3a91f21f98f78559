//! Draws a test setup as a chain of hosts and devices, from the sender at the top to the receiver at the bottom.

use core::fmt::Write;

use super::escape;

/// Chain of stations.
#[derive(Clone, Copy, Debug)]
pub struct SetupDrawing<'a> {
    /// Text above the drawing.
    pub heading: &'a str,
    /// Stations from top to bottom.
    pub stations: &'a [Station<'a>],
}

/// Host, device or program, with the link to the next station.
#[derive(Clone, Copy, Debug)]
pub struct Station<'a> {
    /// Name of the station.
    pub name: &'a str,
    /// Lines below the name, of at most [`LINE_MAX`] characters each.
    pub lines: &'a [&'a str],
    /// Whether the experiment varies this station. If so, it gets a thick border.
    pub is_varied: bool,
    /// Link to the next station; `None` for the last station.
    pub link: Option<StationLink<'a>>,
}

/// Link between two stations.
#[derive(Clone, Copy, Debug)]
pub struct StationLink<'a> {
    /// Whether superframes cross the link. Otherwise, packets do.
    pub has_superframes: bool,
    /// Text of at most [`LABEL_MAX`] characters.
    pub label: &'a str,
}

impl SetupDrawing<'_> {
    /// Returns the chain as an SVG drawing, as wide as a column of a chart.
    #[must_use]
    pub fn draw(&self) -> String {
        let heading = escape(self.heading);
        let height = HEAD + self.stations.iter().map(Station::height).sum::<usize>();
        let mut text = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{heading}\">\n\
             <text class=\"head\" x=\"0\" y=\"16\">{heading}</text>\n"
        );
        let mut y = HEAD;
        for station in self.stations {
            station.draw(&mut text, y);
            y += station.height();
        }
        text + "</svg>\n"
    }
}

impl Station<'_> {
    const fn box_height(&self) -> usize {
        NAME + LINE * self.lines.len()
    }

    const fn height(&self) -> usize {
        self.box_height() + if self.link.is_some() { LINK } else { 2 }
    }

    fn draw(&self, text: &mut String, y: usize) {
        let (width, height) = (WIDTH - 4, self.box_height());
        let class = if self.is_varied { "station varied" } else { "station" };
        // Writing to a string never fails, here and below.
        let _ = writeln!(
            text,
            "<rect class=\"{class}\" x=\"2\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n\
             <text class=\"head\" x=\"12\" y=\"{}\">{}</text>",
            y + 20,
            escape(self.name),
        );
        for (number, line) in (1..).zip(self.lines) {
            let _ = writeln!(
                text,
                "<text x=\"12\" y=\"{}\">{}</text>",
                y + 20 + number * LINE,
                escape(line)
            );
        }
        if let Some(link) = &self.link {
            link.draw(text, y + height);
        }
    }
}

impl StationLink<'_> {
    /// Draws an arrow with its label, and the packets or superframes that cross the link.
    fn draw(&self, text: &mut String, y: usize) {
        let (end, middle) = (y + LINK - 4, y + LINK / 2);
        let _ = writeln!(
            text,
            "<path class=\"axis\" d=\"M20 {y} V{end} M14 {} L20 {end} L26 {}\"/>",
            end - 8,
            end - 8,
        );
        let frames = if self.has_superframes { 1 } else { PACKETS };
        let width = (FRAMES_WIDTH - (frames - 1) * FRAME_GAP) / frames;
        for number in 0..frames {
            let x = 38 + number * (width + FRAME_GAP);
            let y = middle - 6;
            let _ = writeln!(
                text,
                "<rect class=\"path\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"12\"/>"
            );
        }
        let (x, y) = (38 + FRAMES_WIDTH + 10, middle + 5);
        let _ = writeln!(text, "<text x=\"{x}\" y=\"{y}\">{}</text>", escape(self.label));
    }
}

/// Style sheet for the drawings, which are placed in the columns of a chart.
pub const STYLE: &str = "
rect.station { fill: none; stroke: var(--sender); stroke-width: 1; }
rect.varied { stroke: var(--receiver); stroke-width: 3; }
";

/// Maximum length, in characters, of a line below a station's name.
pub const LINE_MAX: usize = 50;
/// Maximum length of a link's label, in characters.
pub const LABEL_MAX: usize = 34;

/// Dimensions of a drawing: its width, and the heights of the heading, a name, a line and a link.
const WIDTH: usize = 400;
const HEAD: usize = 26;
const NAME: usize = 30;
const LINE: usize = 19;
const LINK: usize = 40;
/// Number of packets drawn for a train, and the train's width.
const PACKETS: usize = 5;
const FRAMES_WIDTH: usize = 94;
const FRAME_GAP: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_are_below_each_other_and_a_superframe_is_as_long_as_its_packets() {
        let link = |has_superframes| Some(StationLink { has_superframes, label: "a <wire>" });
        let station = |link| Station { name: "host", lines: &["a line"], is_varied: true, link };
        let stations = [station(link(false)), station(link(true)), station(None)];
        let text = SetupDrawing { heading: "here", stations: &stations }.draw();
        let values = |line: &str, name: &str| -> usize {
            let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let boxes: Vec<&str> = text.lines().filter(|line| line.contains("station")).collect();
        assert_eq!(boxes.len(), 3);
        let mut ends = boxes.iter().map(|line| values(line, "y") + values(line, "height"));
        assert!(ends.clone().zip(&boxes[1..]).all(|(end, next)| end + LINK == values(next, "y")));
        let (_, height) = text.split_once("0 0 400 ").unwrap();
        let (height, _) = height.split_once('"').unwrap();
        assert_eq!((ends.next_back().unwrap() + 2).to_string(), height);
        let frames: Vec<&str> = text.lines().filter(|line| line.contains("\"path\"")).collect();
        assert_eq!(frames.len(), PACKETS + 1);
        let right = |line: &str| values(line, "x") + values(line, "width");
        assert_eq!(right(frames[PACKETS - 1]), right(frames[PACKETS]));
        assert_eq!(text.matches("a &lt;wire&gt;").count(), 2);
    }
}
