//! Formats numbers and units for human readers.

/// Formats a number of bytes in decimal units, as other capture tools do, for example `12.65 MB`.
pub fn bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..1_000_000 => format!("{:.1} kB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} MB", value / 1e6),
        _ => format!("{:.2} GB", value / 1e9),
    }
}

/// Formats a duration with about three digits, for example `16 ms`.
pub fn duration(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{} us", short(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", short(value / 1e6)),
        _ => format!("{} s", short(value / 1e9)),
    }
}

/// Formats a time exactly, in the syntax used for options, for example `20us`.
pub fn exact_time(nanoseconds: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let found = units.iter().find(|(unit, _)| nanoseconds.is_multiple_of(*unit));
    match found {
        _ if nanoseconds == 0 => "0".into(),
        Some((unit, name)) => format!("{}{name}", nanoseconds / unit),
        None => format!("{nanoseconds}ns"),
    }
}

/// Parses a time with a unit, as formatted by [`exact_time`]. Returns nanoseconds.
///
/// # Errors
/// Fails if the string is not a number followed by a unit, or if the time does not fit into 64 bits.
pub fn parse_time(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "" if number == "0" => 1,
        _ => return Err("expected a time with a unit (ns, us, ms or s)".into()),
    };
    let nanoseconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    nanoseconds.ok_or_else(|| "expected a number before the unit".into())
}

/// Formats a percentage, for example `99.6 %`. Prints 100 % only if `part` is the whole.
pub fn percent(part: u64, whole: u64) -> String {
    if part == whole {
        return if whole == 0 { "0 %".into() } else { "100 %".into() };
    }
    format!("{:.1} %", percentage(part, whole))
}

/// Returns a percentage, rounded to tenths. Returns 100 only if `part` is the whole.
pub fn percentage(part: u64, whole: u64) -> f64 {
    if part == whole && whole > 0 {
        return 100.0;
    }
    let tenths = (part as f64 * 1000.0 / whole.max(1) as f64).round();
    tenths.min(999.0) / 10.0
}

/// Rounds to two significant digits, for use in messages such as `about 8700`.
pub fn about(value: u64) -> u64 {
    let digits = value.checked_ilog10().unwrap_or(0);
    let unit = 10_u64.pow(digits.saturating_sub(1));
    value.saturating_add(unit / 2) / unit * unit
}

/// Formats a rate per second, for example `1.9 million` or `330 thousand`.
pub fn rate(a_second: f64) -> String {
    match a_second {
        0.0..1e4 => format!("{a_second:.0}"),
        1e4..1e6 => format!("{:.0} thousand", a_second / 1e3),
        _ => format!("{:.1} million", a_second / 1e6),
    }
}

/// Formats a count, for example `1 packet` or `2 packets`.
pub fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

fn short(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_in_the_manual() {
        assert_eq!(bytes(12_649_516), "12.65 MB");
        assert_eq!(bytes(65226), "65.2 kB");
        assert_eq!(duration(16_000_000), "16 ms");
        assert_eq!(duration(1_204_993), "1.2 ms");
        let times = [0, 7, 1_500, 20_000, 1_000_000, 60_000_000_000].map(exact_time);
        assert_eq!(times, ["0", "7ns", "1500ns", "20us", "1ms", "60s"]);
        assert_eq!(parse_time("20us"), Ok(20_000));
        assert_eq!(parse_time("1ms"), Ok(1_000_000));
        assert_eq!(parse_time("0"), Ok(0));
        for wrong in ["20", "us", "99999999999999999999s"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(percent(996, 1000), "99.6 %");
        assert_eq!(percent(99_999, 100_000), "99.9 %");
        assert_eq!(percent(0, 0), "0 %");
        assert_eq!(about(8698), 8700);
        assert_eq!(about(7), 7);
        assert_eq!(about(u64::MAX), u64::MAX / 10u64.pow(18) * 10u64.pow(18));
    }
}
