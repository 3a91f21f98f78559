//! The publications whose claims the lab tests: a list of them for pages, with the date and build of the page, and
//! the published figures that several experiments use.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{page::escape, verdict::Published};

/// Web addresses of the publications; R5 has none.
const ORIGINALS: [(&str, &str); 4] = [
    ("R1", "https://lore.kernel.org/netdev/?q=%22Generic+Large+Receive+Offload+for+TCP+traffic%22"),
    ("R2", "https://git.kernel.org/torvalds/c/891584f4"),
    ("R3", "https://lists.freebsd.org/pipermail/freebsd-current/2011-December/"),
    ("R4", "https://lore.kernel.org/netdev/1414882683-25484-1-git-send-email-therbert@google.com/"),
];

/// The publications, each with its experiment and its subject.
const PAGES: [(&str, &str, &str); 5] = [
    ("R1", "lro", "LRO on a 10 Gb/s NIC"),
    ("R2", "fragments", "fragments inside IPsec"),
    ("R3", "acks", "merged acknowledgments"),
    ("R4", "tunnels", "checksums in tunnels"),
    ("R5", "gso", "TSO and GSO"),
];

/// Published throughput per CPU with pages (8.8 Gb/s at 77 % of a CPU), divided by the throughput per CPU with packet
/// buffers (5.5 Gb/s at 90 %), both with generic coalescing.
pub(crate) const PAGES_OVER_BUFFERS: f64 = (8.8 / 77.0) / (5.5 / 90.0);

/// Returns a ratio from table R1.
pub(crate) const fn nic(ratio: f64) -> Published {
    Published::new(ratio, "R1, in 2007 on a 10 Gb/s NIC")
}

/// Returns a line for each publication, with the command that repeats its measurements and with the page for them.
pub(crate) fn pages() -> String {
    let line = |(name, experiment, subject): (&str, &str, &str)| {
        let command = format!("grosso lab {experiment}");
        format!("  {name}  {subject:<27}{command:<21}{}\n", file(experiment))
    };
    format!(
        "\nPages with published and measured results, one for each publication:\n{}",
        PAGES.map(line).concat()
    )
}

/// Returns an HTML list of the publications.
pub(crate) fn page_list() -> String {
    let item = |(name, experiment, subject): (&str, &str, &str)| {
        format!(
            "<li>{}: {subject}. <code>grosso lab {experiment}</code> writes \
             <a href=\"{file}\">{file}</a></li>\n",
            linked(name),
            file = file(experiment),
        )
    };
    format!("<h2>Publications</h2>\n<ul>{}</ul>\n", PAGES.map(item).concat())
}

/// Returns the default file name of an experiment's page.
fn file(experiment: &str) -> String {
    format!("grosso-lab-{experiment}.html")
}

/// Returns a source's name as HTML, with a link to the original if it has an address.
pub(crate) fn linked(source: &str) -> String {
    let address = |(name, _): &&(&str, &str)| source.starts_with(name);
    match ORIGINALS.iter().find(address) {
        Some((_, address)) => {
            format!("<a href=\"{}\">{}</a>", escape(address), escape(source))
        }
        None => escape(source),
    }
}

/// Returns a text with the date in UTC and the build.
pub(crate) fn provenance(commit: &str) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    format!("{}, Grosso {version}, commit {commit}", date(since.as_secs() / 86_400))
}

/// Returns the date that is `day` days after 1970-01-01.
fn date(day: u64) -> String {
    let (mut year, mut left) = (1970, day);
    loop {
        let days = 365 + u64::from(is_leap(year));
        if left < days {
            break;
        }
        left -= days;
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_publication_has_a_page_whose_line_fits_a_terminal() {
        let text = pages();
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(page_list().matches("<li>").count(), text.matches(" grosso lab ").count());
    }

    #[test]
    fn addresses_are_those_of_the_list_of_publications() {
        let list = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sources.md");
        let list = std::fs::read_to_string(list).unwrap();
        for (name, address) in ORIGINALS {
            let row = list.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap();
            assert!(row.contains(&format!("({address})")), "{row}");
        }
        assert!(linked("R2, in 2019").starts_with("<a href=\"https://git.kernel.org/"));
        assert_eq!(linked("R5, in 2014"), "R5, in 2014");
    }

    #[test]
    fn days_are_dates() {
        let dates = [0, 58, 59, 364, 365, 789, 11_016, 20_821].map(date);
        assert_eq!(
            dates,
            [
                "1970-01-01",
                "1970-02-28",
                "1970-03-01",
                "1970-12-31",
                "1971-01-01",
                "1972-02-29",
                "2000-02-29",
                "2027-01-03"
            ]
        );
    }
}
