//! Draws the screen.

use std::collections::VecDeque;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState},
};

use super::{
    rates::{COLUMNS, Column, DEVICE_COLUMNS, Rates, STUCK, cells, shortened},
    state::{History, MonitorState},
};
use crate::observe::text;

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, monitor: &MonitorState, color: bool) {
    let paint = Paint { color };
    let rows = detail_rows(frame.area().height, monitor.devices.len());
    let [title, table, detail] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(rows)])
            .areas(frame.area());
    draw_title(frame, title, monitor, paint);
    match &monitor.notice {
        Some(notice) => frame.render_widget(Paragraph::new(notice.as_str()), table),
        None if monitor.devices.is_empty() => {
            frame.render_widget(Paragraph::new("reading ..."), table);
        }
        None => draw_table(frame, table, monitor, paint),
    }
    if let Some((device, history)) = monitor.chosen().filter(|_| rows > 0) {
        draw_detail(frame, detail, device, history, paint);
    }
    if monitor.help {
        draw_help(frame);
    }
}

/// Returns the number of rows for the details of the chosen device, below a table of `devices` devices: enough for its
/// activity and reasons, for its reasons only, or zero. The table takes precedence.
fn detail_rows(rows: u16, devices: usize) -> u16 {
    let table = TITLE_ROWS + HEAD_ROWS + devices.clamp(1, DEVICE_ROWS) as u16;
    let fits = |detail: &u16| rows >= table + detail;
    [DETAIL_ROWS, REASON_ROWS].into_iter().find(fits).unwrap_or(0)
}

/// Text styles, with colors only if the terminal should show them.
#[derive(Clone, Copy)]
struct Paint {
    color: bool,
}

impl Paint {
    fn of(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, monitor: &MonitorState, paint: Paint) {
    let strong = Style::new().add_modifier(Modifier::BOLD);
    let name = monitor.chosen().map_or("", |(device, _)| &device.device);
    let mut title = Line::from(vec![
        Span::styled("grosso monitor", strong),
        Span::raw(format!("   {name}   {}   q quit  ? help", clock(monitor.ts_ns))),
    ]);
    if monitor.paused {
        title.push_span(Span::styled("  paused", paint.of(Color::Yellow)));
    }
    let room = usize::from(area.width).saturating_sub(title.width());
    frame.render_widget(title, area);
    if let Some((_, history)) = monitor.chosen() {
        let lately = Line::from(vec![
            Span::styled(bars(&history.rx), paint.of(Color::Green)),
            Span::raw(" rx  "),
            Span::styled(bars(&history.tx), paint.of(Color::Cyan)),
            Span::raw(" tx"),
        ]);
        // The plots are omitted if they do not fit, because truncated plots would be misleading.
        if lately.width() < room {
            frame.render_widget(lately.right_aligned(), area);
        }
    }
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, monitor: &MonitorState, paint: Paint) {
    let shown = shown(usize::from(area.width));
    let numbers: usize = shown.iter().map(|column| column.width).sum();
    let room = usize::from(area.width).saturating_sub(numbers);
    let device_columns = room.clamp(DEVICE_COLUMNS, DEVICE_COLUMNS_MAX);
    let head = |line: usize| {
        let numbers = shown.iter().enumerate().map(move |(place, column)| {
            let style = match monitor.sorted_by == Some(place) {
                true => Style::new().add_modifier(Modifier::REVERSED),
                false => Style::new(),
            };
            let text = Span::styled(column.heads[line], style);
            Cell::from(Line::from(text).right_aligned())
        });
        Row::new([Cell::from(["", "dev"][line])].into_iter().chain(numbers))
            .style(Style::new().add_modifier(Modifier::BOLD))
    };
    let rows = monitor.devices.iter().map(|device| {
        let name = Cell::from(shortened(&device.device, device_columns));
        let cells = cells(device, monitor.deltas).into_iter().take(shown.len());
        let numbers = cells.enumerate().map(|(place, cell)| {
            let is_count = matches!(place, CHECKSUMS | DROPS) && !matches!(&*cell, "0" | "-");
            let is_fault = is_count || cell == STUCK;
            let style = if is_fault { paint.of(Color::Red) } else { Style::new() };
            Cell::from(Line::styled(cell, style).right_aligned())
        });
        Row::new([name].into_iter().chain(numbers))
    });
    let widths = shown.iter().map(|column| Constraint::Length(column.width as u16));
    let widths: Vec<_> =
        [Constraint::Length(device_columns as u16)].into_iter().chain(widths).collect();
    // The first line of headings is drawn separately, because a table has only one heading row.
    let [above, below] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Table::new([head(0)], &widths).column_spacing(0), above);
    let table = Table::new(rows, &widths)
        .header(head(1))
        .column_spacing(0)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(Some(monitor.chosen));
    frame.render_stateful_widget(table, below, &mut state);
}

/// Returns the columns that fit next to the device's name, from the left. The last columns also appear among the
/// reasons below.
fn shown(width: usize) -> &'static [Column] {
    let mut end = DEVICE_COLUMNS;
    let fits = COLUMNS.iter().take_while(|column| {
        end += column.width;
        end <= width
    });
    &COLUMNS[..fits.count()]
}

/// Draws the recent activity of the chosen device, and the reasons for its flushes.
fn draw_detail(frame: &mut Frame<'_>, area: Rect, device: &Rates, history: &History, paint: Paint) {
    let Rates { device: name, path, peer, pid, trains_held: held, .. } = device;
    let title = format!(" {name}: path {path}, to {peer}, process {pid}, trains held {held} ");
    let block = Block::bordered().title(title);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let plot = Constraint::Length(if area.height < DETAIL_ROWS { 0 } else { 3 });
    let [rx, tx, reasons] = Layout::vertical([plot, plot, Constraint::Fill(1)]).areas(inside);
    draw_history(frame, rx, "rx", &history.rx, paint.of(Color::Green));
    draw_history(frame, tx, "tx", &history.tx, paint.of(Color::Cyan));
    let width = usize::from(reasons.width);
    let mut lines = vec![
        list("flush", &device.reasons.flush, width),
        list("pass ", &device.reasons.pass, width),
        list("drops", &device.reasons.drops, width),
    ];
    if let Some(age_ns) = device.stuck_ns {
        lines.push(Line::styled(text::stuck(age_ns), paint.of(Color::Red)));
    }
    if device.flush.is_some_and(|flush| flush.gap > REORDERING) {
        let note = "packets are lost or reordered: gaps flush trains";
        lines.push(Line::styled(note, paint.of(Color::Yellow)));
    }
    frame.render_widget(Paragraph::new(lines), reasons);
}

fn draw_history(
    frame: &mut Frame<'_>,
    area: Rect,
    label: &str,
    history: &VecDeque<u64>,
    style: Style,
) {
    let [text, plot] =
        Layout::horizontal([Constraint::Length(LABEL_COLUMNS), Constraint::Fill(1)]).areas(area);
    let now = history.back().copied().unwrap_or(0);
    let most = history.iter().rev().take(usize::from(plot.width)).max().copied().unwrap_or(0);
    let lines = vec![
        Line::raw(format!("{label} {:>9}", bits(now))),
        Line::raw(format!("max {:>8}", bits(most))),
    ];
    frame.render_widget(Paragraph::new(lines), text);
    let shown: Vec<u64> =
        history.iter().rev().take(usize::from(plot.width)).rev().copied().collect();
    frame.render_widget(Sparkline::default().data(shown).style(style), plot);
}

/// Returns the most frequent reasons in one line.
fn list(label: &str, counts: &[(&'static str, u64)], width: usize) -> Line<'static> {
    let mut line = format!("{label}  ");
    for (index, (reason, count)) in counts.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        let word = format!("{separator}{reason} {count}");
        if line.chars().count() + word.len() > width {
            break;
        }
        line.push_str(&word);
    }
    if counts.is_empty() {
        line.push('-');
    }
    Line::raw(line)
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (HELP_COLUMNS.min(area.width), HELP.lines().count() as u16 + 2);
    let place = Rect {
        x: (area.width - width) / 2,
        y: area.height.saturating_sub(height) / 2,
        width,
        height: height.min(area.height),
    };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" help ")), place);
}

/// Returns the last intervals as a string of bars with eight different heights.
fn bars(history: &VecDeque<u64>) -> String {
    let lately = history.iter().rev().take(BARS).rev();
    let most = lately.clone().copied().max().unwrap_or(0).max(1);
    lately
        .map(|value| MARKS[(u128::from(*value) * 7).div_ceil(u128::from(most)) as usize])
        .collect()
}

/// Formats bits per second, for example `9.41G`.
fn bits(bits: u64) -> String {
    let value = bits as f64;
    match bits {
        0..1_000 => format!("{bits} b/s"),
        1_000..1_000_000 => format!("{:.1} kb/s", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} Mb/s", value / 1e6),
        _ => format!("{:.2} Gb/s", value / 1e9),
    }
}

/// Formats the time of day in UTC.
pub fn clock(ts_ns: u64) -> String {
    let seconds = ts_ns / 1_000_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

const HELP: &str = "\
up, down   select a device
s          sort by the next column
d          csum bad and drops: totals, or last interval
space      pause or continue
?          help
q          quit

in batch   wire packets per frame received
segs/send  wire packets per frame sent
flush      share of trains flushed by size limit, changed
           timestamp, PSH, sequence gap, hold time";
const HELP_COLUMNS: u16 = 60;
const TITLE_ROWS: u16 = 1;
const HEAD_ROWS: u16 = 2;
/// Number of devices that stay visible above the details.
const DEVICE_ROWS: usize = 4;
/// Number of rows for the details: two plots, four lines of reasons and a border.
const DETAIL_ROWS: u16 = 12;
const REASON_ROWS: u16 = 6;
/// Width of the labels next to plots.
const LABEL_COLUMNS: u16 = 14;
/// Number of intervals shown in the title.
const BARS: usize = 8;
const MARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Width of an interface name, which has up to 15 letters.
const DEVICE_COLUMNS_MAX: usize = 17;
/// Share of trains that end with a gap, above which the screen warns that packets are lost or reordered.
const REORDERING: f64 = 0.5;
/// Indexes of the fault columns in [`COLUMNS`].
const CHECKSUMS: usize = 5;
const DROPS: usize = 6;
