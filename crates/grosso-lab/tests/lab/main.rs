//! The lab's trials on the running kernel. User namespaces need a process with one thread, so this program starts
//! itself once for each way to become privileged.

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    match std::env::var(linux::WAY) {
        Ok(way) => linux::run(&way),
        Err(_) => linux::start_each(),
    }
}

#[cfg(target_os = "linux")]
mod cost;
#[cfg(target_os = "linux")]
mod fragments;
#[cfg(target_os = "linux")]
mod tunnels;

#[cfg(target_os = "linux")]
mod linux {
    use std::{os::unix::process::CommandExt, process::Command, sync::atomic::AtomicBool};

    use grosso::{Profile, coalesce::Reorder};
    use grosso_lab::{
        hosts::{Device, Family, Layout, Mtu},
        traffic::Traffic,
        trial::{Carrier, Extent, Measured, Setting, Tool, TrialError, measure},
    };
    use grosso_sys::{
        namespace::{isolate_process_user, user_namespace_refusal},
        netlink::Netlink,
        permit::{self, Refusal},
        scheduling::allowed_processors,
    };
    use std::time::Duration;

    use super::{cost, fragments, tunnels};

    /// The environment variable that names the way.
    pub(super) const WAY: &str = "GROSSO_TEST_WAY";

    /// Any user of the system; it needs no name.
    const NOBODY: u32 = 65534;

    pub(super) fn start_each() {
        start("as it is", None);
        start("own user namespace", None);
        if rustix::process::geteuid().is_root() {
            start("as it is", Some(NOBODY));
        }
    }

    fn start(way: &str, user: Option<u32>) {
        let mut command = Command::new("/proc/self/exe");
        command.env(WAY, way);
        if let Some(user) = user {
            command.uid(user).gid(user).env_remove("GROSSO_SKIP_NOTHING");
        }
        let status = command.status().unwrap();
        assert!(status.success(), "{way}, user {user:?}: {status}");
    }

    pub(super) fn run(way: &str) {
        let is_root = rustix::process::geteuid().is_root();
        if way == "own user namespace" && user_namespace_refusal().unwrap().is_none() {
            isolate_process_user().unwrap();
        }
        if let Err(refusal) = permit::enter() {
            assert!(!refusal.remedy().is_empty());
            println!("skipped: {way}: {refusal}");
            assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "{way} is skipped");
            return;
        }
        let before = links();
        for device in [Device::Veth, Device::Tap] {
            if device == Device::Tap
                && let Err(refusal) = permit::tap()
            {
                if let Refusal::TunClosed { mode } = refusal {
                    assert_ne!(mode & 0o666, 0o666);
                }
                println!("skipped: {way}, {device}: {refusal}");
                assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "{way} is skipped");
                continue;
            }
            coalescing_makes_trains_and_changes_no_byte(device);
            without_it_every_packet_is_delivered_by_itself(device);
            a_bad_wire_is_repaired_by_tcp(device);
            packets_of_two_paths_are_put_in_order_where_that_is_asked_for(device);
            longer_packets_pass(device);
            superframes_of_the_sender_are_cut(device, is_root);
            superframes_of_datagrams_are_cut(device);
            bytes_are_the_same_over_ipv6_from_copies_and_with_full_checksums(device);
            the_receiver_sends_too(device);
            many_connections_keep_their_bytes(device);
            requests_are_answered(device);
            requests_of_many_connections_are_answered(device);
            datagrams_arrive(device);
            fragments::run(device);
            tunnels::run(device);
            cost::run(device);
        }
        fragments::tshark_joins_and_decrypts_what_is_on_the_wire();
        iperf3_measures_the_same();
        the_kernel_s_own_wire_carries_the_same();
        tunnels::the_kernel_s_vxlan_carries_the_same();
        unknown_congestion_control_is_named();
        an_interruption_ends_a_trial();
        assert_eq!(links(), before, "nothing is left behind");
        println!("{way}: ok");
    }

    fn coalescing_makes_trains_and_changes_no_byte(device: Device) {
        let measured = clean(&through(device, grosso(false)));
        let segments = measured.segments_per_train.unwrap();
        assert!(segments > 2.0, "{segments} segments a train");
        let packets = measured.bytes / 1448;
        assert!(measured.acknowledgements < packets / 2, "fewer than for every other packet");
    }

    fn without_it_every_packet_is_delivered_by_itself(device: Device) {
        let measured = clean(&through(device, Carrier::grosso(None, false)));
        let segments = measured.segments_per_train.unwrap();
        assert!((segments - 1.0).abs() < 0.01, "{segments} segments a train");
    }

    fn a_bad_wire_is_repaired_by_tcp(device: Device) {
        let lossy = Setting {
            impairment: Some("delay 200us loss 1%".parse().unwrap()),
            extent: Extent::Bytes(BYTES / 4),
            ..through(device, grosso(false))
        };
        assert!(clean(&lossy).retransmits > 0);
    }

    fn packets_of_two_paths_are_put_in_order_where_that_is_asked_for(device: Device) {
        let segments = [Reorder::OFF, Reorder::holes(400_000)].map(|reorder| {
            let mut profile = Profile::linux();
            (profile.limits.hold_ns, profile.reorder) = (100_000, reorder);
            let carrier =
                Carrier::Grosso { profile: Some(Box::new(profile)), copy: true, expand: false };
            let skewed = Setting {
                impairment: Some("delay 250us skew 40us rate 1G".parse().unwrap()),
                ..through(device, carrier)
            };
            clean(&skewed).segments_per_train.unwrap()
        });
        assert!(segments[1] > 2.0 * segments[0], "{segments:?} segments a train");
    }

    fn longer_packets_pass(device: Device) {
        for (sender, receiver) in [(1500, 9000), (9000, 9000)] {
            let layout = Layout { mtu: Mtu { sender, receiver }, ..Layout::default() };
            let measured = clean(&Setting { layout, ..through(device, grosso(false)) });
            assert!(measured.segments_per_train.unwrap() > 1.0, "{layout:?}");
        }
    }

    fn the_kernel_s_own_wire_carries_the_same() {
        for gro in [false, true] {
            // The kernel may lose packets here: with GRO, the wire holds no more than 256.
            let setting = setting(Carrier::Kernel { gro });
            let measured = measure(&setting, &AtomicBool::new(false)).unwrap();
            assert!(measured.bytes >= BYTES);
            assert_eq!(measured.segments_per_train, None);
        }
    }

    fn superframes_of_the_sender_are_cut(device: Device, is_root: bool) {
        let on = clean(&through(device, Carrier::GrossoSends { superframes: true }));
        assert_eq!(on.receiver_coalesced, Some(is_root), "as a NIC's driver does");
        assert!(on.segments_per_train.unwrap() > 2.0, "{on:?}");
        let off = clean(&through(device, Carrier::GrossoSends { superframes: false }));
        assert!(off.segments_per_train.unwrap() < 1.01, "{off:?}");
        let layout = Layout { mtu: Mtu { sender: 65521, receiver: 65521 }, ..Layout::default() };
        clean(&Setting { layout, ..through(device, Carrier::GrossoSends { superframes: true }) });
    }

    fn superframes_of_datagrams_are_cut(device: Device) {
        for family in [Family::V4, Family::V6] {
            let setting = Setting {
                traffic: Traffic::UdpSegments,
                layout: Layout { family, ..Layout::default() },
                ..through(device, Carrier::GrossoSends { superframes: true })
            };
            let measured = measure(&setting, &AtomicBool::new(false)).unwrap();
            let headers = if family == Family::V4 { 28 } else { 48 };
            assert_eq!(measured.bytes / (1500 - headers), measured.units, "{family:?}");
            assert!(measured.segments_per_train.unwrap() > 20.0, "{measured:?}");
        }
    }

    fn bytes_are_the_same_over_ipv6_from_copies_and_with_full_checksums(device: Device) {
        let family = Family::V6;
        let layout = Layout { family, full_checksums: true, ..Layout::default() };
        for carrier in [grosso(false), grosso(true)] {
            let measured = clean(&Setting { layout, ..through(device, carrier) });
            assert!(measured.segments_per_train.unwrap() > 2.0, "{measured:?}");
        }
    }

    fn the_receiver_sends_too(device: Device) {
        let traffic = Traffic::TcpMaerts;
        let measured = clean(&Setting { traffic, ..through(device, grosso(false)) });
        // Superframes from the sender are cut by the data path.
        assert!(measured.segments_per_train.unwrap() > 2.0, "{measured:?}");
    }

    fn many_connections_keep_their_bytes(device: Device) {
        let connections = 40;
        let layout = Layout::default().streams(connections);
        clean(&Setting { connections, layout, ..through(device, grosso(false)) });
    }

    fn iperf3_measures_the_same() {
        if Command::new("iperf3").arg("--version").output().is_err() {
            println!("skipped: iperf3 is not installed");
            assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "iperf3 is skipped");
            return;
        }
        let tool = Tool::Iperf3;
        let setting = Setting { tool, ..setting(grosso(false)) };
        let measured = measure(&setting, &AtomicBool::new(false)).unwrap();
        // The server stops counting when the client is done.
        assert!(measured.bytes >= BYTES / 2, "{measured:?}");
        assert!(measured.segments_per_train.unwrap() > 2.0, "{measured:?}");
        assert!(measured.cpu_seconds.path > 0.0 && measured.cpu_seconds.sender > 0.0);
    }

    fn requests_are_answered(device: Device) {
        for (traffic, bytes) in [(Traffic::TcpRequests, 1), (Traffic::UdpRequests, 8)] {
            let extent = Extent::Bytes(500 * bytes);
            let measured = clean(&Setting { traffic, extent, ..through(device, grosso(false)) });
            assert!(measured.latencies.len() as u64 >= measured.units, "{traffic}");
            // The two counters are read one after the other while the traffic continues.
            assert!((measured.units * bytes).abs_diff(measured.bytes) <= bytes * 4, "{traffic}");
        }
    }

    fn requests_of_many_connections_are_answered(device: Device) {
        let (traffic, connections) = (Traffic::TcpRequests, 20);
        let layout = Layout::default().streams(connections);
        let extent = Extent::Bytes(2000);
        let setting =
            Setting { traffic, extent, connections, layout, ..through(device, grosso(false)) };
        let measured = clean(&setting);
        assert!(measured.latencies.len() as u64 >= measured.units, "{measured:?}");
        assert!(measured.units.abs_diff(measured.bytes) <= 4, "{measured:?}");
    }

    fn datagrams_arrive(device: Device) {
        let traffic = Traffic::UdpStream;
        let measured = measure(
            &Setting { traffic, ..through(device, grosso(false)) },
            &AtomicBool::new(false),
        )
        .unwrap();
        assert_eq!(measured.bytes % 1472, 0);
        assert_eq!(measured.bytes / 1472, measured.units);
        // Datagrams may be lost if the receiver is slower than the sender.
        assert!(measured.bytes > 0);
    }

    fn unknown_congestion_control_is_named() {
        let congestion = "carrier-pigeon".into();
        let refused =
            measure(&Setting { congestion, ..setting(grosso(false)) }, &AtomicBool::new(false));
        let text = refused.unwrap_err().to_string();
        assert!(text.starts_with("no congestion control carrier-pigeon: "), "{text}");
    }

    fn an_interruption_ends_a_trial() {
        let extent = Extent::Bytes(u64::MAX);
        let ended = measure(&Setting { extent, ..setting(grosso(false)) }, &AtomicBool::new(true));
        assert!(matches!(ended, Err(TrialError::Interrupted)), "{ended:?}");
    }

    /// Measures a trial in which nothing may be damaged. A sender that was not scheduled for long retransmits data that
    /// were not lost, so retransmissions mean nothing here.
    fn clean(setting: &Setting) -> Measured {
        let measured = measure(setting, &AtomicBool::new(false)).unwrap();
        let Extent::Bytes(bytes) = setting.extent else { panic!("the extent has no bytes") };
        assert!(measured.bytes >= bytes, "{setting:?}: {measured:?}");
        assert_eq!(measured.checksum_errors, 0);
        measured
    }

    fn through(device: Device, carrier: Carrier) -> Setting {
        Setting { device, ..setting(carrier) }
    }

    fn setting(carrier: Carrier) -> Setting {
        let processor = *allowed_processors().unwrap().last().unwrap();
        Setting {
            traffic: Traffic::TcpStream,
            connections: 1,
            tool: Tool::BuiltIn,
            layout: Layout::default(),
            carrier,
            impairment: None,
            back: None,
            device: Device::Veth,
            processors: [processor; 2],
            congestion: "cubic".into(),
            extent: Extent::Bytes(BYTES),
            compare: true,
        }
    }

    fn links() -> Vec<String> {
        let links = Netlink::new().unwrap().links().unwrap();
        links.iter().map(|link| link.name.to_string()).collect()
    }

    fn grosso(copy: bool) -> Carrier {
        Carrier::grosso(Some(Duration::from_micros(100)), copy)
    }

    const BYTES: u64 = 32 << 20;
}
