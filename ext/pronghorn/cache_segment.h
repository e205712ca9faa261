/* A cache in memory that processes share, as this process has it. The same steps as in Rust are in
 * crates/cache, from one layout. Nothing here knows PHP. */
#ifndef PRONGHORN_CACHE_SEGMENT_H
#define PRONGHORN_CACHE_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache_layout.h"

/* Where a process can be killed by a test; each name is one of the values of PRONGHORN_KILL_AT. */
#define CACHE_MARKS(mark) \
	mark(entry_half)      /* an entry is written in part */ \
	mark(entry_written)   /* all of it, and nobody can find it */ \
	mark(announced)       /* a change is announced, and not done */ \
	mark(slot_changed)    /* it is done, and still announced */ \
	mark(block_taken)     /* a block is this process's, and empty */ \
	mark(cleaning)        /* a block is about to be emptied */ \
	mark(cleaned)         /* it is empty, and not free yet */

#ifdef PRONGHORN_MARKS
#define CACHE_MARK_NUMBER(name) cache_mark_##name,
typedef enum { CACHE_MARKS(CACHE_MARK_NUMBER) } cache_mark_number;
void cache_mark(cache_mark_number mark);
#define CACHE_MARK(name) cache_mark(cache_mark_##name)
#else
#define CACHE_MARK(name) ((void) 0)
#endif

typedef struct {
	unsigned char *map; /* NULL: not mapped */
	size_t size;
	/* Read once and checked: what the segment says of itself later does not count. */
	uint64_t buckets, blocks, block_size, seed;
	uint64_t table, first_block;
} cache_segment;

typedef enum {
	CACHE_DONE,
	CACHE_DIFFERS,  /* something else is there, or nothing */
	CACHE_TOO_LONG,
	CACHE_NO_ROOM,
} cache_outcome;

/* The head of an entry, checked and private. */
typedef struct {
	uint32_t key_length, value_length, kind;
	uint64_t ends; /* milliseconds of cache_now(); 0: no end */
} cache_head;

/* An entry to be written: a value is in one piece. */
typedef struct {
	const void *key;
	size_t key_length;
	const void *value;
	size_t value_length;
	uint32_t kind;
	uint64_t ends;
} cache_entry;

/* Maps a segment. NULL, or what is wrong. The descriptor stays open. */
const char *cache_map(cache_segment *segment, int memory);

/* Milliseconds of a clock that nobody sets, never 0. */
uint64_t cache_now(void);

/* In a forked child: its parent goes on in the block that both know of. */
void cache_forked(void);

/* Makes room for a value of so many bytes; NULL: no memory. What it returned last is the value once
 * the whole entry is found sound. */
typedef void *cache_allocator(void *context, size_t length);

/* Reads an entry. False: it is not there. `allocate` may be called several times, as entries move
 * meanwhile; what it returned before is not used any more. */
bool cache_read(const cache_segment *segment, const void *key, size_t length, cache_head *head, cache_allocator *allocate, void *context);

/* Decides by what is there (NULL: nothing) whether the entry takes its place; it may write `entry`
 * as it should be. */
typedef bool cache_condition(void *context, const cache_head *head, const void *value, cache_entry *entry);

/* Keeps an entry where the condition holds; NULL: always. */
cache_outcome cache_put(const cache_segment *segment, cache_entry *entry, cache_condition *condition, void *context);

/* Whether it was there. */
bool cache_delete(const cache_segment *segment, const void *key, size_t length);

/* Whether it was there, and was removed because the condition holds. */
bool cache_delete_if(const cache_segment *segment, const void *key, size_t length, cache_condition *condition, void *context);

/* Removes all entries whose key begins so; how many. */
size_t cache_clear(const cache_segment *segment, const void *prefix, size_t length);

#endif
