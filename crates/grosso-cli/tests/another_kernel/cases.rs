//! Cases of the test: each configures the same tunnel for Grosso and for the peer kernel.

/// A tunnel as configured on both endpoints.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Outer IP version: 0 for IPv4, 1 for IPv6.
    pub(crate) outer: usize,
    /// Arguments for `grosso tunnel add`, after `type`.
    pub(crate) ours: &'static str,
    /// Arguments for `ip link add` in the guest, after `type`.
    pub(crate) theirs: &'static str,
    /// Arguments for `ip fou add` in the guest.
    pub(crate) port: Option<&'static str>,
    /// Inner IP versions.
    pub(crate) inner: &'static [usize],
    /// The tcpdump filter for packets that leave the inner checksum to the receiver.
    pub(crate) unsummed: Option<&'static str>,
    /// Whether GRO must be off on the guest's receiver: with this kernel, GRE in UDP stalls with GRO on.
    pub(crate) without_gro: bool,
}

const fn tunnel(
    name: &'static str,
    outer: usize,
    ours: &'static str,
    theirs: &'static str,
) -> Case {
    let (port, inner, unsummed) = (None, &[0, 1], None);
    Case { name, outer, ours, theirs, port, inner, unsummed, without_gro: false }
}

impl Case {
    const fn inside(mut self, inner: &'static [usize]) -> Self {
        self.inner = inner;
        self
    }

    const fn on(mut self, port: &'static str) -> Self {
        self.port = Some(port);
        self
    }

    const fn unsummed(mut self, filter: &'static str) -> Self {
        self.unsummed = Some(filter);
        self
    }

    const fn without_gro(mut self) -> Self {
        self.without_gro = true;
        self
    }
}

pub(crate) const TUNNELS: &[Case] = &[
    tunnel("vxlan", 0, "vxlan id 42", "vxlan id 42 dstport 4789 udpcsum"),
    tunnel(
        "vxlan, remote checksums",
        0,
        "vxlan id 42 remcsumtx remcsumrx",
        "vxlan id 42 dstport 4789 udpcsum remcsumtx remcsumrx",
    )
    .unsummed("udp dst port 4789 and udp[9] & 0x20 != 0"),
    tunnel("vxlan", 1, "vxlan id 42", "vxlan id 42 dstport 4789"),
    tunnel(
        "vxlan, remote checksums",
        1,
        "vxlan id 42 remcsumtx remcsumrx",
        "vxlan id 42 dstport 4789 remcsumtx remcsumrx",
    )
    .unsummed("udp dst port 4789 and ip6[49] & 0x20 != 0"),
    tunnel("geneve", 0, "geneve id 42", "geneve id 42 udpcsum"),
    tunnel("geneve", 1, "geneve id 42", "geneve id 42"),
    tunnel("ipip", 0, "ipip", "ipip").inside(&[0]),
    tunnel("sit", 0, "sit", "sit mode any"),
    tunnel("gre", 0, "gre", "gre"),
    tunnel("gre, key, checksum, numbers", 0, "gre key 7 csum seq", "gre key 7 csum seq"),
    tunnel("gretap", 0, "gretap", "gretap"),
    tunnel("gretap, key, checksum, numbers", 0, "gretap key 7 csum seq", "gretap key 7 csum seq"),
    tunnel("ip6gre", 1, "ip6gre", "ip6gre"),
    tunnel("ip6gre, key, checksum, numbers", 1, "ip6gre key 7 csum seq", "ip6gre key 7 csum seq"),
    tunnel("ip6gretap", 1, "ip6gretap", "ip6gretap"),
    tunnel("ip6tnl", 1, "ip6tnl", "ip6tnl mode any"),
    tunnel(
        "ipip in fou",
        0,
        "ipip encap fou encap-dport 5555",
        "ipip encap fou encap-sport auto encap-dport 5555 encap-csum",
    )
    .on("port 5555 ipproto 4")
    .inside(&[0]),
    tunnel(
        "ipip in gue",
        0,
        "ipip encap gue",
        "ipip encap gue encap-sport auto encap-dport 6080 encap-csum",
    )
    .on("port 6080 gue")
    .inside(&[0]),
    tunnel(
        "ipip in gue, remote checksums",
        0,
        "ipip encap gue encap-remcsum",
        "ipip encap gue encap-sport auto encap-dport 6080 encap-csum encap-remcsum",
    )
    .on("port 6080 gue")
    .unsummed("udp dst port 6080 and udp[8] & 0x1f == 2 and udp[12] & 0x80 != 0")
    .inside(&[0]),
    tunnel(
        "sit in fou",
        0,
        "sit mode ip6ip encap fou encap-dport 5555",
        "sit mode ip6ip encap fou encap-sport auto encap-dport 5555 encap-csum",
    )
    .on("port 5555 ipproto 41")
    .inside(&[1]),
    tunnel(
        "sit in gue",
        0,
        "sit encap gue",
        "sit mode any encap gue encap-sport auto encap-dport 6080 encap-csum",
    )
    .on("port 6080 gue"),
    tunnel(
        "sit in gue, remote checksums",
        0,
        "sit encap gue encap-remcsum",
        "sit mode any encap gue encap-sport auto encap-dport 6080 encap-csum encap-remcsum",
    )
    .on("port 6080 gue")
    .unsummed("udp dst port 6080 and udp[8] & 0x1f == 2 and udp[12] & 0x80 != 0"),
    tunnel(
        "ip6tnl in gue, remote checksums",
        1,
        "ip6tnl encap gue encap-remcsum",
        "ip6tnl mode any encaplimit none encap gue encap-sport auto encap-dport 6080 encap-csum encap-remcsum",
    )
    .on("port 6080 gue -6")
    .unsummed("udp dst port 6080 and ip6[48] & 0x1f == 2 and ip6[52] & 0x80 != 0"),
    tunnel(
        "gre in fou",
        0,
        "gre encap fou encap-dport 5555",
        "gre encap fou encap-sport auto encap-dport 5555 encap-csum",
    )
    .on("port 5555 ipproto 47")
    .without_gro(),
    tunnel(
        "gre in gue",
        0,
        "gre encap gue",
        "gre encap gue encap-sport auto encap-dport 6080 encap-csum",
    )
    .on("port 6080 gue")
    .without_gro(),
    tunnel(
        "gre in gue, remote checksums",
        0,
        "gre encap gue encap-remcsum",
        "gre encap gue encap-sport auto encap-dport 6080 encap-csum encap-remcsum",
    )
    .on("port 6080 gue")
    .unsummed("udp dst port 6080 and udp[8] & 0x1f == 2 and udp[12] & 0x80 != 0")
    .without_gro(),
];
