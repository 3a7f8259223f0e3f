/* SPDX-License-Identifier: Apache-2.0
 *
 * A drive in numbers; see drive_meter.h.
 */
#include "expertfs/drive_meter.h"

#define LATENCIES 8192 /* then all counts are halved, so that old ones fade */

/* The time since the last change belongs to what was in flight since then. */
static void pass(struct drive_meter *m, uint64_t now)
{
	uint64_t ns = now > m->at ? now - m->at : 0;

	if (m->flying > 0)
		m->busy_ns += ns;
	if (m->flying >= METER_ENOUGH)
		m->sample_ns += ns;
	m->at = now;
}

void meter_start(struct drive_meter *m, uint64_t now, uint64_t bytes)
{
	pass(m, now);
	m->flying += bytes;
}

static void end_sample(struct drive_meter *m)
{
	m->came = m->came * 3 / 4 + (double)m->sample_bytes;
	m->ns = m->ns * 3 / 4 + (double)m->sample_ns;
	m->speed = (uint64_t)(m->came * 1e9 / m->ns);
	m->sample_ns = m->sample_bytes = 0;
}

void meter_end(struct drive_meter *m, uint64_t now, uint64_t bytes, uint64_t came, uint64_t took)
{
	pass(m, now);
	if (m->flying >= METER_ENOUGH)
		m->sample_bytes += came;
	m->flying -= bytes;
	if (m->sample_bytes >= METER_SAMPLE && m->sample_ns > 0)
		end_sample(m);
	if (came == 0)
		return;
	histogram_add(&m->latency, took);
	if (m->latency.total >= LATENCIES) {
		m->latency.total = 0;
		for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
			m->latency.total += m->latency.count[i] /= 2;
	}
}

uint64_t meter_busy_ns(const struct drive_meter *m, uint64_t now)
{
	return m->busy_ns + (m->flying > 0 && now > m->at ? now - m->at : 0);
}

bool health_good(struct drive_health *h)
{
	bool changed = h->failing;

	*h = (struct drive_health){ 0 };
	return changed;
}

bool health_bad(struct drive_health *h, uint64_t now)
{
	if (h->failing || ++h->bad < HEALTH_BAD_ROW)
		return false;
	h->failing = true;
	h->pause = HEALTH_PAUSE_NS;
	h->ask_at = now + h->pause;
	return true;
}

bool health_ask(struct drive_health *h, uint64_t now)
{
	if (!h->failing || now < h->ask_at)
		return false;
	h->pause = h->pause * 2 < HEALTH_PAUSE_MAX_NS ? h->pause * 2 : HEALTH_PAUSE_MAX_NS;
	h->ask_at = now + h->pause;
	return true;
}
