/* The clock that only goes on, in nanoseconds. */
#ifndef PRONGHORN_CLOCK_H
#define PRONGHORN_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_nanoseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
