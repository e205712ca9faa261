/* What signals have made pending. */
#ifndef PRONGHORN_PENDING_H
#define PRONGHORN_PENDING_H

#include <stdbool.h>

/* Runs it, as the engine does between two lines. False: an exception was thrown. */
bool run_pending(void);

#endif
