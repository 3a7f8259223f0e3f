/* SPDX-License-Identifier: Apache-2.0
 *
 * The router: which experts a token goes to, and with what weight. Weights are sigmoids ("noaux_tc":
 * DeepSeek-V3, arXiv 2412.19437, 2.1.2), where a bias helps to choose and is no part of the weight;
 * or shares of a softmax over all experts, or over the chosen ones (arch.h).
 */
#ifndef ENGINE_ROUTER_H
#define ENGINE_ROUTER_H

#include <math.h>
#include <stdint.h>

#include "engine/config.h"

/* Of a logit, also of the gate that shared experts may have (moe.c). */
static inline float sigmoid(float x)
{
	return 1.0f / (1.0f + expf(-x));
}

struct choice {
	int32_t expert;
	float weight;
};

/* logits and bias [experts], bias may be NULL; score [experts] is scratch; out [topk], ascending by expert. Of equal
 * scores the lower expert (or group) is chosen. */
void router_choose(const struct model_config *c, const float *logits, const float *bias,
		   float *score, struct choice *out);

/* The weights of topk experts already chosen (out[i].expert), from the logits alone. */
void router_weigh(const struct model_config *c, const float *logits, struct choice *out);

#endif
