//! The lab's trials on the running kernel. A process must be single-threaded to enter a user namespace, so this program
//! starts itself again for each trial and each way to get privileges. Trials that measure have a CPU to themselves.

#![allow(clippy::disallowed_methods, reason = "tests make their files themselves")]

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    match std::env::var(linux::TRIAL) {
        Ok(name) => linux::run(&name),
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
mod userspace;

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        os::unix::process::CommandExt,
        process::{Command, Output},
        sync::{OnceLock, atomic::AtomicBool},
    };

    use grosso::{Profile, coalesce::Reorder};
    use grosso_lab::{
        netns::{Device, Family, Hosts, Layout, Mtu},
        traffic::Traffic,
        trial::{Carrier, Extent, Measured, Setting, Tool, TrialError, measure},
    };
    use grosso_sys::{
        namespace::{isolate_process_user, user_namespace_refusal},
        netlink::Netlink,
        scheduling::allowed_processors,
        userns::{self, Refusal},
    };
    use grosso_testkit::processor::{self, Processor};
    use libtest_mimic::{Arguments, Failed, Trial};
    use std::time::Duration;

    use super::{cost, fragments, tunnels, userspace};

    /// Environment variable with the name of the trial that a process runs.
    pub(super) const TRIAL: &str = "GROSSO_TEST_TRIAL";

    /// User ID of an ordinary user, who need not exist on the system.
    const NOBODY: u32 = 65534;

    /// Whether the process was root before it entered any namespaces.
    static STARTED_AS_ROOT: OnceLock<bool> = OnceLock::new();

    const OWN_USER_NAMESPACE: &str = "in_own_user_namespace";

    /// A trial that runs once per device; the device's name precedes the trial's.
    type OnDevice = (String, fn(Device));
    type Alone = (String, fn());

    /// Lists functions with their names. `stringify!` may insert white space into long paths, so it is removed.
    macro_rules! named {
        ($($($name:ident)::+),+ $(,)?) => {
            [$((stringify!($($name)::+).replace(char::is_whitespace, ""), $($name)::+ as _)),+]
        };
    }

    fn on_device() -> Vec<OnDevice> {
        let own: [OnDevice; _] = named![
            coalescing_makes_trains_and_changes_no_byte,
            without_it_every_packet_is_delivered_by_itself,
            packets_share_pages_and_keep_their_bytes,
            a_bad_wire_is_repaired_by_tcp,
            packets_of_two_paths_are_put_in_order_where_that_is_asked_for,
            longer_packets_pass,
            superframes_of_the_sender_are_cut,
            superframes_of_datagrams_are_cut,
            bytes_are_the_same_over_ipv6_from_copies_and_with_full_checksums,
            the_receiver_sends_too,
            many_connections_keep_their_bytes,
            requests_are_answered,
            requests_of_many_connections_are_answered,
            datagrams_arrive,
        ];
        let others: [OnDevice; _] = named![
            fragments::few_buffers_suffice_for_a_receiver_that_returns_them,
            fragments::it_is_the_same_over_ipv4_with_datagrams_of_any_size,
            fragments::fewer_buffers_than_fragments_complete_no_datagram,
            fragments::a_datagram_that_lost_a_fragment_dies_when_its_time_is_over,
            fragments::an_evicting_receiver_always_has_buffers,
            tunnels::every_byte_arrives_and_checksums_left_to_the_peer_are_not_computed,
            tunnels::files_pass_over_ipv6_and_sums_left_are_made_where_that_is_asked,
            tunnels::requests_are_answered_through_a_tunnel,
            tunnels::without_offloads_every_packet_passes_by_itself,
            cost::offloads_bring_packets_together_and_parts_add_up,
            cost::one_frame_a_poll_is_one_call_a_packet,
            userspace::merged_acknowledgments_slow_senders_that_count_packets,
            userspace::trains_at_the_receiver_slow_senders_that_count_acknowledgments,
            userspace::every_byte_arrives_over_a_wire_that_loses,
        ];
        own.into_iter().chain(others).collect()
    }

    fn alone() -> [Alone; 7] {
        named![
            fragments::tshark_joins_and_decrypts_what_is_on_the_wire,
            iperf3_measures_the_same,
            the_kernel_s_own_wire_carries_the_same,
            tunnels::the_kernel_s_vxlan_carries_the_same,
            unknown_congestion_control_is_named,
            no_connection_begins_with_pacing,
            an_interruption_ends_a_trial,
        ]
    }

    /// Trials that only compare bytes and mostly wait for their wires, so that neither rates nor timeouts affect them.
    /// They share the CPUs, and start before the trials that measure.
    const WAITING: [&str; 3] = [
        "a_bad_wire_is_repaired_by_tcp",
        "fragments::tshark_joins_and_decrypts_what_is_on_the_wire",
        "userspace::every_byte_arrives_over_a_wire_that_loses",
    ];

    /// Trials whose results depend on rates, which change if the machine is busy. Only the experiment step in the gate
    /// runs them, with `cargo test -p grosso-lab --test lab -- --ignored`.
    const MEASURING: [&str; 1] = ["tunnels::without_offloads_every_packet_passes_by_itself"];

    /// Number of concurrent trials per CPU, only one of which measures.
    const THREADS_A_PROCESSOR: usize = 4;

    fn waits(trial: &str) -> bool {
        is_among(&WAITING, trial)
    }

    fn is_among(names: &[&str], trial: &str) -> bool {
        names.iter().any(|name| trial.ends_with(&format!("::{name}")))
    }

    /// Returns the ways to get the privileges that a trial needs, with the user for each. An ordinary user always
    /// enters a user namespace.
    fn ways() -> Vec<(&'static str, Option<u32>)> {
        let mut ways = vec![("as_it_is", None), (OWN_USER_NAMESPACE, None)];
        if rustix::process::geteuid().is_root() {
            ways.push(("as_nobody", Some(NOBODY)));
        }
        ways
    }

    /// Returns whether to run a trial with the privileges that this way provides. For root, a user namespace provides
    /// the same privileges through a different call, so two trials are enough to test it.
    fn is_tried(way: &str, trial: &str) -> bool {
        let few: [OnDevice; _] =
            named![coalescing_makes_trains_and_changes_no_byte, superframes_of_the_sender_are_cut,];
        way != OWN_USER_NAMESPACE || few.iter().any(|(name, _)| name == trial)
    }

    const DEVICES: [(&str, Device); 2] = [("veth", Device::Veth), ("tap", Device::Tap)];

    pub(super) fn start_each() {
        let mut names = Vec::new();
        for (way, user) in ways() {
            let on_devices = DEVICES.iter().flat_map(|(device, _)| {
                let names = on_device().into_iter().map(|(name, _)| name);
                let tried = names.filter(move |name| is_tried(way, name));
                tried.map(move |name| format!("{way}::{device}::{name}"))
            });
            let alone = alone().into_iter().map(|(name, _)| format!("{way}::{name}"));
            names.extend(on_devices.chain(alone).map(|name| (name, user)));
        }
        names.sort_by_key(|(name, _)| !waits(name));
        let trials = names.into_iter();
        let trials = trials.map(|(name, user)| {
            let measures = is_among(&MEASURING, &name);
            let trial = Trial::test(name.clone(), move || start(&name, user));
            trial.with_ignored_flag(measures)
        });
        let threads = Some(THREADS_A_PROCESSOR * processor::count());
        let several = Arguments { test_threads: threads, ..Arguments::from_args() };
        libtest_mimic::run(&several, trials.collect()).exit();
    }

    /// Runs one trial in a separate process, and prints which parts it skipped.
    fn start(name: &str, user: Option<u32>) -> Result<(), Failed> {
        let mut command = Command::new("/proc/self/exe");
        command.env(TRIAL, name);
        if let Some(user) = user {
            command.uid(user).gid(user).env_remove("GROSSO_SKIP_NOTHING");
        }
        let _processor = (!waits(name)).then(Processor::acquire);
        let Output { status, stdout, stderr } = command.output()?;
        print!("{}", String::from_utf8_lossy(&stdout));
        if status.success() {
            return Ok(());
        }
        Err(format!("{status}\n{}", String::from_utf8_lossy(&stderr)).into())
    }

    pub(super) fn run(trial: &str) {
        STARTED_AS_ROOT.set(rustix::process::geteuid().is_root()).expect("one trial per process");
        let (way, name) = trial.split_once("::").expect("a way and a name");
        if way == OWN_USER_NAMESPACE && user_namespace_refusal().unwrap().is_none() {
            isolate_process_user().unwrap();
        }
        if let Err(refusal) = userns::enter() {
            assert!(!refusal.remedy().is_empty());
            return skip(&format!("{trial}: {refusal}"));
        }
        let before = links();
        if let Some((_, alone)) = alone().iter().find(|(case, _)| *case == name) {
            alone();
        } else {
            let (device, name) = name.split_once("::").expect("a device and a name");
            let (_, device) = *DEVICES.iter().find(|(word, _)| *word == device).expect("a device");
            if device == Device::Tap
                && let Err(refusal) = userns::tap()
            {
                if let Refusal::TunClosed { mode } = refusal {
                    assert_ne!(mode & 0o666, 0o666);
                }
                return skip(&format!("{trial}: {refusal}"));
            }
            let (_, case) = *on_device().iter().find(|(case, _)| *case == name).expect("a case");
            case(device);
        }
        assert_eq!(links(), before, "nothing is left behind");
    }

    /// Reports why a trial is skipped. No trial may be skipped if everything that it needs is available.
    pub(super) fn skip(why: &str) {
        println!("skipped: {why}");
        assert!(
            std::env::var_os("GROSSO_SKIP_NOTHING").is_none(),
            "this machine should be able to run the test"
        );
    }

    fn coalescing_makes_trains_and_changes_no_byte(device: Device) {
        let measured = clean(&through(device, grosso(false)));
        let segments = measured.segments_per_train.unwrap();
        assert!(segments > 2.0, "{segments} segments per train");
        let packets = measured.bytes / 1448;
        assert!(
            measured.acknowledgements < packets / 2,
            "fewer than one acknowledgment per two packets"
        );
    }

    fn without_it_every_packet_is_delivered_by_itself(device: Device) {
        let measured = clean(&through(device, Carrier::grosso(None, false)));
        let segments = measured.segments_per_train.unwrap();
        assert!((segments - 1.0).abs() < 0.01, "{segments} segments per train");
    }

    fn packets_share_pages_and_keep_their_bytes(device: Device) {
        for (page_bytes, least) in [(4 << 10, 1.0), (32 << 10, 2.0)] {
            let layout = Layout { page_bytes: Some(page_bytes), ..Layout::default() };
            for copy in [false, true] {
                let measured = clean(&Setting { layout, ..through(device, grosso(copy)) });
                let packets = measured.packets_per_page.unwrap();
                // The first packets on a connection are shorter, so more of them fit into a page.
                let most = layout.packets_per_page(page_bytes) as f64 + 0.5;
                assert!(packets > least && packets < most, "{packets} packets in {page_bytes}");
                assert!(measured.segments_per_train.unwrap() > 1.0, "{measured:?}");
            }
        }
        assert_eq!(clean(&through(device, grosso(false))).packets_per_page, None);
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
        assert!(segments[1] > 2.0 * segments[0], "{segments:?} segments per train");
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
            // The kernel may lose packets here, because the wire holds at most 256 packets if GRO is used.
            let setting = setting(Carrier::Kernel { gro });
            let measured = measure(&setting, &AtomicBool::new(false)).unwrap();
            assert!(measured.bytes >= BYTES);
            assert_eq!(measured.segments_per_train, None);
        }
    }

    fn superframes_of_the_sender_are_cut(device: Device) {
        let on = clean(&through(device, Carrier::GrossoSends { superframes: true }));
        assert_eq!(
            on.receiver_coalesced,
            STARTED_AS_ROOT.get().copied(),
            "like the driver of a NIC"
        );
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
            // A thread may already have counted a datagram's bytes, but not the datagram itself.
            let datagrams = measured.bytes / (1500 - headers);
            assert!(datagrams.abs_diff(measured.units) <= 1, "{family:?}: {measured:?}");
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
        // The sender's kernel sends superframes, which the data path segments.
        assert!(measured.segments_per_train.unwrap() > 2.0, "{measured:?}");
    }

    fn many_connections_keep_their_bytes(device: Device) {
        let connections = 40;
        let layout = Layout::default().streams(connections);
        clean(&Setting { connections, layout, ..through(device, grosso(false)) });
    }

    fn iperf3_measures_the_same() {
        if Command::new("iperf3").arg("--version").output().is_err() {
            return skip("iperf3 is not installed");
        }
        let tool = Tool::Iperf3;
        let setting = Setting { tool, ..setting(grosso(false)) };
        let measured = measure(&setting, &AtomicBool::new(false)).unwrap();
        // The server stops counting when the client has finished.
        assert!(measured.bytes >= BYTES / 2, "{measured:?}");
        assert!(measured.segments_per_train.unwrap() > 2.0, "{measured:?}");
        assert!(measured.cpu_seconds.path > 0.0 && measured.cpu_seconds.sender > 0.0);
    }

    fn requests_are_answered(device: Device) {
        for (traffic, bytes) in [(Traffic::TcpRequests, 1), (Traffic::UdpRequests, 8)] {
            let extent = Extent::Bytes(500 * bytes);
            let measured = clean(&Setting { traffic, extent, ..through(device, grosso(false)) });
            // On a busy machine, a late answer may count as lost, and the last answer may arrive after the end.
            let known = measured.latencies.len() as u64 + measured.lost + 1;
            assert!(known >= measured.units, "{traffic}: {measured:?}");
            // The two counters are read one after another while the traffic continues.
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
        assert!(text.contains("connect: cannot use congestion control carrier-pigeon: "), "{text}");
    }

    /// Checks that no connection starts with pacing. A socket that is created with BBR, for example because it is the
    /// system default, keeps pacing even if another congestion control is set later.
    fn no_connection_begins_with_pacing() {
        let hosts = Hosts::joined(&Layout::default(), false).unwrap();
        for host in hosts.networks() {
            let first =
                host.run(|| std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control"));
            assert_eq!(first.unwrap().unwrap().trim(), "reno");
        }
    }

    fn an_interruption_ends_a_trial() {
        let extent = Extent::Bytes(u64::MAX);
        let ended = measure(&Setting { extent, ..setting(grosso(false)) }, &AtomicBool::new(true));
        assert!(matches!(ended, Err(TrialError::Interrupted)), "{ended:?}");
    }

    /// Runs a trial in which nothing may be damaged. Retransmissions are ignored, because a sender that has not been
    /// scheduled for a long time retransmits data that was not lost.
    fn clean(setting: &Setting) -> Measured {
        let measured = measure(setting, &AtomicBool::new(false)).unwrap();
        let Extent::Bytes(bytes) = setting.extent else { panic!("the extent has no bytes") };
        assert!(measured.bytes >= bytes, "{setting:?}: {measured:?}");
        assert_eq!(measured.checksum_errors, 0);
        measured
    }

    pub(super) fn through(device: Device, carrier: Carrier) -> Setting {
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
            processors: [processor; 3],
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
