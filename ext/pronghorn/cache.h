/* Storages in shared memory, as PHP has them: Pronghorn\Cache\SharedMemory. */
#ifndef PRONGHORN_CACHE_H
#define PRONGHORN_CACHE_H

#include "php.h"

#include "cache_segment.h"

/* Maps the storages that the server handed over. Once for the process. */
void cache_startup(zend_class_entry *shared_memory);

/* The storage of this name; NULL for the name: the only one. NULL: there is none, or several. */
const cache_segment *cache_find(const char *name);

/* The bytes of an entry, whatever they are. False: it is not there. */
bool cache_fetch(const cache_segment *segment, const char *key, size_t length, cache_head *head, zend_string **value);

#endif
