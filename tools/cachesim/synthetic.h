/* SPDX-License-Identifier: Apache-2.0
 *
 * Made-up traces with the geometry of a model and traffic of a known kind.
 *
 * Each layer has an order of popularity of its own for each topic, drawn at random; the expert at
 * place r of it is chosen with a probability that falls with (r + 1)^-zipf. A token keeps each
 * expert of the token before it with probability `repeat`, and draws the others. With probability
 * `drift` a token begins another topic. zipf=0,repeat=0 is the worst case, in which a policy
 * without foresight hits about the share of the experts that is cached; real traffic has skew and
 * repetition.
 */
#ifndef CACHESIM_SYNTHETIC_H
#define CACHESIM_SYNTHETIC_H

#include "tools/cachesim/trace.h"

/* spec: MODEL or MODEL:key=value,... Keys: tokens, zipf, topics, drift, repeat, prompt (tokens
 * that come first, all of them in one event a layer), seed. The same spec gives the same trace
 * everywhere. 0 or -errno with the sentence. */
int synthetic_trace(const char *spec, struct trace **out, char *why);

/* The models and the keys, for --help. */
void synthetic_list(FILE *f);

#endif
