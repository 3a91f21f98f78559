package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
)

// virtioFlags to virtioOffset are offsets in the 10-byte virtio header before a frame.
const (
	virtioFlags  = 0
	virtioType   = 1
	virtioHdrLen = 2
	virtioSize   = 4
	virtioStart  = 6
	virtioOffset = 8

	virtioNetHdrTCPv6 = 4
	tcpProtocol       = 6
	ipv6HeaderLen     = 40

	hopByHop           = 0
	routing            = 43
	destinationOptions = 60
)

// conform is the program that `grosso conform` runs and tests. docs/conformance.md describes its input and output. The
// libraries support only plain IP; other frames are passed on immediately.
func conform(name string) {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	put := func(header, frame []byte) {
		binary.Write(out, binary.LittleEndian, uint32(len(header)+len(frame)))
		out.Write(header)
		out.Write(frame)
	}
	var frames [][]byte
	work := func() {
		if name == "gvisor" {
			conformGvisor(frames, put)
		} else {
			conformLibrary(map[string]library{"wireguard": wireguard, "tailscale": tailscale}[name], frames, put)
		}
		frames = nil
	}
	for {
		var length uint32
		if err := binary.Read(in, binary.LittleEndian, &length); err != nil {
			return
		}
		if length > 0 {
			record := make([]byte, length)
			if _, err := io.ReadFull(in, record); err != nil {
				os.Exit(1)
			}
			frame := record[virtioNetHdrLen:]
			// The libraries have no link layer, so a frame whose Ethernet header differs starts a new poll.
			if len(frames) > 0 && !bytes.Equal(frames[0][:ethernetBytes], frame[:ethernetBytes]) {
				work()
			}
			if kind := binary.BigEndian.Uint16(frame[ethernetBytes-2:]); kind == 0x0800 || kind == 0x86dd {
				frames = append(frames, frame)
			} else {
				put(make([]byte, virtioNetHdrLen), frame)
			}
			continue
		}
		work()
		binary.Write(out, binary.LittleEndian, uint32(0))
		out.Flush()
	}
}

// conformLibrary merges the packets of a poll as for a TUN device, where the offsets in the virtio header are relative
// to the IP header.
func conformLibrary(l library, frames [][]byte, put func(header, frame []byte)) {
	c := newCoalescer(l, &workload{frames: frames})
	var elapsed time.Duration
	for first := 0; first < len(frames); first += poll {
		c.turn(first, &elapsed)
		for _, i := range c.toWrite {
			header := c.buffers[i][:virtioNetHdrLen]
			for _, place := range []int{virtioHdrLen, virtioStart} {
				if header[virtioFlags] == virtioNeedsChecks {
					value := binary.LittleEndian.Uint16(header[place:])
					binary.LittleEndian.PutUint16(header[place:], value+ethernetBytes)
				}
			}
			put(header, join(frames[first+i], c.buffers[i][virtioNetHdrLen:]))
		}
	}
}

// conformGvisor merges the packets of a poll. gVisor does not report the segment size, so it is taken from the input
// packet with the same first bytes. Nor does gVisor compute the checksums of merged packets, because it has verified
// the checksums of its input.
func conformGvisor(frames [][]byte, put func(header, frame []byte)) {
	c := newGvisorCoalescer(&workload{frames: frames}, false)
	var elapsed time.Duration
	for first := 0; first < len(frames); first += poll {
		c.turn(first, &elapsed)
		for _, frame := range c.output(first) {
			put(gvisorHeader(frames, frame), frame)
		}
	}
}

// gvisorHeader returns the virtio header of a frame. A merged frame starts like one of `frames`, but is longer.
func gvisorHeader(frames [][]byte, frame []byte) []byte {
	header := make([]byte, virtioNetHdrLen)
	start, kind, protocol := ethernetBytes+20, virtioNetHdrTCPv4, frame[ethernetBytes+9]
	if frame[ethernetBytes]>>4 == 6 {
		start, kind, protocol = ethernetBytes+ipv6HeaderLen, virtioNetHdrTCPv6, frame[ethernetBytes+6]
		for protocol == hopByHop || protocol == routing || protocol == destinationOptions {
			protocol, start = frame[start], start+8+8*int(frame[start+1])
		}
	}
	if protocol != tcpProtocol || len(frame) < start+20 {
		return header
	}
	behind := start + int(frame[start+tcpDataOffsetField]>>4)*4
	for _, one := range frames {
		sameSequence := len(one) >= start+20 && string(one[start:start+8]) == string(frame[start:start+8])
		if sameSequence && len(one) > behind && len(frame) > len(one) {
			header[virtioFlags], header[virtioType] = virtioNeedsChecks, byte(kind)
			binary.LittleEndian.PutUint16(header[virtioHdrLen:], uint16(behind))
			binary.LittleEndian.PutUint16(header[virtioSize:], uint16(len(one)-behind))
			binary.LittleEndian.PutUint16(header[virtioStart:], uint16(start))
			binary.LittleEndian.PutUint16(header[virtioOffset:], tcpChecksumOffset)
			ip := frame[ethernetBytes:start]
			addresses := ip[8:min(len(ip), ipv6HeaderLen)]
			if kind == virtioNetHdrTCPv4 {
				addresses = ip[12:20]
				binary.BigEndian.PutUint16(ip[10:], 0)
				binary.BigEndian.PutUint16(ip[10:], ^checksum.Checksum(ip, 0))
			}
			sum := checksum.Checksum(addresses, uint16(tcpProtocol))
			sum = checksum.Combine(sum, uint16(len(frame)-start))
			binary.BigEndian.PutUint16(frame[start+tcpChecksumOffset:], sum)
			break
		}
	}
	return header
}
