/* SPDX-License-Identifier: Apache-2.0
 *
 * The folders of the mount as readers list them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "expertfs/inode.h"
#include "tests/unit/made_store.h"

#include <cmocka.h> /* last: it makes fail() a macro */

/* Each entry is found by its name; behind the last one there is none, wherever a reader seeks to. */
static void every_folder_ends(void **state)
{
	static const uint64_t folders[] = { NODE_ROOT, NODE_EXPERTS, NODE_CONTROL, 0x10000 };
	static const uint64_t behind[] = { 1000, UINT32_MAX, (1ull << 32) + 2, (1ull << 32) + 5,
					   (1ull << 62) + 2 };
	struct made m = {
		.layers = 2, .experts = 3, .drives = 1, .parts = 1, .copies = 1, .bytes = 5000
	};
	struct inode_table *t;
	char name[NAME_ROOM];
	struct node dir, n;
	uint64_t ino;

	(void)state;
	made_make(&m);
	made_open(&m);
	t = inode_table_new(m.store);
	assert_non_null(t);
	for (size_t f = 0; f < sizeof(folders) / sizeof(folders[0]); f++) {
		uint64_t i = 2;
		assert_true(inode_node(t, folders[f], &dir) && node_is_folder(&dir));
		for (; inode_entry(t, folders[f], &dir, i, name, &ino); i++) {
			assert_int_equal(inode_lookup(t, &dir, name), ino);
			assert_true(inode_node(t, ino, &n));
		}
		assert_in_range(i, 4, 30);
		for (size_t b = 0; b < sizeof(behind) / sizeof(behind[0]); b++)
			assert_false(inode_entry(t, folders[f], &dir, behind[b], name, &ino));
	}
	inode_table_free(t);
	made_close(&m);
	made_remove(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_folder_ends) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
