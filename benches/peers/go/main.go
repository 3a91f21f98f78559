// Runs functions from wireguard-go, Tailscale's fork of it, and gVisor, for comparison with Grosso. src/child.rs
// describes the protocol.
//
// The measured time excludes filling buffers and garbage collection.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

const (
	poll          = 64
	ethernetBytes = 14
	ipBytesMax    = 65535
	segmentBytes  = 1600
	segmentsMax   = 64
	cacheLine     = 64
)

// workload holds the input frames, and the superframes' metadata.
type workload struct {
	frames                    [][]byte
	packets                   int
	size, sumStart, sumOffset int
}

// peer does one kind of work.
type peer interface {
	// turn processes one turn, which starts at the frame `first`. It returns the numbers of packets and frames processed.
	turn(first int, elapsed *time.Duration) (packets, frames int)
	// output returns the output of the last turn, which started at the frame `first`.
	output(first int) [][]byte
}

func fail(why any) {
	fmt.Printf("peer: error %v\n", why)
	os.Exit(1)
}

// library holds the functions of wireguard-go or of Tailscale's fork. Their tables are opaque pointers.
type library struct {
	newTCP, newUDP     func() unsafe.Pointer
	resetTCP, resetUDP func(unsafe.Pointer)
	join               func(buffers [][]byte, tcp, udp unsafe.Pointer, toWrite *[]int) error
	split              func(packet []byte, header virtioNetHdr, buffers [][]byte, sizes []int) (int, error)
	checksum           func([]byte) uint16
}

// coalescer merges packets as wireguard-go does before it writes them to a TUN device.
type coalescer struct {
	library  library
	workload *workload
	buffers  [][]byte
	tcp, udp unsafe.Pointer
	toWrite  []int
}

func newCoalescer(l library, w *workload) *coalescer {
	buffers := make([][]byte, poll)
	for i := range buffers {
		buffers[i] = make([]byte, 0, virtioNetHdrLen+ipBytesMax)
	}
	return &coalescer{l, w, buffers, l.newTCP(), l.newUDP(), make([]int, 0, poll)}
}

func (c *coalescer) turn(first int, elapsed *time.Duration) (int, int) {
	count := min(poll, len(c.workload.frames)-first)
	buffers := c.buffers[:count]
	for i := range buffers {
		buffers[i] = buffers[i][:virtioNetHdrLen]
		clear(buffers[i])
		buffers[i] = append(buffers[i], c.workload.frames[first+i][ethernetBytes:]...)
	}
	begin := time.Now()
	c.library.resetTCP(c.tcp)
	c.library.resetUDP(c.udp)
	c.toWrite = c.toWrite[:0]
	err := c.library.join(buffers, c.tcp, c.udp, &c.toWrite)
	*elapsed += time.Since(begin)
	if err != nil {
		fail(err)
	}
	return count, count
}

func (c *coalescer) output(first int) [][]byte {
	var frames [][]byte
	for _, i := range c.toWrite {
		frames = append(frames, join(c.workload.frames[first+i], c.buffers[i][virtioNetHdrLen:]))
	}
	return frames
}

// segmenter segments superframes as wireguard-go does after it reads them from a TUN device.
type segmenter struct {
	library  library
	workload *workload
	buffers  [][]byte
	sizes    []int
	count    int
}

func newSegmenter(l library, w *workload) *segmenter {
	buffers := make([][]byte, segmentsMax)
	for i := range buffers {
		buffers[i] = make([]byte, segmentBytes)
	}
	return &segmenter{l, w, buffers, make([]int, segmentsMax), 0}
}

func (s *segmenter) turn(first int, elapsed *time.Duration) (int, int) {
	packet := s.workload.frames[first][ethernetBytes:]
	header := s.header(packet)
	touch(packet)
	begin := time.Now()
	count, err := s.library.split(packet, header, s.buffers, s.sizes)
	*elapsed += time.Since(begin)
	if err != nil {
		fail(err)
	}
	s.count = count
	return count, 1
}

func (s *segmenter) output(first int) [][]byte {
	var frames [][]byte
	for i := range s.count {
		frames = append(frames, join(s.workload.frames[first], s.buffers[i][:s.sizes[i]]))
	}
	return frames
}

func (s *segmenter) header(packet []byte) virtioNetHdr {
	start := s.workload.sumStart - ethernetBytes
	header := virtioNetHdr{
		flags:      virtioNeedsChecks,
		gsoType:    virtioNetHdrUDPL4,
		hdrLen:     uint16(start + udpHeaderLen),
		gsoSize:    uint16(s.workload.size),
		csumStart:  uint16(start),
		csumOffset: uint16(s.workload.sumOffset),
	}
	if s.workload.sumOffset == tcpChecksumOffset {
		header.gsoType = virtioNetHdrTCPv4
		header.hdrLen = uint16(start + int(packet[start+tcpDataOffsetField]>>4)*4)
	}
	return header
}

// summer computes the checksum of the first frame.
type summer struct {
	workload *workload
	of       func([]byte) uint16
	sum      uint16
}

func (s *summer) turn(first int, elapsed *time.Duration) (int, int) {
	buffer := s.workload.frames[first]
	begin := time.Now()
	for range s.workload.packets {
		s.sum = s.of(buffer)
	}
	*elapsed += time.Since(begin)
	return s.workload.packets, 1
}

func (s *summer) output(int) [][]byte {
	return [][]byte{binary.BigEndian.AppendUint16(nil, s.sum)}
}

var touched byte

func touch(data []byte) {
	for i := 0; i < len(data); i += cacheLine {
		touched += data[i]
	}
}

// join prepends a frame's Ethernet header to a packet.
func join(frame, packet []byte) []byte {
	return append(bytes.Clone(frame[:ethernetBytes]), packet...)
}

// pass processes the workload once, and passes the output of each turn to `take` unless it is nil.
func pass(p peer, w *workload, take func([][]byte)) (elapsed time.Duration, packets int) {
	for first := 0; first < len(w.frames); {
		done, frames := p.turn(first, &elapsed)
		if take != nil {
			take(p.output(first))
		}
		packets += done
		first += frames
	}
	return elapsed, packets
}

func writeOutput(p peer, w *workload, path string) {
	var out bytes.Buffer
	pass(p, w, func(frames [][]byte) {
		for _, frame := range frames {
			out.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(frame))))
			out.Write(frame)
		}
	})
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		fail(err)
	}
}

func readWorkload(arguments []string) *workload {
	data, err := os.ReadFile(arguments[0])
	if err != nil {
		fail(err)
	}
	w := &workload{}
	for len(data) >= 4 {
		end := 4 + int(binary.LittleEndian.Uint32(data))
		w.frames = append(w.frames, data[4:end:end])
		data = data[end:]
	}
	for i, number := range []*int{&w.packets, &w.size, &w.sumStart, &w.sumOffset} {
		if *number, err = strconv.Atoi(arguments[1+i]); err != nil {
			fail(err)
		}
	}
	return w
}

func main() {
	if len(os.Args) == 3 && os.Args[2] == "conform" {
		conform(os.Args[1])
		return
	}
	if len(os.Args) != 7 {
		fail("usage: peer WORK FILE PACKETS SIZE START OFFSET")
	}
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	w := readWorkload(os.Args[2:])
	var p peer
	switch os.Args[1] {
	case "wireguard-coalesce":
		p = newCoalescer(wireguard, w)
	case "wireguard-segment":
		p = newSegmenter(wireguard, w)
	case "wireguard-checksum":
		p = &summer{workload: w, of: wireguard.checksum}
	case "tailscale-coalesce":
		p = newCoalescer(tailscale, w)
	case "tailscale-segment":
		p = newSegmenter(tailscale, w)
	case "tailscale-checksum":
		p = &summer{workload: w, of: tailscale.checksum}
	case "gvisor-coalesce":
		p = newGvisorCoalescer(w, false)
	case "gvisor-coalesce-trusted":
		p = newGvisorCoalescer(w, true)
	case "gvisor-checksum":
		p = &summer{workload: w, of: gvisorChecksum}
	default:
		fail("unknown kind of work")
	}
	fmt.Println("peer: ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if path, found := strings.CutPrefix(lines.Text(), "output "); found {
			writeOutput(p, w, path)
			fmt.Println("peer: written")
			continue
		}
		runtime.GC()
		elapsed, packets := pass(p, w, nil)
		fmt.Printf("peer: %d %d\n", elapsed.Nanoseconds(), packets)
	}
}
