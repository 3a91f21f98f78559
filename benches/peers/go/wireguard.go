package main

import (
	"unsafe"

	_ "golang.zx2c4.com/wireguard/tun"
)

// Private functions of wireguard-go, linked by their symbol names. The tables are opaque pointers.

//go:linkname newTCPGROTable golang.zx2c4.com/wireguard/tun.newTCPGROTable
func newTCPGROTable() unsafe.Pointer

//go:linkname newUDPGROTable golang.zx2c4.com/wireguard/tun.newUDPGROTable
func newUDPGROTable() unsafe.Pointer

//go:linkname resetTCPGROTable golang.zx2c4.com/wireguard/tun.(*tcpGROTable).reset
func resetTCPGROTable(table unsafe.Pointer)

//go:linkname resetUDPGROTable golang.zx2c4.com/wireguard/tun.(*udpGROTable).reset
func resetUDPGROTable(table unsafe.Pointer)

//go:linkname handleGRO golang.zx2c4.com/wireguard/tun.handleGRO
func handleGRO(bufs [][]byte, offset int, tcp, udp unsafe.Pointer, canUDPGRO bool, toWrite *[]int) error

//go:linkname gsoSplit golang.zx2c4.com/wireguard/tun.gsoSplit
func gsoSplit(in []byte, hdr virtioNetHdr, outBuffs [][]byte, sizes []int, outOffset int, isV6 bool) (int, error)

//go:linkname checksumOf golang.zx2c4.com/wireguard/tun.checksum
func checksumOf(b []byte, initial uint64) uint16

var wireguard = library{
	newTCP:   newTCPGROTable,
	newUDP:   newUDPGROTable,
	resetTCP: resetTCPGROTable,
	resetUDP: resetUDPGROTable,
	join: func(buffers [][]byte, tcp, udp unsafe.Pointer, toWrite *[]int) error {
		return handleGRO(buffers, virtioNetHdrLen, tcp, udp, true, toWrite)
	},
	split: func(packet []byte, header virtioNetHdr, buffers [][]byte, sizes []int) (int, error) {
		return gsoSplit(packet, header, buffers, sizes, 0, false)
	},
	checksum: func(data []byte) uint16 { return checksumOf(data, 0) },
}

// virtioNetHdr has the same fields as wireguard-go's structure of that name.
type virtioNetHdr struct {
	flags      uint8
	gsoType    uint8
	hdrLen     uint16
	gsoSize    uint16
	csumStart  uint16
	csumOffset uint16
}

const (
	virtioNetHdrLen    = int(unsafe.Sizeof(virtioNetHdr{}))
	virtioNetHdrTCPv4  = 1
	virtioNetHdrUDPL4  = 5
	virtioNeedsChecks  = 1
	tcpChecksumOffset  = 16
	tcpDataOffsetField = 12
	udpHeaderLen       = 8
)
