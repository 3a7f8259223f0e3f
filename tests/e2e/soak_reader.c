/* SPDX-License-Identifier: Apache-2.0
 *
 * Random readers that compare every byte, for tests/soak.
 *
 *	soak_reader MNT PLAIN SECONDS THREADS FLAG
 *
 * PLAIN/experts has the same files as MNT/experts. Each thread opens an expert, reads or maps it in
 * one of several ways, and compares. The mount may go away while the file FLAG exists, and only
 * then; a wrong byte is never right. Prints what was done; exits with 1 and a sentence at the first
 * fault.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 64

/* A file of both trees. */
struct pair {
	char *path;       /* in the mount */
	const char *want; /* its bytes */
	size_t bytes;
};

static struct pair *pairs;
static size_t count;
static const char *flag;
static time_t deadline;
static atomic_ulong uses, compared, gone, unmappable;

static _Thread_local sigjmp_buf on_bus;
static _Thread_local volatile sig_atomic_t bus_armed;

_Noreturn static void fault(const char *path, const char *what)
{
	fprintf(stderr, "soak_reader: %s: %s\n", path, what);
	exit(1);
}

/* A page of a mapping that the daemon served itself cannot be had any more. */
static void bus_handler(int sig)
{
	if (bus_armed)
		siglongjmp(on_bus, 1);
	signal(sig, SIG_DFL);
	raise(sig);
}

/* One use of a file, by one thread. */
struct use {
	const struct pair *p;
	bool leaving; /* FLAG was there when it began */
	uint64_t random;
	char *buf;
};

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* A call failed: fine if the mount is on its way out, a fault otherwise. */
static void failed(const struct use *u, const char *call, int err)
{
	bool away = err == ENOENT || err == ENOTCONN || err == ECONNABORTED || err == ENODEV ||
		    err == EINTR || err == EIO;
	char what[128];

	if (away && (u->leaving || access(flag, F_OK) == 0)) {
		atomic_fetch_add(&gone, 1);
		usleep(20000);
		return;
	}
	snprintf(what, sizeof(what), "%s: %s", call, strerror(err));
	fault(u->p->path, what);
}

static void compare(const struct use *u, const char *got, size_t at, size_t n)
{
	if (memcmp(got, u->p->want + at, n) != 0)
		fault(u->p->path, "wrong bytes");
	atomic_fetch_add(&compared, n);
}

static void read_range(const struct use *u, int fd, size_t at, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t got = pread(fd, u->buf + done, n - done, (off_t)(at + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			failed(u, "read", errno);
			return;
		}
		if (got == 0)
			fault(u->p->path, "ends too early");
		done += (size_t)got;
	}
	compare(u, u->buf, at, n);
}

/* Compares through a mapping, with or without the file open beside it; closes fd. */
static void map_whole(const struct use *u, int fd, bool close_first)
{
	const char *map = mmap(NULL, u->p->bytes, PROT_READ, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED) { /* an expert that found no room can be read only */
		if (errno == ENODEV) {
			atomic_fetch_add(&unmappable, 1);
			read_range(u, fd, 0, u->p->bytes);
		} else {
			failed(u, "mmap", errno);
		}
		close(fd);
		return;
	}
	if (close_first) {
		close(fd);
		usleep((useconds_t)(u->random >> 20 & 8191));
	}
	if (sigsetjmp(on_bus, 1) == 0) {
		bus_armed = 1;
		compare(u, map, 0, u->p->bytes);
		bus_armed = 0;
	} else {
		bus_armed = 0;
		failed(u, "mapping", ENOTCONN);
	}
	munmap((void *)map, u->p->bytes);
	if (!close_first)
		close(fd);
}

static void use_once(const struct use *u)
{
	size_t n = u->p->bytes, at = (size_t)(u->random >> 8) % n;
	int fd = open(u->p->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		failed(u, "open", errno);
		return;
	}
	atomic_fetch_add(&uses, 1);
	switch (u->random & 7) {
	case 0:
	case 1:
		map_whole(u, fd, false);
		return;
	case 2:
		map_whole(u, fd, true);
		return;
	case 3: /* held for a while */
		usleep((useconds_t)(u->random >> 20 & 16383));
		read_range(u, fd, 0, n);
		break;
	case 4:
	case 5:
		read_range(u, fd, at, (n - at) / 2 + 1);
		break;
	case 6: /* opened for nothing */
		break;
	default:
		read_range(u, fd, 0, n);
	}
	close(fd);
}

static void *reader(void *arg)
{
	uint64_t state = 0x9e3779b97f4a7c15u * (1 + (uint64_t)(uintptr_t)arg);
	struct use u = { 0 };
	size_t most = 1;

	for (size_t i = 0; i < count; i++)
		most = pairs[i].bytes > most ? pairs[i].bytes : most;
	u.buf = malloc(most);
	if (!u.buf)
		fault("memory", strerror(errno));
	while (time(NULL) < deadline) {
		/* The square makes some experts hot, so that there are hits and misses. */
		double x = (double)(next_random(&state) >> 11) / 9007199254740992.0;
		u.p = &pairs[(size_t)(x * x * (double)count)];
		u.random = next_random(&state);
		u.leaving = access(flag, F_OK) == 0;
		use_once(&u);
	}
	free(u.buf);
	return NULL;
}

static void add_pair(struct pair *p, const char *mnt, const char *plain, const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) != 0 || st.st_size == 0)
		fault(path, "cannot be read");
	p->bytes = (size_t)st.st_size;
	p->want = mmap(NULL, p->bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (p->want == MAP_FAILED || asprintf(&p->path, "%s%s", mnt, path + strlen(plain)) < 0)
		fault(path, "no memory");
	close(fd);
}

static void find_pairs(const char *mnt, const char *plain)
{
	char pattern[4096];
	glob_t g;

	snprintf(pattern, sizeof(pattern), "%s/experts/*/*", plain);
	if (glob(pattern, 0, NULL, &g) != 0)
		fault(plain, "no experts");
	pairs = calloc(g.gl_pathc, sizeof(*pairs));
	if (!pairs)
		fault("memory", strerror(errno));
	for (; count < g.gl_pathc; count++)
		add_pair(&pairs[count], mnt, plain, g.gl_pathv[count]);
	globfree(&g);
}

int main(int argc, char **argv)
{
	pthread_t thread[THREADS_MAX];
	unsigned long threads = argc == 6 ? strtoul(argv[4], NULL, 10) : 0;

	if (threads < 1 || threads > THREADS_MAX) {
		fputs("usage: soak_reader MNT PLAIN SECONDS THREADS FLAG\n", stderr);
		return 2;
	}
	find_pairs(argv[1], argv[2]);
	flag = argv[5];
	deadline = time(NULL) + strtol(argv[3], NULL, 10);
	signal(SIGBUS, bus_handler);
	for (unsigned long i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, reader, (void *)(uintptr_t)i) != 0)
			fault("threads", strerror(errno));
	for (unsigned long i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	printf("%lu opens, %lu MB compared, %lu unmappable, %lu while the mount was away\n", uses,
	       compared >> 20, unmappable, gone);
	for (size_t i = 0; i < count; i++)
		free(pairs[i].path);
	free(pairs);
	return uses > 0 ? 0 : 1;
}
