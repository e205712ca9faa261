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
	/* False: the zygote itself is to be the worker, with what it was started with. */
	bool is_forked;
	/* The zygote is asked whether a lock in memory that workers share is stuck. */
	bool is_question;
} zygote_order;

/* What a zygote that has booted an application says of that. */
typedef struct {
	/* It has answered what new workers would be asked. */
	bool is_warm;
	/* Why it must not be forked, or NULL. */
	const char *refusal;
	/* The call by which the application got what belongs to one process, or NULL. */
	const char *own;
} zygote_boot;

/* Tells the server what it is, and forks as often as that wants it, over this socket. True in a
 * worker, whose order it has; false in the zygote, when the server needs no more. */
bool zygote_serve(int control, const zygote_boot *boot, zygote_order *order);

/* In a worker to which the server has spoken: from now on the server's death is its own. False: it
 * is no child of the server. */
bool zygote_is_adopted(const zygote_order *order);

#endif
