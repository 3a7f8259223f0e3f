/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies by name, their parameters, and orders made from a spec ("lfru:weight=0.3").
 */
#include "cachepolicy/policies.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* In the order of listing. A new policy: one line here, one declaration in policies.h. */
static const struct cp_policy *const policies[] = {
	&cp_lru,   &cp_lfu,      &cp_lfru, &cp_clock,  &cp_2q,    &cp_arc,    &cp_s3fifo,
	&cp_sieve, &cp_wtinylfu, &cp_lruk, &cp_hotset, &cp_quota, &cp_expert,
};

#define POLICIES (sizeof(policies) / sizeof(policies[0]))

static const struct cp_param no_params[] = { { .name = NULL } };

static const struct cp_policy *find(const char *name, size_t length)
{
	for (size_t k = 0; k < POLICIES; k++)
		if (strlen(policies[k]->name) == length &&
		    memcmp(policies[k]->name, name, length) == 0)
			return policies[k];
	return NULL;
}

const struct cp_policy *cp_policy_find(const char *name)
{
	return find(name, strlen(name));
}

const char *const *cp_policy_names(void)
{
	static const char *names[POLICIES + 1];

	/* The same values each time: no harm if two threads write them. */
	for (size_t k = 0; k < POLICIES; k++)
		names[k] = policies[k]->name;
	return names;
}

const char *cp_policy_about(const struct cp_policy *policy)
{
	return policy->about;
}

const struct cp_param *cp_policy_params(const struct cp_policy *policy)
{
	return policy->params ? policy->params : no_params;
}

/* The place of a parameter in policy->params and in an order's param[], or -1. */
static int param_index(const struct cp_policy *policy, const char *name, size_t length)
{
	const struct cp_param *params = cp_policy_params(policy);

	for (int k = 0; params[k].name; k++)
		if (strlen(params[k].name) == length && memcmp(params[k].name, name, length) == 0)
			return k;
	return -1;
}

static bool in_range(const struct cp_param *p, double value)
{
	return value >= p->low && value <= p->high; /* not so for NaN */
}

/* "name=value,name=value" into values; NULL for values only checks. */
static int parse_params(const struct cp_policy *policy, const char *args, double *values)
{
	while (args) {
		const char *equals = strchr(args, '=');
		double value;
		char *end;
		int k;

		k = equals ? param_index(policy, args, (size_t)(equals - args)) : -1;
		if (k < 0)
			return -EINVAL;
		value = strtod(equals + 1, &end);
		if (end == equals + 1 || (*end && *end != ',') ||
		    !in_range(&policy->params[k], value))
			return -EINVAL;
		if (values)
			values[k] = value;
		args = *end ? end + 1 : NULL;
	}
	return 0;
}

/* "name" or "name:args"; *args is NULL if there are none. */
static const struct cp_policy *split(const char *spec, const char **args)
{
	const char *colon = strchr(spec, ':');

	*args = colon ? colon + 1 : NULL;
	return find(spec, colon ? (size_t)(colon - spec) : strlen(spec));
}

int cp_spec_check(const char *spec)
{
	const struct cp_policy *policy;
	const char *args;

	policy = split(spec, &args);
	if (policy && policy->takes_inner && args) {
		policy = split(args, &args);
		if (policy && policy->takes_inner)
			return -EINVAL;
	}
	return policy ? parse_params(policy, args, NULL) : -ENOENT;
}

static void start_params(struct cp_order *o)
{
	const struct cp_param *params = cp_policy_params(o->policy);

	for (size_t k = 0; params[k].name; k++) {
		assert(k < CP_PARAMS_MAX);
		o->param[k] = params[k].start;
	}
}

int cp_order_create(const struct cp_policy *policy, const char *args, const struct cp_order *shape,
		    struct cp_order **out)
{
	struct cp_order *o = calloc(1, policy->size);
	int err = 0;

	if (!o)
		return -ENOMEM;
	*o = *shape;
	o->policy = policy;
	o->popularity = NULL;
	start_params(o);
	if (!policy->takes_inner)
		err = parse_params(policy, args, o->param);
	if (!err && policy->create)
		err = policy->create(o, policy->takes_inner ? args : NULL);
	if (err) {
		cp_order_destroy(o);
		return err;
	}
	*out = o;
	return 0;
}

int cp_order_create_spec(const char *spec, const struct cp_order *shape, struct cp_order **out)
{
	const char *args;
	const struct cp_policy *policy = split(spec, &args);

	/* cp_spec_check() was called, so an inner policy takes no inner one: this ends. */
	return policy ? cp_order_create(policy, args, shape, out) : -ENOENT;
}

bool cp_order_retune(struct cp_order *o, const char *spec)
{
	const char *args;
	const struct cp_policy *policy = split(spec, &args);

	if (policy != o->policy)
		return false;
	if (policy->retune)
		return policy->retune(o, args);
	start_params(o);
	parse_params(policy, args, o->param);
	if (policy->tuned)
		policy->tuned(o);
	return true;
}

void cp_order_destroy(struct cp_order *o)
{
	if (o && o->policy->destroy)
		o->policy->destroy(o);
	free(o);
}

int cp_order_set(struct cp_order *o, const char *name, double value)
{
	int k = param_index(o->policy, name, strlen(name));

	if (k < 0)
		return o->policy->set ? o->policy->set(o, name, value) : -ENOENT;
	if (!in_range(&o->policy->params[k], value))
		return -EINVAL;
	o->param[k] = value;
	if (o->policy->tuned)
		o->policy->tuned(o);
	return 0;
}

int cp_order_get(const struct cp_order *o, const char *name, double *value)
{
	int k = param_index(o->policy, name, strlen(name));

	if (k < 0)
		return o->policy->get ? o->policy->get(o, name, value) : -ENOENT;
	*value = o->param[k];
	return 0;
}
