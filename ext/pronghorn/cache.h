/* Storages in shared memory, as PHP has them: Pronghorn\Cache\SharedMemory. */
#ifndef PRONGHORN_CACHE_H
#define PRONGHORN_CACHE_H

#include "php.h"

/* Maps the storages that the server handed over. Once for the process. */
void cache_startup(zend_class_entry *shared_memory);

#endif
