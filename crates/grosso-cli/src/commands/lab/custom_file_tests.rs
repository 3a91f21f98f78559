use std::path::Path;

use super::*;

const LRO: &str = include_str!("../../../../../examples/lab/lro-in-the-middle.toml");
const TUNNEL: &str = include_str!("../../../../../examples/lab/far-tunnel.toml");

fn parse(text: &str) -> Result<CustomFile, String> {
    CustomFile::parse(text, Path::new("/")).map_err(|wrong| wrong.to_string())
}

#[test]
fn the_examples_are_read() {
    let file = parse(LRO).unwrap();
    let names: Vec<&str> = file.settings.iter().map(|setting| setting.name.as_str()).collect();
    assert_eq!(names, ["every packet alone", "GRO", "LRO of 2007"]);
    let nic = |setting: usize| &file.settings[setting].paths[0];
    assert!(!nic(0).coalesce && nic(1).coalesce);
    assert_eq!((nic(1).profile.name.as_ref(), nic(2).profile.name.as_ref()), ("linux", "inet-lro"));
    // A setting overrides only some values of the path and keeps the others.
    assert!((0..3).all(|setting| nic(setting).profile.limits.hold_ns == 100_000));
    assert_eq!((file.traffic.hosts, file.traffic.to.to_string()), ([0, 2], "10.93.2.1".into()));
    assert_eq!((file.runs, file.time, file.claims.len()), (5, Duration::from_secs(1), 4));
    let place = |opens: &[&str], makes: &[&str], address: Option<&str>| PathPlace {
        opens: opens.iter().map(|name| (*name).into()).collect(),
        makes: makes.iter().map(|name| (*name).into()).collect(),
        address: address.map(|address| address.parse().unwrap()),
    };
    assert_eq!(file.network.paths, [place(&["e0"], &["r0"], None)]);
    let file = parse(TUNNEL).unwrap();
    assert_eq!(
        file.network.paths,
        [
            place(&["e0", "e1"], &[], None),
            place(&[], &["a0"], Some("192.0.2.1")),
            place(&[], &["b0"], Some("192.0.2.2")),
        ]
    );
    let [off, on] = &file.settings[..] else { panic!("{:?}", file.settings) };
    let link = off.paths[1].left.device.port().link().unwrap();
    assert_eq!(link.mtu, Some(1450), "tables are merged key by key");
    assert!(off.paths[1].left.features != on.paths[1].left.features);
}

#[test]
fn without_settings_there_is_one() {
    let end = LRO.find("[[setting]]").unwrap();
    let file = parse(&LRO[..end]).unwrap();
    assert_eq!(file.settings[0].name, "as it is");
    assert_eq!((file.settings.len(), file.claims.len()), (1, 0));
}

#[test]
fn errors_have_their_position() {
    let wrong = |from: &str, to: &str| {
        assert!(LRO.contains(from), "{from}");
        parse(&LRO.replacen(from, to, 1)).unwrap_err()
    };
    let said = |from: &str, to: &str, expected: &str| {
        let error = wrong(from, to);
        assert!(error.contains(expected), "{error}");
        let line = LRO.split(from).next().unwrap().matches('\n').count() + 1;
        let shown: usize = error.split(':').next().unwrap().parse().unwrap();
        // The error may name the line where the table starts, above the invalid key.
        assert!((1..=line).contains(&shown), "{error}: line {line}");
    };
    said("forwards = true", "forward = true", "did you mean forwards?");
    said("10.93.1.1/24", "10.93.1.1/33", "expected an address with its prefix");
    said("left = \"e0\"", "left = \"e7\"", "no host has a device e0, and no path opens it");
    said("left = \"e0\"", "left = \"unix:/run/vm.sock\"", "the lab cannot create");
    said("port = \"tap:r0\"", "port = \"tap:r9\"", "no path creates it");
    let unset = wrong(", terminates = true }", " }");
    assert!(unset.contains("setting \"LRO of 2007\": path nic: profile inet-lro:"), "{unset}");
    said("path.nic.gro = false", "path.nik.gro = false", "no path \"nik\"; did you mean nic?");
    said("path.nic.gro = false", "path.nic.gros = false", "no key \"gros\"; did you mean gro?");
    said("path.nic.gro = false", "path.nic.left = \"r1\"", "change the devices");
    said("name = \"GRO\"", "name = \"every packet alone\"", "another setting has this name");
    said("name = \"GRO\"", "name = \"a name of more than twenty-four letters\"", "1 to 24");
    said("[\"a0\", \"e0\"]", "[\"a0\", \"e0\", \"e1\"]", "found 3 elements, expected 2");
    said("[\"a0\", \"e0\"]", "[\"a0\"]", "found 1 element, expected 2");
    said("runs = 5", "cpus = [0, 0, 1]", "found 3 elements, expected 2");
    said("[\"a0\", \"e0\"]", "[\"a0\", \"e0\"]\nmtu = 60", "the minimum for IPv4 is 68");
    said("to = \"b\"", "to = \"c\"", "no host \"c\"");
    said("to = \"b\"", "to = \"b\"\nto-address = \"10.93.1.1\"", "has no address 10.93.1.1");
    said("runs = 5", "runs = 0", "runs must be from 1 to 1000");
    said("runs = 5", "time = \"5\"", "a time with a unit");
    said("figure = \"gbps\"", "figure = \"speed\"", "no figure \"speed\"; figures are gbps, ");
    said("under = 0.5", "under = 0.5\nat-least = 1.0", "one bound");
    said("under = 0.5", "", "one bound");
    said("beside = \"every packet alone\"", "beside = \"nobody\"", "no setting \"nobody\"");
}
