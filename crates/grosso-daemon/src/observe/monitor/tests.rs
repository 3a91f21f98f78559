//! Tests what the screen looks like and what the keys do.

use std::collections::BTreeMap;

use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent},
};

use super::{
    rates::table,
    screen::draw,
    state::{AfterKey, MonitorState, rates},
};
use crate::observe::{control::Answer, reading::DeviceReading};

/// Returns the counters after this many seconds: a NIC under load, and a TUN device whose packets are reordered.
fn answer(seconds: u64) -> Answer {
    let device = |device: &str, peer: &str, counters: &[(&str, u64)]| DeviceReading {
        path: "edge".to_owned(),
        device: device.to_owned(),
        peer: peer.to_owned(),
        queue: None,
        idle_ns: None,
        stuck_ns: None,
        counters: counters
            .iter()
            .map(|(name, a_second)| ((*name).to_owned(), a_second * seconds))
            .collect::<BTreeMap<_, _>>()
            .into(),
    };
    let nic = device(
        "eth0",
        "tn1",
        &[
            ("rx_packets", 811_000),
            ("rx_bytes", 1_176_250_000),
            ("rx_frames", 811_000),
            ("tx_packets", 76_000),
            ("tx_bytes", 127_500_000),
            ("tx_frames", 76_000),
            ("tx_needs_csum", 2_000),
            ("rx_gro_segs_1", 1_000),
            ("rx_gro_segs_32", 36_897),
            ("rx_gro_segs_sum", 811_000),
            ("rx_gro_held", 2),
            ("rx_gro_flush_size_limit", 7_100),
            ("rx_gro_flush_tcp_timestamp", 900),
            ("rx_gro_flush_psh", 800),
            ("rx_gro_flush_poll_end", 1_200),
        ],
    );
    let tun = device(
        "tn1",
        "eth0",
        &[
            ("rx_packets", 2_000),
            ("rx_bytes", 2_500_000),
            ("rx_frames", 1_818),
            ("tx_packets", 1),
            ("tx_needs_csum", 1),
            ("rx_csum_bad", 200_000),
            ("drop_rx_ring_full", 3),
            ("drop_tx_down", 1),
            ("rx_gro_flush_tcp_sequence_ahead", 91),
            ("rx_gro_flush_tcp_timestamp", 3),
            ("rx_gro_flush_hold_time", 6),
        ],
    );
    Answer {
        schema: "grosso.counters/1".to_owned(),
        pid: 1234,
        ts_ns: (7_900 + seconds) * 1_000_000_000,
        devices: vec![nic, tun],
        confinement: Default::default(),
    }
}

fn monitor() -> MonitorState {
    let mut monitor = MonitorState::default();
    (0..=3).for_each(|second| monitor.take(vec![answer(second)]));
    monitor
}

fn press(monitor: &mut MonitorState, keys: &str) -> AfterKey {
    keys.chars().fold(AfterKey::Go, |_, key| monitor.key(KeyEvent::from(KeyCode::Char(key))))
}

fn drawn(monitor: &MonitorState, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, monitor, true)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(usize::from(columns)).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

#[test]
fn the_screen_of_a_plain_terminal() {
    let mut monitor = monitor();
    assert_eq!(drawn(&monitor, 80, 24), NIC);
    monitor.key(KeyEvent::from(KeyCode::Down));
    assert_eq!(drawn(&monitor, 80, 24), TUN);
}

#[test]
fn a_small_terminal_has_all_devices_and_whole_columns() {
    let mut monitor = monitor();
    assert_eq!(drawn(&monitor, 60, 15), SMALL);
    press(&mut monitor, "?");
    let help = drawn(&monitor, 60, 15);
    assert!(help.contains("timestamp, PSH, sequence gap, hold time"), "{help}");
    // The details are hidden because they would leave no room for some devices.
    press(&mut monitor, "?");
    assert!(drawn(&monitor, 60, 10).lines().count() == 10);
    assert!(!drawn(&monitor, 60, 10).contains("process 1234"));
}

#[test]
fn a_path_that_is_stuck_has_no_rates_and_the_age_of_its_counters() {
    let mut stuck = answer(4);
    stuck.devices[0].stuck_ns = Some(3_500_000_000);
    let text = table(&rates(&[answer(3)], &[stuck.clone()]));
    let row = |text: &str| text.lines().find(|line| line.starts_with("eth0 ")).map(str::to_owned);
    let expected =
        "eth0         stuck      -     -      -     -     -      -     -   -   -   -    -";
    assert_eq!(row(&text).as_deref(), Some(expected));
    let mut monitor = monitor();
    monitor.take(vec![stuck]);
    let screen = drawn(&monitor, 80, 24);
    assert_eq!(row(&screen).as_deref(), Some(expected), "{screen}");
    assert!(screen.contains("stuck: no answer; the counters are 3 s old"), "{screen}");
    assert!(screen.contains("tn1           0.02"), "the other device has rates: {screen}");
}

#[test]
fn any_size_of_a_terminal_will_do() {
    let mut monitor = monitor();
    for keys in ["", "?"] {
        press(&mut monitor, keys);
        for columns in [1, 2, 10, 79, 81, 200] {
            for rows in [1, 2, 3, 10, 23, 60] {
                drawn(&monitor, columns, rows);
            }
        }
    }
}

#[test]
fn text_has_the_numbers_of_the_json() {
    let text = table(&rates(&[answer(2)], &[answer(3)]));
    let rows = |text: &str| -> Vec<String> {
        let lines =
            text.lines().filter(|line| line.starts_with("eth0 ") || line.starts_with("tn1 "));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(rows(&text), rows(NIC));
    assert!(text.lines().all(|line| line.len() <= 80));
}

#[test]
fn keys_do_what_the_help_lists() {
    let mut monitor = monitor();
    let names = |monitor: &MonitorState| -> Vec<String> {
        monitor.devices.iter().map(|device| device.device.clone()).collect()
    };
    monitor.key(KeyEvent::from(KeyCode::Down));
    monitor.key(KeyEvent::from(KeyCode::Down));
    assert_eq!(monitor.chosen, 1, "there are two");
    // The sixth column counts bad checksums. Sorting by it moves the second device to the top, and that device stays
    // selected.
    press(&mut monitor, "ssssss");
    assert_eq!((names(&monitor), monitor.chosen), (vec!["tn1".into(), "eth0".into()], 0));
    press(&mut monitor, "sssssss");
    assert_eq!((names(&monitor), monitor.chosen), (vec!["eth0".into(), "tn1".into()], 1));

    assert!(drawn(&monitor, 80, 24).contains("600k"), "so far");
    press(&mut monitor, "d");
    assert!(drawn(&monitor, 80, 24).contains("200k"), "in the last second");

    press(&mut monitor, " ");
    let ts_ns = monitor.ts_ns;
    monitor.take(vec![answer(9)]);
    assert_eq!(monitor.ts_ns, ts_ns, "paused");
    press(&mut monitor, " ");
    monitor.take(vec![answer(9)]);
    assert!(monitor.ts_ns > ts_ns);

    let before = monitor.devices.clone();
    monitor.take(vec![answer(9)]);
    assert_eq!(monitor.devices, before, "the program was queried too soon, and repeated its reply");

    assert_eq!(press(&mut monitor, "?q"), AfterKey::Go, "q closes the help first");
    assert_eq!(press(&mut monitor, "q"), AfterKey::Quit);
}

#[test]
fn a_program_that_began_anew_has_no_rates_from_before() {
    let mut again = answer(1);
    again.pid = 99;
    assert_eq!(rates(&[answer(5)], &[again]), []);
    // Another program has been given the same process ID. Its counters start at zero, so they are smaller.
    let mut same = answer(1);
    same.ts_ns = answer(6).ts_ns;
    let rates = rates(&[answer(5)], &[same]);
    assert_eq!(rates[0].rx_kpackets_per_s, 811.0);
}

const NIC: &str = "\
grosso monitor   eth0   02:11:43Z   q quit  ? help                ███ rx  ███ tx
                rx     rx    in     tx  segs  csum        flush   %
dev         Gbit/s   kpps batch Gbit/s /send   bad  drops  size  ts psh gap time
eth0          9.41    811  21.4   1.02  38.0     0      0    71   9   8   0   12
tn1           0.02    2.0   1.1   0.00   1.0  600k     12     0   3   0  91    6







┌ eth0: path edge, to tn1, process 1234, trains held 6 ────────────────────────┐
│rx 9.41 Gb/s  ███                                                             │
│max 9.41 Gb/s ███                                                             │
│              ███                                                             │
│tx 1.02 Gb/s  ███                                                             │
│max 1.02 Gb/s ███                                                             │
│              ███                                                             │
│flush  size_limit 7100, poll_end 1200, tcp_timestamp 900, psh 800             │
│pass   -                                                                      │
│drops  -                                                                      │
│                                                                              │
└──────────────────────────────────────────────────────────────────────────────┘
";
const TUN: &str = "grosso monitor   tn1   02:11:43Z   q quit  ? help                 ███ rx  ▁▁▁ tx
                rx     rx    in     tx  segs  csum        flush   %
dev         Gbit/s   kpps batch Gbit/s /send   bad  drops  size  ts psh gap time
eth0          9.41    811  21.4   1.02  38.0     0      0    71   9   8   0   12
tn1           0.02    2.0   1.1   0.00   1.0  600k     12     0   3   0  91    6







┌ tn1: path edge, to eth0, process 1234, trains held 0 ────────────────────────┐
│rx 20.0 Mb/s  ███                                                             │
│max 20.0 Mb/s ███                                                             │
│              ███                                                             │
│tx     0 b/s                                                                  │
│max    0 b/s                                                                  │
│                                                                              │
│flush  tcp_sequence_ahead 91, hold_time 6, tcp_timestamp 3                    │
│pass   -                                                                      │
│drops  rx_ring_full 3, tx_down 1                                              │
│packets are lost or reordered: gaps flush trains                              │
└──────────────────────────────────────────────────────────────────────────────┘
";
const SMALL: &str = "\
grosso monitor   eth0   02:11:43Z   q quit  ? help
                   rx     rx    in     tx  segs  csum
dev            Gbit/s   kpps batch Gbit/s /send   bad  drops
eth0             9.41    811  21.4   1.02  38.0     0      0
tn1              0.02    2.0   1.1   0.00   1.0  600k     12




┌ eth0: path edge, to tn1, process 1234, trains held 6 ────┐
│flush  size_limit 7100, poll_end 1200, tcp_timestamp 900  │
│pass   -                                                  │
│drops  -                                                  │
│                                                          │
└──────────────────────────────────────────────────────────┘
";
