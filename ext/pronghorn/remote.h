/* Calls of the server's methods over RPC, for what is not in memory that this process has mapped. */
#ifndef PRONGHORN_REMOTE_H
#define PRONGHORN_REMOTE_H

#include "php.h"
#include "zend_smart_str.h"

/* Reads where the server listens: scripts may change what the environment says. Once for the
 * process. */
void remote_startup(void);

/* Calls a method with an argument in JSON and waits for its answer, for `seconds` at most. The
 * answer as an array. False: `wrong` says why, in the words of the server or of the system; it may
 * be NULL where an exception was thrown. */
bool remote_call(const char *method, const smart_str *argument, double seconds, zval *answer, char **wrong);

/* Appends `"name":"text"` with what JSON needs escaped, and a comma before. */
void remote_add_text(smart_str *argument, const char *name, const char *text, size_t length);
void remote_add_bytes(smart_str *argument, const char *name, const char *bytes, size_t length);
void remote_add_number(smart_str *argument, const char *name, uint64_t number);

#endif
