/* DPDK's gro, gso, ip_frag and net for comparison with Grosso: src/child.rs describes the protocol.
 *
 * The measured time includes the work that an application has to do itself: finding the headers and, if the name of the
 * work ends in "checks" or "sums", the checksums that DPDK omits. It excludes filling and freeing buffers.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_gre.h>
#include <rte_gro.h>
#include <rte_gso.h>
#include <rte_ip.h>
#include <rte_ip_frag.h>
#include <rte_mbuf.h>
#include <rte_tcp.h>
#include <rte_udp.h>
#include <rte_vxlan.h>

enum {
	POLL = 64,
	/* More segments than any superframe of a workload has. */
	SEGMENTS_MAX = 64,
	/* Lengths of the longest packet (at least the Ethernet MTU) and of the longest superframe. */
	PACKET_ROOM = 2048,
	SUPERFRAME_ROOM = 65535,
	POOL_BUFFERS = 2047,
	/* The fragment table size of DPDK's examples. */
	FRAGMENT_BUCKETS = 1024,
	FRAGMENT_BUCKET_ENTRIES = 16,
	VXLAN_PORT = 4789,
	/* Length of the header before a frame, and frames per poll, for `grosso conform`. */
	VIRTIO_BYTES = 10,
	CONFORM_FRAMES = 256,
};

struct frame {
	uint8_t *bytes;
	uint32_t len;
};

struct workload {
	struct frame *frames;
	uint32_t count;
	uint64_t packets;
	uint16_t segment_size;
};

/* Positions of the IP headers of a packet, outermost first, and of the inner transport header. */
struct headers {
	struct rte_ipv4_hdr *outer, *inner;
	void *transport;
	uint32_t transport_offset;
	/* Bytes between the outer IP header and the inner one. */
	struct rte_udp_hdr *tunnel_udp;
};

/* One kind of work. `turn` does one poll from the frame `first` on, writes the output to `out`, and returns the number
 * of packets. `fields`: compare the fields that gro ignores; `checks`: verify checksums; `sums`: write them. */
struct work {
	const char *name;
	bool context, fields, checks, sums, copies;
	uint32_t (*turn)(const struct work *, uint32_t first, uint64_t *ns);
};

static struct workload workload;
static struct rte_mempool *packets, *indirect, *superframes;
static struct rte_mbuf **superframe_buffers;
static struct rte_gso_ctx gso;
static void *gro_context;
static struct rte_ip_frag_tbl *fragments;
static struct rte_ip_frag_death_row death_row;
/* The output of a poll. */
static struct rte_mbuf *out[POLL * 2];
static uint32_t out_count;
/* The last checksum, which is an output without a buffer. */
static uint16_t last_sum;

static const struct rte_gro_param gro_parameters = {
	.gro_types = RTE_GRO_TCP_IPV4 | RTE_GRO_IPV4_VXLAN_TCP_IPV4,
	.max_flow_num = POLL,
	.max_item_per_flow = POLL,
};

static void fail(const char *why)
{
	printf("peer: error %s\n", why);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Finds the headers and records their lengths in the buffer, as gro and gso need them. Returns false for packets
 * other than TCP/IPv4, alone or inside VXLAN or GRE. */
static bool parse(struct rte_mbuf *buffer, struct headers *found)
{
	uint8_t *bytes = rte_pktmbuf_mtod(buffer, uint8_t *);
	uint32_t offset = sizeof(struct rte_ether_hdr);
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(bytes + offset);

	buffer->packet_type = 0;
	if (buffer->data_len < offset + sizeof(*ip) + sizeof(struct rte_udp_hdr))
		return false;
	if (((struct rte_ether_hdr *)bytes)->ether_type != RTE_BE16(RTE_ETHER_TYPE_IPV4))
		return false;
	found->outer = found->inner = ip;
	found->tunnel_udp = NULL;
	buffer->l2_len = offset;
	buffer->l3_len = rte_ipv4_hdr_len(ip);
	offset += buffer->l3_len;
	buffer->packet_type = RTE_PTYPE_L2_ETHER | RTE_PTYPE_L3_IPV4;
	if (ip->next_proto_id != IPPROTO_TCP) {
		uint32_t inside = offset;
		if (ip->next_proto_id == IPPROTO_GRE) {
			inside += sizeof(struct rte_gre_hdr);
			buffer->packet_type |= RTE_PTYPE_TUNNEL_GRE;
		} else if (ip->next_proto_id == IPPROTO_UDP) {
			found->tunnel_udp = (struct rte_udp_hdr *)(bytes + offset);
			if (found->tunnel_udp->dst_port != RTE_BE16(VXLAN_PORT))
				return false;
			inside += sizeof(struct rte_udp_hdr) + sizeof(struct rte_vxlan_hdr) +
				sizeof(struct rte_ether_hdr);
			buffer->packet_type |= RTE_PTYPE_L4_UDP | RTE_PTYPE_TUNNEL_VXLAN |
				RTE_PTYPE_INNER_L2_ETHER;
		} else {
			return false;
		}
		if (buffer->data_len < inside + sizeof(*ip) + sizeof(struct rte_tcp_hdr))
			return false;
		buffer->outer_l2_len = buffer->l2_len;
		buffer->outer_l3_len = buffer->l3_len;
		buffer->l2_len = inside - offset;
		ip = found->inner = (struct rte_ipv4_hdr *)(bytes + inside);
		if (ip->next_proto_id != IPPROTO_TCP)
			return false;
		buffer->packet_type |= RTE_PTYPE_INNER_L3_IPV4 | RTE_PTYPE_INNER_L4_TCP;
		buffer->l3_len = rte_ipv4_hdr_len(ip);
		offset = inside + buffer->l3_len;
	} else {
		buffer->packet_type |= RTE_PTYPE_L4_TCP;
	}
	found->transport = bytes + offset;
	found->transport_offset = offset;
	buffer->l4_len = (((struct rte_tcp_hdr *)found->transport)->data_off >> 4) * 4;
	return true;
}

static bool sums_are_right(const struct headers *headers)
{
	const struct rte_udp_hdr *udp = headers->tunnel_udp;

	if (rte_ipv4_cksum(headers->inner) != 0 ||
	    rte_ipv4_udptcp_cksum_verify(headers->inner, headers->transport) != 0)
		return false;
	if (headers->outer == headers->inner)
		return true;
	return rte_ipv4_cksum(headers->outer) == 0 &&
		(!udp || !udp->dgram_cksum || rte_ipv4_udptcp_cksum_verify(headers->outer, udp) == 0);
}

/* The fields of both IP headers that gro does not compare. */
static uint32_t uncompared(const struct headers *headers)
{
	return (uint32_t)headers->outer->type_of_service << 24 | headers->outer->time_to_live << 16 |
		headers->inner->type_of_service << 8 | headers->inner->time_to_live;
}

static void reassemble_batch(const struct work *work, struct rte_mbuf **batch, uint16_t count)
{
	uint16_t left;

	if (!work->context) {
		left = rte_gro_reassemble_burst(batch, count, &gro_parameters);
		memcpy(out + out_count, batch, left * sizeof(*batch));
		out_count += left;
		return;
	}
	left = rte_gro_reassemble(batch, count, gro_context);
	memcpy(out + out_count, batch, left * sizeof(*batch));
	out_count += left;
	out_count += rte_gro_timeout_flush(gro_context, 0, gro_parameters.gro_types, out + out_count,
		RTE_DIM(out) - out_count);
}

static uint32_t fill(struct rte_mbuf **batch, uint32_t first)
{
	uint32_t count = RTE_MIN((uint32_t)POLL, workload.count - first);

	if (rte_pktmbuf_alloc_bulk(packets, batch, count) != 0)
		fail("no buffer is left");
	for (uint32_t i = 0; i < count; i++) {
		const struct frame *frame = &workload.frames[first + i];
		char *room = rte_pktmbuf_append(batch[i], frame->len);
		if (!room)
			fail("a frame is too long for a buffer");
		memcpy(room, frame->bytes, frame->len);
	}
	return count;
}

static uint32_t coalesce(const struct work *work, uint32_t first, uint64_t *ns)
{
	struct rte_mbuf *batch[POLL];
	uint32_t count = fill(batch, first), start = 0, fields = 0;
	uint64_t begin = now_ns();

	for (uint32_t i = 0; i < count; i++) {
		struct headers headers;
		bool known = parse(batch[i], &headers);
		if (!work->fields || !known)
			continue;
		if (work->checks && !sums_are_right(&headers))
			batch[i]->packet_type = 0;
		/* gro ignores these fields, so each call gets only packets in which they are equal. */
		if (i > start && uncompared(&headers) != fields) {
			reassemble_batch(work, batch + start, i - start);
			start = i;
		}
		fields = uncompared(&headers);
	}
	reassemble_batch(work, batch + start, count - start);
	*ns += now_ns() - begin;
	return count;
}

/* Writes every checksum of a segment, which gso leaves stale. */
static void sum_segment(struct rte_mbuf *segment, const struct headers *of_superframe, uint8_t *start)
{
	uint8_t *bytes = rte_pktmbuf_mtod(segment, uint8_t *);
	struct rte_ipv4_hdr *inner = (void *)(bytes + ((uint8_t *)of_superframe->inner - start));
	struct rte_ipv4_hdr *outer = (void *)(bytes + ((uint8_t *)of_superframe->outer - start));
	struct rte_tcp_hdr *tcp = (void *)(bytes + of_superframe->transport_offset);

	tcp->cksum = 0;
	tcp->cksum = rte_ipv4_udptcp_cksum_mbuf(segment, inner, of_superframe->transport_offset);
	inner->hdr_checksum = 0;
	inner->hdr_checksum = rte_ipv4_cksum(inner);
	if (outer != inner) {
		outer->hdr_checksum = 0;
		outer->hdr_checksum = rte_ipv4_cksum(outer);
	}
}

static uint32_t segment(const struct work *work, uint32_t first, uint64_t *ns)
{
	struct rte_mbuf *superframe = superframe_buffers[first];
	uint8_t *start = rte_pktmbuf_mtod(superframe, uint8_t *);
	struct headers headers;
	uint64_t begin;
	int count;

	for (uint32_t i = 0; i < superframe->data_len; i += RTE_CACHE_LINE_SIZE)
		*(volatile uint8_t *)(start + i);
	begin = now_ns();
	if (!parse(superframe, &headers))
		fail("a superframe that is not TCP over IPv4");
	superframe->ol_flags = RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_IPV4;
	if (headers.tunnel_udp)
		superframe->ol_flags |= RTE_MBUF_F_TX_TUNNEL_VXLAN | RTE_MBUF_F_TX_OUTER_IPV4;
	else if (headers.outer != headers.inner)
		superframe->ol_flags |= RTE_MBUF_F_TX_TUNNEL_GRE | RTE_MBUF_F_TX_OUTER_IPV4;
	gso.gso_size = headers.transport_offset + superframe->l4_len + workload.segment_size;
	count = rte_gso_segment(superframe, &gso, out, SEGMENTS_MAX);
	for (int i = 0; i < count; i++) {
		if (work->copies && rte_pktmbuf_linearize(out[i]) != 0)
			fail("a segment has no room for its payload");
		if (work->sums)
			sum_segment(out[i], &headers, start);
	}
	*ns += now_ns() - begin;
	if (count <= 0)
		fail("gso refused a superframe");
	out_count = count;
	return count;
}

static uint32_t reassemble(const struct work *work, uint32_t first, uint64_t *ns)
{
	struct rte_mbuf *batch[POLL];
	uint32_t count = fill(batch, first);
	uint64_t begin = now_ns();

	for (uint32_t i = 0; i < count; i++) {
		struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(batch[i], struct rte_ipv4_hdr *,
			sizeof(struct rte_ether_hdr));
		struct rte_mbuf *whole;

		batch[i]->l2_len = sizeof(struct rte_ether_hdr);
		batch[i]->l3_len = rte_ipv4_hdr_len(ip);
		if (work->checks && rte_ipv4_cksum(ip) != 0)
			fail("a header checksum is wrong");
		whole = rte_ipv4_frag_reassemble_packet(fragments, &death_row, batch[i], begin, ip);
		if (!whole)
			continue;
		ip = rte_pktmbuf_mtod_offset(whole, struct rte_ipv4_hdr *, whole->l2_len);
		if (work->checks &&
		    rte_ipv4_udptcp_cksum_mbuf_verify(whole, ip, whole->l2_len + whole->l3_len) != 0)
			fail("a UDP checksum is wrong");
		out[out_count++] = whole;
	}
	*ns += now_ns() - begin;
	rte_ip_frag_free_death_row(&death_row, 0);
	return count;
}

static uint32_t checksum(const struct work *work, uint32_t first, uint64_t *ns)
{
	const uint8_t *bytes = workload.frames[first].bytes;
	uint32_t len = workload.frames[first].len;
	uint64_t begin = now_ns();

	(void)work;
	for (uint64_t i = 0; i < workload.packets; i++) {
		last_sum = rte_raw_cksum(bytes, len);
		/* Prevents the compiler from reusing the previous checksum. */
		__asm__ volatile("" : : "r"(bytes), "r"(last_sum) : "memory");
	}
	*ns += now_ns() - begin;
	return workload.packets;
}

static const struct work works[] = {
	{ .name = "coalesce-burst", .turn = coalesce },
	{ .name = "coalesce-burst-fields", .turn = coalesce, .fields = true },
	{ .name = "coalesce-burst-checks", .turn = coalesce, .fields = true, .checks = true },
	{ .name = "coalesce-context", .turn = coalesce, .context = true },
	{ .name = "coalesce-context-fields", .turn = coalesce, .context = true, .fields = true },
	{ .name = "coalesce-context-checks", .turn = coalesce, .context = true, .fields = true,
		.checks = true },
	{ .name = "segment-chain", .turn = segment },
	{ .name = "segment-chain-sums", .turn = segment, .sums = true },
	{ .name = "segment-copy", .turn = segment, .sums = true, .copies = true },
	{ .name = "reassemble", .turn = reassemble },
	{ .name = "reassemble-checks", .turn = reassemble, .checks = true },
	{ .name = "checksum", .turn = checksum },
};

/* The frames of one poll. */
static uint32_t turn_frames(const struct work *work)
{
	return work->turn == segment || work->turn == checksum ? 1 : POLL;
}

/* Writes the output if requested, and frees it. */
static void take_out(FILE *file)
{
	static uint8_t linear[1 << 17];

	for (uint32_t i = 0; i < out_count; i++) {
		uint32_t len = rte_pktmbuf_pkt_len(out[i]);
		if (file && len <= sizeof(linear)) {
			const void *bytes = rte_pktmbuf_read(out[i], 0, len, linear);
			fwrite(&len, sizeof(len), 1, file);
			fwrite(bytes, len, 1, file);
		}
		rte_pktmbuf_free(out[i]);
	}
	out_count = 0;
}

static void pass(const struct work *work, FILE *file, uint64_t *ns, uint64_t *done)
{
	for (uint32_t first = 0; first < workload.count; first += turn_frames(work)) {
		*done += work->turn(work, first, ns);
		take_out(file);
	}
}

static void read_workload(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint32_t len;

	if (!file)
		fail("the workload cannot be opened");
	while (fread(&len, sizeof(len), 1, file) == 1) {
		struct frame frame = { .bytes = malloc(len), .len = len };
		workload.frames = realloc(workload.frames, (workload.count + 1) * sizeof(frame));
		if (!frame.bytes || !workload.frames || fread(frame.bytes, len, 1, file) != 1)
			fail("the workload cannot be read");
		workload.frames[workload.count++] = frame;
	}
	fclose(file);
}

/* The buffers of superframes are kept: gso only reads them. */
static void keep_superframes(void)
{
	superframe_buffers = calloc(workload.count, sizeof(*superframe_buffers));
	for (uint32_t i = 0; i < workload.count; i++) {
		struct rte_mbuf *buffer = rte_pktmbuf_alloc(superframes);
		char *room = buffer ? rte_pktmbuf_append(buffer, workload.frames[i].len) : NULL;
		if (!room)
			fail("a superframe has no buffer");
		memcpy(room, workload.frames[i].bytes, workload.frames[i].len);
		superframe_buffers[i] = buffer;
	}
}

static void start_dpdk(char *program)
{
	char lcores[32];
	char *arguments[] = { program, "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry",
		"-m", "256", "--lcores", lcores, "--log-level", "error", NULL };

	/* EAL pins the thread to its current CPU. */
	snprintf(lcores, sizeof(lcores), "0@%d", sched_getcpu());
	if (rte_eal_init(RTE_DIM(arguments) - 1, arguments) < 0)
		fail("EAL does not start");
}

static void prepare(const struct work *work)
{
	struct rte_gro_param parameters = gro_parameters;
	uint32_t room = PACKET_ROOM;

	for (uint32_t i = 0; work->turn != segment && i < workload.count; i++)
		room = RTE_MAX(room, workload.frames[i].len);
	room = RTE_MIN(room, (uint32_t)UINT16_MAX - RTE_PKTMBUF_HEADROOM) + RTE_PKTMBUF_HEADROOM;
	packets = rte_pktmbuf_pool_create("packets", POOL_BUFFERS, 256, 0, room, SOCKET_ID_ANY);
	if (!packets)
		fail("no memory for packets");
	if (work->turn == segment) {
		indirect = rte_pktmbuf_pool_create("indirect", POOL_BUFFERS, 256, 0, 0, SOCKET_ID_ANY);
		superframes = rte_pktmbuf_pool_create("superframes", workload.count, 0, 0,
			SUPERFRAME_ROOM, SOCKET_ID_ANY);
		if (!indirect || !superframes)
			fail("no memory for superframes");
		gso = (struct rte_gso_ctx){ .direct_pool = packets, .indirect_pool = indirect,
			.gso_types = RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_VXLAN_TNL_TSO |
				RTE_ETH_TX_OFFLOAD_GRE_TNL_TSO };
		keep_superframes();
	}
	if (work->context && !(gro_context = rte_gro_ctx_create(&parameters)))
		fail("no memory for gro");
	if (work->turn == reassemble) {
		fragments = rte_ip_frag_table_create(FRAGMENT_BUCKETS, FRAGMENT_BUCKET_ENTRIES,
			FRAGMENT_BUCKETS * FRAGMENT_BUCKET_ENTRIES, UINT64_C(30000000000),
			SOCKET_ID_ANY);
		if (!fragments)
			fail("no memory for fragments");
	}
}

static void answer(const struct work *work, const char *question)
{
	uint64_t ns = 0, done = 0;

	if (strcmp(question, "round") == 0) {
		pass(work, NULL, &ns, &done);
		printf("peer: %" PRIu64 " %" PRIu64 "\n", ns, done);
	} else if (strncmp(question, "output ", 7) == 0) {
		FILE *file = fopen(question + 7, "wb");
		if (!file)
			fail("the output cannot be opened");
		pass(work, file, &ns, &done);
		if (work->turn == checksum) {
			/* The checksum has the byte order of the summed bytes. */
			uint16_t value = last_sum;
			uint32_t len = sizeof(value);
			fwrite(&len, sizeof(len), 1, file);
			fwrite(&value, len, 1, file);
		}
		fclose(file);
		printf("peer: written\n");
	} else {
		fail("what was asked is not known");
	}
}

/* Describes a frame to `grosso conform` and writes it. A merged packet is a chain, whose first buffer is the first
 * packet. Its checksums are stale, so they are replaced by partial checksums, which a device completes. */
static void put_record(FILE *file, struct rte_mbuf *buffer)
{
	static uint8_t linear[1 << 17];
	uint32_t len = rte_pktmbuf_pkt_len(buffer), all = len + VIRTIO_BYTES;
	uint8_t header[VIRTIO_BYTES] = { 0 };
	struct headers found;

	if (buffer->nb_segs > 1 && parse(buffer, &found)) {
		uint32_t headers = found.transport_offset + buffer->l4_len;
		uint16_t said[4] = { headers, buffer->data_len - headers, found.transport_offset, 16 };

		header[0] = header[1] = 1;
		memcpy(header + 2, said, sizeof(said));
		((struct rte_tcp_hdr *)found.transport)->cksum = rte_ipv4_phdr_cksum(found.inner, 0);
		found.inner->hdr_checksum = 0;
		found.inner->hdr_checksum = rte_ipv4_cksum(found.inner);
		found.outer->hdr_checksum = 0;
		found.outer->hdr_checksum = rte_ipv4_cksum(found.outer);
	}
	memmove(linear, rte_pktmbuf_read(buffer, 0, len, linear), len);
	fwrite(&all, sizeof(all), 1, file);
	fwrite(header, sizeof(header), 1, file);
	fwrite(linear, len, 1, file);
	rte_pktmbuf_free(buffer);
}

static void put_poll(const struct work *work, FILE *file)
{
	uint64_t ns = 0;

	for (uint32_t first = 0; first < workload.count; first += POLL) {
		coalesce(work, first, &ns);
		for (uint32_t i = 0; i < out_count; i++)
			put_record(file, out[i]);
		out_count = 0;
	}
	for (uint32_t i = 0; i < workload.count; i++)
		free(workload.frames[i].bytes);
	workload.count = 0;
}

/* Runs as the program that `grosso conform` tests: docs/conformance.md describes input and output. */
static int conform(const struct work *work, char *program)
{
	static uint8_t record[1 << 17];
	/* The output of libraries is redirected. */
	FILE *file = fdopen(dup(1), "wb");
	uint32_t len;

	dup2(2, 1);
	start_dpdk(program);
	prepare(work);
	workload.frames = calloc(CONFORM_FRAMES, sizeof(*workload.frames));
	while (fread(&len, sizeof(len), 1, stdin) == 1) {
		if (len == 0) {
			put_poll(work, file);
			fwrite(&len, sizeof(len), 1, file);
			fflush(file);
			continue;
		}
		if (len > sizeof(record) || fread(record, len, 1, stdin) != 1 || workload.count == CONFORM_FRAMES)
			return 1;
		struct frame frame = { .bytes = malloc(len), .len = len - VIRTIO_BYTES };
		memcpy(frame.bytes, record + VIRTIO_BYTES, frame.len);
		workload.frames[workload.count++] = frame;
	}
	return 0;
}

int main(int argc, char **argv)
{
	const struct work *work = NULL;
	char line[4096];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 3 && argc < 5)
		fail("usage: peer WORK FILE PACKETS SIZE [START OFFSET], or peer WORK conform");
	for (size_t i = 0; i < RTE_DIM(works); i++)
		if (strcmp(works[i].name, argv[1]) == 0)
			work = &works[i];
	if (!work)
		fail("unknown kind of work");
	if (argc == 3)
		return work->turn == coalesce ? conform(work, argv[0]) : 1;
	read_workload(argv[2]);
	workload.packets = strtoull(argv[3], NULL, 10);
	workload.segment_size = strtoul(argv[4], NULL, 10);
	start_dpdk(argv[0]);
	prepare(work);
	printf("peer: ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		answer(work, line);
	}
	return 0;
}
