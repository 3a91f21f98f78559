/* Grosso: packet offload in userspace.
 *
 * Frames of a flow go in one by one, and superframes come out, with the virtio header that a TUN or TAP device, a
 * packet socket or a guest takes; or the other way. Nothing here opens a file, has a thread, or reads a clock.
 *
 * Functions that return int return a negative number for an error: grosso_error_text() has its sentence. A handle is
 * used by one thread at a time, and its callbacks do not call functions of it. No function throws.
 *
 * This file is made from the sources by cbindgen.
 */

#ifndef GROSSO_H
#define GROSSO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/*
 An argument is null, too short, too long, or unknown.
 */
#define GROSSO_ERROR_ARGUMENT -1

/*
 The handle is in use: a callback called a function of the handle that called it.
 */
#define GROSSO_ERROR_BUSY -2

/*
 The handle met a defect of the library, now or earlier; it can only be freed.
 */
#define GROSSO_ERROR_BROKEN -3

/*
 The frame and its virtio header contradict each other.
 */
#define GROSSO_ERROR_VNET -4

/*
 The buffer is too small for a packet.
 */
#define GROSSO_ERROR_ROOM -5

/*
 The superframe cannot be cut.
 */
#define GROSSO_ERROR_SEGMENT -6

/*
 The packet has no checksum that can be left to whoever takes it.
 */
#define GROSSO_ERROR_CHECKSUM -7

/*
 The library took the frame, and then a frame that left could not be described in a virtio header: it was dropped.
 */
#define GROSSO_ERROR_LOST -8

/*
 Frames that begin with an IP header, as a TUN device has them.
 */
#define GROSSO_LINK_IP 0

/*
 Frames that begin with an Ethernet header, as a TAP device has them.
 */
#define GROSSO_LINK_ETHERNET 1

/*
 Datagrams of UDP are joined too: the taker can cut them (USO).
 */
#define GROSSO_UDP 1

/*
 The checksums of frames without a virtio header are verified already, such as by an AEAD.
 */
#define GROSSO_TRUSTED 2

/*
 Most pieces of a frame that a take callback is given: with a piece of the caller's in front, as many as one writev()
 takes (IOV_MAX).
 */
#define GROSSO_PIECES_MAX 1023

/*
 The packets of a batch become superframes.
 */
struct grosso_coalescer;

/*
 IP fragments become datagrams; everything else passes.
 */
struct grosso_reassembler;

/*
 `struct virtio_net_hdr_mrg_rxbuf`: 12 bytes, in the order of this machine's bytes.
 */
struct grosso_vnet {
  /*
   1: the checksum is to be completed; 2: it is verified.
   */
  uint8_t flags;
  /*
   0: a packet; 1: TCP in IPv4; 4: TCP in IPv6; 5: UDP; with 0x80, the first packet has CWR. Others are refused, 3
   too: datagrams that are to leave in fragments (UFO).
   */
  uint8_t gso_type;
  /*
   Bytes of the headers; a hint.
   */
  uint16_t header_length;
  /*
   Bytes of payload in each packet but the last.
   */
  uint16_t gso_size;
  /*
   Place in the frame from which on bytes are summed.
   */
  uint16_t checksum_start;
  /*
   Place of the checksum, from there on.
   */
  uint16_t checksum_offset;
  /*
   1, and not read.
   */
  uint16_t buffers;
};

/*
 Takes a frame: its bytes in pieces, at most `GROSSO_PIECES_MAX`, the headers in the first; and what is known about
 it. All of it is the library's and gone once the function returns. A frame that no virtio header describes, such as
 a superframe whose checksums nobody vouches for, comes as its packets.
 */
typedef void (*grosso_take)(void *context,
                            const struct iovec *pieces,
                            size_t count,
                            const struct grosso_vnet *vnet);

/*
 Takes back a frame that the library holds no more, by the pointer that came with it.
 */
typedef void (*grosso_release)(void *context, void *user);

/*
 Options of a handle. Set everything to zero first, then `size`.
 */
struct grosso_options {
  /*
   `sizeof` of this structure, by which old programs are told from new ones.
   */
  uint32_t size;
  /*
   `GROSSO_LINK_IP` or `GROSSO_LINK_ETHERNET`.
   */
  uint32_t link;
  /*
   `GROSSO_UDP`, `GROSSO_TRUSTED`.
   */
  uint32_t flags;
  /*
   Zero.
   */
  uint32_t reserved;
  /*
   A random number, so that nobody can choose packets that meet in one place of a table.
   */
  uint64_t seed;
  /*
   The first argument of the callbacks.
   */
  void *context;
  /*
   Takes frames; not null.
   */
  grosso_take take;
  /*
   Takes buffers back; null if nobody wants to know.
   */
  grosso_release release;
};

/*
 Takes a packet that was cut.
 */
typedef void (*grosso_packet)(void *context, const void *bytes, size_t len);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The sentence for a result of any function of this library; never null, and never to be freed.
 */
const char *grosso_error_text(int code);

/*
 The version of the library: 0xMMmmpp, major, minor and patch.
 */
int grosso_version(void);

/*
 Makes a coalescer. Its callbacks must not call functions of the same handle.

 # Safety
 `options` leads to as many bytes as its `size` says, and `out` to a place for a pointer.
 */
int grosso_coalescer_new(const struct grosso_options *options, struct grosso_coalescer **out);

/*
 Takes a frame of `len` bytes. It belongs to the library until the release callback names `user`, which may be before
 this function returns; after an error other than `GROSSO_ERROR_LOST` it was not taken. `vnet` is null if nothing is
 known about it.

 # Safety
 The handle is one of this library, used by one thread at a time; the bytes stay until they are released.
 */
int grosso_coalescer_push(const struct grosso_coalescer *coalescer,
                          const void *frame,
                          size_t len,
                          const struct grosso_vnet *vnet,
                          void *user,
                          uint64_t now_ns);

/*
 Ends a batch: every frame leaves, and every buffer comes back.

 # Safety
 As `grosso_coalescer_push`.
 */
int grosso_coalescer_end(const struct grosso_coalescer *coalescer, uint64_t now_ns);

/*
 Frees a coalescer. What it holds is neither delivered nor released: end the batch first. Null is nothing to free.

 # Safety
 The handle is null, or one of this library, and not used again if the result is 0.
 */
int grosso_coalescer_free(struct grosso_coalescer *coalescer);

/*
 Makes a reassembler. Its callbacks must not call functions of the same handle.

 # Safety
 As `grosso_coalescer_new`.
 */
int grosso_reassembler_new(const struct grosso_options *options, struct grosso_reassembler **out);

/*
 Takes a frame, as `grosso_coalescer_push` does. Fragments wait for the others of their datagram, up to 30 seconds of
 the caller's clock over IPv4 and 60 over IPv6; then they are released. It is for what a wire brings: of a superframe
 and of an open checksum it knows nothing, and says nothing of them in the header that leaves with it.

 # Safety
 As `grosso_coalescer_push`.
 */
int grosso_reassembler_push(const struct grosso_reassembler *reassembler,
                            const void *frame,
                            size_t len,
                            void *user,
                            uint64_t now_ns);

/*
 Releases everything held.

 # Safety
 As `grosso_coalescer_push`.
 */
int grosso_reassembler_finish(const struct grosso_reassembler *reassembler);

/*
 Frees a reassembler; finish it first. Null is nothing to free.

 # Safety
 As `grosso_coalescer_free`.
 */
int grosso_reassembler_free(struct grosso_reassembler *reassembler);

/*
 Cuts a superframe into packets with complete checksums, each of them written into `buffer` in turn and given to
 `packet`. What is no superframe is given as one packet. Returns the number of packets.

 # Safety
 `frame` leads to `len` bytes, `vnet` is null or a header, and `buffer` leads to `room` initialised bytes, which are
 others.
 */
int grosso_segment(uint32_t link_type,
                   const void *frame,
                   size_t len,
                   const struct grosso_vnet *vnet,
                   void *buffer,
                   size_t room,
                   grosso_packet packet,
                   void *context);

/*
 The Internet checksum of some bytes, in the order in which it is stored; or an error.

 # Safety
 `bytes` leads to `len` bytes.
 */
int grosso_checksum(const void *bytes, size_t len);

/*
 Replaces the TCP or UDP checksum of a whole packet by the sum of its pseudo-header, and says in `vnet` that it is to
 be completed.

 # Safety
 `packet` leads to `len` bytes, and `vnet` to a header.
 */
int grosso_checksum_open(uint32_t link_type,
                         void *packet,
                         size_t len,
                         struct grosso_vnet *vnet);

/*
 Completes the checksum that is `offset` bytes behind `start`, from where bytes are summed.

 # Safety
 `packet` leads to `len` bytes.
 */
int grosso_checksum_complete(void *packet, size_t len, uint16_t start, uint16_t offset);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GROSSO_H */
