/* Sessions in a storage that all workers share: PHP's save handler `pronghorn`. */
#ifndef PRONGHORN_SESSIONS_H
#define PRONGHORN_SESSIONS_H

/* Registers the save handler, where PHP has sessions. Once for the process, after their module has
 * started. */
void sessions_startup(void);

#endif
