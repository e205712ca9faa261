/* Sessions in storages that this process does not map: the server is asked for them, and keeps their
 * locks. crates/kv/src/sessions.rs is the other end. */
#ifndef PRONGHORN_ASKED_H
#define PRONGHORN_ASKED_H

#include "php.h"

/* A session of such a storage, while it is open. */
typedef struct {
	const char *storage;
	uint64_t token; /* of its lock; 0: none */
	bool is_there; /* it was found when it was opened */
	bool is_young; /* most of its time is left: it need not be written for its end alone */
} asked;

/* Who asks. */
typedef struct {
	uint64_t process, started;
	const char *doing;
} asker;

/* Reads the names that the server handed over. Once for the process. */
void asked_startup(void);

/* The storage of this name; NULL for the name: the only one. NULL: there is none, or several. */
const char *asked_find(const char *name);

/* Each of these warns where it returns false, or an exception was thrown. */

/* Locks the session, waiting for so many milliseconds at most (0: for ever), unless it is only read,
 * and reads it. `lifetime` in seconds. */
bool asked_open(asked *of, const zend_string *id, bool is_read_only, const asker *who, uint64_t wait, zend_long lifetime, zend_string **value);
/* `is_last`: the lock goes with it. */
bool asked_write(asked *of, const zend_string *id, const zend_string *value, zend_long lifetime, bool is_last);
bool asked_destroy(const asked *of, const zend_string *id);
bool asked_has(const asked *of, const zend_string *id);
void asked_close(asked *of, const zend_string *id);

#endif
