/* Grosso: packet offload in userspace.
 *
 * Push frames one by one; packets of a flow come out as superframes, with the virtio header for a TUN or TAP device, a
 * packet socket or a virtual machine. grosso_segment() does the reverse. The library opens no files, starts no threads
 * and reads no clock.
 *
 *   struct grosso_options options = {0};
 *   options.size = sizeof options;
 *   options.take = write_frame;
 *   grosso_coalescer_new(&options, &coalescer);
 *   grosso_coalescer_push(coalescer, packet, len, NULL, packet, now_ns);
 *   grosso_coalescer_end(coalescer, now_ns);
 *
 * Functions that return int return a negative error code; grosso_error_text() returns its text. Use a handle from one
 * thread at a time, and do not call its functions from its callbacks. No function throws.
 *
 * This file is generated from the Rust sources by cbindgen.
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
 The handle is in use: a callback called a function of its own handle.
 */
#define GROSSO_ERROR_BUSY -2

/*
 The library panicked in a function of this handle. The handle can only be freed.
 */
#define GROSSO_ERROR_BROKEN -3

/*
 The frame contradicts its virtio header.
 */
#define GROSSO_ERROR_VNET -4

/*
 The buffer is too small for a packet.
 */
#define GROSSO_ERROR_ROOM -5

/*
 The superframe cannot be segmented.
 */
#define GROSSO_ERROR_SEGMENT -6

/*
 The packet has no TCP or UDP checksum that can be left to the device.
 */
#define GROSSO_ERROR_CHECKSUM -7

/*
 The library accepted the frame, but an outgoing frame was dropped because no virtio header can describe it.
 */
#define GROSSO_ERROR_LOST -8

/*
 Frames start with an IP header, as on a TUN device.
 */
#define GROSSO_LINK_IP 0

/*
 Frames start with an Ethernet header, as on a TAP device.
 */
#define GROSSO_LINK_ETHERNET 1

/*
 Merge UDP datagrams as well; the receiver of the frames must support USO.
 */
#define GROSSO_UDP 1

/*
 Skip checksum verification of frames without a virtio header, for example because an AEAD has authenticated them.
 */
#define GROSSO_TRUSTED 2

/*
 Maximum number of pieces per take callback: one less than writev() accepts (IOV_MAX), so that the caller can put a
 piece in front.
 */
#define GROSSO_PIECES_MAX 1023

/*
 Coalescer, which merges the packets of a batch into superframes.
 */
struct grosso_coalescer;

/*
 Reassembler, which joins IP fragments into datagrams and passes on other frames.
 */
struct grosso_reassembler;

/*
 `struct virtio_net_hdr_mrg_rxbuf`: 12 bytes in native byte order.
 */
struct grosso_vnet {
  /*
   1: the checksum is partial; 2: the checksum is verified.
   */
  uint8_t flags;
  /*
   0: a packet; 1: TCP over IPv4; 4: TCP over IPv6; 5: UDP; with 0x80, only the first packet has CWR. Other values
   are rejected, including 3 (UFO).
   */
  uint8_t gso_type;
  /*
   Length of the headers in bytes, which is only a hint.
   */
  uint16_t header_length;
  /*
   Number of payload bytes in every packet except the last.
   */
  uint16_t gso_size;
  /*
   Offset of the first summed byte from the start of the frame.
   */
  uint16_t checksum_start;
  /*
   Offset of the checksum field from `checksum_start`.
   */
  uint16_t checksum_offset;
  /*
   Number of buffers, which is 1 on output and ignored on input.
   */
  uint16_t buffers;
};

/*
 Callback that receives a frame and its virtio header. The frame has at most `GROSSO_PIECES_MAX` pieces; the first
 contains all headers. The memory is valid only during the call. A frame that no virtio header can describe, for
 example a superframe whose checksums were not verified, is delivered as separate packets.
 */
typedef void (*grosso_take)(void *context,
                            const struct iovec *pieces,
                            size_t count,
                            const struct grosso_vnet *vnet);

/*
 Callback that releases a frame that the library no longer holds; `user` is the pointer that was pushed with it.
 */
typedef void (*grosso_release)(void *context, void *user);

/*
 Options of a handle. Set all bytes to zero first, then `size`.
 */
struct grosso_options {
  /*
   `sizeof` of this structure, which identifies its version.
   */
  uint32_t size;
  /*
   `GROSSO_LINK_IP` or `GROSSO_LINK_ETHERNET`.
   */
  uint32_t link;
  /*
   `GROSSO_UDP` and `GROSSO_TRUSTED`.
   */
  uint32_t flags;
  /*
   Must be zero.
   */
  uint32_t reserved;
  /*
   Random key for hash tables, which prevents attacks by chosen collisions.
   */
  uint64_t seed;
  /*
   First argument of all callbacks.
   */
  void *context;
  /*
   Callback that receives frames; must not be null.
   */
  grosso_take take;
  /*
   Callback that releases buffers; may be null.
   */
  grosso_release release;
};

/*
 Callback that receives one packet of a superframe.
 */
typedef void (*grosso_packet)(void *context, const void *bytes, size_t len);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the text for the result of any function in this library. The text is never null and must not be freed.
 */
const char *grosso_error_text(int code);

/*
 Returns the version of the library: 0xMMmmpp for major, minor and patch.
 */
int grosso_version(void);

/*
 Creates a coalescer. Its callbacks must not call functions of the same handle.

 # Safety
 `options` must point to the number of bytes in its `size` field, and `out` to a pointer.
 */
int grosso_coalescer_new(const struct grosso_options *options, struct grosso_coalescer **out);

/*
 Pushes a frame of `len` bytes. The library holds it until the release callback is called with `user`, possibly
 before this function returns. After an error other than `GROSSO_ERROR_LOST` the library does not hold the frame.
 `vnet` is null if there is no virtio header. `now_ns` is monotonic time in nanoseconds.

 # Safety
 The handle must come from `grosso_coalescer_new` and be used by one thread at a time. The bytes must stay unchanged
 until they are released.
 */
int grosso_coalescer_push(const struct grosso_coalescer *coalescer,
                          const void *frame,
                          size_t len,
                          const struct grosso_vnet *vnet,
                          void *user,
                          uint64_t now_ns);

/*
 Ends a batch: delivers every frame and releases every buffer.

 # Safety
 See `grosso_coalescer_push`.
 */
int grosso_coalescer_end(const struct grosso_coalescer *coalescer, uint64_t now_ns);

/*
 Frees a coalescer; null is allowed. Held frames are neither delivered nor released: end the batch first.

 # Safety
 The handle must be null or come from `grosso_coalescer_new`, and must not be used again if the result is 0.
 */
int grosso_coalescer_free(struct grosso_coalescer *coalescer);

/*
 Creates a reassembler. Its callbacks must not call functions of the same handle.

 # Safety
 See `grosso_coalescer_new`.
 */
int grosso_reassembler_new(const struct grosso_options *options, struct grosso_reassembler **out);

/*
 Pushes a frame as `grosso_coalescer_push` does. Fragments wait for the rest of their datagram for at most 30 s
 (IPv4) or 60 s (IPv6) by the caller's clock, and are then released. Use it for frames from a wire: it supports
 neither superframes nor partial checksums, and delivers frames without such metadata.

 # Safety
 See `grosso_coalescer_push`.
 */
int grosso_reassembler_push(const struct grosso_reassembler *reassembler,
                            const void *frame,
                            size_t len,
                            void *user,
                            uint64_t now_ns);

/*
 Discards all incomplete datagrams and releases their buffers.

 # Safety
 See `grosso_coalescer_push`.
 */
int grosso_reassembler_finish(const struct grosso_reassembler *reassembler);

/*
 Frees a reassembler; null is allowed. Call `grosso_reassembler_finish` first.

 # Safety
 See `grosso_coalescer_free`.
 */
int grosso_reassembler_free(struct grosso_reassembler *reassembler);

/*
 Segments a superframe into packets with complete checksums. Each packet is written to `buffer` and passed to
 `packet`. A frame that is not a superframe is passed on as one packet. Returns the number of packets or a negative
 error.

 # Safety
 `frame` must point to `len` bytes, `vnet` must be null or point to a header, and `buffer` must point to `room`
 initialized bytes that do not overlap the frame.
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
 Returns the Internet checksum of `len` bytes, in the byte order in which it is stored, or a negative error.

 # Safety
 `bytes` must point to `len` bytes.
 */
int grosso_checksum(const void *bytes,
                    size_t len);

/*
 Replaces the TCP or UDP checksum of a complete packet with its pseudo-header sum, and marks the checksum as partial
 in `vnet`.

 # Safety
 `packet` must point to `len` bytes, and `vnet` to a header.
 */
int grosso_checksum_open(uint32_t link_type,
                         void *packet,
                         size_t len,
                         struct grosso_vnet *vnet);

/*
 Completes a partial checksum: sums the packet, starting at `start`, and stores the checksum at `start + offset`.

 # Safety
 `packet` must point to `len` bytes.
 */
int grosso_checksum_complete(void *packet,
                             size_t len,
                             uint16_t start,
                             uint16_t offset);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GROSSO_H */
