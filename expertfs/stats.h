/* SPDX-License-Identifier: Apache-2.0
 *
 * What is to be read below .expertfs/: the daemon as text. Each function makes the text of one open;
 * free() it. NULL: out of memory. Thread-safe; no lock is held for longer than some microseconds.
 */
#ifndef EXPERTFS_STATS_H
#define EXPERTFS_STATS_H

#include "expertfs/fs.h"

/* metrics: the figures of stats.json (fs_stats_json()) for Prometheus. */
char *fs_metrics_text(const struct fs *fs);

/* map: which experts are hot and which are in memory, a character an expert:
 *
 *	# hottest 41.5
 *	003 0012B3...
 *
 * A line with the heat of the hottest one, then one for each layer: its number, a space, a character
 * for each expert number from 0 on. The level is the heat on a scale of powers of two: 9 is more
 * than half of the hottest, 8 more than a quarter, ..., 1 whatever was used at all, 0 never used.
 *
 *	        level   0 1 2 3 4 5 6 7 8 9
 *	not in memory   0 1 2 3 4 5 6 7 8 9
 *	      loading   a b c d e f g h i j
 *	    in memory   A B C D E F G H I J
 *	       pinned   K L M N O P Q R S T     (in memory, and told to stay there)
 *	 no such expert  -
 */
char *fs_map_text(const struct fs *fs);
#define MAP_LEVELS 10

/* top: the n hottest experts that were used at all, hottest first. A line that names the columns,
 * then one an expert, words with a space between them: layer/expert, heat, uses, loads, last use
 * (seconds of the epoch, 0: never), time of the last load in ms, state (resident, loading, cold),
 * "pinned" or "-", "held" or "-". */
char *fs_top_text(const struct fs *fs, unsigned n);

/* The same of a picture that the caller took: info has s->experts of them. */
char *map_text(const struct store *s, const struct hot_info *info);
char *top_text(const struct store *s, const struct hot_info *info, unsigned n);

#endif
