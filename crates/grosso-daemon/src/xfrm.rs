//! Parses security associations in the syntax of `ip xfrm state`. The text is either the output of this command, or
//! contains `ip xfrm state add` commands. Commands of `ip xfrm policy` in the text are skipped and counted.

use core::str::FromStr;
use std::net::IpAddr;

use zeroize::Zeroizing;

use super::{
    keys::Keys,
    stages::{EspTable, prefix},
};

/// One security association.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State<'a> {
    /// Number of the association's first line.
    line: usize,
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    spi: Option<u32>,
    is_tunnel: bool,
    is_esp: bool,
    icv_bits: u32,
    /// Hexadecimal digits of the key and its salt.
    key: &'a str,
    is_extended: bool,
    replay_window: u32,
    /// UDP ports of the source and the destination.
    encap: Option<(u16, u16)>,
    /// Prefixes of the source and the destination.
    selector: Option<(&'a str, &'a str)>,
    /// Whether the parser has reached the association's counters.
    has_counters: bool,
    /// Whether the association has sent or received packets.
    is_used: bool,
}

/// The settings and keys of a port that is an endpoint of two associations.
#[derive(Clone, PartialEq, Eq)]
pub struct EspEnd {
    /// Lines of a configuration file's `esp` table, except those that name files.
    pub table: String,
    /// Text of a key file.
    pub keys: Zeroizing<String>,
    /// Whether either association has sent or received packets.
    pub is_used: bool,
    /// Number of `ip xfrm policy` commands that were skipped.
    pub policies: usize,
}

/// Finds the two associations of this endpoint with the only peer, or with the given peer. Both directions may have the
/// same key if `is_shared` is true.
///
/// # Errors
/// Returns the first option that is unknown, or that a port does not support, with its line.
pub fn pair(
    text: &str,
    here: IpAddr,
    there: Option<IpAddr>,
    is_shared: bool,
) -> Result<EspEnd, String> {
    let (states, policies) = states(text)?;
    let others = |state: &&State<'_>| {
        there.is_none_or(|there| [state.source, state.destination].contains(&Some(there)))
    };
    let only = |is_ours: &dyn Fn(&State<'_>) -> bool, what: &str| {
        let mut found = states.iter().filter(others).filter(|state| is_ours(state));
        match (found.next(), found.next()) {
            (Some(state), None) => Ok(state),
            (None, _) => Err(format!("no association {what} {here}")),
            (Some(first), Some(second)) => Err(format!(
                "two associations {what} {here}, on lines {} and {}: select the peer with --there \
                 ADDRESS, so that one association per direction remains",
                first.line, second.line
            )),
        }
    };
    let inbound = only(&|state| state.destination == Some(here), "to")?;
    let outbound = only(&|state| state.source == Some(here), "from")?;
    if inbound.source != outbound.destination {
        return Err(format!(
            "the associations on lines {} and {} have different peers",
            inbound.line, outbound.line
        ));
    }
    for (agrees, what) in [
        (inbound.is_tunnel == outbound.is_tunnel, "mode"),
        (inbound.icv_bits == outbound.icv_bits, "the length of the integrity check value"),
        (inbound.is_extended == outbound.is_extended, "flag esn"),
        (inbound.encap == swapped(outbound.encap), "encap"),
        (inbound.selector == swapped(outbound.selector), "sel"),
    ] {
        if !agrees {
            let (one, other) = (inbound.line, outbound.line);
            return Err(format!(
                "lines {one} and {other}: {what} differs between the two \
                                directions"
            ));
        }
    }
    // The buffer never grows, because growing would leave a copy of the keys in memory.
    let mut keys = Zeroizing::new(String::with_capacity(BYTES_MAX));
    for part in ["in ", inbound.key, "\nout ", outbound.key, "\n"] {
        keys.push_str(part);
    }
    let parsed = Keys::parse(keys.as_bytes());
    let is_one = parsed.as_ref().is_ok_and(|keys| keys.inbound.equals(&keys.outbound));
    parsed.and_then(|keys| keys.check(is_shared)).map_err(|what| {
        let (one, other) = (inbound.line, outbound.line);
        format!("keys of the associations on lines {one} and {other}: {what}")
    })?;
    let mut table = table(inbound, outbound);
    if is_one {
        table += "shared-key = true\n";
    }
    check(&table)?;
    Ok(EspEnd { table, keys, is_used: inbound.is_used || outbound.is_used, policies })
}

/// Swaps source and destination, to describe the pair from the peer's point of view.
fn swapped<T>(pair: Option<(T, T)>) -> Option<(T, T)> {
    pair.map(|(one, other)| (other, one))
}

/// Returns the lines of the table.
fn table(inbound: &State<'_>, outbound: &State<'_>) -> String {
    let [spi_in, spi_out] = [inbound, outbound].map(|state| state.spi.unwrap_or_default());
    let mut table = format!("spi-in = {spi_in:#x}\nspi-out = {spi_out:#x}\n");
    if let (true, Some(here), Some(there)) =
        (outbound.is_tunnel, outbound.source, outbound.destination)
    {
        table += &format!("mode = \"tunnel\"\nsrc = \"{here}\"\ndst = \"{there}\"\n");
    }
    table += &format!("icv-bits = {}\n", outbound.icv_bits);
    if outbound.is_extended {
        table += "esn = true\n";
    }
    table += &format!("replay-window = {}\n", inbound.replay_window);
    if let Some((here, there)) = outbound.encap {
        table += &format!("encap = {{ sport = {here}, dport = {there} }}\n");
    }
    if let Some((source, destination)) = outbound.selector {
        table += &format!("sel = {{ src = [\"{source}\"], dst = [\"{destination}\"] }}\n");
    }
    table
}

/// Checks that a port accepts `table`. The files that the table names are not checked.
fn check(table: &str) -> Result<(), String> {
    let table = format!("{table}key-fd = 3\nsequence-file = \"sequence\"\n");
    let table = toml::from_str::<EspTable>(&table).map_err(|error| error.message().to_owned())?;
    table.spec().map(drop)
}

/// Parses all associations in a text; also returns the number of skipped policies.
fn states(text: &str) -> Result<(Vec<State<'_>>, usize), String> {
    let (mut states, mut policies): (Vec<State<'_>>, usize) = Default::default();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words =
            XfrmArguments { words: line.split_ascii_whitespace().collect(), at: 0, line: number };
        if words.is_policy() {
            policies += 1;
            continue;
        }
        words.skip_command()?;
        match words.words.get(words.at) {
            None => continue,
            Some(&"src") => states.push(State { line: number, ..State::default() }),
            Some(_) => {}
        }
        let Some(state) = states.last_mut() else { return Err(words.wrong("expected src")) };
        while let Some(word) = words.next() {
            state.take(word, &mut words)?;
        }
    }
    states.iter().try_for_each(State::check)?;
    Ok((states, policies))
}

impl<'a> State<'a> {
    /// Parses a keyword and its arguments.
    fn take(&mut self, word: &str, words: &mut XfrmArguments<'a>) -> Result<(), String> {
        match word {
            "src" => self.source = Some(words.parsed("an address")?),
            "dst" => self.destination = Some(words.parsed("an address")?),
            "proto" => self.is_esp = words.value()? == "esp",
            "spi" => self.spi = Some(words.number()?),
            "mode" => {
                self.is_tunnel = match words.value()? {
                    "transport" => false,
                    "tunnel" => true,
                    mode => {
                        return Err(words.wrong(&format!(
                            "mode {mode} is not supported; expected transport or tunnel"
                        )));
                    }
                };
            }
            // For a wide window, `ip` prints 0 here, and the real size among the counters.
            "replay-window" | "replay_window" => {
                self.replay_window = self.replay_window.max(words.number()?);
            }
            "esn" => self.is_extended = true,
            "aead" => {
                let name = words.value()?.trim_matches(['\'', '"']);
                if name != ALGORITHM {
                    return Err(
                        words.wrong(&format!("aead {name} is not supported; expected {ALGORITHM}"))
                    );
                }
                (self.key, self.icv_bits) = (words.value()?, words.number()?);
            }
            "encap" => self.encap(words)?,
            "sel" => self.selector(words)?,
            "anti-replay" => {
                self.has_counters = true;
                words.skip_if("esn");
                words.skip_if("context:");
            }
            "seq-hi" | "seq" | "oseq-hi" | "oseq" => {
                self.is_used |= words.number()? != 0 && self.has_counters;
            }
            // These options name the association, report when it was used, or allow any address family. They do not
            // affect packets.
            "reqid" | "dir" | "bitmap" | "bitmap-length" => drop(words.value()?),
            "lastused" => words.at = words.words.len(),
            "flag" | "af-unspec" => {}
            _ if self.has_counters && is_bitmap(word) => {}
            "auth" | "auth-trunc" | "enc" | "comp" => {
                return Err(
                    words.wrong(&format!("{word} is not supported; expected aead {ALGORITHM}"))
                );
            }
            _ => {
                return Err(
                    words.wrong(&format!("{word} is not supported, but may affect packets"))
                );
            }
        }
        Ok(())
    }

    /// Parses the UDP ports: `type espinudp sport 4500 dport 4500 addr 0.0.0.0` in output, `espinudp 4500 4500 0.0.0.0`
    /// in arguments.
    fn encap(&mut self, words: &mut XfrmArguments<'a>) -> Result<(), String> {
        words.skip_if("type");
        let kind = words.value()?;
        if kind != "espinudp" {
            return Err(words.wrong(&format!("encap {kind} is not supported; expected espinudp")));
        }
        words.skip_if("sport");
        let source = words.parsed("a UDP port")?;
        words.skip_if("dport");
        let destination = words.parsed("a UDP port")?;
        words.skip_if("addr");
        let _original: IpAddr = words.parsed("an address")?;
        self.encap = Some((source, destination));
        Ok(())
    }

    fn selector(&mut self, words: &mut XfrmArguments<'a>) -> Result<(), String> {
        let mut ends = [None; 2];
        while let Some(word) = words.next() {
            match word {
                "src" => ends[0] = Some(words.prefix()?),
                "dst" => ends[1] = Some(words.prefix()?),
                _ => {
                    return Err(
                        words.wrong(&format!("sel {word} is not supported; expected src or dst"))
                    );
                }
            }
        }
        let [Some(source), Some(destination)] = ends else {
            return Err(words.wrong("sel needs both src and dst"));
        };
        let is_all = |prefix: &str| prefix.ends_with("/0");
        self.selector = (!is_all(source) || !is_all(destination)).then_some((source, destination));
        Ok(())
    }

    /// Checks that the association is complete.
    fn check(&self) -> Result<(), String> {
        for (is_there, what) in [
            (self.is_esp, "proto esp"),
            (self.destination.is_some(), "dst"),
            (self.spi.is_some(), "spi"),
            (!self.key.is_empty(), "aead"),
        ] {
            if !is_there {
                return Err(format!("line {}: the association has no {what}", self.line));
            }
        }
        Ok(())
    }
}

/// The words of a line, and the position of the next word.
struct XfrmArguments<'a> {
    words: Vec<&'a str>,
    at: usize,
    line: usize,
}

impl<'a> XfrmArguments<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied();
        self.at += 1;
        word.map(|word| word.trim_end_matches(','))
    }

    /// Returns whether the line is a command that adds a policy. Recognizes the abbreviations that `ip` accepts.
    fn is_policy(&self) -> bool {
        let is_word = |at: usize, whole: &str| {
            self.words.get(at).is_some_and(|word| whole.starts_with(*word))
        };
        self.words.first() == Some(&"ip")
            && is_word(1, "xfrm")
            && is_word(2, "policy")
            && is_word(3, "add")
    }

    /// Skips `ip xfrm state add`.
    fn skip_command(&mut self) -> Result<(), String> {
        if self.words.first() != Some(&"ip") {
            return Ok(());
        }
        let command = self.words.get(1..4).unwrap_or_default();
        let is_prefix = |word: &&str, whole: &str| whole.starts_with(*word);
        let [xfrm, state, add] = command else {
            return Err(self.wrong("expected ip xfrm state add"));
        };
        if !is_prefix(xfrm, "xfrm") || !is_prefix(state, "state") || !is_prefix(add, "add") {
            return Err(self.wrong("expected ip xfrm state add"));
        }
        self.at = 4;
        Ok(())
    }

    fn value(&mut self) -> Result<&'a str, String> {
        self.next().ok_or_else(|| self.wrong("the line is incomplete"))
    }

    fn parsed<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.value()?;
        word.parse().map_err(|_| self.wrong(&format!("{word} is not {what}")))
    }

    /// Parses a decimal or hexadecimal number.
    fn number(&mut self) -> Result<u32, String> {
        let word = self.value()?;
        let number = match word.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => word.parse(),
        };
        number.map_err(|_| self.wrong(&format!("{word} is not a 32-bit number")))
    }

    /// Returns a prefix as written.
    fn prefix(&mut self) -> Result<&'a str, String> {
        let word = self.value()?;
        prefix(word).map(|_| word).map_err(|wrong| self.wrong(&wrong))
    }

    /// Skips this word, if it comes next.
    fn skip_if(&mut self, word: &str) {
        if self.words.get(self.at) == Some(&word) {
            self.at += 1;
        }
    }

    fn wrong(&self, what: &str) -> String {
        format!("line {}: {what}", self.line)
    }
}

/// Returns whether this word belongs to the bitmap of a wide window.
fn is_bitmap(word: &str) -> bool {
    word.len() == 8 && word.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Maximum length of a text with associations, in bytes: enough for about thirty associations.
pub const BYTES_MAX: usize = 16 << 10;
/// The kernel's name for the algorithm of RFC 4106.
const ALGORITHM: &str = "rfc4106(gcm(aes))";

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of iproute2 6.1 for two security associations on Linux 6.1.
    const PRINTED: &str = "\
src 10.9.0.1 dst 10.9.0.2
\tproto esp spi 0x00001001 reqid 0 mode transport
\treplay-window 32
\taead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0fdeadbeef 96
\tanti-replay context: seq 0x0, oseq 0x0, bitmap 0x00000000
\tsel src 0.0.0.0/0 dst 0.0.0.0/0
src 10.9.0.2 dst 10.9.0.1
\tproto esp spi 0x00001002 reqid 0 mode transport
\treplay-window 32
\taead rfc4106(gcm(aes)) 0xfffefdfcfbfaf9f8f7f6f5f4f3f2f1f0deadbeef 96
\tanti-replay context: seq 0x0, oseq 0x0, bitmap 0x00000000
\tsel src 0.0.0.0/0 dst 0.0.0.0/0
";

    fn ends(text: &str) -> Result<EspEnd, String> {
        pair(text, "10.9.0.2".parse().unwrap(), None, false)
    }

    /// Returns an `ip xfrm state add` line for each direction, with additional options.
    fn given(outbound: &str, inbound: &str) -> String {
        let line = |(from, to): (&str, &str), spi: u32, digit: &str, more: &str| {
            let key = digit.repeat(40);
            format!(
                "ip x s a src {from} dst {to} proto esp spi {spi} aead 'rfc4106(gcm(aes))' 0x{key} 128 {more}\n"
            )
        };
        let (there, here) = ("10.9.0.1", "10.9.0.2");
        line((here, there), 0x1002, "f", outbound) + &line((there, here), 0x1001, "0", inbound)
    }

    #[test]
    fn associations_as_they_are_printed_become_a_table_and_a_key_file() {
        let made = ends(PRINTED).unwrap();
        let expected = "spi-in = 0x1001\nspi-out = 0x1002\nicv-bits = 96\nreplay-window = 32\n";
        assert_eq!((made.table.as_str(), made.is_used), (expected, false));
        let keys = "in 0x000102030405060708090a0b0c0d0e0fdeadbeef\n\
                    out 0xfffefdfcfbfaf9f8f7f6f5f4f3f2f1f0deadbeef\n";
        assert_eq!(*made.keys, keys);
        // The peer uses the same associations, with the directions swapped.
        let other = pair(PRINTED, "10.9.0.1".parse().unwrap(), None, false).unwrap();
        assert!(other.table.starts_with("spi-in = 0x1002\nspi-out = 0x1001\n"));
    }

    #[test]
    fn associations_as_they_are_given_keep_their_mode_window_selectors_and_ports() {
        let window = "replay-window 128 flag esn mode tunnel";
        let text = given(
            &format!(
                "{window} encap espinudp 4500 4501 0.0.0.0 sel src 10.2.0.0/16 dst 10.1.0.0/16"
            ),
            &format!(
                "{window} encap espinudp 4501 4500 0.0.0.0 sel src 10.1.0.0/16 dst 10.2.0.0/16"
            ),
        );
        let pair = ends(&text).unwrap();
        let expected = "spi-in = 0x1001\nspi-out = 0x1002\nmode = \"tunnel\"\nsrc = \"10.9.0.2\"\n\
                        dst = \"10.9.0.1\"\nicv-bits = 128\nesn = true\nreplay-window = 128\n\
                        encap = { sport = 4500, dport = 4501 }\n\
                        sel = { src = [\"10.2.0.0/16\"], dst = [\"10.1.0.0/16\"] }\n";
        assert_eq!(pair.table, expected);
    }

    #[test]
    fn the_counters_of_wide_windows_show_whether_keys_were_used() {
        let wide = "\treplay-window 0 seq 0x00000005 flag esn\n";
        let counters = |sent: u32| {
            format!(
                "\tanti-replay esn context:\n\t seq-hi 0x0, seq 0x0, oseq-hi 0x0, oseq {sent:#x}\n\
                 \t replay_window 64, bitmap-length 2\n\t 00000000 0000000f \n"
            )
        };
        let used = |sent| {
            let printed = PRINTED.replace("\treplay-window 32\n", wide);
            let plain = "\tanti-replay context: seq 0x0, oseq 0x0, bitmap 0x00000000\n";
            ends(&printed.replace(plain, &counters(sent))).unwrap()
        };
        assert_eq!((used(0).is_used, used(9).is_used), (false, true));
        assert!(used(0).table.contains("esn = true\nreplay-window = 64\n"));
    }

    #[test]
    fn what_a_port_cannot_do_is_refused_with_its_line_and_no_key() {
        let plain = given("", "");
        let edited = |from: &str, to: &str| plain.replace(from, to);
        for (text, expected) in [
            (String::new(), "no association to 10.9.0.2"),
            ("proto esp".into(), "line 1: expected src"),
            (edited("10.9.0.2", "10.9.0.3"), "no association to 10.9.0.2"),
            (format!("{plain}{plain}"), "two associations to 10.9.0.2, on lines 2 and 4"),
            (given("flag noecn", ""), "line 1: noecn is not supported, but may affect packets"),
            (given("", "mark 7"), "line 2: mark is not supported"),
            (
                given("mode beet", ""),
                "line 1: mode beet is not supported; expected transport or tunnel",
            ),
            (given("mode tunnel", ""), "lines 2 and 1: mode differs between the two directions"),
            (given("flag esn", ""), "lines 2 and 1: flag esn differs"),
            (given("", "sel src 10.1.0.0/16 dst 10.2.0.0/16"), "lines 2 and 1: sel differs"),
            (given("", "sel src 10.1.0.0/16 dst 10.2.0.0/16 proto tcp"), "line 2: sel proto"),
            (given("encap espintcp 1 2 ::", ""), "line 1: encap espintcp"),
            (given("encap espinudp -1 2 ::", ""), "line 1: -1 is not a UDP port"),
            (
                given("", "sel src 10.1.0.0/33 dst 10.2.0.0/16"),
                "line 2: esp: sel: 10.1.0.0/33 is not a prefix",
            ),
            (plain.replace(" 128 ", " 100 "), "esp: "),
            (edited("spi 4098", "spi 1"), "esp: "),
            (given("replay-window", ""), "line 1: the line is incomplete"),
            (given("replay-window x", ""), "line 1: x is not a 32-bit number"),
            (edited("proto esp", "proto ah"), "line 1: the association has no proto esp"),
            (
                edited("aead 'rfc4106(gcm(aes))'", "enc 'cbc(aes)'"),
                "line 1: enc is not supported; expected aead",
            ),
            (edited("rfc4106(gcm(aes))", "rfc4309(ccm(aes))"), "line 1: aead rfc4309"),
            (
                edited(&"f".repeat(40), &"0".repeat(40)),
                "keys of the associations on lines 2 and 1: in and out must be different keys",
            ),
        ] {
            let Err(found) = ends(&text) else { panic!("{text}") };
            assert!(found.starts_with(expected), "{found}");
            assert!(!found.contains("ffff") && !found.contains("0000"), "{found}");
        }
        let two = plain.clone() + &edited("10.9.0.1", "10.9.0.7");
        let there = Some("10.9.0.7".parse().unwrap());
        assert!(pair(&two, "10.9.0.2".parse().unwrap(), there, false).is_ok());
    }

    /// Tests the commands for one host in source R2 (`docs/sources.md`), which use one key for both directions.
    #[test]
    fn the_commands_of_the_source_are_converted_as_they_were_typed() {
        let mut text = String::new();
        for (from, to, spi, way) in [
            ("fc00:1::1", "fc00:2::1", "0x1000", "in"),
            ("fc00:2::1", "fc00:1::1", "0x1001", "out"),
        ] {
            let ends = format!("src {from} dst {to}");
            let key = "0b".repeat(20);
            text += &format!(
                "ip xfrm state add {ends} proto esp spi {spi} aead 'rfc4106(gcm(aes))' 0x{key} 96 \
                 mode transport sel {ends}\n\
                 ip xfrm policy add {ends} dir {way} tmpl {ends} proto esp mode transport action allow\n"
            );
        }
        let here = || "fc00:2::1".parse().unwrap();
        let refused = pair(&text, here(), None, false).err().unwrap();
        assert!(refused.ends_with("in and out must be different keys"), "{refused}");
        let made = pair(&text, here(), None, true).unwrap();
        let table = "spi-in = 0x1000\nspi-out = 0x1001\nicv-bits = 96\nreplay-window = 0\n\
                     sel = { src = [\"fc00:2::1\"], dst = [\"fc00:1::1\"] }\nshared-key = true\n";
        assert_eq!((made.table.as_str(), made.policies), (table, 2));
        // If both directions have the same key, only the SPI tells them apart, so two SPIs are needed.
        let one = pair(&text.replace("0x1001", "0x1000"), here(), None, true).err().unwrap();
        assert!(one.contains("shared-key = true needs different"), "{one}");
        // The two keys differ, so both are kept, even though a single key would be accepted.
        let two = pair(PRINTED, "10.9.0.2".parse().unwrap(), None, true).unwrap();
        assert!(!two.table.contains("shared-key"), "{}", two.table);
        let deleted = format!("ip xfrm policy deleteall\n{PRINTED}");
        assert_eq!(ends(&deleted).err().unwrap(), "line 1: expected ip xfrm state add");
    }
}
