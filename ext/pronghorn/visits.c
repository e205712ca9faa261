/* Where a worker of quick calls sleeps, on machines with two processors. The kernel wakes a worker
 * where it slept, unless a processor idles, and on a small machine that is mostly beside the client
 * or the proxy. Beside the server's thread, which sleeps while quick calls run, neither wakes the
 * other across processors. One sleep there now and then is enough: where that place is a bad one,
 * the kernel moves the worker away again.
 *
 * Without this file the extension builds and works as well, and workers sleep where they ran. */
#include "ring.h"

#include <sched.h>
#include <stdatomic.h>

#include "clock.h"

/* What it saves was measured with two processors and no other number, so it is done with two. */
#define PROCESSORS 2

/* Nanoseconds from one visit to the next. */
#define SELDOM 100000000
/* Long requests and replies are worth more of them: what that thread has written, or is to read, is
 * in the caches of that processor. Ever fewer where it does not stay, until it is tried anew. */
#define OFTEN 1000000
#define LONG 4096 /* bytes of a request and its reply */
/* It ends soon even if no call comes: an idle worker is to be found with the processors that it may
 * use. */
#define VISIT 10000000

static struct {
	int64_t last;          /* when it was, by the clock */
	int64_t apart;         /* nanoseconds to the next one */
	uint32_t calls_before; /* what the ring had counted then */
	uint64_t moved_before; /* bytes in both directions */
	cpu_set_t thread, usual;
} visits;

/* Whether the server may use just these processors, which its workers inherit. Asked once, before
 * the first visit: what PHP code does to its own affinity later is no news of the machine. */
static bool fits_machine(void)
{
	static enum { NOT_ASKED, NO, YES } answer;

	if (answer == NOT_ASKED) {
		/* Fails where there are more processors than a set has room for. */
		cpu_set_t usual;
		answer = sched_getaffinity(0, sizeof usual, &usual) == 0 && CPU_COUNT(&usual) == PROCESSORS ? YES : NO;
	}
	return answer == YES;
}

static uint32_t read_word(const unsigned char *at)
{
	return atomic_load_explicit((const _Atomic uint32_t *) at, memory_order_relaxed);
}

static uint64_t moved(const ring_t *ring)
{
	return ring->put + ring->taken;
}

static int64_t until_next(const ring_t *ring, bool is_there)
{
	const uint32_t calls = ring->calls - visits.calls_before;
	if (calls == 0 || (moved(ring) - visits.moved_before) / calls < LONG) {
		return SELDOM;
	}
	return is_there || visits.apart >= SELDOM ? OFTEN : visits.apart + OFTEN;
}

/* Allows this worker no other processor than that of the server's thread, for its next sleep: what
 * PHP runs or starts is never held there. */
int64_t visit_begin(const ring_t *ring)
{
	if (read_word(ring->map + RING_AT_QUICK) == 0 || !fits_machine()) {
		return 0;
	}
	const int64_t now = clock_nanoseconds();
	if (now < visits.last + visits.apart) {
		return 0;
	}
	const uint32_t processor = read_word(ring->page + RING_AT_PROCESSOR);
	visits.apart = until_next(ring, (uint32_t) sched_getcpu() == processor);
	visits.last = now;
	visits.calls_before = ring->calls;
	visits.moved_before = moved(ring);
	if (sched_getaffinity(0, sizeof visits.usual, &visits.usual) != 0 || processor >= CPU_SETSIZE
		|| !CPU_ISSET(processor, &visits.usual)) {
		return 0;
	}
	CPU_ZERO(&visits.thread);
	CPU_SET(processor, &visits.thread);
	return sched_setaffinity(0, sizeof visits.thread, &visits.thread) == 0 ? VISIT : 0;
}

/* Unless somebody else has said meanwhile where it may run. */
void visit_end(void)
{
	cpu_set_t now;
	if (sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &visits.thread)) {
		sched_setaffinity(0, sizeof visits.usual, &visits.usual);
	}
}
