/* For the rule behind every fence here, "publish, full barrier, look", see docs/reference/ring.md.
 * The same steps in Rust are model-checked: crates/ring/src/half.rs. A worker may be killed between
 * any two lines: no step leaves the server waiting for a second one. */
#include "ring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "pause.h"

#ifdef PRONGHORN_MARKS
#define MARK_NAME(name) #name,

/* The handler of a test names the mark, with putenv. */
void ring_mark(ring_mark_number mark)
{
	static const char *const names[] = {RING_MARKS(MARK_NAME)};
	const char *wanted = getenv("PRONGHORN_KILL_AT");
	if (wanted != NULL && strcmp(wanted, names[mark]) == 0) {
		raise(SIGKILL);
	}
}
#endif

/* Addresses: the page, the stream down twice, the stream up twice. */
#define MAPPED (RING_PAGE + 2 * (size_t) RING_DOWN + 2 * (size_t) RING_UP)

/* By it the server says for how many microseconds a worker looks for its next call before it
 * sleeps. */
#define SPIN "PRONGHORN_SPIN"
/* Nobody wants more, and a mistake must not keep a processor busy. */
#define LONGEST_SPIN 1000
/* Looks between two at the clock. */
#define LOOKS 64

/* Nanoseconds for which an answer of the server is looked for: those that need no disk and no
 * other server take less. */
#define ANSWER_SPIN 30000
/* After one that took longer, so many are slept for. */
#define SLEEPS_AFTER_LATE 16

static int64_t spin;
/* The server's thread may run while we look for its answer. */
static bool has_processors;

void ring_startup(void)
{
	cpu_set_t processors;
	has_processors = sched_getaffinity(0, sizeof processors, &processors) == 0 && CPU_COUNT(&processors) > 1;
	const char *asked = getenv(SPIN);
	long microseconds = asked == NULL ? 0 : strtol(asked, NULL, 10);
	spin = 1000 * (microseconds < 0 ? 0 : microseconds > LONGEST_SPIN ? LONGEST_SPIN : microseconds);
}

static _Atomic uint32_t *word(const ring_t *ring, size_t at)
{
	return (_Atomic uint32_t *) (ring->map + at);
}

/* How much was put into a stream or taken from it, ever. */
static _Atomic uint64_t *counter(const ring_t *ring, size_t at)
{
	return (_Atomic uint64_t *) (ring->map + at);
}

/* What the server's thread says of itself. */
static uint32_t of_thread(const ring_t *ring, size_t at)
{
	return atomic_load_explicit((const _Atomic uint32_t *) (ring->page + at), memory_order_relaxed);
}

static bool place(unsigned char *at, int memory, size_t offset, size_t length)
{
	return mmap(at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, (off_t) offset) != MAP_FAILED;
}

static const char *map_box(unsigned char *map, int memory)
{
	const char *unmapped = "its memory can't be mapped";
	unsigned char *down = map + RING_PAGE, *up = down + 2 * (size_t) RING_DOWN;
	if (!place(map, memory, 0, RING_PAGE)) {
		return unmapped;
	}
	const uint32_t *head = (const uint32_t *) (map + RING_AT_HEAD);
	if (head[0] != RING_MAGIC || head[1] != RING_VERSION || head[2] != RING_DOWN || head[3] != RING_UP) {
		return "the server and this extension are of different releases";
	}
	if (!place(down, memory, RING_PAGE, RING_DOWN) || !place(down + RING_DOWN, memory, RING_PAGE, RING_DOWN)
		|| !place(up, memory, RING_PAGE + RING_DOWN, RING_UP)
		|| !place(up + RING_UP, memory, RING_PAGE + RING_DOWN, RING_UP)) {
		return unmapped;
	}
	return NULL;
}

/* How late a sleep or a time limit of a script may end, in nanoseconds: the least. The kernel's 50
 * µs let machines that run on batteries wake less often. */
#define TIMER_SLACK 1UL

/* The server's death is to be this process's, whatever handlers a script installs. Its own child
 * alone was told to get a signal then (of a shell between the two nothing is known), and has none
 * before this. */
static void die_with_server(void)
{
	int signal = 0;
	if (prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal != 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
}

const char *ring_attach(ring_t *ring, int memory, int page, int bell, int server, unsigned look_after)
{
	unsigned char *map = mmap(NULL, MAPPED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED) {
		return "there are no addresses for it";
	}
	const char *wrong = map_box(map, memory);
	const unsigned char *parking = MAP_FAILED;
	if (wrong == NULL) {
		parking = mmap(NULL, RING_PAGE, PROT_READ, MAP_SHARED, page, 0);
		wrong = parking == MAP_FAILED ? "the page of its thread can't be mapped" : NULL;
	}
	/* A forked child has none of it: it would speak in our name. */
	if (wrong == NULL && madvise(map, MAPPED, MADV_DONTFORK) != 0) {
		wrong = "it can't be hidden from forked children";
	}
	if (wrong != NULL) {
		munmap(map, MAPPED);
		if (parking != MAP_FAILED) {
			munmap((void *) parking, RING_PAGE);
		}
		return wrong;
	}
	close(memory);
	close(page);
	fcntl(bell, F_SETFD, FD_CLOEXEC);
	die_with_server();
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK);
	*ring = (ring_t) {.map = map, .page = parking, .bell = bell, .server = server, .look_after = look_after};
	RING_MARK(attached);
	return NULL;
}

void ring_forget(ring_t *ring)
{
	if (ring->map != NULL) {
		close(ring->bell);
		*ring = (ring_t) {0};
	}
}

/* Bytes in a stream, or more than it holds where the counts make no sense. */
static size_t difference(uint64_t put, uint64_t taken)
{
	return put - taken;
}

size_t ring_there(const ring_t *ring)
{
	uint64_t put = atomic_load_explicit(counter(ring, RING_AT_DOWN_PUT), memory_order_acquire);
	return difference(put, ring->taken);
}

/* Room in the stream up, or SIZE_MAX where the counts make no sense. */
static size_t room(const ring_t *ring)
{
	uint64_t taken = atomic_load_explicit(counter(ring, RING_AT_UP_TAKEN), memory_order_acquire);
	size_t there = difference(ring->put, taken);
	return there > RING_UP ? SIZE_MAX : RING_UP - there;
}

/* Rings when the server's thread sleeps, once for each sleep. */
static void ring_bell(ring_t *ring)
{
	ring->owes_bell = false;
	uint32_t sleep = of_thread(ring, RING_AT_PARKED);
	if (sleep % 2 == 1 && sleep != ring->rung) {
		const uint64_t one = 1;
		ring->rung = sleep;
		RING_MARK(ringing);
		/* Full means that it rings anyway. */
		ssize_t written = write(ring->bell, &one, sizeof one);
		(void) written;
		RING_MARK(rung);
	}
}

static bool server_is_gone(const ring_t *ring)
{
	struct pollfd end = {.fd = ring->server, .events = 0};
	return poll(&end, 1, 0) > 0 && (end.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

/* Whether so many bytes come while we look for them, for so many nanoseconds. */
static bool come_soon(const ring_t *ring, size_t bytes, int64_t longest)
{
	if (longest == 0) {
		return false;
	}
	const int64_t until = clock_nanoseconds() + longest;
	do {
		for (int i = 0; i < LOOKS; i++) {
			if (ring_there(ring) >= bytes) {
				return true;
			}
			pause_processor();
		}
	} while (clock_nanoseconds() < until);
	return false;
}

/* Sleeps until somebody wakes us, for whatever reason, unless the count has become enough. The
 * caller has looked before, and looks again. */
static ring_outcome sleep_below(ring_t *ring, uint32_t why, size_t (*count)(const ring_t *), size_t enough)
{
	ring_outcome outcome = RING_OK;
	/* One that looks for its calls would look at the expense of the server's thread. */
	const bool may_visit = visit_begin != NULL && why == RING_FOR_BYTES && spin == 0;
	const int64_t visit = may_visit ? visit_begin(ring) : 0;
	_Atomic uint32_t *sleep = word(ring, RING_AT_SLEEP);
	atomic_store_explicit(sleep, why, memory_order_relaxed);
	RING_MARK(sleeping);
	atomic_thread_fence(memory_order_seq_cst);
	if (count(ring) < enough) {
		const struct timespec look_after = {.tv_sec = ring->look_after / 1000, .tv_nsec = ring->look_after % 1000 * 1000000};
		const struct timespec longest = visit > 0 ? (struct timespec) {.tv_nsec = visit} : look_after;
		if (syscall(SYS_futex, sleep, FUTEX_WAIT, why, &longest, NULL, 0) != 0) {
			if (errno == ETIMEDOUT && server_is_gone(ring)) {
				outcome = RING_GONE;
			} else if (errno == EINTR || errno == ETIMEDOUT) {
				outcome = RING_INTERRUPTED;
			}
		}
	}
	RING_MARK(woken);
	if (visit > 0) {
		visit_end();
	}
	atomic_store_explicit(sleep, RING_AWAKE, memory_order_relaxed);
	return outcome;
}

static ring_outcome wait_for(ring_t *ring, uint32_t why, size_t (*count)(const ring_t *), size_t enough, size_t most)
{
	size_t now;
	const int64_t for_answer = ring->answer_spin;
	ring->answer_spin = 0;
	while ((now = count(ring)) < enough) {
		if (ring->owes_bell) {
			ring_bell(ring);
		}
		if (why == RING_FOR_BYTES && come_soon(ring, enough, for_answer > spin ? for_answer : spin)) {
			continue;
		}
		if (for_answer > 0) {
			ring->sleeps_left = SLEEPS_AFTER_LATE;
		}
		ring_outcome outcome = sleep_below(ring, why, count, enough);
		if (outcome != RING_OK && count(ring) < enough) {
			return outcome;
		}
	}
	return now > most ? RING_GONE : RING_OK;
}

void ring_expect_answer(ring_t *ring)
{
	if (ring->sleeps_left > 0) {
		ring->sleeps_left--;
	} else if (has_processors) {
		ring->answer_spin = ANSWER_SPIN;
	}
}

ring_outcome ring_wait(ring_t *ring, size_t bytes)
{
	ring_outcome outcome = wait_for(ring, RING_FOR_BYTES, ring_there, bytes, RING_DOWN);
	RING_MARK(seen);
	return outcome;
}

const unsigned char *ring_peek(const ring_t *ring)
{
	return ring->map + RING_PAGE + ring->taken % RING_DOWN;
}

/* A call's place among those that are offered. */
static uint32_t bit_of(uint32_t call)
{
	return (uint32_t) 1 << call % 32;
}

bool ring_claim(ring_t *ring, uint32_t call)
{
	uint32_t bit = bit_of(call);
	bool ours = (atomic_fetch_and_explicit(word(ring, RING_AT_OFFERED), ~bit, memory_order_acq_rel) & bit) != 0;
	if (ours) {
		ring->calls++;
		RING_MARK(claimed);
	}
	return ours;
}

bool ring_is_taken_back(const ring_t *ring, uint32_t call)
{
	return (atomic_load_explicit(word(ring, RING_AT_OFFERED), memory_order_relaxed) & bit_of(call)) == 0;
}

void ring_take(ring_t *ring, size_t bytes)
{
	ring->taken += bytes;
	RING_MARK(taking);
	atomic_store_explicit(counter(ring, RING_AT_DOWN_TAKEN), ring->taken, memory_order_release);
	RING_MARK(taken);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(word(ring, RING_AT_ROOM_WANTED), memory_order_relaxed) == 1) {
		ring_bell(ring);
	}
}

ring_outcome ring_wait_for_room(ring_t *ring, size_t bytes)
{
	return wait_for(ring, RING_FOR_ROOM, room, bytes, RING_UP);
}

unsigned char *ring_room(const ring_t *ring)
{
	return ring->map + RING_PAGE + 2 * (size_t) RING_DOWN + ring->put % RING_UP;
}

static void publish(ring_t *ring, size_t bytes)
{
	ring->put += bytes;
	RING_MARK(written);
	atomic_store_explicit(counter(ring, RING_AT_UP_PUT), ring->put, memory_order_release);
	RING_MARK(put);
	atomic_thread_fence(memory_order_seq_cst);
}

static uint32_t calls_not_begun(const ring_t *ring)
{
	return (uint32_t) __builtin_popcount(atomic_load_explicit(word(ring, RING_AT_OFFERED), memory_order_relaxed));
}

static bool may_wait(ring_t *ring, ring_urgency urgency)
{
	if (urgency == RING_WITH_REPLY) {
		return true;
	}
	if (urgency == RING_NOW || ring_there(ring) == 0) {
		return false;
	}
	if (urgency == RING_WITH_NEXT) {
		return true;
	}
	uint32_t enough = atomic_load_explicit(word(ring, RING_AT_ENOUGH_CALLS), memory_order_relaxed);
	return enough != 0 && calls_not_begun(ring) >= enough;
}

void ring_put(ring_t *ring, size_t bytes, ring_urgency urgency)
{
	publish(ring, bytes);
	if (may_wait(ring, urgency)) {
		ring->owes_bell = true;
	} else {
		ring_bell(ring);
	}
}
