/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies that are made of queues, against slow and obvious models of themselves and against
 * sequences worked by hand from the papers' definitions: LRU, CLOCK, SIEVE, 2Q, ARC, S3-FIFO,
 * W-TinyLFU.
 *
 * In the sequences each letter is an expert of one byte, alone in its event; below it stands "."
 * for a hit, the letter of the victim, or "-" if there was room.
 */
#include "tests/unit/policy_model.h"

/* -- LRU --------------------------------------------------------------------------------------- */

static void lru_release(struct model *m, int i)
{
	drop(&m->q[0], i);
	push(&m->q[0], i);
}

static void leave_queue(struct model *m, int i)
{
	drop(&m->q[0], i);
}

static int lru_victim(struct model *m, int want)
{
	(void)want;
	return oldest_free(m, &m->q[0]);
}

static const struct rules lru = {
	.spec = "lru", .remove = leave_queue, .release = lru_release, .victim = lru_victim
};

/* -- CLOCK and SIEVE: one queue and marks -------------------------------------------------------- */

static void set_mark(struct model *m, int i, uint32_t weight)
{
	(void)weight;
	if (m->resident[i])
		m->mark[i] = 1;
}

static void clear_mark(struct model *m, int i)
{
	m->mark[i] = 0;
}

static void enter_if_out(struct model *m, int i)
{
	if (find(&m->q[0], i) < 0)
		push(&m->q[0], i);
}

static int clock_victim(struct model *m, int want)
{
	(void)want;
	while (m->q[0].n) {
		int i = m->q[0].item[0];

		if (!m->mark[i] && !held(m, i))
			return i;
		drop(&m->q[0], i);
		if (m->mark[i])
			push(&m->q[0], i);
		m->mark[i] = 0;
	}
	return -1;
}

static const struct rules clock_rules = { .spec = "clock",
					  .use = set_mark,
					  .admit = clear_mark,
					  .remove = leave_queue,
					  .release = enter_if_out,
					  .victim = clock_victim };

/* The hand is the expert to look at next; it goes on when that one leaves. -1: the oldest. */
static void sieve_leave(struct model *m, int i)
{
	int at = find(&m->q[0], i);

	if (at >= 0 && m->hand == i)
		m->hand = (size_t)at + 1 < m->q[0].n ? m->q[0].item[at + 1] : -1;
	drop(&m->q[0], i);
}

static int sieve_victim(struct model *m, int want)
{
	(void)want;
	while (m->q[0].n) {
		int i = m->hand < 0 ? m->q[0].item[0] : m->hand;
		int at = find(&m->q[0], i);

		m->hand = i;
		if (!m->mark[i] && !held(m, i))
			return i;
		if (!m->mark[i]) {
			sieve_leave(m, i);
			continue;
		}
		m->mark[i] = 0;
		m->hand = (size_t)at + 1 < m->q[0].n ? m->q[0].item[at + 1] : -1;
	}
	m->hand = -1;
	return -1;
}

static const struct rules sieve = { .spec = "sieve",
				    .use = set_mark,
				    .admit = clear_mark,
				    .remove = sieve_leave,
				    .release = enter_if_out,
				    .victim = sieve_victim };

/* -- 2Q ----------------------------------------------------------------------------------------- */

/* where: 0 nowhere, or in queue 1, 2, 3, of which only those that are let go stand in the queue. */
enum { NOWHERE, A1IN, A1OUT, AM };

static uint64_t bytes_of(const struct model *m, int where)
{
	uint64_t bytes = 0;

	for (int i = 0; i < model_n(m); i++)
		bytes += m->where[i] == where ? m->size[i] : 0;
	return bytes;
}

/* The oldest that is let go, and those before it that are held leave until they are. */
static int oldest_in_turn(struct model *m, int where)
{
	while (m->q[where].n && held(m, m->q[where].item[0]))
		drop(&m->q[where], m->q[where].item[0]);
	return m->q[where].n ? m->q[where].item[0] : -1;
}

static void twoq_trim(struct model *m)
{
	while ((double)bytes_of(m, A1OUT) > 0.5 * (double)m->capacity) {
		m->where[m->q[A1OUT].item[0]] = NOWHERE;
		drop(&m->q[A1OUT], m->q[A1OUT].item[0]);
	}
}

static void twoq_use(struct model *m, int i, uint32_t weight)
{
	(void)weight;
	if (drop(&m->q[A1OUT], i)) {
		m->where[i] = NOWHERE;
		m->mark[i] = 1;
	}
}

static void twoq_admit(struct model *m, int i)
{
	/* What was never asked for again, but prefetched, is a newcomer. */
	drop(&m->q[A1OUT], i);
	m->where[i] = m->mark[i] ? AM : A1IN;
	m->mark[i] = 0;
}

static void twoq_remove(struct model *m, int i)
{
	drop(&m->q[m->where[i]], i);
	m->where[i] = m->where[i] == A1IN ? A1OUT : NOWHERE;
	if (m->where[i] == A1OUT)
		push(&m->q[A1OUT], i);
	twoq_trim(m);
}

static void twoq_release(struct model *m, int i)
{
	if (m->where[i] == AM)
		drop(&m->q[AM], i);
	if (find(&m->q[m->where[i]], i) < 0)
		push(&m->q[m->where[i]], i);
}

static int twoq_victim(struct model *m, int want)
{
	bool a1in = (double)bytes_of(m, A1IN) > 0.25 * (double)m->capacity;
	int i = a1in ? oldest_in_turn(m, A1IN) : oldest_free(m, &m->q[AM]);

	(void)want;
	if (i < 0)
		i = a1in ? oldest_free(m, &m->q[AM]) : oldest_in_turn(m, A1IN);
	return i;
}

static const struct rules twoq = { .spec = "2q",
				   .use = twoq_use,
				   .admit = twoq_admit,
				   .remove = twoq_remove,
				   .release = twoq_release,
				   .victim = twoq_victim,
				   .resize = twoq_trim };

/* -- ARC: the queues hold all of T1 and T2, held or not; oldest_free() looks past the held --------- */

enum { T1, T2, B1, B2 };

static int arc_list(const struct model *m, int i)
{
	for (int q = T1; q <= B2; q++)
		if (find(&m->q[q], i) >= 0)
			return q;
	return -1;
}

static void arc_put(struct model *m, int i, int list)
{
	for (int q = T1; q <= B2; q++)
		drop(&m->q[q], i);
	push(&m->q[list], i);
}

static void arc_use(struct model *m, int i, uint32_t weight)
{
	double b1 = (double)queue_bytes(m, &m->q[B1]), b2 = (double)queue_bytes(m, &m->q[B2]);
	double size = (double)m->size[i], c = (double)m->capacity;

	(void)weight;
	m->mark[i] = arc_list(m, i) == B1 || arc_list(m, i) == B2;
	switch (arc_list(m, i)) {
	case T1:
		arc_put(m, i, T2);
		break;
	case B1:
		m->p += b2 > b1 ? size * (b2 / b1) : size;
		m->p = m->p > c ? c : m->p;
		break;
	case B2:
		m->p -= b1 > b2 ? size * (b1 / b2) : size;
		m->p = m->p < 0 ? 0 : m->p;
		break;
	default:
		break;
	}
}

static void arc_trim(struct model *m)
{
	m->p = fmin(m->p, (double)m->capacity);
	while (m->q[B1].n && queue_bytes(m, &m->q[T1]) + queue_bytes(m, &m->q[B1]) > m->capacity)
		drop(&m->q[B1], m->q[B1].item[0]);
	while (m->q[B2].n && queue_bytes(m, &m->q[T1]) + queue_bytes(m, &m->q[B1]) +
					     queue_bytes(m, &m->q[T2]) + queue_bytes(m, &m->q[B2]) >
				     2 * m->capacity)
		drop(&m->q[B2], m->q[B2].item[0]);
}

static void arc_admit(struct model *m, int i)
{
	bool known = m->mark[i] || arc_list(m, i) == B1 || arc_list(m, i) == B2;

	m->mark[i] = 0;
	arc_put(m, i, known ? T2 : T1);
	arc_trim(m);
}

static void arc_remove(struct model *m, int i)
{
	arc_put(m, i, arc_list(m, i) == T1 ? B1 : B2);
}

static void arc_release(struct model *m, int i)
{
	arc_put(m, i, arc_list(m, i));
}

static int arc_victim(struct model *m, int want)
{
	double t1 = (double)queue_bytes(m, &m->q[T1]);
	bool b2 = want >= 0 && arc_list(m, want) == B2;
	int list = m->q[T1].n && (t1 > m->p || (b2 && t1 == m->p)) ? T1 : T2;
	int i = oldest_free(m, &m->q[list]);

	return i >= 0 ? i : oldest_free(m, &m->q[list == T1 ? T2 : T1]);
}

static const struct rules arc = { .spec = "arc",
				  .use = arc_use,
				  .admit = arc_admit,
				  .remove = arc_remove,
				  .release = arc_release,
				  .victim = arc_victim,
				  .resize = arc_trim };

/* -- S3-FIFO ------------------------------------------------------------------------------------ */

enum { SMALL = 1, MAIN, GHOST };

static void s3_use(struct model *m, int i, uint32_t weight)
{
	(void)weight;
	if (m->resident[i] && m->mark[i] < 3)
		m->mark[i]++;
}

static void s3_admit(struct model *m, int i)
{
	m->mark[i] = 0;
	drop(&m->q[GHOST], i);
	m->where[i] = m->where[i] == GHOST ? MAIN : SMALL;
}

static void s3_release(struct model *m, int i)
{
	if (find(&m->q[m->where[i]], i) < 0)
		push(&m->q[m->where[i]], i);
}

static double s3_main_share(const struct model *m)
{
	return (double)m->capacity - 0.1 * (double)m->capacity;
}

static void s3_trim(struct model *m)
{
	while (m->q[GHOST].n && (double)queue_bytes(m, &m->q[GHOST]) > s3_main_share(m)) {
		m->where[m->q[GHOST].item[0]] = NOWHERE;
		drop(&m->q[GHOST], m->q[GHOST].item[0]);
	}
}

static void s3_remove(struct model *m, int i)
{
	drop(&m->q[m->where[i]], i);
	m->where[i] = m->where[i] == SMALL ? GHOST : NOWHERE;
	if (m->where[i] == GHOST)
		push(&m->q[GHOST], i);
	s3_trim(m);
}

static void s3_to_main(struct model *m, int i)
{
	drop(&m->q[m->where[i]], i);
	m->where[i] = MAIN;
	push(&m->q[MAIN], i);
}

static int s3_from_main(struct model *m)
{
	int i;

	while ((i = oldest_in_turn(m, MAIN)) >= 0 && m->mark[i] > 0) {
		m->mark[i]--;
		s3_to_main(m, i);
	}
	return i;
}

static int s3_from_small(struct model *m)
{
	int i;

	while ((i = oldest_in_turn(m, SMALL)) >= 0 && m->mark[i] > 1) {
		m->mark[i] = 0;
		s3_to_main(m, i);
		if ((double)bytes_of(m, MAIN) > s3_main_share(m))
			return s3_from_main(m);
	}
	return i;
}

static int s3_victim(struct model *m, int want)
{
	bool small = (double)bytes_of(m, SMALL) >= 0.1 * (double)m->capacity;
	int i = small ? s3_from_small(m) : s3_from_main(m);

	(void)want;
	if (i < 0 && !small)
		i = s3_from_small(m);
	if (i < 0)
		i = s3_from_main(m);
	return i;
}

static const struct rules s3fifo = { .spec = "s3fifo",
				     .use = s3_use,
				     .admit = s3_admit,
				     .remove = s3_remove,
				     .release = s3_release,
				     .victim = s3_victim,
				     .resize = s3_trim };

/* -- W-TinyLFU ---------------------------------------------------------------------------------- */

enum { WINDOW = 1, PROBATION, PROTECTED };

#define WINDOW_SHARE 0.2

static void tiny_use(struct model *m, int i, uint32_t weight)
{
	uint64_t residents = 0;

	(void)weight;
	if (m->mark[i] < 15)
		m->mark[i]++;
	for (int k = 0; k < model_n(m); k++)
		residents += m->where[k] != NOWHERE;
	if (++m->clock >= 10 * (residents + 1)) {
		m->clock = 0;
		for (int k = 0; k < model_n(m); k++)
			m->mark[k] /= 2;
	}
	if (m->where[i] == PROBATION) {
		drop(&m->q[PROBATION], i);
		m->where[i] = PROTECTED;
	}
}

static void tiny_admit(struct model *m, int i)
{
	m->where[i] = WINDOW;
}

static void tiny_remove(struct model *m, int i)
{
	drop(&m->q[m->where[i]], i);
	m->where[i] = NOWHERE;
}

static double tiny_main(const struct model *m)
{
	return (double)m->capacity - WINDOW_SHARE * (double)m->capacity;
}

static void tiny_move(struct model *m, int i, int where)
{
	drop(&m->q[m->where[i]], i);
	m->where[i] = where;
	push(&m->q[where], i);
}

static void tiny_release(struct model *m, int i)
{
	tiny_move(m, i, m->where[i]);
	while ((double)bytes_of(m, PROTECTED) > 0.8 * tiny_main(m) &&
	       oldest_free(m, &m->q[PROTECTED]) >= 0)
		tiny_move(m, oldest_free(m, &m->q[PROTECTED]), PROBATION);
}

static int tiny_from_main(const struct model *m)
{
	int i = oldest_free(m, &m->q[PROBATION]);

	return i >= 0 ? i : oldest_free(m, &m->q[PROTECTED]);
}

static int tiny_victim(struct model *m, int want)
{
	int candidate, i;

	(void)want;
	while ((candidate = oldest_free(m, &m->q[WINDOW])) >= 0 &&
	       (double)bytes_of(m, WINDOW) >= WINDOW_SHARE * (double)m->capacity) {
		double in_main = (double)bytes_of(m, PROBATION) + (double)bytes_of(m, PROTECTED);
		bool fits = (double)m->size[candidate] + in_main <= tiny_main(m);

		i = fits ? -1 : tiny_from_main(m);
		if (!fits && (i < 0 || m->mark[candidate] <= m->mark[i]))
			return candidate;
		tiny_move(m, candidate, PROBATION);
		if (!fits)
			return i;
	}
	i = tiny_from_main(m);
	return i >= 0 ? i : candidate;
}

static const struct rules wtinylfu = { .spec = "wtinylfu:window=0.2",
				       .use = tiny_use,
				       .admit = tiny_admit,
				       .remove = tiny_remove,
				       .release = tiny_release,
				       .victim = tiny_victim };

/* -- sequences worked by hand ------------------------------------------------------------------- */

/* The reference string 7 0 1 2 0 3 0 4 2 3 0 3 2 1 2 0 1 7 0 1 of the textbooks (Silberschatz,
 * Galvin, Gagne: Operating System Concepts, Page Replacement), 7 being h and 0 being a: with three
 * frames LRU has 12 faults there. */
static const char textbook[] = "habcadaecdadcbcabhab";

static void lru_by_hand(void **state)
{
	(void)state;
	assert_letters("lru", 3, textbook, "---h.b.cdae..a.d.c..");
}

/* With d the hand finds the bit of a, clears it and moves a to the young end, so b goes; later a
 * goes like any other. */
static void clock_by_hand(void **state)
{
	(void)state;
	assert_letters("clock", 3, "abcadbe", "---.bca");
}

/* Algorithm 1 of the paper. The same beginning: the hand passes a, takes b, and goes on from there
 * (c, d), while a stays where it is, is hit, and stays again. */
static void sieve_by_hand(void **state)
{
	(void)state;
	assert_letters("sieve", 3, "abcadbeafg", "---.bcd.be");
}

/* The full version of the paper with four pages, Kin 1, Kout 2:
 *
 *	        A1in     A1out   Am
 *	abcd    abcd
 *	e       bcde     a
 *	a       cde      b       a        a was in A1out
 *	c       cde      b       a        a hit in A1in changes nothing
 *	f       def      bc      a
 *	b       ef       cd      ab
 *	a       ef       cd      ba
 *	g       fg       de      ba       c is forgotten
 *	h       gh       ef      ba
 *	g       gh       ef      ba
 *	c       hc       fg      ba       not known any more
 *	f       c        gh      baf
 *	h       c        g       afh      A1in holds no more than Kin: the oldest of Am goes */
static void twoq_by_hand(void **state)
{
	(void)state;
	assert_letters("2q", 4, "abcdeacfbaghgcfh", "----ab.cd.ef.ghb");
}

/* Figure 4 of the paper with c = 2:
 *
 *	    T1   T2   B1   B2   p
 *	ab  ab                  0
 *	a   b    a              0
 *	c   c    a    b         0
 *	b   c    b         a    1    case II
 *	a        ba   c         0    case III
 *	d   d    a    c    b    0
 *	c   d    c         ba   1
 *	b        cb   d    a    0
 *	e   e    b    d    c    0    case IV B: a is forgotten, as all four lists hold 2c
 *	a   a    b    e    c    0    case IV A: d is forgotten, as T1 and B1 hold c
 *	d   d    b    a    c    0    the same
 *	a   d    a         cb   1 */
static void arc_by_hand(void **state)
{
	(void)state;
	assert_letters("arc", 2, "abacbadcbeada", "--.bacbadceab");
}

/* Algorithm 1 of the paper with four objects, a small queue of one, ghosts for three:
 *
 *	        S      M        G
 *	abcd    abcd                   then a is hit twice and b once
 *	e       cde    a        b      a was hit more than once; its count is cleared
 *	b       de     ab       c      b was in G
 *	f       ef     ab       cd
 *	g       fg     ab       cde
 *	c       gc     ab       def    making room pushed c out of G before it was looked for
 *	e       c      abe      fg
 *	f              abef     gc
 *	h       h      bef      gc     S holds less than its share: M gives
 *	b       h      bef      gc
 *	i       i      bef      gch
 *	c              befc     hi
 *	j       j      fcb      hi     b was hit: it goes round, and e goes */
static void s3fifo_by_hand(void **state)
{
	(void)state;
	assert_letters("s3fifo:small=0.25", 4, "abcdaabebfgcefhbicj", "----...bcdefgca.hie");
}

/* Four that were used twice against three that were used once: the latter go as they came. (When x
 * comes, a, b and c move to the main part, which has room, and d loses against a, as it has no
 * more uses.) */
static void wtinylfu_by_hand(void **state)
{
	(void)state;
	assert_letters("wtinylfu:window=0.25", 4, "aabbccddxyz", "-.-.-.-.dxy");
}

/* -- the tests ---------------------------------------------------------------------------------- */

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lru_by_hand),
		cmocka_unit_test(clock_by_hand),
		cmocka_unit_test(sieve_by_hand),
		cmocka_unit_test(twoq_by_hand),
		cmocka_unit_test(arc_by_hand),
		cmocka_unit_test(s3fifo_by_hand),
		cmocka_unit_test(wtinylfu_by_hand),
		MODEL_TEST("lru", &lru),
		MODEL_TEST("clock", &clock_rules),
		MODEL_TEST("sieve", &sieve),
		MODEL_TEST("2q", &twoq),
		MODEL_TEST("arc", &arc),
		MODEL_TEST("s3fifo", &s3fifo),
		MODEL_TEST("wtinylfu", &wtinylfu),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
