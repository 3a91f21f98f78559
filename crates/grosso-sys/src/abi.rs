//! Constants of the kernel's userspace interface that `libc` or the headers of stable distributions lack.
//!
//! Each constant has the kernel's name, so that it can be found in `include/uapi`.

#![cfg_attr(target_os = "android", allow(dead_code, reason = "AF_XDP is for Linux only"))]

use core::ffi::c_int;
use core::ops::Range;

use rustix::ioctl::{Opcode, opcode};

// asm-generic/socket.h. `libc` has these options for Linux but not for Android.
#[cfg(target_os = "android")]
pub(crate) const SO_NO_CHECK: c_int = 11;
#[cfg(target_os = "android")]
pub(crate) const SO_MAX_PACING_RATE: c_int = 47;
#[cfg(target_os = "android")]
pub(crate) const SO_MEMINFO: c_int = 55;
#[cfg(target_os = "android")]
pub(crate) const SO_NETNS_COOKIE: c_int = 71;
#[cfg(not(target_os = "android"))]
pub(crate) use libc::{SO_MAX_PACING_RATE, SO_MEMINFO, SO_NETNS_COOKIE, SO_NO_CHECK};

// linux/if_tun.h. `TUNSETIFF` and `TUNGETIFF` are declared with an `int` but take a `struct ifreq`.
pub(crate) const TUNSETIFF: Opcode = opcode::write::<c_int>(b'T', 202);
pub(crate) const TUNSETPERSIST: Opcode = opcode::write::<c_int>(b'T', 203);
pub(crate) const TUNGETFEATURES: Opcode = opcode::read::<u32>(b'T', 207);
pub(crate) const TUNGETIFF: Opcode = opcode::read::<u32>(b'T', 210);
pub(crate) const TUNSETSNDBUF: Opcode = opcode::write::<c_int>(b'T', 212);
pub(crate) const TUNGETVNETHDRSZ: Opcode = opcode::read::<c_int>(b'T', 215);
pub(crate) const TUNSETQUEUE: Opcode = opcode::write::<c_int>(b'T', 217);
/// Available since Linux 5.0.
pub(crate) const TUNSETCARRIER: Opcode = opcode::write::<c_int>(b'T', 226);
pub(crate) const TUNSETOFFLOAD: Opcode = opcode::write::<c_int>(b'T', 208);
pub(crate) const TUNSETVNETHDRSZ: Opcode = opcode::write::<c_int>(b'T', 216);
pub(crate) const IFF_TUN: u16 = 0x0001;
pub(crate) const IFF_TAP: u16 = 0x0002;
pub(crate) const IFF_NAPI: u16 = 0x0010;
pub(crate) const IFF_NAPI_FRAGS: u16 = 0x0020;
/// Only in the result of `TUNGETIFF`: the queue is detached.
pub(crate) const IFF_DETACH_QUEUE: u16 = 0x0400;
pub(crate) const IFF_ATTACH_QUEUE: u16 = 0x0200;
pub(crate) const IFF_MULTI_QUEUE: u16 = 0x0100;
pub(crate) const IFF_NO_PI: u16 = 0x1000;
pub(crate) const IFF_VNET_HDR: u16 = 0x4000;
pub(crate) const TUN_F_CSUM: u32 = 0x001;
pub(crate) const TUN_F_TSO4: u32 = 0x002;
pub(crate) const TUN_F_TSO6: u32 = 0x004;
pub(crate) const TUN_F_TSO_ECN: u32 = 0x008;
/// Available since Linux 6.2. The kernel does not accept one of these flags without the other (rule V30).
pub(crate) const TUN_F_USO4_USO6: u32 = 0x020 | 0x040;
/// UDP tunnel superframes: since Linux 6.17, with the 24-byte header.
pub(crate) const TUN_F_UDP_TUNNEL_GSO: u32 = 0x080;
/// UDP tunnel superframes with outer checksums: since Linux 6.17, with the 24-byte header.
pub(crate) const TUN_F_UDP_TUNNEL_GSO_CSUM: u32 = 0x100;

// linux/sockios.h. These predate the encoded form and have the same numbers on every architecture.
pub(crate) const SIOCGIFFLAGS: Opcode = 0x8913;
pub(crate) const SIOCSIFFLAGS: Opcode = 0x8914;
pub(crate) const SIOCSIFADDR: Opcode = 0x8916;
pub(crate) const SIOCSIFNETMASK: Opcode = 0x891c;
pub(crate) const SIOCGIFMTU: Opcode = 0x8921;
pub(crate) const SIOCSIFMTU: Opcode = 0x8922;
pub(crate) const SIOCSIFHWADDR: Opcode = 0x8924;
pub(crate) const SIOCSIFTXQLEN: Opcode = 0x8943;
pub(crate) const SIOCETHTOOL: Opcode = 0x8946;
pub(crate) const SIOCBRADDBR: Opcode = 0x89a0;
pub(crate) const SIOCBRADDIF: Opcode = 0x89a2;
pub(crate) const IFF_UP: u16 = 0x1;
/// linux/if_arp.h: Ethernet.
pub(crate) const ARPHRD_ETHER: u16 = 1;

// linux/ethtool.h.
pub(crate) const ETHTOOL_GDRVINFO: u32 = 0x03;
pub(crate) const ETHTOOL_GCOALESCE: u32 = 0x0e;
pub(crate) const ETHTOOL_SCOALESCE: u32 = 0x0f;
pub(crate) const ETHTOOL_GRINGPARAM: u32 = 0x10;
pub(crate) const ETHTOOL_SRINGPARAM: u32 = 0x11;
pub(crate) const ETHTOOL_GCHANNELS: u32 = 0x3c;
pub(crate) const ETHTOOL_SCHANNELS: u32 = 0x3d;
pub(crate) const ETHTOOL_GSTRINGS: u32 = 0x1b;
pub(crate) const ETHTOOL_GSSET_INFO: u32 = 0x37;
pub(crate) const ETHTOOL_GFEATURES: u32 = 0x3a;
pub(crate) const ETHTOOL_SFEATURES: u32 = 0x3b;
pub(crate) const ETHTOOL_GSTATS: u32 = 0x1d;
pub(crate) const ETH_SS_STATS: u32 = 1;
pub(crate) const ETH_SS_FEATURES: u32 = 4;
pub(crate) const ETH_GSTRING_LEN: usize = 32;

// linux/if_packet.h.
pub(crate) const SOL_PACKET: c_int = 263;
pub(crate) const PACKET_ADD_MEMBERSHIP: c_int = 1;
pub(crate) const PACKET_MR_PROMISC: u16 = 1;
pub(crate) const PACKET_RX_RING: c_int = 5;
pub(crate) const PACKET_STATISTICS: c_int = 6;
pub(crate) const PACKET_COPY_THRESH: c_int = 7;
pub(crate) const PACKET_AUXDATA: c_int = 8;
pub(crate) const PACKET_VERSION: c_int = 10;
pub(crate) const PACKET_TX_RING: c_int = 13;
pub(crate) const PACKET_VNET_HDR: c_int = 15;
pub(crate) const PACKET_FANOUT: c_int = 18;
pub(crate) const PACKET_QDISC_BYPASS: c_int = 20;
/// Available since Linux 4.20.
pub(crate) const PACKET_IGNORE_OUTGOING: c_int = 23;
/// Since Linux 6.6: the argument is the length of the header.
pub(crate) const PACKET_VNET_HDR_SZ: c_int = 24;
pub(crate) const TPACKET_V2: c_int = 1;
pub(crate) const TPACKET_V3: c_int = 2;
pub(crate) const PACKET_FANOUT_HASH: u16 = 0;
pub(crate) const PACKET_FANOUT_CPU: u16 = 2;
pub(crate) const PACKET_FANOUT_QM: u16 = 5;
/// Since Linux 4.16: the kernel chooses an unused number.
pub(crate) const PACKET_FANOUT_FLAG_UNIQUEID: u16 = 0x2000;
pub(crate) const PACKET_FANOUT_FLAG_IGNORE_OUTGOING: u16 = 0x4000;
pub(crate) const PACKET_FANOUT_FLAG_DEFRAG: u16 = 0x8000;
pub(crate) const TP_STATUS_KERNEL: u32 = 0;
pub(crate) const TP_STATUS_USER: u32 = 1 << 0;
pub(crate) const TP_STATUS_COPY: u32 = 1 << 1;
pub(crate) const TP_STATUS_LOSING: u32 = 1 << 2;
pub(crate) const TP_STATUS_CSUMNOTREADY: u32 = 1 << 3;
pub(crate) const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
pub(crate) const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
/// Available since Linux 4.2.
pub(crate) const TP_STATUS_CSUM_VALID: u32 = 1 << 7;
pub(crate) const TP_STATUS_AVAILABLE: u32 = 0;
pub(crate) const TP_STATUS_SEND_REQUEST: u32 = 1 << 0;
pub(crate) const TP_STATUS_WRONG_FORMAT: u32 = 1 << 2;
/// linux/if_ether.h: every EtherType.
pub(crate) const ETH_P_ALL: u16 = 0x0003;
/// linux/if_ether.h: IPv4 and IPv6.
pub(crate) const ETH_P_IP: u16 = 0x0800;
pub(crate) const ETH_P_IPV6: u16 = 0x86dd;
/// linux/if_ether.h: the 802.1Q tag.
pub(crate) const ETH_P_8021Q: u16 = 0x8100;

/// `struct tpacket_auxdata` from linux/if_packet.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PacketAuxiliaryData {
    pub(crate) status: u32,
    pub(crate) length: u32,
    pub(crate) snap_length: u32,
    pub(crate) mac: u16,
    pub(crate) net: u16,
    pub(crate) vlan_tci: u16,
    pub(crate) vlan_tpid: u16,
}

/// `struct tpacket_stats` from linux/if_packet.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct PacketStatistics {
    pub(crate) packets: u32,
    pub(crate) drops: u32,
}

/// `struct tpacket_req` from linux/if_packet.h, in which slots are called frames.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PacketRingRequest {
    pub(crate) block_bytes: u32,
    pub(crate) blocks: u32,
    pub(crate) slot_bytes: u32,
    pub(crate) slots: u32,
}

/// `struct tpacket_req3` from linux/if_packet.h: the ring and, in milliseconds, the timeout of a block.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PacketBlocksRequest {
    pub(crate) ring: PacketRingRequest,
    pub(crate) retire_ms: u32,
    pub(crate) private_bytes: u32,
    pub(crate) features: u32,
}

/// Length in bytes of `struct tpacket_block_desc` from linux/if_packet.h, at the start of each block.
pub(crate) const PACKET_BLOCK_HEADER_BYTES: usize = 48;
/// Offset of the field `block_status` in a block.
pub(crate) const PACKET_BLOCK_STATUS: usize = 8;
/// The fields `num_pkts`, `offset_to_first_pkt` and `blk_len` of a block, 32 bits each.
pub(crate) const PACKET_BLOCK_FIELDS: Range<usize> = 12..24;
/// Length in bytes of `struct tpacket3_hdr` from linux/if_packet.h, which precedes each packet of a block.
pub(crate) const PACKET_BLOCK_PACKET_BYTES: usize = 48;

/// `struct packet_mreq` from linux/if_packet.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PacketMembership {
    pub(crate) interface: c_int,
    pub(crate) kind: u16,
    pub(crate) address_bytes: u16,
    pub(crate) address: [u8; 8],
}

/// Length in bytes of `struct tpacket2_hdr` from linux/if_packet.h.
pub(crate) const PACKET_RING_HEADER_BYTES: usize = 32;
/// The field `tp_len`.
pub(crate) const PACKET_RING_LENGTH: Range<usize> = 4..8;

/// The field `sll_ifindex` of the `struct sockaddr_ll` that follows the header.
pub(crate) const PACKET_RING_INTERFACE: Range<usize> = 36..40;
/// The field `sll_hatype` of the `struct sockaddr_ll` that follows the header.
pub(crate) const PACKET_RING_HARDWARE: Range<usize> = 40..42;
/// The field `sll_pkttype` of the `struct sockaddr_ll` that follows the header.
pub(crate) const PACKET_RING_KIND: Range<usize> = 42..43;

/// Fields of `struct tpacket2_hdr`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketRingHeader {
    pub(crate) status: u32,
    pub(crate) length: u32,
    pub(crate) snap_length: u32,
    pub(crate) mac: u16,
    pub(crate) net: u16,
    pub(crate) seconds: u32,
    pub(crate) nanoseconds: u32,
    pub(crate) vlan_tci: u16,
    pub(crate) vlan_tpid: u16,
}

impl PacketRingHeader {
    /// Reads the header at the start of a slot.
    #[inline]
    pub(crate) fn parse(slot: &[u8; PACKET_RING_HEADER_BYTES]) -> Self {
        let half = |at: usize| u16::from_ne_bytes([slot[at], slot[at + 1]]);
        let word =
            |at: usize| u32::from_ne_bytes([slot[at], slot[at + 1], slot[at + 2], slot[at + 3]]);
        Self {
            status: word(0),
            length: word(4),
            snap_length: word(8),
            mac: half(12),
            net: half(14),
            seconds: word(16),
            nanoseconds: word(20),
            vlan_tci: half(24),
            vlan_tpid: half(26),
        }
    }

    /// Returns the range of the packet's captured bytes in the slot.
    pub(crate) fn range(&self) -> Range<usize> {
        let start = usize::from(self.mac);
        start..start.saturating_add(self.snap_length as usize)
    }
}

// linux/if_xdp.h.
pub(crate) const XDP_RING_NEED_WAKEUP: u32 = 1 << 0;
/// Since Linux 6.6: the packet continues in the next descriptor.
pub(crate) const XDP_PKT_CONTD: u32 = 1 << 0;

// linux/bpf.h, linux/if_link.h.
pub(crate) const BPF_MAP_CREATE: c_int = 0;
pub(crate) const BPF_MAP_UPDATE_ELEM: c_int = 2;
pub(crate) const BPF_PROG_LOAD: c_int = 5;
/// Available since Linux 5.7, and for XDP since 5.9.
pub(crate) const BPF_LINK_CREATE: c_int = 28;
pub(crate) const BPF_MAP_TYPE_XSKMAP: u32 = 17;
pub(crate) const BPF_PROG_TYPE_XDP: u32 = 6;
pub(crate) const BPF_XDP: u32 = 37;
/// Available since Linux 5.18.
pub(crate) const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
pub(crate) const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
pub(crate) const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

// linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/neighbour.h.
pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
pub(crate) const NLM_F_REQUEST: u16 = 0x001;
pub(crate) const NLM_F_ACK: u16 = 0x004;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
// linux/sock_diag.h, linux/unix_diag.h. The user ID is reported since Linux 5.3.
pub(crate) const SOCK_DIAG_BY_FAMILY: u16 = 20;
pub(crate) const UDIAG_SHOW_NAME: u32 = 0x01;
pub(crate) const UDIAG_SHOW_UID: u32 = 0x40;
pub(crate) const UNIX_DIAG_NAME: u16 = 0;
pub(crate) const UNIX_DIAG_UID: u16 = 7;
// net/tcp_states.h: states of sockets that are bound but not connected.
pub(crate) const TCP_CLOSE: u32 = 7;
pub(crate) const TCP_LISTEN: u32 = 10;
pub(crate) const NLM_F_REPLACE: u16 = 0x100;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_NEWADDR: u16 = 20;
pub(crate) const RTM_NEWROUTE: u16 = 24;
pub(crate) const RTM_GETROUTE: u16 = 26;
pub(crate) const RTM_NEWNEIGH: u16 = 28;
pub(crate) const IFF_LOWER_UP: u32 = 1 << 16;
pub(crate) const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
pub(crate) const IFLA_LINK: u16 = 5;
pub(crate) const IFLA_TXQLEN: u16 = 13;
pub(crate) const IFLA_LINKINFO: u16 = 18;
pub(crate) const IFLA_STATS64: u16 = 23;
pub(crate) const IFLA_NET_NS_FD: u16 = 28;
pub(crate) const IFLA_NUM_TX_QUEUES: u16 = 31;
pub(crate) const IFLA_NUM_RX_QUEUES: u16 = 32;
pub(crate) const IFLA_GSO_MAX_SEGS: u16 = 40;
pub(crate) const IFLA_GSO_MAX_SIZE: u16 = 41;
/// Available since Linux 5.19, in bytes. Since 6.3, a value above 65536 applies to IPv6 only.
pub(crate) const IFLA_GRO_MAX_SIZE: u16 = 58;
/// Available since Linux 6.3.
pub(crate) const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
/// Available since Linux 6.3.
pub(crate) const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_INFO_DATA: u16 = 2;
pub(crate) const IFLA_VXLAN_ID: u16 = 1;
pub(crate) const IFLA_VXLAN_GROUP: u16 = 2;
pub(crate) const IFLA_VXLAN_LOCAL: u16 = 4;
pub(crate) const IFLA_VXLAN_PORT: u16 = 15;
pub(crate) const IFLA_VXLAN_UDP_CSUM: u16 = 18;
pub(crate) const IFLA_VXLAN_GROUP6: u16 = 16;
pub(crate) const IFLA_VXLAN_COLLECT_METADATA: u16 = 25;
pub(crate) const IFLA_GENEVE_REMOTE: u16 = 2;
pub(crate) const IFLA_GENEVE_REMOTE6: u16 = 7;
/// linux/if_tunnel.h.
pub(crate) const IFLA_IPTUN_REMOTE: u16 = 3;
pub(crate) const IFLA_GRE_REMOTE: u16 = 7;
/// linux/veth.h.
pub(crate) const VETH_INFO_PEER: u16 = 1;
pub(crate) const IFA_ADDRESS: u16 = 1;
pub(crate) const IFA_LOCAL: u16 = 2;
pub(crate) const IFA_F_NODAD: u8 = 0x02;
pub(crate) const RTA_DST: u16 = 1;
pub(crate) const RTA_SRC: u16 = 2;
pub(crate) const RTA_OIF: u16 = 4;
pub(crate) const RTA_GATEWAY: u16 = 5;
pub(crate) const RTA_METRICS: u16 = 8;
pub(crate) const RTA_MULTIPATH: u16 = 9;
/// Available since Linux 4.19.
pub(crate) const RTA_IP_PROTO: u16 = 27;
pub(crate) const RTA_DPORT: u16 = 29;
pub(crate) const RTAX_MTU: u16 = 2;
/// Requests the route itself, without data learned for the destination.
pub(crate) const RTM_F_FIB_MATCH: u32 = 0x2000;
pub(crate) const RT_TABLE_MAIN: u8 = 254;
pub(crate) const RTPROT_STATIC: u8 = 4;
pub(crate) const RT_SCOPE_UNIVERSE: u8 = 0;
pub(crate) const RT_SCOPE_LINK: u8 = 253;
pub(crate) const RTN_UNICAST: u8 = 1;
pub(crate) const NDA_DST: u16 = 1;
pub(crate) const NDA_LLADDR: u16 = 2;
pub(crate) const NUD_PERMANENT: u16 = 0x80;

// linux/genetlink.h, linux/ethtool_netlink.h.
pub(crate) const GENL_ID_CTRL: u16 = 16;
pub(crate) const CTRL_CMD_GETFAMILY: u8 = 3;
pub(crate) const CTRL_VERSION: u8 = 2;
pub(crate) const CTRL_ATTR_FAMILY_ID: u16 = 1;
pub(crate) const CTRL_ATTR_FAMILY_NAME: u16 = 2;
pub(crate) const NLA_F_NESTED: u16 = 1 << 15;
pub(crate) const ETHTOOL_GENL_VERSION: u8 = 1;
pub(crate) const ETHTOOL_MSG_COALESCE_GET: u8 = 19;
/// Header attribute, the first in every message of the family.
pub(crate) const ETHTOOL_A_HEADER: u16 = 1;
pub(crate) const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;
/// First attribute after the header. The others follow in the order of `struct ethtool_coalesce`.
pub(crate) const ETHTOOL_A_COALESCE_RX_USECS: u16 = 2;

// linux/prctl.h, since Linux 6.4: a query for the CPU's features. Not every C library reports them.
#[cfg(feature = "sandbox")]
pub(crate) const PR_GET_AUXV: u64 = 0x4155_5856;
// linux/prctl.h, since Linux 5.17: the name of memory in `/proc/PID/maps`.
#[cfg(feature = "sandbox")]
pub(crate) const PR_SET_VMA: u64 = 0x5356_4d41;
