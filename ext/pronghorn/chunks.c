#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "chunks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"
#include "php.h"
#include "zend_alloc_sizes.h"

/* 16 MB: what a call needs beyond that takes longer to fill than to map, and a worker is not to
 * look much larger than it is. */
#define MOST 8

static void *kept[MOST];
static unsigned count;
/* The fewest since `since`: so many of them nobody has needed. */
static unsigned least;
static int64_t since, patience;

/* ---- What the heap calls, in place of mmap and munmap ---- */

static void *map(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

static void *map_aligned(size_t size, size_t alignment)
{
	char *at = map(size);
	if (at == NULL || (uintptr_t) at % alignment == 0) {
		return at;
	}
	munmap(at, size);
	at = map(size + alignment);
	if (at == NULL) {
		return NULL;
	}
	size_t before = alignment - (uintptr_t) at % alignment;
	munmap(at, before);
	if (before < alignment) {
		munmap(at + before + size, alignment - before);
	}
	return at + before;
}

static void *take(zend_mm_storage *storage, size_t size, size_t alignment)
{
	if (size != ZEND_MM_CHUNK_SIZE || count == 0) {
		return map_aligned(size, alignment);
	}
	void *chunk = kept[--count];
	least = MIN(least, count);
	/* The head of a chunk, which the heap expects as the kernel gives it. */
	return memset(chunk, 0, ZEND_MM_FIRST_PAGE * ZEND_MM_PAGE_SIZE);
}

static void give(zend_mm_storage *storage, void *chunk, size_t size)
{
	if (size == ZEND_MM_CHUNK_SIZE && count < MOST) {
		kept[count++] = chunk;
	} else {
		munmap(chunk, size);
	}
}

/* Some versions of PHP say int, others bool. */
typedef __typeof__(((zend_mm_handlers *) NULL)->chunk_truncate(NULL, NULL, 0, 0)) done;

static done truncate_block(zend_mm_storage *storage, void *block, size_t before, size_t after)
{
	return munmap((char *) block + after, before - after) == 0;
}

static done extend_block(zend_mm_storage *storage, void *block, size_t before, size_t after)
{
	return mremap(block, before, after, 0) != MAP_FAILED;
}

static zend_mm_storage storage = {.handlers = {take, give, truncate_block, extend_block}};


/* ---- How it comes to call them ---- */

/* The engine asks for them when it makes a heap, not for one that is there. Between the two kinds
 * the difference is a pointer, one of the first words of a heap: which one, a heap of the other
 * kind shows, and the engine tells whether it was the right one. */
#define WORDS 8

static void *word(const zend_mm_heap *heap, size_t number)
{
	void *value;
	memcpy(&value, (const char *) heap + number * sizeof value, sizeof value);
	return value;
}

static void set_word(zend_mm_heap *heap, size_t number, void *value)
{
	memcpy((char *) heap + number * sizeof value, &value, sizeof value);
}

/* WORDS: none of them. */
static size_t find_word(void)
{
	zend_mm_heap *sample = zend_mm_startup_ex(&storage.handlers, NULL, 0);
	if (sample == NULL) {
		return WORDS;
	}
	const void *wanted = zend_mm_get_storage(sample);
	size_t number = 0;
	while (number < WORDS && (wanted == NULL || word(sample, number) != wanted)) {
		number++;
	}
	/* It lies in its only chunk. */
	munmap((char *) sample - (uintptr_t) sample % ZEND_MM_CHUNK_SIZE, ZEND_MM_CHUNK_SIZE);
	return number;
}

/* That of the worker's thread, and the word of it that was changed. */
static zend_mm_heap *heap;
static size_t changed;

static void release(unsigned how_many)
{
	/* The oldest, of which least is in the processor's caches. */
	for (unsigned i = 0; i < how_many; i++) {
		munmap(kept[i], ZEND_MM_CHUNK_SIZE);
	}
	count -= how_many;
	memmove(kept, kept + how_many, count * sizeof *kept);
}

void chunks_keep(unsigned milliseconds)
{
	const char *huge = getenv("USE_ZEND_ALLOC_HUGE_PAGES");
	/* A debug build, which asserts of a chunk from a storage what is true of no address, (chunk + 2
	 * MB - 1) % 2 MB == chunk; another allocator; or one that asks the kernel for more than
	 * memory. */
	if (ZEND_DEBUG || heap != NULL || !is_zend_mm() || (huge != NULL && atoi(huge) != 0)) {
		return;
	}
	zend_mm_heap *mine = zend_mm_get_heap();
	const size_t number = zend_mm_get_storage(mine) == NULL ? find_word() : WORDS;
	if (number == WORDS || word(mine, number) != NULL) {
		return;
	}
	set_word(mine, number, &storage);
	if (zend_mm_get_storage(mine) != &storage) {
		set_word(mine, number, NULL);
		return;
	}
	heap = mine;
	changed = number;
	patience = (int64_t) milliseconds * 1000000;
	since = clock_nanoseconds();
}

void chunks_look(void)
{
	if (count == 0) {
		return;
	}
	const int64_t now = clock_nanoseconds();
	if (now - since >= patience) {
		release(least);
		least = count;
		since = now;
	}
}

void chunks_let_go(void)
{
	if (heap != NULL) {
		set_word(heap, changed, NULL);
		heap = NULL;
		release(count);
	}
}
