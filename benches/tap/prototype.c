/* A minimal program that merges TCP over IPv4 between an interface and a TAP device. benches/tap/run.sh compares the
 * cost of this single-purpose program with `grosso bridge`.
 *
 *     prototype IFACE TAP SLOTS
 *
 * Packets come from a TPACKET_V2 ring of 2 KiB slots. Consecutive packets of one flow leave as one
 * superframe, in one writev from their slots, when a packet does not fit or has PSH, or when the ring is empty. Then
 * the slots are released. Frames of the TAP leave by sendmmsg, bypassing the queueing discipline. It tracks one flow,
 * trusts its senders, and supports only TCP over IPv4 on Ethernet.
 *
 * Compiled with URING (and -luring), it has one system call per round instead: superframes leave by WRITEV in one
 * submission, from registered buffers if URING is 2; frames of the TAP come from a multishot read into provided
 * buffers, and leave by SENDMSG.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#ifdef URING
#include <liburing.h>
#endif
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SLOT = 2048, BUDGET = 256, BATCH = 64, PARTS = 45, BYTES_MAX = 65000, TAP_HEADER = 12, RING_HEADER = 10 };
enum { PENDING = 16, HEAD = 256, HEADS = 4096 };

static int tap, receiver, sender;
static uint8_t *ring, *heads;
static unsigned slots;

/* A superframe: its first packet, its parts, and the sequence number of the next packet. */
static struct train {
    uint8_t *first;
    unsigned count, bytes, header_len, ip_len, segment_len, held[PARTS];
    uint32_t next;
    uint8_t flags;
    struct iovec parts[PARTS + 1];
} trains[PENDING], *train = trains;

static void check(int failed, const char *what) {
    if (failed) {
        perror(what);
        exit(1);
    }
}

static struct tpacket2_hdr *slot(unsigned number) {
    return (struct tpacket2_hdr *)(ring + (size_t)number * SLOT);
}

static void release(unsigned number) {
    __atomic_store_n(&slot(number)->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
}

static void put(uint8_t *at, unsigned value) {
    at[0] = value >> 8;
    at[1] = value;
}

static unsigned folded(const uint8_t *bytes, unsigned len, uint32_t sum) {
    for (unsigned i = 0; i < len; i += 2) sum += bytes[i] << 8 | bytes[i + 1];
    sum = (sum >> 16) + (sum & 0xffff);
    return sum + (sum >> 16) & 0xffff;
}

static void write_out(struct iovec *parts, int count) {
    check(writev(tap, parts, count) < 0 && errno != EAGAIN, "writev");
}

/* Releases the packets of a superframe that has been written. */
static void forget(struct train *train) {
    for (unsigned i = 0; i < train->count; i++) release(train->held[i]);
    train->count = train->bytes = 0;
}

#ifdef URING
enum { WRITE, READ, SEND, POLL, FRAMES = 512, READ_MULTISHOT = 49, WRITEV_FIXED = 61 };

static struct io_uring uring;
static struct io_uring_buf_ring *buffers;
static uint8_t frames[FRAMES][SLOT];
static unsigned writing, is_polled, done;

static struct io_uring_sqe *entry(unsigned kind, unsigned index) {
    struct io_uring_sqe *entry = io_uring_get_sqe(&uring);
    if (!entry) {
        io_uring_submit(&uring);
        entry = io_uring_get_sqe(&uring);
    }
    check(!entry, "submission queue");
    entry->user_data = 0;
    memset(entry, 0, sizeof *entry);
    entry->user_data = kind << 16 | index;
    return entry;
}

static void give_back(unsigned frame) {
    io_uring_buf_ring_add(buffers, frames[frame], SLOT, frame, io_uring_buf_ring_mask(FRAMES), 0);
    io_uring_buf_ring_advance(buffers, 1);
}

static void ask(int kind, int opcode, int file, unsigned index, const void *at, unsigned len) {
    struct io_uring_sqe *asked = entry(kind, index);
    asked->opcode = opcode;
    asked->fd = file;
    asked->addr = (uintptr_t)at;
    asked->len = len;
    asked->off = opcode == IORING_OP_SENDMSG ? 0 : -1;
    if (opcode == READ_MULTISHOT) asked->flags = IOSQE_BUFFER_SELECT;
    if (opcode == IORING_OP_POLL_ADD) {
        asked->off = 0;
        asked->poll32_events = POLLIN;
    }
}

static void send_frame(unsigned frame, unsigned len) {
    static struct iovec parts[FRAMES][2];
    static struct msghdr messages[FRAMES];
    if (len) {
        parts[frame][0] = (struct iovec){frames[frame], RING_HEADER};
        parts[frame][1] = (struct iovec){frames[frame] + TAP_HEADER, len - TAP_HEADER};
        messages[frame] = (struct msghdr){.msg_iov = parts[frame], .msg_iovlen = 2};
    }
    ask(SEND, IORING_OP_SENDMSG, sender, frame, &messages[frame], 1);
}

/* Submits the requests, waits for this many completions, and handles all that are available. */
static void submit(unsigned wait) {
    struct io_uring_cqe *answer;
    unsigned head, count = 0;
    if (wait)
        io_uring_submit_and_wait(&uring, wait);
    else
        io_uring_submit_and_get_events(&uring);
    io_uring_for_each_cqe(&uring, head, answer) {
        unsigned kind = answer->user_data >> 16, index = answer->user_data & 0xffff;
        int result = answer->res, more = answer->flags & IORING_CQE_F_MORE;
        count++;
        if (kind == WRITE) {
            check((errno = -result) > 0 && result != -EAGAIN, "write");
            forget(&trains[index]);
            writing--;
        } else if (kind == READ) {
            if (result > 0) send_frame(answer->flags >> IORING_CQE_BUFFER_SHIFT, result);
            if (!more) ask(READ, READ_MULTISHOT, tap, 0, 0, 0);
            done++;
        } else if (kind == SEND) {
            if (result == -ENOBUFS || result == -EAGAIN)
                send_frame(index, 0);
            else
                give_back(index);
        } else {
            check(result < 0 || result & POLLERR, "a device");
            is_polled = 0;
        }
    }
    io_uring_cq_advance(&uring, count);
}

static void write_train(void) {
    unsigned index = train - trains;
    ask(WRITE, URING == 2 ? WRITEV_FIXED : IORING_OP_WRITEV, tap, index, train->parts, train->count + 1);
    train = &trains[(index + 1) % PENDING];
    if (++writing == PENDING) submit(writing);
}

static void flush(void) {
    while (writing) submit(1);
}

static void open_uring(void) {
    struct io_uring_params with = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
    struct io_uring_buf_reg provided = {.ring_entries = FRAMES};
    struct iovec all = {heads, HEADS + (size_t)slots * SLOT};
    check((errno = -io_uring_queue_init_params(1024, &uring, &with)) > 0, "io_uring");
    check(posix_memalign((void **)&buffers, 4096, FRAMES * sizeof *buffers), "buffers");
    provided.ring_addr = (uintptr_t)buffers;
    check((errno = -io_uring_register_buf_ring(&uring, &provided, 0)) > 0, "provided buffers");
    for (unsigned frame = 0; frame < FRAMES; frame++) give_back(frame);
    check(URING == 2 && (errno = -io_uring_register_buffers(&uring, &all, 1)) > 0, "registered buffers");
    ask(READ, READ_MULTISHOT, tap, 0, 0, 0);
}
#else
static void write_train(void) {
    write_out(train->parts, train->count + 1);
    forget(train);
}

static void flush(void) {}
#endif

static void deliver(void) {
    uint8_t *head = heads + (train - trains) * HEAD;
    if (train->count == 0) return;
    struct virtio_net_hdr *header = memset(head, 0, TAP_HEADER);
    uint8_t *ip = head + TAP_HEADER + 14, *tcp = ip + train->ip_len;
    unsigned segment = train->header_len - 14 - train->ip_len + train->bytes;
    memcpy(head + TAP_HEADER, train->first, train->header_len);
    put(ip + 2, train->ip_len + segment);
    put(ip + 10, 0);
    put(ip + 10, ~folded(ip, train->ip_len, 0));
    tcp[13] = train->flags;
    put(tcp + 16, folded(ip + 12, 8, IPPROTO_TCP + segment));
    header->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    header->csum_start = 14 + train->ip_len;
    header->csum_offset = 16;
    header->hdr_len = train->header_len;
    if (train->count > 1) {
        header->gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
        header->gso_size = train->segment_len;
    }
    train->parts[0] = (struct iovec){head, TAP_HEADER + train->header_len};
    write_train();
}

static int continues(const uint8_t *packet, const uint8_t *tcp, unsigned header_len, unsigned payload_len) {
    const uint8_t *first = train->first + 14 + train->ip_len;
    return ntohl(*(const uint32_t *)(tcp + 4)) == train->next && header_len == train->header_len &&
           train->count < PARTS && train->bytes + payload_len < BYTES_MAX &&
           !memcmp(train->first + 26, packet + 26, 12) && !memcmp(first + 8, tcp + 8, 4) &&
           !memcmp(first + 20, tcp + 20, header_len - 34 - 20);
}

static void take(unsigned number) {
    uint8_t *packet = (uint8_t *)slot(number) + slot(number)->tp_mac, *tcp = packet + 14 + (packet[14] & 15) * 4;
    unsigned len = slot(number)->tp_snaplen, ip_len = (packet[14] & 15) * 4;
    unsigned header_len = 14 + ip_len + (tcp[12] >> 4) * 4;
    unsigned payload_len = 14 + (packet[16] << 8 | packet[17]) - header_len;
    int is_data = len >= 54 && packet[12] == 8 && packet[13] == 0 && packet[23] == IPPROTO_TCP &&
                  (tcp[13] & ~8) == 16 && payload_len > 0;
    if (!is_data) {
        uint8_t header[TAP_HEADER] = {0};
        deliver();
        flush();
        memcpy(header, packet - RING_HEADER, RING_HEADER);
        write_out((struct iovec[]){{header, TAP_HEADER}, {packet, len}}, 2);
        release(number);
        return;
    }
    if (train->count > 0 && !continues(packet, tcp, header_len, payload_len)) deliver();
    if (train->count == 0) {
        train->first = packet;
        train->header_len = header_len;
        train->ip_len = ip_len;
        train->segment_len = payload_len;
    }
    train->held[train->count++] = number;
    train->parts[train->count] = (struct iovec){packet + header_len, payload_len};
    train->bytes += payload_len;
    train->next = ntohl(*(uint32_t *)(tcp + 4)) + payload_len;
    train->flags = tcp[13];
    if (tcp[13] & 8 || payload_len < train->segment_len) deliver();
}

#ifndef URING
/* Sends the frames read from the TAP, and returns their number. */
static unsigned reply(void) {
    static uint8_t frames[BATCH][SLOT];
    static struct iovec parts[BATCH][2];
    static struct mmsghdr messages[BATCH];
    unsigned count = 0, sent = 0;
    for (; count < BATCH; count++) {
        ssize_t len = read(tap, frames[count], SLOT);
        if (len <= 0) break;
        parts[count][0] = (struct iovec){frames[count], RING_HEADER};
        parts[count][1] = (struct iovec){frames[count] + TAP_HEADER, len - TAP_HEADER};
        messages[count].msg_hdr = (struct msghdr){.msg_iov = parts[count], .msg_iovlen = 2};
    }
    while (sent < count) {
        int some = sendmmsg(sender, messages + sent, count - sent, 0);
        check(some <= 0 && errno != EAGAIN && errno != ENOBUFS, "sendmmsg");
        sent += some > 0 ? some : 0;
    }
    return count;
}
#endif

static int packet_socket(void) {
    int one = 1, file = socket(AF_PACKET, SOCK_RAW, 0);
    check(file < 0 || setsockopt(file, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one), "packet socket");
    return file;
}

static void open_all(const char *interface, const char *device) {
    int one = 1, version = TPACKET_V2, header = TAP_HEADER;
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    struct tpacket_req layout = {1 << 20, (size_t)slots * SLOT >> 20, SLOT, slots};
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(interface)};
    strncpy(request.ifr_name, device, IFNAMSIZ - 1);
    tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    check(tap < 0 || ioctl(tap, TUNSETIFF, &request) || ioctl(tap, TUNSETVNETHDRSZ, &header) ||
              ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4), device);
    sender = packet_socket();
    check(setsockopt(sender, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one) ||
              bind(sender, (struct sockaddr *)&address, sizeof address), interface);
    receiver = packet_socket();
    address.sll_protocol = htons(ETH_P_ALL);
    check(setsockopt(receiver, SOL_PACKET, PACKET_VERSION, &version, sizeof version) ||
              setsockopt(receiver, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) ||
              setsockopt(receiver, SOL_PACKET, PACKET_RX_RING, &layout, sizeof layout), "ring");
    heads = mmap(0, HEADS + (size_t)slots * SLOT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ring = mmap(heads + HEADS, (size_t)slots * SLOT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE | MAP_FIXED,
                receiver, 0);
    struct packet_mreq all = {.mr_ifindex = address.sll_ifindex, .mr_type = PACKET_MR_PROMISC};
    check(heads == MAP_FAILED || ring == MAP_FAILED || bind(receiver, (struct sockaddr *)&address, sizeof address) ||
              setsockopt(receiver, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all), interface);
}

int main(int count, char **words) {
    unsigned next = 0;
    if (count != 4 || (slots = atoi(words[3])) < 512) {
        fprintf(stderr, "usage: prototype IFACE TAP SLOTS (a power of two from 512)\n");
        return 2;
    }
    open_all(words[1], words[2]);
#ifdef URING
    open_uring();
#else
    struct pollfd files[] = {{receiver, POLLIN, 0}, {tap, POLLIN, 0}};
#endif
    for (;;) {
        unsigned taken = 0;
        while (taken < BUDGET && __atomic_load_n(&slot(next)->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER) {
            take(next);
            next = (next + 1) % slots;
            taken++;
        }
        deliver();
#ifdef URING
        done = 0;
        submit(writing);
        if (done + taken == 0) {
            if (!is_polled++) ask(POLL, IORING_OP_POLL_ADD, receiver, 0, 0, 0);
            submit(1);
        }
#else
        if (reply() + taken == 0) poll(files, 2, -1);
        check((files[0].revents | files[1].revents) & POLLERR, "a device");
#endif
    }
}
