//! Registry of headers, with one entry per kind.

/// Passes the registry to a macro. For each file in [`header`](crate::header), it lists the kinds of headers, their
/// descriptions, and a sentence about each kind.
macro_rules! registry {
    ($macro:ident) => {
        $macro! {
            ethernet { Ethernet = SPEC, "Ethernet II, 14 bytes."; }
            sll { Sll = SPEC, "Linux cooked capture, 16 bytes."; }
            sll2 { Sll2 = SPEC, "Linux cooked capture version 2, 20 bytes."; }
            null { Null = SPEC, "BSD loopback: a 4-byte address family in the capturing host's \
                                 byte order."; }
            vlan { Vlan = SPEC, "An 802.1Q or 802.1ad tag, 4 bytes: tag control information and the next EtherType."; }
            ppp { Ppp = SPEC, "A PPP protocol field of 1 or 2 bytes, with or without a 2-byte HDLC \
                               header."; }
            pppoe { Pppoe = SPEC, "A PPPoE session header with its 2-byte PPP protocol: 8 bytes."; }
            mpls { Mpls = SPEC, "One MPLS label stack entry, 4 bytes."; }
            pseudowire { Pseudowire = SPEC, "The control word of Ethernet over MPLS, 4 bytes."; }
            ipv4 { Ipv4 = SPEC, "IPv4 with its options."; }
            ipv6 { Ipv6 = SPEC, "The fixed IPv6 header, 40 bytes."; }
            ipv6_extension { Ipv6Extension = SPEC, "One IPv6 hop-by-hop, routing or destination options header."; }
            ipv6_fragment { Ipv6Fragment = SPEC, "An IPv6 fragment header, 8 bytes."; }
            tcp { Tcp = SPEC, "TCP with its options."; }
            udp { Udp = SPEC, "UDP, 8 bytes."; }
            icmp { Icmp = SPEC, "ICMP or ICMPv6: the 8 bytes common to all messages."; }
            sctp { Sctp = SPEC, "The common header of SCTP, 12 bytes."; }
            udp_lite { UdpLite = SPEC, "UDP-Lite, 8 bytes."; }
            fou {}
            gre { Gre = SPEC, "GRE with the optional fields that its flags announce."; }
            vxlan {
                Vxlan = SPEC, "VXLAN, 8 bytes (also with group policy or remote checksum bits).";
                VxlanGpe = SPEC_GPE, "VXLAN with the generic protocol extension, 8 bytes.";
            }
            erspan { Erspan = SPEC, "ERSPAN II or III around a mirrored frame."; }
            gtp_u { GtpU = SPEC, "GTP-U around a packet, with its optional fields and extensions."; }
            nsh { Nsh = SPEC, "The network service header with its context."; }
            geneve { Geneve = SPEC, "Geneve with its options."; }
            gue { Gue = SPEC, "GUE variant 0 with its optional fields."; }
            l2tp { L2tp = SPEC, "An L2TPv3 session header over IP with its cookie and sublayer."; }
            esp { Esp = SPEC, "ESP: SPI and sequence number, 8 bytes; what follows is encrypted."; }
        }
    };
}

pub(crate) use registry;
