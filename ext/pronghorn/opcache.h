/* OPcache begins anew with the first request after it was told to, or was full. A process that is
 * kept has one request: for it that moment never comes, and it goes on without a cache. So the
 * server is asked for another process. */
#ifndef PRONGHORN_OPCACHE_H
#define PRONGHORN_OPCACHE_H

#include "php.h"

/* Why the server is asked. */
enum opcache_wish { OPCACHE_NOTHING, OPCACHE_WAS_RESET, OPCACHE_WAS_FULL };

/* Once, in a worker. */
void opcache_watch(void);

/* Between two calls: why a new process is wanted, if it is; once. */
enum opcache_wish opcache_wish(void);

#endif
