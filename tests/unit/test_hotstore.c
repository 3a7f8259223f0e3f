/* SPDX-License-Identifier: Apache-2.0
 *
 * The hot store without a mount: what is queued for nobody in particular. Readers and what they see:
 * tests/e2e/test_hotstore.sh.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "expertfs/hotstore.h"
#include "expertfs/yield.h"
#include "tests/unit/made_store.h"

#include <cmocka.h> /* last: its fail() is a macro */

#define EXPERTS 600u
#define BYTES   40000u

static char why[WHY_MAX];

static void nobody_opens(void *who, const struct hot_open *o)
{
	(void)who;
	(void)o;
	fail_msg("an open was answered");
}

static struct hotstore *start(struct made *m, struct backing_source **source)
{
	struct hotstore_config cfg = {
		.loader = &m->loader, .policy = "lru", .fuse_fd = -1, .opened = nobody_opens
	};
	struct hotstore *h = NULL;

	*source = backing_source_open(BYTES, EXPERTS);
	assert_non_null(*source);
	cfg.source = *source;
	cfg.capacity = (EXPERTS + 16) * backing_cost(*source, BYTES);
	if (hotstore_create(&cfg, &h, why) != 0)
		fail_msg("%s", why);
	return h;
}

/* Orders that are given again and again take no memory: each expert waits once. */
static void an_expert_waits_once(void **state)
{
	struct made m = { .layers = 1,
			  .experts = EXPERTS,
			  .drives = 1,
			  .parts = 1,
			  .copies = 1,
			  .bytes = BYTES };
	struct backing_source *source;
	struct hotstore_stats st = { 0 };
	struct hotstore *h;

	(void)state;
	made_make(&m);
	made_open(&m);
	h = start(&m, &source);
	for (uint32_t i = 0; i < EXPERTS; i++)
		assert_int_equal(hotstore_load(h, i, HOT_WARM), 0);
	for (int again = 0; again < 20; again++)
		for (uint32_t i = 0; i < EXPERTS; i++)
			assert_int_equal(hotstore_load(h, i, HOT_WARM), -EEXIST);
	for (int i = 0; i < 2000 && st.resident < EXPERTS; i++) {
		sleep_ms(10);
		hotstore_stats(h, &st);
	}
	assert_int_equal(st.resident, EXPERTS);
	assert_int_equal(st.opens, 0);
	/* What has gone may be asked for anew. */
	assert_int_equal(hotstore_evict(h, 7), 0);
	assert_int_equal(hotstore_load(h, 7, HOT_WARM), 0);
	hotstore_destroy(h);
	backing_source_close(source);
	made_close(&m);
	made_remove(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_expert_waits_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
