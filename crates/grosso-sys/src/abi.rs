//! Numbers of the kernel's user interface that `libc` or the headers of stable distributions lack.
//!
//! Each is named as the kernel names it, so that it can be found in `include/uapi`.

use core::ffi::c_int;

use rustix::ioctl::{Opcode, opcode};

// linux/if_tun.h. `TUNSETIFF` is declared with an `int` but takes a `struct ifreq`.
pub(crate) const TUNSETIFF: Opcode = opcode::write::<c_int>(b'T', 202);
pub(crate) const TUNSETOFFLOAD: Opcode = opcode::write::<c_int>(b'T', 208);
pub(crate) const TUNSETVNETHDRSZ: Opcode = opcode::write::<c_int>(b'T', 216);
pub(crate) const IFF_TUN: u16 = 0x0001;
pub(crate) const IFF_TAP: u16 = 0x0002;
pub(crate) const IFF_NAPI: u16 = 0x0010;
pub(crate) const IFF_NAPI_FRAGS: u16 = 0x0020;
pub(crate) const IFF_MULTI_QUEUE: u16 = 0x0100;
pub(crate) const IFF_NO_PI: u16 = 0x1000;
pub(crate) const IFF_VNET_HDR: u16 = 0x4000;
pub(crate) const TUN_F_CSUM: u32 = 0x001;
pub(crate) const TUN_F_TSO4: u32 = 0x002;
pub(crate) const TUN_F_TSO6: u32 = 0x004;
pub(crate) const TUN_F_TSO_ECN: u32 = 0x008;
/// Since Linux 6.2; only both together are accepted (rule V30).
pub(crate) const TUN_F_USO4_USO6: u32 = 0x020 | 0x040;
/// Since Linux 6.17, with the 24-byte header.
pub(crate) const TUN_F_UDP_TUNNEL_GSO: u32 = 0x080;
/// Since Linux 6.17, with the 24-byte header.
pub(crate) const TUN_F_UDP_TUNNEL_GSO_CSUM: u32 = 0x100;

// linux/sockios.h. These predate the encoded form and are plain numbers on every architecture.
pub(crate) const SIOCGIFFLAGS: Opcode = 0x8913;
pub(crate) const SIOCSIFFLAGS: Opcode = 0x8914;
pub(crate) const SIOCSIFADDR: Opcode = 0x8916;
pub(crate) const SIOCSIFNETMASK: Opcode = 0x891c;
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
pub(crate) const ETHTOOL_GSTRINGS: u32 = 0x1b;
pub(crate) const ETHTOOL_GSSET_INFO: u32 = 0x37;
pub(crate) const ETHTOOL_GFEATURES: u32 = 0x3a;
pub(crate) const ETHTOOL_SFEATURES: u32 = 0x3b;
pub(crate) const ETH_SS_FEATURES: u32 = 4;
pub(crate) const ETH_GSTRING_LEN: usize = 32;

// linux/if_packet.h.
pub(crate) const SOL_PACKET: c_int = 263;
pub(crate) const PACKET_STATISTICS: c_int = 6;
pub(crate) const PACKET_AUXDATA: c_int = 8;
pub(crate) const PACKET_VNET_HDR: c_int = 15;
/// Since Linux 4.20.
pub(crate) const PACKET_IGNORE_OUTGOING: c_int = 23;
pub(crate) const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
pub(crate) const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
/// linux/if_ether.h: every EtherType.
pub(crate) const ETH_P_ALL: u16 = 0x0003;
/// linux/if_ether.h: the tag of 802.1Q.
pub(crate) const ETH_P_8021Q: u16 = 0x8100;

/// `struct tpacket_auxdata` of linux/if_packet.h.
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

/// `struct tpacket_stats` of linux/if_packet.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct PacketStatistics {
    pub(crate) packets: u32,
    pub(crate) drops: u32,
}

// linux/netlink.h, linux/rtnetlink.h, linux/if_link.h.
pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLM_F_REQUEST: u16 = 0x001;
pub(crate) const NLM_F_ACK: u16 = 0x004;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_LINKINFO: u16 = 18;
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_INFO_DATA: u16 = 2;
pub(crate) const IFLA_VXLAN_PORT: u16 = 15;
pub(crate) const IFLA_VXLAN_COLLECT_METADATA: u16 = 25;
/// Since Linux 5.19: bytes, for IPv6 only since 6.3.
pub(crate) const IFLA_GRO_MAX_SIZE: u16 = 58;
/// Since Linux 6.3.
pub(crate) const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;
