/* The reply to a call that is written piece by piece: PHP's output, behind the head that PHP sends
 * before it. Knows nothing of PHP. */
#ifndef PRONGHORN_REPLY_H
#define PRONGHORN_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory of the process that grows as it is needed. */
typedef struct {
	char *bytes;
	size_t used;
	size_t room;
} buffer_t;

/* A buffer that grew beyond this is given back after its call. */
#define BUFFER_LARGE (1u << 20)

/* Room for so many bytes behind those that are used. */
char *buffer_room(buffer_t *buffer, size_t more);
void buffer_clear(buffer_t *buffer);

/* The reply to this call. What was not sent of another one is forgotten. */
void reply_begin(uint32_t call);

/* The same, if it is not this one already. `has_begun`: somebody else has sent its head. */
void reply_begin_once(uint32_t call, bool has_begun);

/* A page is sent as a whole, unless it is very long or PHP flushes it. */
void reply_keep_whole(void);

/* Makes it one of this status without fields and a body. False: the client has some of another one. */
bool reply_empty(unsigned status);

/* A field of the reply's head. */
void reply_add_field(const char *name, size_t name_length, const char *value, size_t value_length);

/* The head is complete. */
void reply_set_status(unsigned status);

/* Whether there is a head, and whether it was sent. */
bool reply_has_head(void);
bool reply_has_begun(void);

/* Until it is called with NULL: head and begin of the body are sent by somebody else, when something
 * has to go out. False: not yet, and what there is was taken. */
void reply_send_first(bool (*send)(void));
bool reply_has_first(void);

/* Adds to the body. False when the client has left. */
bool reply_write(const char *bytes, size_t length);

/* Sends what there is. False when the client has left. */
bool reply_flush(void);

/* Ends the reply; what is written after that goes nowhere. The flags are those of
 * the codec. False: it had ended. */
bool reply_end(uint8_t flags);
bool reply_has_ended(void);

/* Whether some of its body waits to be sent. */
bool reply_has_body(void);

/* No call has this one any more. */
void reply_forget(void);

/* That part of it, which somebody else sends. Valid until more is written. */
const char *reply_take(size_t *length);

#endif
