/* What is printed past all output buffers while a handler answers: part of its reply. */
#ifndef PRONGHORN_PRINTED_H
#define PRONGHORN_PRINTED_H

#include "php.h"

enum printed_place {
	/* Where PHP's command line writes it, as the output of a job. */
	PRINTED_LOG,
	/* The reply under way; its head is not sent. */
	PRINTED_REPLY,
	/* The same, and its head is sent. */
	PRINTED_STREAM,
	/* Nobody's: its call is over. It may be a visitor's, so that it is counted and not logged. */
	PRINTED_LATE,
};

/* Where the output of this moment belongs; of a reply, the number of its call. */
typedef enum printed_place printed_ask(uint32_t *call);

/* From now on. `begun` is called when output has sent the head of a reply. */
void printed_take_over(printed_ask *ask, void (*begun)(void));
/* There are no more calls: it goes where PHP's command line writes it, until the process ends. */
void printed_give_back(void);

/* The process ends. What it prints from here on may be a visitor's: it is counted. */
void printed_end(void);
/* Tells how much that was. */
void printed_ended(void);

/* Closes the output buffers above this level, whatever flags they have: what is in each flows into
 * the one below. The first that a callback throws is there afterwards, an `exit` too. */
void printed_close(zend_long above);

/* As the output of PHP. */
size_t printed_write(const char *text, size_t length);

/* The client of the call under way has left: the call ends, unless it wants to go on. */
void printed_to_nobody(void);

/* Whether that has ended the call under way. An `exit` or a want of memory ends calls as well, also
 * of those whose client has left. */
bool printed_has_ended_call(void);

/* A call begins. */
void printed_begins(void);

/* Adds to what is dropped. */
void printed_drop(size_t length);

/* Whether something waits, in a buffer of PHP's or behind them. A few loads. */
bool printed_any(void);

/* What waits behind all buffers of the reply to a call. NULL: nothing. */
zend_string *printed_take(void);

/* The same with what is in the buffers, which are closed. */
zend_string *printed_take_all(void);

/* A fatal error in an output callback leaves PHP's output locked, or taken down: whatever touches it
 * then ends the process. This makes it work again, without what the callback was given. */
void printed_recover(void);

/* Whether something was dropped since the end of the call before. */
bool printed_has_late(void);

/* The end of a call: how much that is. */
size_t printed_settle(void);

#endif
