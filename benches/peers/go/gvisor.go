package main

import (
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/stack/gro"
)

// gvisorBucketPackets is the maximum number of packets in a bucket of gVisor's table. Flush removes one per bucket.
const gvisorBucketPackets = 8

// gvisorCoalescer merges packets as gVisor does, and receives the result in place of gVisor's network stack.
type gvisorCoalescer struct {
	workload  *workload
	trusted   bool
	gro       gro.GRO
	batch     []*stack.PacketBuffer
	delivered []*stack.PacketBuffer
}

func newGvisorCoalescer(w *workload, trusted bool) *gvisorCoalescer {
	c := &gvisorCoalescer{workload: w, trusted: trusted}
	c.gro.Init(true)
	c.gro.Dispatcher = c
	return c
}

// DeliverNetworkPacket keeps a delivered packet.
func (c *gvisorCoalescer) DeliverNetworkPacket(_ tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	c.delivered = append(c.delivered, pkt.IncRef())
}

// DeliverLinkPacket is not called for these packets.
func (c *gvisorCoalescer) DeliverLinkPacket(tcpip.NetworkProtocolNumber, *stack.PacketBuffer) {}

func (c *gvisorCoalescer) turn(first int, elapsed *time.Duration) (int, int) {
	for _, pkt := range c.delivered {
		pkt.DecRef()
	}
	c.delivered = c.delivered[:0]
	count := min(poll, len(c.workload.frames)-first)
	c.batch = c.batch[:0]
	for i := range count {
		c.batch = append(c.batch, c.packet(c.workload.frames[first+i][ethernetBytes:]))
	}
	begin := time.Now()
	for _, pkt := range c.batch {
		c.gro.Enqueue(pkt)
		pkt.DecRef()
	}
	c.gro.Flush()
	*elapsed += time.Since(begin)
	// Packets that one Flush leaves in the table are not lost, but wait for the next Flush.
	for range gvisorBucketPackets {
		c.gro.Flush()
	}
	return count, count
}

func (c *gvisorCoalescer) packet(data []byte) *stack.PacketBuffer {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(data)})
	pkt.NetworkProtocolNumber = header.IPv4ProtocolNumber
	if data[0]>>4 == 6 {
		pkt.NetworkProtocolNumber = header.IPv6ProtocolNumber
	}
	pkt.RXChecksumValidated = c.trusted
	return pkt
}

func (c *gvisorCoalescer) output(first int) [][]byte {
	var frames [][]byte
	for _, pkt := range c.delivered {
		whole := pkt.ToBuffer()
		frames = append(frames, join(c.workload.frames[first], whole.Flatten()))
	}
	return frames
}

func gvisorChecksum(data []byte) uint16 {
	return checksum.Checksum(data, 0)
}
