/* SPDX-License-Identifier: Apache-2.0
 *
 * What the service manager hears, on a socket with a path and on an abstract one.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "expertfs/notify.h"

/* A socket like the manager's; sets NOTIFY_SOCKET to name. */
static int listen_on(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	assert_true(strlen(name) < sizeof(a.sun_path));
	memcpy(a.sun_path, name, strlen(name));
	if (name[0] == '@')
		a.sun_path[0] = 0;
	assert_int_equal(bind(fd, (struct sockaddr *)&a,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
			 0);
	assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
	return fd;
}

static void expect_heard(int fd, const char *want)
{
	char got[256] = "";

	assert_int_equal(recv(fd, got, sizeof(got) - 1, 0), strlen(want));
	assert_string_equal(got, want);
	assert_int_equal(recv(fd, got, sizeof(got), 0), -1);
}

static void test_path(void **state)
{
	const char *tmp = getenv("TMPDIR");
	char path[100];
	int fd;

	(void)state;
	/* A socket's path is at most 107 bytes. */
	snprintf(path, sizeof(path), "%s/notify.%d", tmp && strlen(tmp) < 80 ? tmp : "/tmp",
		 getpid());
	fd = listen_on(path);
	assert_int_equal(notify_manager("READY=1\nSTATUS=mounted"), 0);
	expect_heard(fd, "READY=1\nSTATUS=mounted");
	assert_int_equal(notify_manager("STOPPING=1"), 0);
	expect_heard(fd, "STOPPING=1");
	close(fd);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(notify_manager("READY=1"), -ENOENT);
}

static void test_abstract(void **state)
{
	char name[100];
	int fd;

	(void)state;
	snprintf(name, sizeof(name), "@expertfs-test/%d", getpid());
	fd = listen_on(name);
	assert_int_equal(notify_manager("READY=1"), 0);
	expect_heard(fd, "READY=1");
	close(fd);
	assert_int_equal(notify_manager("READY=1"), -ECONNREFUSED);
}

static void test_nobody_asked(void **state)
{
	(void)state;
	unsetenv("NOTIFY_SOCKET");
	assert_int_equal(notify_manager("READY=1"), 0);
	setenv("NOTIFY_SOCKET", "", 1);
	assert_int_equal(notify_manager("READY=1"), 0);
}

static void test_bad_names(void **state)
{
	char endless[300];

	(void)state;
	memset(endless, 'x', sizeof(endless) - 1);
	endless[0] = '/';
	endless[sizeof(endless) - 1] = 0;
	setenv("NOTIFY_SOCKET", endless, 1);
	assert_int_equal(notify_manager("READY=1"), -EINVAL);
	setenv("NOTIFY_SOCKET", "vsock:2:1234", 1);
	assert_int_equal(notify_manager("READY=1"), -EINVAL);
	setenv("NOTIFY_SOCKET", "@", 1);
	assert_int_equal(notify_manager("READY=1"), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_path),
		cmocka_unit_test(test_abstract),
		cmocka_unit_test(test_nobody_asked),
		cmocka_unit_test(test_bad_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
