#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "spent.h"

#include <time.h>

#include "clock.h"

/* The call whose times are wanted, 0: none. */
static uint32_t timed;
static int64_t began, cpu_before;
static uint64_t *shown;

/* A system call, unlike the clock that only goes on. */
static int64_t cpu_nanoseconds(void)
{
	struct timespec used;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return (int64_t) used.tv_sec * 1000000000 + used.tv_nsec;
}

static uint32_t in_microseconds(int64_t nanoseconds)
{
	const int64_t microseconds = nanoseconds / 1000;
	return microseconds < 0 ? 0 : microseconds > UINT32_MAX ? UINT32_MAX : (uint32_t) microseconds;
}

static void show(uint32_t call)
{
	if (shown != NULL) {
		__atomic_store_n(&shown[1], (uint64_t) cpu_before, __ATOMIC_RELAXED);
		__atomic_store_n(&shown[0], call, __ATOMIC_RELEASE);
	}
}

void spent_shows(unsigned char *words)
{
	shown = (uint64_t *) (void *) words;
}

void spent_begins(uint32_t call, bool is_wanted)
{
	if (is_wanted) {
		began = clock_nanoseconds();
		cpu_before = cpu_nanoseconds();
		show(call);
	} else if (timed != 0) {
		show(0); /* of a call that had no end */
	}
	timed = is_wanted ? call : 0;
}

bool spent_ends(uint32_t call, spent_t *spent)
{
	if (timed == 0 || timed != call) {
		return false;
	}
	timed = 0;
	show(0);
	const int64_t cpu = cpu_nanoseconds() - cpu_before, all = clock_nanoseconds() - began;
	*spent = (spent_t) {.cpu = in_microseconds(cpu), .blocked = in_microseconds(all - cpu)};
	return true;
}
