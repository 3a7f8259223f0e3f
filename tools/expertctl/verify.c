/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl verify: reads every copy of every expert and proves it, of a store that is mounted or
 * not, and says which records are bad.
 *
 * What lies where is read from catalog.db at the start. A daemon may move an expert meanwhile: what
 * was found bad is looked at again where the catalog then says that it lies.
 */
#include "tools/expertctl/expertctl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/clock.h"
#include "expertfs/fail.h"
#include "expertfs/proof.h"
#include "expertfs/size.h"
#include "tools/expertctl/mountfile.h"
#include "tools/expertctl/progress.h"
#include "tools/expertctl/verify_read.h"

#define NAMED_MAX 100 /* bad records that are listed one by one */

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

/* What goes on while the drives are read. */
struct watch {
	const char *mount;                /* NULL: none whose daemon could be asked */
	uint64_t bytes[STORE_DRIVES_MAX]; /* that it had read from each drive at the last look */
	bool looked;                      /* once */
	bool fast;                        /* nobody is waited for */
	struct ctl_progress progress;
};

/* -- the daemon -----------------------------------------------------------------------------------
 */

static json_t *read_stats(const char *mount, char *why)
{
	char *text = NULL;
	size_t bytes = 0;
	json_t *root;

	if (mountfile_read(mount, "stats.json", &text, &bytes, why) != 0)
		return NULL;
	root = json_loadb(text, bytes, 0, NULL);
	if (!root)
		fail(why, EBADMSG, "%s/.expertfs/stats.json is not valid JSON", mount);
	free(text);
	return root;
}

/* A drive with reads in flight, or that was read from since the last look, is busy. */
static void look_at_drives(struct watch *w, struct verify *v)
{
	json_t *root = read_stats(w->mount, NULL), *drives = json_object_get(root, "drives"), *d;
	size_t i;

	for (i = 0; i < STORE_DRIVES_MAX; i++)
		v->busy[i] = false;
	json_array_foreach(drives, i, d)
	{
		const json_t *number = json_object_get(d, "number");
		json_int_t n = number ? json_integer_value(number) : (json_int_t)i;
		uint64_t bytes = (uint64_t)json_integer_value(json_object_get(d, "bytes_read"));
		if (n < 0 || n >= STORE_DRIVES_MAX)
			continue;
		v->busy[n] = json_integer_value(json_object_get(d, "in_flight")) > 0 ||
			     (w->looked && bytes != w->bytes[n]);
		w->bytes[n] = bytes;
	}
	w->looked = true;
	json_decref(root);
}

static void watch(void *arg, struct verify *v)
{
	struct watch *w = arg;

	if (interrupted)
		v->stop = true;
	if (w->mount && !w->fast)
		look_at_drives(w, v);
	ctl_progress_show(&w->progress, v->done, v->total);
}

/* PATH is a store, or a mount of one, whose daemon says which. */
static int find_store(const char *path, char store[PATH_MAX], const char **mount, char *why)
{
	const char *dir;
	json_t *root;
	int err = 0;

	if (mountfile_is_store(path)) {
		snprintf(store, PATH_MAX, "%s", path);
		return 0;
	}
	root = read_stats(path, why);
	if (!root)
		return -ENOENT;
	dir = json_string_value(json_object_get(root, "store"));
	if (!dir || snprintf(store, PATH_MAX, "%s", dir) >= PATH_MAX)
		err = fail(why, EBADMSG, "the daemon of %s does not say where its store is", path);
	*mount = path;
	json_decref(root);
	return err;
}

/* -- what was found -------------------------------------------------------------------------------
 */

struct result {
	uint64_t bad, heads, unread; /* extents */
	uint64_t bad_experts, lost;  /* experts with a bad copy; without a good one */
	uint64_t good_bytes, moved;
};

static void say_bad(const struct store *s, const struct verify_item *i, const char *what,
		    struct result *r)
{
	const struct store_expert *e = &s->expert[i->index];

	if (r->bad + r->heads > NAMED_MAX)
		return;
	if (r->bad + r->heads == NAMED_MAX)
		puts("bad: and more, which are not listed");
	else
		printf("bad: expert %u/%u, copy %u, %" PRIu64 " bytes at %" PRIu64
		       " of drive %u, %s: %s\n",
		       e->layer, e->expert, i->x.copy, i->x.length, i->x.offset, i->x.drive,
		       s->drive[i->x.drive].path, what);
}

/* Is a bad item still where the catalog has it? If not, its expert has moved: that is then read at
 * its new place, all of it. *err: of that. */
static bool has_moved(const struct store *now, const struct store_expert *e,
		      const struct verify_item *i)
{
	const struct store_expert *n = store_find(now, e->layer, e->expert);

	if (!n)
		return false;
	for (uint32_t j = 0; j < n->packed->n; j++)
		if (n->packed->x[j].drive == i->x.drive && n->packed->x[j].offset == i->x.offset)
			return false;
	return true;
}

static bool good_at_new_place(const struct store *now, const struct store_expert *e,
			      struct watch *w)
{
	const struct store_expert *n = store_find(now, e->layer, e->expert);
	struct verify v;
	bool good;

	good = verify_begin(&v, now, n - now->expert, NULL) == 0 &&
	       verify_run(&v, watch, w, NULL) == 0;
	for (uint64_t j = 0; good && j < v.n; j++)
		good = v.item[j].err == 0;
	verify_end(&v);
	return good;
}

/* Takes back what was found bad because it was moved away. */
static void look_again(struct verify *v, struct watch *w, struct result *r)
{
	struct store *now = NULL;
	char why[WHY_MAX];

	for (uint64_t j = 0; j < v->n && !interrupted; j++) {
		struct verify_item *i = &v->item[j];
		const struct store_expert *e = &v->store->expert[i->index];
		if (i->err == 0 && !i->bad_head)
			continue;
		if (!now && store_open(v->store->dir, &now, why) != 0)
			return;
		if (has_moved(now, e, i) && good_at_new_place(now, e, w)) {
			i->err = 0;
			i->bad_head = false;
			r->moved++;
		}
	}
	store_close(now);
}

/* Copies of each expert that are bad, as bits; the 64th stands for all further ones. */
static void count_experts(const struct verify *v, const uint64_t *bad_copies, struct result *r)
{
	for (uint32_t i = 0; i < v->store->experts; i++) {
		const struct extent_list *l = v->store->expert[i].packed;
		unsigned copies = extent_list_copies(l);
		uint64_t all = copies >= 64 ? UINT64_MAX : (UINT64_C(1) << copies) - 1;
		r->bad_experts += bad_copies[i] != 0;
		r->lost += (bad_copies[i] & all) == all;
	}
}

static const char *fault(const struct verify_item *i)
{
	if (i->err == -ENODEV)
		return "the drive is missing";
	if (i->err == -EBADMSG && i->bad_head)
		return "its checksum is wrong, and the head of its record does not fit to it "
		       "either: is it the catalog that is wrong? (expertctl rebuild)";
	return i->err ? proof_text(i->err)
		      : "the head of its record is damaged; the expert itself is good";
}

static int judge(const struct verify *v, struct result *r, char *why)
{
	uint64_t *bad_copies = calloc(v->store->experts + 1ul, sizeof(*bad_copies));

	if (!bad_copies)
		return fail(why, ENOMEM, "out of memory");
	for (uint64_t j = 0; j < v->n; j++) {
		const struct verify_item *i = &v->item[j];
		unsigned copy = i->x.copy < 63 ? i->x.copy : 63;
		if (i->err == -EINPROGRESS) {
			r->unread++;
		} else if (i->err) {
			say_bad(v->store, i, fault(i), r);
			r->bad++;
			bad_copies[i->index] |= UINT64_C(1) << copy;
		} else if (i->bad_head) {
			say_bad(v->store, i, fault(i), r);
			r->heads++;
		}
	}
	count_experts(v, bad_copies, r);
	free(bad_copies);
	return 0;
}

static void summary(const struct verify *v, const struct watch *w, const struct result *r)
{
	double seconds = (double)(clock_ns() - w->progress.start_ns) / 1e9;
	char a[16], b[16];

	printf("%s: %" PRIu32 " experts, %s read in %.1f s (%s/s): ", v->store->dir,
	       v->store->experts, size_text(v->done, a), seconds,
	       size_text((uint64_t)((double)v->done / (seconds > 0 ? seconds : 1)), b));
	if (r->unread)
		printf("interrupted, %" PRIu64 " of %" PRIu64 " records not read; ", r->unread,
		       v->n);
	if (r->moved)
		printf("%" PRIu64 " records moved meanwhile; ", r->moved);
	if (r->bad)
		printf("%" PRIu64 " bad record%s of %" PRIu64 " expert%s, of which %" PRIu64
		       " have no good copy left",
		       r->bad, r->bad == 1 ? "" : "s", r->bad_experts,
		       r->bad_experts == 1 ? "" : "s", r->lost);
	else
		printf("%s is good", r->unread ? "what was read" : "everything");
	if (r->heads)
		printf("; %" PRIu64 " damaged head%s, which a rebuild would not find", r->heads,
		       r->heads == 1 ? "" : "s");
	putchar('\n');
}

/* -- all of it ------------------------------------------------------------------------------------
 */

static int verify_store(const struct store *s, struct watch *w, char *why)
{
	struct result r = { 0 };
	struct verify v;
	int err = verify_begin(&v, s, -1, why);

	v.fast = w->fast;
	err = err ? err : verify_run(&v, watch, w, why);
	ctl_progress_clear(&w->progress);
	if (!err) {
		look_again(&v, w, &r);
		err = judge(&v, &r, why);
	}
	if (!err) {
		summary(&v, w, &r);
		if (r.bad || r.heads || r.unread)
			err = 1;
	}
	verify_end(&v);
	return err;
}

static int verify(const char *path, bool fast)
{
	const struct sigaction act = { .sa_handler = on_signal };
	struct watch *w = calloc(1, sizeof(*w));
	char why[WHY_MAX] = "out of memory", dir[PATH_MAX];
	struct store *s = NULL;
	int err = w ? 0 : -ENOMEM;

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
	err = err ? err : find_store(path, dir, &w->mount, why);
	err = err ? err : store_open(dir, &s, why);
	if (!err) {
		w->fast = fast;
		if (why[0])
			fprintf(stderr, "expertctl: %s\n", why);
		ctl_progress_begin(&w->progress, "verify");
		err = verify_store(s, w, why);
	}
	if (err < 0)
		fprintf(stderr, "expertctl: %s\n", why);
	store_close(s);
	free(w);
	return err || fflush(stdout) != 0 ? 1 : 0;
}

static int run(char **argv)
{
	const char *path = CTL_DEFAULT_MOUNT;
	bool fast = false;
	int n, status = ctl_split(argv, &path, 1, &n, "--fast", &fast);

	return status ? status : verify(path, fast);
}

const struct ctl_command ctl_verify = {
	.name = "verify",
	.usage = "[MOUNT|STORE] [--fast]",
	.about = "read every copy of every expert and prove it by its checksum, at the lowest\n"
		 "priority and in the gaps that a daemon leaves (--fast: without either)",
	.run = run,
};
