/* SPDX-License-Identifier: Apache-2.0
 *
 * What the profile says that speculation costs, on a tiny random model: experts opened for guesses alone
 * are those that a run without these guesses does not open.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "tests/unit/tiny_model.h"

#define DRAFT 5
#define TEXT  1 /* tokens before; all keys are seen still, so that no tie cuts a draft short */

static char why[1024];
static struct tiny tiny;
static struct modelfile *file;

/* With TEXT tokens in its context, the first phase begun. */
static struct engine *begin(void)
{
	const struct engine_options o = {
		.threads = 2, .ctx = TINY_CTX, .draft = DRAFT, .profile = true
	};
	const int32_t text[TEXT] = { 3 };
	struct engine *e;

	if (engine_open(file, &o, &e, why))
		fail_msg("%s", why);
	engine_profile_begin(e, PROFILE_PROMPT);
	if (engine_feed(e, text, TEXT, why))
		fail_msg("%s", why);
	engine_profile_begin(e, PROFILE_DECODE);
	return e;
}

/* Experts that a pass of the first n tokens opens. */
static struct profile_experts opened_by(struct engine *e, int n)
{
	const int32_t ids[DRAFT + 1] = { 35, 8, 9, 7, 9, 32 };
	struct engine_stats before, after;
	const float *logits;
	int rows;

	engine_get_stats(e, &before);
	if (engine_feed_drafts(e, ids, n, &logits, &rows, why))
		fail_msg("%s", why);
	assert_int_equal(rows, n);
	engine_get_stats(e, &after);
	return (struct profile_experts){ after.experts_opened - before.experts_opened,
					 after.expert_bytes - before.expert_bytes };
}

static void experts_of_wrong_rows(void **state)
{
	struct profile_experts only[DRAFT + 2];
	int more = 0;

	(void)state;
	for (int n = 1; n <= DRAFT + 1; n++) {
		struct engine *e = begin();
		only[n] = opened_by(e, n);
		engine_keep(e, n);
		const struct profile_drafts *d = &engine_profile(e)->drafts[PROFILE_DECODE];
		assert_int_equal(d->wrong.opened, 0);
		assert_int_equal(d->wrong.bytes, 0);
		assert_int_equal(d->rows, n == 1 ? 0 : n);
		assert_true(n == 1 ? d->check_s == 0 : d->check_s > 0);
		engine_close(e);
	}
	for (int kept = 1; kept <= DRAFT; kept++) {
		struct engine *e = begin();
		struct profile_experts all = opened_by(e, DRAFT + 1);
		engine_keep(e, kept + 1); /* twice, as when a tie cuts rows off before */
		engine_keep(e, kept);
		engine_profile_end(e);
		const struct profile *p = engine_profile(e);
		const struct profile_drafts *d = &p->drafts[PROFILE_DECODE];
		assert_int_equal(d->wrong.opened, all.opened - only[kept].opened);
		assert_int_equal(d->wrong.bytes, all.bytes - only[kept].bytes);
		assert_int_equal(d->rows, DRAFT + 1);
		assert_int_equal(d->wrong_rows, DRAFT + 1 - kept);
		assert_int_equal(p->counts[PROFILE_DECODE].experts, all.opened);
		assert_int_equal(p->counts[PROFILE_DECODE].expert_bytes, all.bytes);
		assert_int_equal(p->drafts[PROFILE_PROMPT].rows, 0);
		more += d->wrong.opened > 0;
		engine_close(e);
	}
	assert_int_equal(more, DRAFT);
}

static void experts_of_the_mtp_layer(void **state)
{
	struct engine_stats before, after;
	float logits[TINY_VOCAB];
	struct engine *e = begin();
	const struct profile_drafts *d = &engine_profile(e)->drafts[PROFILE_DECODE];

	(void)state;
	engine_get_stats(e, &before);
	assert_int_equal(engine_draft(e, 35, logits, why), 0);
	assert_int_equal(engine_draft(e, 8, logits, why), 0);
	engine_get_stats(e, &after);
	/* Two passes at least of one row at least. */
	assert_true(d->mtp.opened >= 2 * TINY_TOPK);
	assert_int_equal(d->mtp.opened, after.experts_opened - before.experts_opened);
	assert_int_equal(d->mtp.bytes, after.expert_bytes - before.expert_bytes);
	/* Rows that are due when guessing begins again are only looked back at: no expert. */
	opened_by(e, 3);
	engine_keep(e, 3);
	uint64_t guessing = d->mtp.opened;
	engine_prepare_drafts(e);
	assert_int_equal(d->mtp.opened, guessing);
	assert_int_equal(d->wrong.opened, 0);
	engine_close(e);
}

static void nothing_while_it_is_off(void **state)
{
	struct engine *e = begin();
	float logits[TINY_VOCAB];

	(void)state;
	engine_profile_end(e);
	assert_int_equal(engine_draft(e, 35, logits, why), 0);
	opened_by(e, 4);
	engine_keep(e, 1);
	const struct profile_drafts *d = &engine_profile(e)->drafts[PROFILE_DECODE];
	assert_int_equal(d->mtp.opened + d->wrong.opened + d->rows + d->wrong_rows, 0);
	assert_true(d->check_s == 0);
	engine_close(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(experts_of_wrong_rows),
		cmocka_unit_test(experts_of_the_mtp_layer),
		cmocka_unit_test(nothing_while_it_is_off),
	};

	tiny_make(&tiny, (struct wfmt){ W_Q4, 32 }, 5);
	if (modelfile_load(tiny.dir, &file, why)) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	modelfile_free(file);
	tiny_remove(&tiny);
	return failed;
}
