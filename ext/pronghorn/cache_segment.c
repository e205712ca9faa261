/* The memory may be overwritten by any process that maps it. So every place and length that is read
 * from it is read once and checked before it is used, entries are copied first and judged then, and
 * every loop has an end. A process may be killed or stopped between any two lines: what it leaves
 * is finished by the next one. */
#include "cache_segment.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "pause.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* How often a step is tried that others got ahead of. */
#define TRIES 10000
/* How long, in nanoseconds, who meets another writer in a bucket leaves it to that one. Two that go
 * on at once pass its memory to and fro with each step; so each makes several changes in a row. */
#define MEETING 4000
#define PAUSES 32
/* With less than one in so many blocks free, a block is emptied for each that is taken. */
#define RESERVE 32
/* A block in which less than one in so many bytes is left is full. */
#define REST 32
/* A block of which nobody needs one in so many bytes is emptied without losing anything. */
#define WORTHWHILE 4
/* Keys and values of entries that are moved or compared, where they are short. */
#define SHORT 1024

#ifdef PRONGHORN_MARKS
#define MARK_NAME(name) #name,

void cache_mark(cache_mark_number mark)
{
	static const char *const names[] = {CACHE_MARKS(MARK_NAME)};
	const char *wanted = getenv("PRONGHORN_KILL_AT");
	if (wanted != NULL && strcmp(wanted, names[mark]) == 0) {
		raise(SIGKILL);
	}
}
#endif

/* The block of this thread in a segment. Few processes have more than one segment that they write. */
typedef struct {
	const unsigned char *map;
	uint64_t block, filled;
} open_block;
#define OPEN_BLOCKS 16
static __thread open_block open_blocks[OPEN_BLOCKS];
static __thread uint64_t process;

static uint64_t this_process(void)
{
	if (process == 0) {
		process = (uint64_t) getpid();
	}
	return process;
}

void cache_forked(void)
{
	memset(open_blocks, 0, sizeof open_blocks);
	process = 0;
}

uint64_t cache_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return 1 + (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
}

/* Seconds of the same clock, as of the kernel's last tick: no clock of the hardware is read. */
static uint32_t seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint32_t) now.tv_sec;
}

/* ---- The hash, as in crates/cache/src/hash.rs ---- */

static inline uint64_t fold(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128) a * b;
	return (uint64_t) product ^ (uint64_t) (product >> 64) ^ a;
}

static inline uint64_t rotated(uint64_t word)
{
	return word << 32 | word >> 32;
}

static inline uint64_t word_of(const unsigned char *bytes, size_t length)
{
	uint64_t word = 0;
	if (length == 8) {
		memcpy(&word, bytes, 8);
	} else {
		memcpy(&word, bytes, length);
	}
	return word;
}

/* Over what lies in up to two pieces: the second one begins at a multiple of sixteen bytes or is
 * copied behind the first. */
typedef struct {
	uint64_t state;
	unsigned char rest[16];
	size_t length;
} summing;

static inline void sum_begin(summing *sum, uint64_t seed, size_t all)
{
	sum->state = seed ^ (uint64_t) all * CACHE_FACTOR_A;
	sum->length = 0;
}

static inline uint64_t sum_block(uint64_t state, uint64_t a, uint64_t b)
{
	return fold(a ^ CACHE_FACTOR_B ^ state, b ^ rotated(state));
}

static void sum_add(summing *sum, const void *from, size_t length)
{
	const unsigned char *bytes = from;
	if (sum->length > 0) {
		size_t part = 16 - sum->length < length ? 16 - sum->length : length;
		memcpy(sum->rest + sum->length, bytes, part);
		sum->length += part;
		bytes += part;
		length -= part;
		if (sum->length < 16) {
			return;
		}
		sum->state = sum_block(sum->state, word_of(sum->rest, 8), word_of(sum->rest + 8, 8));
		sum->length = 0;
	}
	uint64_t state = sum->state;
	for (; length >= 16; bytes += 16, length -= 16) {
		state = sum_block(state, word_of(bytes, 8), word_of(bytes + 8, 8));
	}
	sum->state = state;
	memcpy(sum->rest, bytes, length);
	sum->length = length;
}

static uint64_t sum_end(summing *sum)
{
	const size_t first = sum->length < 8 ? sum->length : 8;
	const uint64_t state = sum_block(sum->state, word_of(sum->rest, first), word_of(sum->rest + first, sum->length - first));
	return fold(state ^ CACHE_FACTOR_A, CACHE_FACTOR_B);
}

static uint64_t hash(const cache_segment *segment, const void *bytes, size_t length)
{
	summing sum;
	sum_begin(&sum, segment->seed, length);
	sum_add(&sum, bytes, length);
	return sum_end(&sum);
}

/* The head, as it lies there, but for the sum and what says that it was read. */
typedef struct {
	uint32_t key_length, value_length;
	uint64_t ends;
	uint32_t kind, hash;
} raw_head;
#define SUMMED 8
_Static_assert(sizeof(raw_head) + SUMMED == CACHE_ENTRY, "the head has no holes");

static uint32_t sum_of(const cache_segment *segment, const raw_head *head, const void *key, const void *value)
{
	summing sum;
	sum_begin(&sum, segment->seed, sizeof *head + head->key_length + head->value_length);
	sum_add(&sum, head, sizeof *head);
	sum_add(&sum, key, head->key_length);
	sum_add(&sum, value, head->value_length);
	return (uint32_t) sum_end(&sum);
}

/* ---- Words ---- */

static inline _Atomic uint64_t *word(const cache_segment *segment, uint64_t at)
{
	return (_Atomic uint64_t *) (segment->map + at);
}

static inline _Atomic uint32_t *half(const cache_segment *segment, uint64_t at)
{
	return (_Atomic uint32_t *) (segment->map + at);
}

static inline uint64_t load(_Atomic uint64_t *at)
{
	return atomic_load_explicit(at, memory_order_acquire);
}

static inline bool swap(_Atomic uint64_t *at, uint64_t before, uint64_t after)
{
	return atomic_compare_exchange_strong(at, &before, after);
}

static inline uint64_t generation(uint64_t word)
{
	return word >> CACHE_GENERATION_SHIFT & CACHE_GENERATION_BITS;
}

static inline uint64_t place(uint64_t word)
{
	return (word & CACHE_PLACE_BITS) * CACHE_UNIT;
}

static inline uint64_t block_begin(const cache_segment *segment, uint64_t block)
{
	return segment->first_block + block * segment->block_size;
}

/* Beyond the last one: it lies in none. */
static inline uint64_t block_of(const cache_segment *segment, uint64_t at)
{
	return at < segment->first_block ? UINT64_MAX : (at - segment->first_block) >> __builtin_ctzll(segment->block_size);
}

static inline _Atomic uint64_t *state_of(const cache_segment *segment, uint64_t block)
{
	return word(segment, segment->table + block * CACHE_ROW);
}

static inline _Atomic uint32_t *dead_of(const cache_segment *segment, uint64_t block)
{
	return half(segment, segment->table + block * CACHE_ROW + CACHE_ROW_DEAD);
}

static inline uint64_t bucket_of(const cache_segment *segment, uint64_t hash)
{
	return CACHE_HEAD + ((hash & UINT32_MAX) & (segment->buckets - 1)) * CACHE_BUCKET;
}

/* Slots are numbered from 1 on: the first word of a bucket is none. */
static inline _Atomic uint64_t *slot_of(const cache_segment *segment, uint64_t bucket, uint64_t slot)
{
	return word(segment, bucket + 8 * slot);
}

/* How many there were before. */
static uint64_t count(const cache_segment *segment, uint64_t what)
{
	_Atomic uint64_t *counter = word(segment, CACHE_AT_COUNTS + this_process() % CACHE_COUNT_LINES * CACHE_COUNT_LINE + what);
	/* Two processes on one line may lose some; nobody is slowed. */
	const uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
	atomic_store_explicit(counter, now + 1, memory_order_relaxed);
	return now;
}

/* Counts a read that has found the entry of a slot, and keeps the slot of one in 64: which one says
 * a product that is spread evenly over all numbers. */
static void count_hit(const cache_segment *segment, uint64_t slot)
{
	const uint64_t sample = count(segment, CACHE_HITS) * CACHE_FACTOR_A >> CACHE_SAMPLE_SHIFT;
	if (sample < CACHE_SAMPLES) {
		atomic_store_explicit(word(segment, CACHE_AT_SAMPLES + 8 * sample), slot, memory_order_relaxed);
	}
}

/* Whether the block of an entry was not emptied since. */
static inline bool is_current(const cache_segment *segment, uint64_t slot)
{
	const uint64_t block = block_of(segment, place(slot));
	return (slot & CACHE_PLACE_BITS) != 0 && block < segment->blocks
		&& generation(load(state_of(segment, block))) == generation(slot);
}

/* Of an entry's head, read once. False: it does not fit into its block. */
static bool read_head(const cache_segment *segment, uint64_t at, raw_head *head)
{
	const uint64_t block = block_of(segment, at);
	if (block >= segment->blocks || at % CACHE_UNIT != 0) {
		return false;
	}
	const uint64_t room = block_begin(segment, block) + segment->block_size - at;
	if (room < CACHE_ENTRY) {
		return false;
	}
	memcpy(head, segment->map + at + SUMMED, sizeof *head);
	return head->key_length >= 1 && head->key_length <= CACHE_LONGEST_KEY
		&& CACHE_ENTRY + (uint64_t) head->key_length + head->value_length <= room;
}

static inline uint64_t whole_length(const raw_head *head)
{
	const uint64_t length = CACHE_ENTRY + (uint64_t) head->key_length + head->value_length;
	return (length + CACHE_UNIT - 1) / CACHE_UNIT * CACHE_UNIT;
}

/* The slot of an entry that lies at this place, as its own head has it; 0: there is none. */
static uint64_t slot_for(const cache_segment *segment, uint64_t at)
{
	const uint64_t block = block_of(segment, at);
	if (block >= segment->blocks || block_begin(segment, block) + segment->block_size - at < CACHE_ENTRY) {
		return 0;
	}
	const uint64_t of_block = generation(load(state_of(segment, block)));
	const uint64_t tag = atomic_load_explicit(half(segment, at + CACHE_ENTRY_HASH), memory_order_relaxed) >> 20;
	return at / CACHE_UNIT | of_block << CACHE_GENERATION_SHIFT | tag << CACHE_TAG_SHIFT;
}

static inline bool is_over(uint64_t ends)
{
	return ends != 0 && ends <= cache_now();
}

const char *cache_map(cache_segment *segment, int memory)
{
	struct stat file;
	if (fstat(memory, &file) != 0 || file.st_size < (off_t) CACHE_HEAD) {
		return "its memory can't be read";
	}
	const size_t size = (size_t) file.st_size;
	unsigned char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (map == MAP_FAILED) {
		return "its memory can't be mapped";
	}
	cache_segment found = {.map = map, .size = size};
	found.buckets = load(word(&found, CACHE_AT_BUCKETS));
	found.blocks = load(word(&found, CACHE_AT_BLOCKS));
	found.block_size = load(word(&found, CACHE_AT_BLOCK_SIZE));
	found.seed = load(word(&found, CACHE_AT_SEED));
	found.table = CACHE_HEAD + found.buckets * CACHE_BUCKET;
	found.first_block = (found.table + found.blocks * CACHE_ROW + 4095) / 4096 * 4096;
	const bool is_ours = *half(&found, CACHE_AT_MAGIC) == CACHE_MAGIC && *half(&found, CACHE_AT_VERSION) == CACHE_VERSION;
	const bool makes_sense = __builtin_popcountll(found.buckets) == 1 && found.buckets <= size / CACHE_BUCKET && found.blocks > 0
		&& __builtin_popcountll(found.block_size) == 1 && found.block_size >= CACHE_SMALLEST_BLOCK
		&& found.block_size <= CACHE_LARGEST_BLOCK && found.blocks <= size / found.block_size
		&& found.first_block + found.blocks * found.block_size <= size;
	if (!is_ours || !makes_sense) {
		munmap(map, size);
		return "the server and this extension are of different releases";
	}
	*segment = found;
	return NULL;
}

/* ---- Readers ---- */

/* Where what is compared and moved is copied to; its own memory where it is long. */
typedef struct {
	unsigned char here[SHORT];
	unsigned char *there;
} buffer;

static void *buffer_of(buffer *buffer, size_t length)
{
	if (length <= SHORT) {
		return buffer->here;
	}
	free(buffer->there);
	buffer->there = malloc(length);
	return buffer->there;
}

static void buffer_free(buffer *buffer)
{
	free(buffer->there);
}

/* Whether an entry of this key lies there, as far as a look tells that trusts it: for who overwrites
 * it. */
static bool has_key(const cache_segment *segment, uint64_t slot, const void *key, size_t length, raw_head *head)
{
	const uint64_t at = place(slot);
	return is_current(segment, slot) && read_head(segment, at, head) && head->key_length == length
		&& memcmp(segment->map + at + CACHE_ENTRY, key, length) == 0;
}

/* Copies the entry of a slot and judges it. False: it is no entry of this key, or was emptied
 * meanwhile. */
static bool read_slot(const cache_segment *segment, uint64_t slot, const void *key, size_t length, raw_head *head, cache_allocator *allocate, void *context)
{
	const uint64_t at = place(slot);
	if (!has_key(segment, slot, key, length, head)) {
		return false;
	}
	const uint32_t sum = atomic_load_explicit(half(segment, at + CACHE_ENTRY_SUM), memory_order_relaxed);
	void *value = allocate(context, head->value_length);
	if (value == NULL) {
		return false;
	}
	memcpy(value, segment->map + at + CACHE_ENTRY + length, head->value_length);
	atomic_thread_fence(memory_order_acquire);
	return is_current(segment, slot) && sum_of(segment, head, key, value) == sum;
}

static void give_head(cache_head *into, const raw_head *head)
{
	*into = (cache_head) {.key_length = head->key_length, .value_length = head->value_length, .kind = head->kind, .ends = head->ends};
}

bool cache_read(const cache_segment *segment, const void *key, size_t length, cache_head *into, cache_allocator *allocate, void *context)
{
	const uint64_t hashed = hash(segment, key, length), bucket = bucket_of(segment, hashed), tag = hashed >> CACHE_TAG_SHIFT;
	for (unsigned tries = 0; tries < TRIES; tries++) {
		bool moved = false;
		for (uint64_t number = 1; number <= CACHE_SLOTS; number++) {
			const uint64_t slot = load(slot_of(segment, bucket, number));
			if (slot >> CACHE_TAG_SHIFT != tag || (slot & CACHE_PLACE_BITS) == 0) {
				continue;
			}
			raw_head head;
			if (read_slot(segment, slot, key, length, &head, allocate, context)) {
				if (is_over(head.ends)) {
					count(segment, CACHE_MISSES);
					return false;
				}
				_Atomic uint32_t *touched = half(segment, place(slot) + CACHE_ENTRY_TOUCHED);
				const uint32_t before = atomic_load_explicit(touched, memory_order_relaxed);
				if ((before & CACHE_TOUCHED) == 0) {
					atomic_store_explicit(touched, before | CACHE_TOUCHED, memory_order_relaxed);
				}
				count_hit(segment, slot);
				give_head(into, &head);
				return true;
			}
			moved |= load(slot_of(segment, bucket, number)) != slot;
		}
		if (!moved) {
			break;
		}
	}
	count(segment, CACHE_MISSES);
	return false;
}

/* ---- Changes of a bucket ---- */

static void stand_back(void)
{
	const int64_t until = clock_nanoseconds() + MEETING;
	do {
		for (int i = 0; i < PAUSES; i++) {
			pause_processor();
		}
	} while (clock_nanoseconds() < until);
}

/* Carries out what was announced. The word that says there is nothing left. */
static uint64_t carry_out(const cache_segment *segment, uint64_t bucket)
{
	_Atomic uint64_t *announcement = word(segment, bucket);
	for (unsigned tries = 0; tries < TRIES; tries++) {
		const uint64_t now = load(announcement);
		const uint64_t step = now >> CACHE_STEP_SHIFT & CACHE_STEP_BITS, number = now >> CACHE_SLOT_SHIFT & CACHE_SLOT_BITS;
		const uint64_t change = now >> CACHE_CHANGE_SHIFT;
		if (step == CACHE_IDLE) {
			return now;
		}
		if (number != 0) {
			_Atomic uint64_t *slot = slot_of(segment, bucket, number);
			const uint64_t before = load(slot);
			/* While this holds, `before` is what was there before the step, or what it makes of it:
			 * whoever comes late finds another word and changes nothing. */
			if (atomic_load(announcement) != now) {
				continue;
			}
			uint64_t after = step == CACHE_PUT ? slot_for(segment, place(now)) : 0;
			if (after == 0) {
				after = change << CACHE_STEP_SHIFT;
			}
			swap(slot, before, after);
			CACHE_MARK(slot_changed);
		}
		swap(announcement, now, (change + 1) << CACHE_CHANGE_SHIFT);
	}
	return load(announcement) & ~(CACHE_STEP_BITS << CACHE_STEP_SHIFT);
}

/* The same for what another one has announced, who may be about to carry it out. */
static uint64_t settle(const cache_segment *segment, uint64_t bucket)
{
	const uint64_t now = load(word(segment, bucket));
	if ((now >> CACHE_STEP_SHIFT & CACHE_STEP_BITS) == CACHE_IDLE) {
		return now;
	}
	stand_back();
	return carry_out(segment, bucket);
}

static bool announce(const cache_segment *segment, uint64_t bucket, uint64_t idle, uint64_t number, uint64_t step)
{
	const uint64_t change = idle >> CACHE_CHANGE_SHIFT << CACHE_CHANGE_SHIFT;
	if (!swap(word(segment, bucket), idle, step | number << CACHE_SLOT_SHIFT | change)) {
		stand_back();
		return false;
	}
	CACHE_MARK(announced);
	carry_out(segment, bucket);
	return true;
}

/* Notes that nobody needs the entry of a slot any more. */
static void bury(const cache_segment *segment, uint64_t slot)
{
	raw_head head;
	if (is_current(segment, slot) && read_head(segment, place(slot), &head)) {
		atomic_fetch_add_explicit(dead_of(segment, block_of(segment, place(slot))), (uint32_t) whole_length(&head), memory_order_relaxed);
	}
}

typedef struct {
	bool is_there;
	bool is_full; /* where it can be put is another entry, which somebody needs */
	uint64_t number, slot; /* where the key is, or where it can be put */
	raw_head head;
	void *value;
} found;

static void *into_buffer(void *context, size_t length)
{
	return buffer_of(context, length);
}

/* The slots of a bucket: that of the key, one that nobody needs, and else one whose entry has to go
 * for another. Without `value`, nobody wants to know what is there. */
static void look(const cache_segment *segment, uint64_t bucket, uint64_t hashed, const void *key, size_t length, buffer *value, found *result)
{
	uint64_t free = 0, least = 0;
	uint32_t least_touched = UINT32_MAX;
	*result = (found) {0};
	for (uint64_t number = 1; number <= CACHE_SLOTS; number++) {
		const uint64_t slot = load(slot_of(segment, bucket, number));
		if (!is_current(segment, slot)) {
			free = free == 0 ? number : free;
			continue;
		}
		raw_head head;
		const bool is_same = slot >> CACHE_TAG_SHIFT == hashed >> CACHE_TAG_SHIFT
			&& (value == NULL ? has_key(segment, slot, key, length, &head) : read_slot(segment, slot, key, length, &head, into_buffer, value));
		if (is_same) {
			if (is_over(head.ends)) {
				free = number;
				continue;
			}
			result->is_there = true;
			result->number = number;
			result->slot = slot;
			result->head = head;
			result->value = value == NULL ? NULL : head.value_length <= SHORT ? value->here : value->there;
			return;
		}
		const uint64_t at = place(slot);
		const uint32_t touched = atomic_load_explicit(half(segment, (at + CACHE_ENTRY_TOUCHED) & ~UINT64_C(3)), memory_order_relaxed) & CACHE_TOUCHED;
		if (least == 0 || touched < least_touched) {
			least = number;
			least_touched = touched;
		}
	}
	result->is_full = free == 0;
	result->number = free != 0 ? free : least != 0 ? least : 1;
	result->slot = load(slot_of(segment, bucket, result->number));
}

/* ---- Where new entries go ---- */

static inline uint64_t state(uint64_t kind, uint64_t owner, uint64_t of_block)
{
	return kind | owner << CACHE_PID_SHIFT | (of_block & CACHE_GENERATION_BITS) << CACHE_GENERATION_SHIFT;
}

static bool is_held(uint64_t state)
{
	const uint64_t owner = state >> CACHE_PID_SHIFT & CACHE_PID_BITS;
	return owner != 0 && (owner == this_process() || kill((pid_t) owner, 0) == 0 || errno != ESRCH);
}

static open_block *open_of(const cache_segment *segment)
{
	for (unsigned i = 0; i < OPEN_BLOCKS; i++) {
		if (open_blocks[i].map == segment->map) {
			return &open_blocks[i];
		}
	}
	return NULL;
}

static void close_block(const cache_segment *segment, open_block *open)
{
	const uint64_t begin = block_begin(segment, open->block);
	const uint64_t now = load(state_of(segment, open->block));
	/* What lies behind the last entry is no entry. */
	if (open->filled + CACHE_ENTRY <= segment->block_size) {
		memset(segment->map + begin + open->filled, 0, CACHE_ENTRY);
	}
	atomic_fetch_add_explicit(dead_of(segment, open->block), (uint32_t) (segment->block_size - open->filled), memory_order_relaxed);
	/* Unless another one has taken it over. */
	swap(state_of(segment, open->block), now, state(CACHE_FULL, 0, generation(now)));
	open->map = NULL;
}

static bool take(const cache_segment *segment, uint64_t block)
{
	_Atomic uint64_t *at = state_of(segment, block);
	const uint64_t now = load(at);
	if ((now & CACHE_KIND_BITS) != CACHE_FREE || !swap(at, now, state(CACHE_OPEN, this_process(), generation(now)))) {
		return false;
	}
	/* Where the machine has no memory, it says so here and not by a signal. */
	if (generation(now) == 0 && madvise(segment->map + block_begin(segment, block), segment->block_size, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
		atomic_store(at, state(CACHE_REFUSED, 0, 0));
		return false;
	}
	CACHE_MARK(block_taken);
	return true;
}

/* A block that holds nothing, and how many more there are. */
static bool take_free(const cache_segment *segment, uint64_t *block, uint64_t *left)
{
	_Atomic uint64_t *fresh = word(segment, CACHE_AT_FRESH);
	while (atomic_load(fresh) < segment->blocks) {
		*block = atomic_fetch_add(fresh, 1);
		if (*block < segment->blocks && take(segment, *block)) {
			*left = segment->blocks - *block - 1;
			return true;
		}
	}
	bool taken = false;
	*left = 0;
	for (uint64_t i = 0; i < segment->blocks; i++) {
		if ((atomic_load_explicit(state_of(segment, i), memory_order_relaxed) & CACHE_KIND_BITS) != CACHE_FREE) {
			continue;
		}
		if (!taken && take(segment, i)) {
			taken = true;
			*block = i;
		} else {
			++*left;
		}
	}
	return taken;
}

static bool may_be_cleaned(const cache_segment *segment, uint64_t block)
{
	const uint64_t now = load(state_of(segment, block)), kind = now & CACHE_KIND_BITS;
	return kind == CACHE_FULL || ((kind == CACHE_OPEN || kind == CACHE_CLEANING) && !is_held(now));
}

/* How many bytes of a block nobody needs, as far as is known: of one whose process is gone the end
 * was never written. */
static uint64_t gain(const cache_segment *segment, uint64_t block)
{
	const uint64_t kind = load(state_of(segment, block)) & CACHE_KIND_BITS;
	const uint64_t unwritten = kind == CACHE_OPEN || kind == CACHE_CLEANING ? segment->block_size / WORTHWHILE : 0;
	return atomic_load_explicit(dead_of(segment, block), memory_order_relaxed) + unwritten;
}

/* Begins to clean the block that costs least, and whether nothing need be lost for it: one of which
 * nobody needs much, or else the next one in turn. */
static bool choose(const cache_segment *segment, uint64_t *block, bool *keeps_all)
{
	for (unsigned tries = 0; tries < 4; tries++) {
		const uint64_t hand = atomic_load(word(segment, CACHE_AT_HAND)) % segment->blocks;
		uint64_t next = UINT64_MAX, best = UINT64_MAX, most = 0;
		for (uint64_t step = 0; step < segment->blocks; step++) {
			const uint64_t i = (hand + step) % segment->blocks;
			const uint64_t won = gain(segment, i);
			if ((next == UINT64_MAX || won > most) && may_be_cleaned(segment, i)) {
				next = next == UINT64_MAX ? i : next;
				if (best == UINT64_MAX || won > most) {
					best = i;
					most = won;
				}
			}
		}
		if (next == UINT64_MAX) {
			return false;
		}
		*keeps_all = most >= segment->block_size / WORTHWHILE;
		*block = *keeps_all ? best : next;
		const uint64_t now = load(state_of(segment, *block));
		if (may_be_cleaned(segment, *block)
			&& swap(state_of(segment, *block), now, state(CACHE_CLEANING, this_process(), generation(now)))) {
			if (!*keeps_all) {
				atomic_store(word(segment, CACHE_AT_HAND), *block + 1);
			}
			CACHE_MARK(cleaning);
			return true;
		}
	}
	return false;
}

static bool next_block(const cache_segment *segment, uint64_t length);

/* Room in the block of this process: a place, or 0. */
static uint64_t fit(const cache_segment *segment, uint64_t length, uint64_t limit)
{
	open_block *open = open_of(segment);
	if (open == NULL || open->filled + length > limit) {
		return 0;
	}
	const uint64_t at = block_begin(segment, open->block) + open->filled;
	open->filled += length;
	return at;
}

static uint64_t room(const cache_segment *segment, uint64_t length)
{
	const uint64_t at = fit(segment, length, segment->block_size);
	return at != 0 || !next_block(segment, length) ? at : fit(segment, length, segment->block_size);
}

/* The entry there was not needed, and nothing was written behind it. */
static void take_back(const cache_segment *segment, uint64_t at, uint64_t length)
{
	open_block *open = open_of(segment);
	if (open != NULL && block_begin(segment, open->block) + open->filled == at + length) {
		open->filled -= length;
	}
}

/* `written` is the second in which it was written first. */
static void write_entry(const cache_segment *segment, uint64_t at, const raw_head *head, uint32_t written, const void *key, const void *value)
{
	unsigned char *to = segment->map + at;
	const uint32_t first[2] = {sum_of(segment, head, key, value), written << CACHE_WRITTEN_SHIFT};
	memcpy(to, first, sizeof first);
	memcpy(to + SUMMED, head, sizeof *head);
	CACHE_MARK(entry_half);
	memcpy(to + CACHE_ENTRY, key, head->key_length);
	memcpy(to + CACHE_ENTRY + head->key_length, value, head->value_length);
	CACHE_MARK(entry_written);
}

/* The number of the slot that holds exactly this, once all that was announced is done; 0: none. */
static uint64_t slot_with(const cache_segment *segment, uint64_t bucket, uint64_t slot, uint64_t *idle)
{
	*idle = settle(segment, bucket);
	for (uint64_t number = 1; number <= CACHE_SLOTS; number++) {
		if (load(slot_of(segment, bucket, number)) == slot) {
			return number;
		}
	}
	return 0;
}

/* Moves an entry into the block of this process, whose half is enough for it: so something is won. */
static bool move(const cache_segment *segment, uint64_t bucket, uint64_t slot, const raw_head *head, uint32_t written, const unsigned char *bytes)
{
	const uint64_t length = whole_length(head), at = fit(segment, length, segment->block_size / 2);
	if (at == 0) {
		return false;
	}
	write_entry(segment, at, head, written, bytes, bytes + head->key_length);
	for (unsigned tries = 0; tries < TRIES; tries++) {
		uint64_t idle;
		const uint64_t number = slot_with(segment, bucket, slot, &idle);
		if (number == 0) {
			return false;
		}
		if (announce(segment, bucket, idle, number, at / CACHE_UNIT | CACHE_PUT << CACHE_STEP_SHIFT)) {
			return true;
		}
	}
	return false;
}

/* Moves what is needed out of a block that this process cleans, and frees it. */
static void empty(const cache_segment *segment, uint64_t block, bool keeps_all)
{
	const uint64_t of_block = generation(load(state_of(segment, block)));
	const uint64_t begin = block_begin(segment, block), end = begin + segment->block_size;
	buffer copy = {.there = NULL};
	raw_head head;
	for (uint64_t at = begin; at < end && read_head(segment, at, &head); at += whole_length(&head)) {
		unsigned char *bytes = buffer_of(&copy, (size_t) head.key_length + head.value_length);
		if (bytes == NULL) {
			break;
		}
		memcpy(bytes, segment->map + at + CACHE_ENTRY, (size_t) head.key_length + head.value_length);
		const uint64_t hashed = hash(segment, bytes, head.key_length), bucket = bucket_of(segment, hashed);
		const uint64_t slot = at / CACHE_UNIT | of_block << CACHE_GENERATION_SHIFT | hashed >> CACHE_TAG_SHIFT << CACHE_TAG_SHIFT;
		uint64_t idle;
		if (slot_with(segment, bucket, slot, &idle) == 0 || is_over(head.ends)) {
			continue;
		}
		const uint32_t used = atomic_load_explicit(half(segment, at + CACHE_ENTRY_TOUCHED), memory_order_relaxed);
		const bool stays = keeps_all || (used & CACHE_TOUCHED) != 0;
		if (!stays || !move(segment, bucket, slot, &head, used >> CACHE_WRITTEN_SHIFT, bytes)) {
			count(segment, CACHE_EVICTIONS);
		}
	}
	buffer_free(&copy);
	CACHE_MARK(cleaned);
	atomic_store_explicit(dead_of(segment, block), 0, memory_order_relaxed);
	/* Unless another one has taken it over. */
	swap(state_of(segment, block), state(CACHE_CLEANING, this_process(), of_block), state(CACHE_FREE, 0, of_block + 1));
}

/* Where the entries of a block end. What lies behind them may look like some: those are passed. */
static uint64_t filled(const cache_segment *segment, uint64_t block)
{
	const uint64_t begin = block_begin(segment, block), end = begin + segment->block_size;
	uint64_t at = begin;
	for (raw_head head; at < end && read_head(segment, at, &head);) {
		at += whole_length(&head);
	}
	return at - begin;
}

/* Goes on with the block of a process that has ended: processes that live for one request would
 * otherwise take one each, and others' entries would go for that. */
static bool inherit(const cache_segment *segment, uint64_t length, open_block *into)
{
	for (uint64_t i = 0; i < segment->blocks; i++) {
		const uint64_t now = load(state_of(segment, i)), mine = state(CACHE_OPEN, this_process(), generation(now));
		if ((now & CACHE_KIND_BITS) != CACHE_OPEN || is_held(now) || !swap(state_of(segment, i), now, mine)) {
			continue;
		}
		open_block open = {.map = segment->map, .block = i, .filled = filled(segment, i)};
		const uint64_t left = segment->block_size - open.filled;
		if (length <= left) {
			*into = open;
			return true;
		}
		if (left < segment->block_size / REST) {
			close_block(segment, &open);
		} else {
			swap(state_of(segment, i), mine, now);
		}
	}
	return false;
}

/* Takes a block that has room for so much, and makes room for others where there is little. */
static bool next_block(const cache_segment *segment, uint64_t length)
{
	open_block *open = open_of(segment);
	if (open != NULL) {
		close_block(segment, open);
	} else {
		for (unsigned i = 0; i < OPEN_BLOCKS && open == NULL; i++) {
			open = open_blocks[i].map == NULL ? &open_blocks[i] : NULL;
		}
	}
	uint64_t block, left, victim;
	bool keeps_all;
	if (open == NULL) {
		return false;
	}
	if (inherit(segment, length, open)) {
		return true;
	}
	if (!take_free(segment, &block, &left)) {
		/* Others were faster, or were killed with theirs: what the next one holds is lost. */
		if (!choose(segment, &block, &keeps_all)) {
			return false;
		}
		const uint64_t now = load(state_of(segment, block));
		atomic_store_explicit(dead_of(segment, block), 0, memory_order_relaxed);
		atomic_store(state_of(segment, block), state(CACHE_OPEN, this_process(), generation(now) + 1));
		left = 0;
	}
	*open = (open_block) {.map = segment->map, .block = block};
	if (left <= segment->blocks / RESERVE + 1 && choose(segment, &victim, &keeps_all)) {
		empty(segment, victim, keeps_all);
	}
	return true;
}

/* ---- What writers do ---- */

/* Writes the entry where nobody reads it yet: its place, or 0. */
static uint64_t lay_down(const cache_segment *segment, uint64_t hashed, const cache_entry *entry)
{
	const raw_head head = {
		.key_length = (uint32_t) entry->key_length, .value_length = (uint32_t) entry->value_length, .ends = entry->ends,
		.kind = entry->kind, .hash = (uint32_t) (hashed >> 32),
	};
	const uint64_t at = room(segment, whole_length(&head));
	if (at != 0) {
		write_entry(segment, at, &head, seconds(), entry->key, entry->value);
	}
	return at;
}

static uint64_t entry_length(const cache_entry *entry)
{
	const uint64_t length = CACHE_ENTRY + entry->key_length + entry->value_length;
	return (length + CACHE_UNIT - 1) / CACHE_UNIT * CACHE_UNIT;
}

/* One change of a key, as if at one moment. `entry` NULL: it is removed. */
static cache_outcome change(const cache_segment *segment, const void *key, size_t length, cache_entry *entry, cache_condition *condition, void *context)
{
	const uint64_t hashed = hash(segment, key, length), bucket = bucket_of(segment, hashed);
	buffer value = {.there = NULL};
	uint64_t at = 0;
	cache_outcome outcome = CACHE_NO_ROOM;
	for (unsigned tries = 0; tries < TRIES; tries++) {
		/* Before the announcement is looked at: making room changes buckets, and maybe this one. */
		if (entry != NULL && condition == NULL && at == 0 && (at = lay_down(segment, hashed, entry)) == 0) {
			break;
		}
		const uint64_t idle = settle(segment, bucket);
		found there;
		cache_head head;
		look(segment, bucket, hashed, key, length, condition == NULL ? NULL : &value, &there);
		if (there.is_there) {
			give_head(&head, &there.head);
		}
		const bool may = (entry != NULL || there.is_there)
			&& (condition == NULL || condition(context, there.is_there ? &head : NULL, there.value, entry));
		if (!may) {
			outcome = CACHE_DIFFERS;
			break;
		}
		if (entry != NULL && condition != NULL) {
			if (at != 0) {
				take_back(segment, at, entry_length(entry));
			}
			at = lay_down(segment, hashed, entry);
			if (at == 0) {
				break;
			}
		}
		/* What is written again and again is in use as well. */
		if (entry != NULL && there.is_there) {
			_Atomic uint32_t *touched = half(segment, at + CACHE_ENTRY_TOUCHED);
			const uint32_t before = atomic_load_explicit(touched, memory_order_relaxed);
			atomic_store_explicit(touched, before | CACHE_TOUCHED, memory_order_relaxed);
		}
		const uint64_t step = entry == NULL ? CACHE_REMOVE << CACHE_STEP_SHIFT : at / CACHE_UNIT | CACHE_PUT << CACHE_STEP_SHIFT;
		if (announce(segment, bucket, idle, there.number, step)) {
			if (!there.is_there && there.is_full && is_current(segment, there.slot)) {
				count(segment, CACHE_EVICTIONS);
			}
			bury(segment, there.slot);
			count(segment, CACHE_WRITES);
			buffer_free(&value);
			return CACHE_DONE;
		}
	}
	buffer_free(&value);
	if (entry != NULL && at != 0) {
		take_back(segment, at, entry_length(entry));
	}
	return outcome;
}

cache_outcome cache_put(const cache_segment *segment, cache_entry *entry, cache_condition *condition, void *context)
{
	if (entry->key_length == 0 || entry->key_length > CACHE_LONGEST_KEY || entry->value_length > segment->block_size
		|| entry_length(entry) > segment->block_size) {
		return CACHE_TOO_LONG;
	}
	return change(segment, entry->key, entry->key_length, entry, condition, context);
}

bool cache_delete(const cache_segment *segment, const void *key, size_t length)
{
	return cache_delete_if(segment, key, length, NULL, NULL);
}

bool cache_delete_if(const cache_segment *segment, const void *key, size_t length, cache_condition *condition, void *context)
{
	return change(segment, key, length, NULL, condition, context) == CACHE_DONE;
}

size_t cache_clear(const cache_segment *segment, const void *prefix, size_t length)
{
	size_t removed = 0;
	buffer key = {.there = NULL};
	for (uint64_t bucket = CACHE_HEAD; bucket < segment->table; bucket += CACHE_BUCKET) {
		for (uint64_t number = 1; number <= CACHE_SLOTS; number++) {
			const uint64_t slot = load(slot_of(segment, bucket, number));
			raw_head head;
			if (!is_current(segment, slot) || !read_head(segment, place(slot), &head) || head.key_length < length) {
				continue;
			}
			unsigned char *copy = buffer_of(&key, head.key_length);
			if (copy == NULL) {
				break;
			}
			memcpy(copy, segment->map + place(slot) + CACHE_ENTRY, head.key_length);
			if (memcmp(copy, prefix, length) == 0 && cache_delete(segment, copy, head.key_length)) {
				removed++;
			}
		}
	}
	buffer_free(&key);
	return removed;
}
