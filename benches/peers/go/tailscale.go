package main

import (
	"unsafe"

	"github.com/tailscale/wireguard-go/tun"
)

// Private functions of the fork, as in wireguard.go.

//go:linkname tailscaleNewTCPGROTable github.com/tailscale/wireguard-go/tun.newTCPGROTable
func tailscaleNewTCPGROTable() unsafe.Pointer

//go:linkname tailscaleNewUDPGROTable github.com/tailscale/wireguard-go/tun.newUDPGROTable
func tailscaleNewUDPGROTable() unsafe.Pointer

//go:linkname tailscaleResetTCPGROTable github.com/tailscale/wireguard-go/tun.(*tcpGROTable).reset
func tailscaleResetTCPGROTable(table unsafe.Pointer)

//go:linkname tailscaleResetUDPGROTable github.com/tailscale/wireguard-go/tun.(*udpGROTable).reset
func tailscaleResetUDPGROTable(table unsafe.Pointer)

//go:linkname tailscaleHandleGRO github.com/tailscale/wireguard-go/tun.handleGRO
func tailscaleHandleGRO(bufs [][]byte, offset int, tcp, udp unsafe.Pointer, disabled int, toWrite *[]int) error

var tailscale = library{
	newTCP:   tailscaleNewTCPGROTable,
	newUDP:   tailscaleNewUDPGROTable,
	resetTCP: tailscaleResetTCPGROTable,
	resetUDP: tailscaleResetUDPGROTable,
	join: func(buffers [][]byte, tcp, udp unsafe.Pointer, toWrite *[]int) error {
		return tailscaleHandleGRO(buffers, virtioNetHdrLen, tcp, udp, 0, toWrite)
	},
	split: func(packet []byte, header virtioNetHdr, buffers [][]byte, sizes []int) (int, error) {
		options := tun.GSOOptions{
			GSOType:    tun.GSOUDPL4,
			HdrLen:     header.hdrLen,
			CsumStart:  header.csumStart,
			CsumOffset: header.csumOffset,
			GSOSize:    header.gsoSize,
			NeedsCsum:  true,
		}
		if header.gsoType == virtioNetHdrTCPv4 {
			options.GSOType = tun.GSOTCPv4
		}
		return tun.GSOSplit(packet, options, buffers, sizes, 0)
	},
	checksum: func(data []byte) uint16 { return tun.Checksum(data, 0) },
}
