/* SPDX-License-Identifier: Apache-2.0
 *
 * The service manager's socket; see notify.h.
 */
#include "expertfs/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int notify_manager(const char *state)
{
	const char *name = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t n = name ? strlen(name) : 0;
	int fd, err = 0;

	if (n == 0)
		return 0;
	if ((name[0] != '/' && name[0] != '@') || n < 2 || n >= sizeof(to.sun_path))
		return -EINVAL;
	memcpy(to.sun_path, name, n);
	if (name[0] == '@')
		to.sun_path[0] =
			0; /* the abstract namespace; its names end where the address does */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&to,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		err = -errno;
	close(fd);
	return err;
}
