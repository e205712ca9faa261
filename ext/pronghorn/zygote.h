/* A process that has started PHP's engine, or an application as well, and serves nothing: it forks
 * the workers of a pool, which so share its OPcache, as those of php-fpm share that of their
 * master. Knows nothing of calls. docs/decisions/0021-zygote.md says why it is so. */
#ifndef PRONGHORN_ZYGOTE_H
#define PRONGHORN_ZYGOTE_H

#include <stdbool.h>
#include <sys/types.h>

#include "classic_call.h"

/* What a worker is given to attach to, and by which process. */
typedef struct {
	call_offer offer;
	pid_t server;
	/* The number of its place in the pool. */
	long worker;
} zygote_order;

/* Forks as often as the server wants it, over this socket. True in a worker, whose order it has;
 * false in the zygote, when the server needs no more. `is_warm`: it has answered what new workers
 * would be asked. With a `refusal`, the reason not to fork this
 * process, the server is told that, and it waits for its end. */
bool zygote_serve(int control, bool is_warm, const char *refusal, zygote_order *order);

/* In a worker to which the server has spoken: from now on the server's death is its own. False: it
 * is no child of the server. */
bool zygote_is_adopted(const zygote_order *order);

#endif
