/* Connects two TUN devices, and merges the packets from each into superframes for the other: bridge ONE OTHER
 *
 *     cc -O2 bridge.c -o bridge $(pkg-config --cflags --libs grosso)
 *
 * Requires Linux and CAP_NET_ADMIN. Runs until its standard input ends, then prints the numbers of input and output
 * frames.
 */
#include <fcntl.h>
#include <grosso.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

enum { BATCH = 64, ROOM = 65535 + sizeof(struct grosso_vnet) };

static unsigned char frames[BATCH][ROOM];
static unsigned long taken, made;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void check(int result) {
    if (result >= 0) return;
    fprintf(stderr, "grosso: %s\n", grosso_error_text(result));
    exit(1);
}

static int open_tun(const char *name) {
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    int file = open("/dev/net/tun", O_RDWR | O_NONBLOCK), size = sizeof(struct grosso_vnet);
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (file < 0 || ioctl(file, TUNSETIFF, &request) < 0) fail(name);
    if (ioctl(file, TUNSETVNETHDRSZ, &size) < 0) fail("TUNSETVNETHDRSZ");
    return file;
}

/* Writes a packet or superframe from the library to a device: the header, followed by the pieces. */
static void take(void *to, const struct iovec *pieces, size_t count, const struct grosso_vnet *vnet) {
    struct iovec vector[1 + GROSSO_PIECES_MAX];
    vector[0] = (struct iovec){(void *)vnet, sizeof *vnet};
    memcpy(vector + 1, pieces, count * sizeof *pieces);
    made += writev(*(int *)to, vector, 1 + (int)count) > 0;
}

static struct grosso_coalescer *towards(int *to) {
    struct grosso_options options = {.size = sizeof options, .context = to, .take = take};
    struct grosso_coalescer *coalescer;
    if (getrandom(&options.seed, sizeof options.seed, 0) < 0) fail("getrandom");
    check(grosso_coalescer_new(&options, &coalescer));
    return coalescer;
}

/* Processes the waiting frames, but at most one batch. The library holds none of them afterwards. */
static void carry(int from, struct grosso_coalescer *coalescer) {
    for (int i = 0; i < BATCH; i++) {
        ssize_t len = read(from, frames[i], ROOM);
        if (len <= (ssize_t)sizeof(struct grosso_vnet)) break;
        struct grosso_vnet vnet;
        memcpy(&vnet, frames[i], sizeof vnet);
        len -= sizeof vnet;
        check(grosso_coalescer_push(coalescer, frames[i] + sizeof vnet, len, &vnet, NULL, 0));
        taken++;
    }
    check(grosso_coalescer_end(coalescer, 0));
}

int main(int words, char **word) {
    if (words != 3) return fprintf(stderr, "bridge ONE OTHER\n"), 2;
    int device[2] = {open_tun(word[1]), open_tun(word[2])};
    struct grosso_coalescer *to[2] = {towards(&device[0]), towards(&device[1])};
    printf("%s is there\n", word[1]);
    fflush(stdout);
    for (;;) {
        struct pollfd waiting[3] = {{0, POLLIN, 0}, {device[0], POLLIN, 0}, {device[1], POLLIN, 0}};
        if (poll(waiting, 3, -1) < 0) fail("poll");
        if (waiting[0].revents) break;
        carry(device[0], to[1]);
        carry(device[1], to[0]);
    }
    printf("%lu frames became %lu\n", taken, made);
    check(grosso_coalescer_free(to[0]));
    check(grosso_coalescer_free(to[1]));
    return 0;
}
