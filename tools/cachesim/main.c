/* SPDX-License-Identifier: Apache-2.0
 *
 * cachesim: replays routing traces through cache policies. This file has the options and the
 * order: read or make the traces (trace.h, synthetic.h), replay them (replay.h), say what came out
 * (output.h).
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/size.h"
#include "tools/cachesim/output.h"
#include "tools/cachesim/synthetic.h"

#define MAX_LIST 64

struct capacity {
	double percent; /* of all experts' bytes, if it is not 0 */
	uint64_t bytes;
};

struct arguments {
	char *policy[MAX_LIST];
	size_t policies;
	struct capacity capacity[MAX_LIST];
	size_t capacities;
	const char *synthetic[MAX_LIST];
	size_t synthetics;
	const char *csv, *svg, *save;
	uint64_t expert_size;
	bool equal_sizes;
	struct trace_options read;
	char **file;
	size_t files;
};

static void usage(FILE *f)
{
	fputs("usage: cachesim [options] TRACE...\n"
	      "       cachesim [options] --synthetic MODEL[:key=value,...] [TRACE...]\n"
	      "Replays traces of which experts were asked for through cache policies.\n"
	      "\n"
	      "  --policy P,P,...|all     policies, as NAME or NAME:key=value,... (all)\n"
	      "  --capacity C,C,...       percent of all experts' bytes or sizes: 2%,5%,16G\n"
	      "                           (2%,5%,10%,20%,40%,60%)\n"
	      "  --csv FILE, --svg FILE   write the results as a table, as a plot\n"
	      "  --synthetic SPEC         make a trace; may be given several times\n"
	      "  --save FILE              write the trace in the format of expertfs\n"
	      "  --join-prompt            CSV traces: a prompt asks for each expert once a layer\n"
	      "  --expert-size SIZE       of an expert, for traces that do not say it\n"
	      "  --equal-sizes            all experts count the same, whatever the trace says\n"
	      "  --list                   the policies, the models and their keys\n"
	      "  --help, --version\n",
	      f);
}

static void list(void)
{
	for (const char *const *name = cp_policy_names(); *name; name++) {
		const struct cp_policy *policy = cp_policy_find(*name);

		printf("%-10s %s\n", *name, cp_policy_about(policy));
		for (const struct cp_param *p = cp_policy_params(policy); p->name; p++)
			printf("  %-12s %s, %g to %g (%g)\n", p->name, p->about, p->low, p->high,
			       p->start);
	}
	puts("belady     the next use is farthest away: knows the future; the bound\n"
	     "  forced       1: whatever is missed is kept, 0 or 1 (0)\n");
	synthetic_list(stdout);
}

static int usage_error(const char *why)
{
	fprintf(stderr, "cachesim: %s\n", why);
	return 2;
}

static int add_policy(struct arguments *a, const char *spec)
{
	char why[WHY_MAX];
	int err = grid_spec_check(spec);

	if (err || a->policies == MAX_LIST) {
		if (a->policies == MAX_LIST)
			fail(why, EINVAL, "--policy: more than %d", MAX_LIST);
		else if (err == -ENOENT)
			fail(why, EINVAL, "--policy: there is no policy %s; see --list", spec);
		else
			fail(why, EINVAL,
			     "--policy: %s has a key or value that does not exist; "
			     "see --list",
			     spec);
		return usage_error(why);
	}
	a->policy[a->policies] = strdup(spec);
	return a->policy[a->policies++] ? 0 : usage_error("not enough memory");
}

/* Splits at commas, but for those inside a policy's parameters: a part with '=' and without ':'
 * goes on with the part before it. */
static int parse_policies(struct arguments *a, char *text)
{
	int rc = 0;

	for (char *spec = text, *end; !rc && spec; spec = end) {
		for (end = strchr(spec, ','); end; end = strchr(end + 1, ',')) {
			size_t word = strcspn(end + 1, ",:=");

			if (end[1 + word] != '=')
				break;
		}
		if (end)
			*end++ = '\0';
		if (strcmp(spec, "all") != 0) {
			rc = add_policy(a, spec);
			continue;
		}
		for (const char *const *name = cp_policy_names(); !rc && *name; name++)
			rc = add_policy(a, *name);
	}
	return rc;
}

static int parse_capacities(struct arguments *a, char *text)
{
	char *rest = text, *word, *end, why[WHY_MAX];

	while ((word = strsep(&rest, ","))) {
		struct capacity c = { .percent = strtod(word, &end) };

		if (a->capacities == MAX_LIST)
			return usage_error("--capacity: more than 64");
		if (end == word || strcmp(end, "%") != 0)
			c.percent = 0;
		if (!(c.percent > 0 && c.percent <= 100) && size_parse(word, &c.bytes) != 0) {
			fail(why, EINVAL, "--capacity: %s is no size and no percentage up to 100%%",
			     word);
			return usage_error(why);
		}
		a->capacity[a->capacities++] = c;
	}
	return 0;
}

enum { POLICY = 1, CAPACITY, CSV, SVG, SYNTHETIC, SAVE, JOIN, SIZE, EQUAL, LIST, HELP, VERSION };

static const struct option options[] = {
	{ "policy", required_argument, NULL, POLICY },
	{ "capacity", required_argument, NULL, CAPACITY },
	{ "csv", required_argument, NULL, CSV },
	{ "svg", required_argument, NULL, SVG },
	{ "synthetic", required_argument, NULL, SYNTHETIC },
	{ "save", required_argument, NULL, SAVE },
	{ "join-prompt", no_argument, NULL, JOIN },
	{ "expert-size", required_argument, NULL, SIZE },
	{ "equal-sizes", no_argument, NULL, EQUAL },
	{ "list", no_argument, NULL, LIST },
	{ "help", no_argument, NULL, HELP },
	{ "version", no_argument, NULL, VERSION },
	{ NULL, 0, NULL, 0 },
};

/* 0: go on; -1: done, all is well; 2: a usage error, which has been said. */
static int take_option(struct arguments *a, int option)
{
	switch (option) {
	case POLICY:
		return parse_policies(a, optarg);
	case CAPACITY:
		return parse_capacities(a, optarg);
	case CSV:
		a->csv = optarg;
		return 0;
	case SVG:
		a->svg = optarg;
		return 0;
	case SYNTHETIC:
		if (a->synthetics == MAX_LIST)
			return usage_error("--synthetic: more than 64");
		a->synthetic[a->synthetics++] = optarg;
		return 0;
	case SAVE:
		a->save = optarg;
		return 0;
	case JOIN:
		a->read.join_prompt = true;
		return 0;
	case SIZE:
		if (size_parse(optarg, &a->expert_size) != 0 || a->expert_size == 0 ||
		    a->expert_size > UINT64_C(1) << 40)
			return usage_error("--expert-size: that is no size from 1 byte to 1T");
		return 0;
	case EQUAL:
		a->equal_sizes = true;
		return 0;
	case LIST:
		list();
		return -1;
	case HELP:
		usage(stdout);
		return -1;
	case VERSION:
		puts("cachesim " EXPERTFS_VERSION);
		return -1;
	default: /* getopt has said it */
		return 2;
	}
}

static int parse_arguments(int argc, char **argv, struct arguments *a)
{
	static char all[] = "all", shares[] = "2%,5%,10%,20%,40%,60%";
	int option, rc = 0;

	while (!rc && (option = getopt_long(argc, argv, "", options, NULL)) != -1)
		rc = take_option(a, option);
	if (rc)
		return rc;
	a->file = argv + optind;
	a->files = (size_t)(argc - optind);
	if (a->files + a->synthetics == 0)
		return usage_error("a trace is needed, or --synthetic; see --help");
	if (a->save && a->files + a->synthetics != 1)
		return usage_error("--save takes one trace");
	if (!a->capacities)
		rc = parse_capacities(a, shares);
	return rc || a->policies ? rc : parse_policies(a, all);
}

static void set_sizes(const struct arguments *a, struct trace *t)
{
	if (a->equal_sizes || (!t->sized && a->expert_size)) {
		t->sized = !a->equal_sizes || a->expert_size;
		for (uint32_t layer = 0; layer < t->layers; layer++)
			if (t->bytes[layer])
				t->bytes[layer] = a->expert_size ? a->expert_size : 1;
	}
}

static int set_capacities(const struct arguments *a, const struct trace *t, uint64_t *out,
			  char *why)
{
	for (size_t c = 0; c < a->capacities; c++) {
		const struct capacity *from = &a->capacity[c];

		if (from->percent <= 0 && !t->sized)
			return fail(
				why, EINVAL,
				"%s: does not say how large its experts are, so a capacity must "
				"be a percentage, or --expert-size be given",
				t->name);
		out[c] = from->bytes;
		if (from->percent > 0)
			out[c] = percent_bytes(from->percent, trace_total(t));
	}
	return 0;
}

static int load_traces(const struct arguments *a, struct grid *g, uint64_t *capacity, char *why)
{
	int err = 0;

	while (!err && g->traces < a->files + a->synthetics) {
		struct trace **t = &g->trace[g->traces];

		if (g->traces < a->files)
			err = trace_read(a->file[g->traces], &a->read, t, why);
		else
			err = synthetic_trace(a->synthetic[g->traces - a->files], t, why);
		if (err)
			break;
		g->traces++;
		set_sizes(a, *t);
		err = set_capacities(a, *t, &capacity[(g->traces - 1) * a->capacities], why);
	}
	return err;
}

static int write_file(const char *path, void (*write)(FILE *, const struct grid *),
		      const struct grid *g, char *why)
{
	FILE *f = path ? fopen(path, "we") : NULL;
	bool bad;

	if (!path)
		return 0;
	if (!f)
		return fail(why, errno, "%s: %s", path, strerror(errno));
	write(f, g);
	bad = ferror(f) != 0;
	if (fclose(f) != 0 || bad)
		return fail(why, EIO, "%s: cannot be written", path);
	return 0;
}

static int run_grid(const struct arguments *a, struct grid *g, uint64_t *capacity, char *why)
{
	int err = load_traces(a, g, capacity, why);

	if (!err && a->save)
		err = trace_write(g->trace[0], a->save, why);
	if (!err)
		err = grid_run(g, why);
	if (!err) {
		output_table(stdout, g);
		err = write_file(a->csv, output_csv, g, why);
	}
	return err ? err : write_file(a->svg, output_svg, g, why);
}

static int run(const struct arguments *a, char *why)
{
	size_t traces = a->files + a->synthetics;
	uint64_t *capacity = calloc(traces * a->capacities, sizeof(*capacity));
	struct trace **trace = calloc(traces, sizeof(struct trace *));
	struct grid g = { .trace = trace,
			  .policy = (const char **)a->policy,
			  .policies = a->policies,
			  .capacity = capacity,
			  .capacities = a->capacities };
	int err;

	if (capacity && trace)
		err = run_grid(a, &g, capacity, why);
	else
		err = fail(why, ENOMEM, "not enough memory");
	for (size_t t = 0; t < g.traces; t++)
		trace_free(trace[t]);
	free(trace);
	free(capacity);
	grid_free(&g);
	return err;
}

/* What comes from files may hold anything; a terminal gets one line of plain text. */
static void say(const char *sentence)
{
	fputs("cachesim: ", stderr);
	for (; *sentence; sentence++)
		fputc((unsigned char)*sentence < 32 || *sentence == 127 ? '?' : *sentence, stderr);
	fputc('\n', stderr);
}

int main(int argc, char **argv)
{
	struct arguments a = { .policies = 0 };
	char why[WHY_MAX] = "failed without a reason";
	int rc = parse_arguments(argc, argv, &a);

	if (!rc && run(&a, why) != 0) {
		say(why);
		rc = 1;
	}
	if (fflush(stdout) != 0 && rc <= 0) {
		say("cannot write to standard output");
		rc = 1;
	}
	for (size_t p = 0; p < a.policies; p++)
		free(a.policy[p]);
	return rc < 0 ? 0 : rc;
}
