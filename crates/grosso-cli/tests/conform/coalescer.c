/* A small coalescer for `grosso conform`: TCP over IPv4, one train at a time. Without an argument it violates no law;
 * the name of a fault as argument injects that fault. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINK = 14, IP = 14, TCP = 34, LONGEST = 65535 };
enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, URG = 32, CWR = 128 };

static const char *fault = "";
static uint8_t held[1 << 17];
static uint32_t held_len, count, size, id_step;

static bool faulty(const char *name) { return strcmp(fault, name) == 0; }
static uint32_t be16(const uint8_t *at) { return at[0] << 8 | at[1]; }
static uint32_t be32(const uint8_t *at) { return be16(at) << 16 | be16(at + 2); }
static void put16(uint8_t *at, uint32_t value) { at[0] = value >> 8, at[1] = value; }

static uint32_t sum(const uint8_t *bytes, uint32_t len, uint32_t from)
{
	for (uint32_t i = 0; i < len; i++)
		from += i % 2 ? bytes[i] : bytes[i] << 8;
	while (from >> 16)
		from = (from & 0xffff) + (from >> 16);
	return from;
}

static uint32_t pseudo(const uint8_t *frame, uint32_t tcp_len) { return sum(frame + IP + 12, 8, 6 + tcp_len); }
static uint32_t header_len(const uint8_t *frame) { return TCP + (frame[TCP + 12] >> 4) * 4; }

static void put(const uint8_t header[10], const uint8_t *frame, uint32_t len)
{
	uint32_t all = len + 10;
	uint8_t length[4] = { all, all >> 8, all >> 16, all >> 24 };

	fwrite(length, 4, 1, stdout);
	fwrite(header, 10, 1, stdout);
	fwrite(frame, len, 1, stdout);
}

static void put_alone(const uint8_t *frame, uint32_t len)
{
	uint8_t header[10] = { faulty("vouch") ? 2 : 0 };

	put(header, frame, len);
}

static void flush(void)
{
	uint32_t headers = count ? header_len(held) : 0;
	uint8_t header[10] = { 1, 1, headers, 0, size, size >> 8, TCP, 0, 16 };

	if (count == 1)
		put_alone(held, held_len);
	if (count > 1) {
		if (!faulty("length"))
			put16(held + IP + 2, held_len - LINK);
		if (faulty("id"))
			put16(held + IP + 4, be16(held + IP + 4) + 1);
		put16(held + IP + 10, 0);
		if (!faulty("sum"))
			put16(held + IP + 10, ~sum(held + IP, 20, 0));
		if (!faulty("seed"))
			put16(held + TCP + 16, pseudo(held, held_len - TCP));
		if (faulty("whole"))
			header[0] = 0;
		if (faulty("header"))
			header[6] = 200;
		put(header, held, held_len);
	}
	count = 0;
}

static bool candidate(const uint8_t *frame, uint32_t len)
{
	if (len <= TCP + 20 || be16(frame + 12) != 0x0800 || frame[IP] != 0x45 || frame[IP + 9] != 6)
		return false;
	if (be16(frame + IP + 2) != len - LINK || sum(frame + IP, 20, 0) != 0xffff)
		return false;
	if ((be16(frame + IP + 6) & 0xbfff) || (frame[TCP + 12] >> 4) < 5 || header_len(frame) >= len)
		return false;
	if (frame[TCP + 13] & (SYN | RST | URG))
		return false;
	return faulty("checksum") || sum(frame + TCP, len - TCP, pseudo(frame, len - TCP)) == 0xffff;
}

static bool same(const uint8_t *frame, uint32_t at, uint32_t len) { return !memcmp(held + at, frame + at, len); }

static bool joins(const uint8_t *frame, uint32_t len)
{
	uint32_t headers = header_len(frame), step = (be16(frame + IP + 4) - be16(held + IP + 4)) & 0xffff;
	uint8_t ignored = FIN | PSH | (faulty("cwr") ? CWR : 0);

	if (!count || !same(frame, 0, LINK + 2) || !same(frame, IP + 6, 2) || !same(frame, IP + 9, 1))
		return false;
	if (frame[IP + 8] != held[IP + 8] && !faulty("ttl"))
		return false;
	if (!same(frame, IP + 12, 8) || !same(frame, TCP, 4) || !same(frame, TCP + 8, 5))
		return false;
	if ((frame[TCP + 13] ^ held[TCP + 13]) & ~ignored || !same(frame, TCP + 14, 2) || !same(frame, TCP + 18, 2))
		return false;
	if (!same(frame, TCP + 20, headers - TCP - 20))
		return false;
	if (be32(frame + TCP + 4) != be32(held + TCP + 4) + held_len - headers)
		return false;
	if (len - headers > size && !faulty("unequal"))
		return false;
	if (held_len - LINK + len - headers > LONGEST)
		return false;
	return faulty("gap") || (count == 1 ? step < 2 : step == id_step * count);
}

static bool closes(const uint8_t *frame, uint32_t len)
{
	if ((frame[TCP + 13] & PSH) && faulty("psh"))
		return false;
	return frame[TCP + 13] & (FIN | PSH) || (len - header_len(frame) < size && !faulty("unequal"));
}

static void take(const uint8_t *frame, uint32_t len)
{
	if (!candidate(frame, len)) {
		if (!faulty("reorder"))
			flush();
		if (!faulty("lose") || len > TCP + 20)
			put_alone(frame, len);
		return;
	}
	if (joins(frame, len)) {
		uint32_t headers = header_len(frame);
		id_step = be16(frame + IP + 4) != be16(held + IP + 4);
		memcpy(held + held_len, frame + headers, len - headers);
		held[TCP + 13] |= frame[TCP + 13] & (FIN | PSH);
		held_len += len - headers;
		count++;
	} else {
		flush();
		memcpy(held, frame, len);
		held_len = len, count = 1, size = len - header_len(frame);
	}
	if (closes(frame, len))
		flush();
}

/* Faults of the program itself. */
static void misbehave(void)
{
	static const uint8_t end[4];

	if (faulty("crash"))
		abort();
	if (faulty("exit"))
		exit(3);
	while (faulty("hang"))
		pause();
	if (faulty("rubbish"))
		fwrite("\xff\xff\xff\xff", 4, 1, stdout);
	while (faulty("flood"))
		put_alone(held, 60);
	while (faulty("ends"))
		fwrite(end, 4, 1, stdout);
	if (faulty("cut")) {
		fwrite("\x40\0\0\0half", 8, 1, stdout);
		exit(0);
	}
}

int main(int argc, char **argv)
{
	static uint8_t record[1 << 17];
	uint8_t length[4];

	if (argc > 1)
		fault = argv[1];
	while (fread(length, 4, 1, stdin) == 1) {
		uint32_t len = length[0] | length[1] << 8 | length[2] << 16 | (uint32_t)length[3] << 24;
		misbehave();
		if (len == 0) {
			flush();
			if (!faulty("silent"))
				fwrite(length, 4, 1, stdout);
			fflush(stdout);
		} else if (len < 10 || len > sizeof(record) || fread(record, len, 1, stdin) != 1) {
			return 1;
		} else {
			take(record + 10, len - 10);
		}
	}
	if (faulty("behind"))
		fwrite("\0\0\0", 4, 1, stdout);
	return faulty("status");
}
