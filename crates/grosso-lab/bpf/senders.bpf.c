// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Congestion controls for Linux (struct_ops) of three senders that count acknowledged data differently. For each
 * acknowledgment, they count all data, at most two segments (RFC 3465 section 2.3, L = 2), or one segment (RFC 5681
 * read literally). Otherwise, they follow RFC 5681: slow start, congestion avoidance, half the window after a loss.
 *
 * clang 14 compiled this file to the object next to it; a test repeats the compilation:
 * clang -target bpf -mcpu=v3 -O2 -g -fdebug-compilation-dir=/ -I/usr/include/x86_64-linux-gnu -c senders.bpf.c
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The members that are used; the loader finds their offsets in the running kernel. */
struct sock {} __attribute__((preserve_access_index));
struct tcp_sock {
	__u32 snd_cwnd, snd_cwnd_cnt, snd_ssthresh, prior_cwnd, max_packets_out;
} __attribute__((preserve_access_index));
struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *);
	void (*cong_avoid)(struct sock *, __u32, __u32);
	__u32 (*undo_cwnd)(struct sock *);
	char name[16];
};

static __always_inline void grow(struct tcp_sock *tp, __u32 segments)
{
	__u32 window = tp->snd_cwnd;

	/* A window that was at most half used proves nothing about the path. */
	if (window >= 2 * tp->max_packets_out)
		return;
	if (window < tp->snd_ssthresh) {
		tp->snd_cwnd = window + segments;
		return;
	}
	__u32 counted = tp->snd_cwnd_cnt + segments;
	if (counted >= window) {
		counted -= window;
		tp->snd_cwnd = window + 1;
	}
	tp->snd_cwnd_cnt = counted;
}

SEC("struct_ops/halve")
__u32 BPF_PROG(halve, struct tcp_sock *tp)
{
	return tp->snd_cwnd > 4 ? tp->snd_cwnd / 2 : 2;
}

SEC("struct_ops/restore")
__u32 BPF_PROG(restore, struct tcp_sock *tp)
{
	return tp->snd_cwnd > tp->prior_cwnd ? tp->snd_cwnd : tp->prior_cwnd;
}

#define SENDER(sender, segments) \
	SEC("struct_ops/grow_" #sender) \
	void BPF_PROG(grow_##sender, struct tcp_sock *tp, __u32 ack, __u32 acked) { grow(tp, segments); } \
	SEC(".struct_ops") struct tcp_congestion_ops grosso_##sender = { \
		.ssthresh = (void *)halve, .cong_avoid = (void *)grow_##sender, \
		.undo_cwnd = (void *)restore, .name = "grosso_" #sender, \
	}

SENDER(bytes, acked);
SENDER(limited, acked < 2 ? acked : 2);
SENDER(acks, 1);
