/* A script's call and its reply, as frames of the native codec in the box. Knows nothing of PHP. */
#ifndef PRONGHORN_CLASSIC_CALL_H
#define PRONGHORN_CLASSIC_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A name, and its value with a NUL behind it. */
typedef struct {
	const char *name;
	size_t name_length;
	char *value;
	size_t value_length;
} call_variable;

typedef struct {
	uint32_t number;
	call_variable *variables;
	size_t count;
	const char *body;
	size_t body_length;
	bool body_is_file; /* the body is the path of a file that has it */
	bool development;  /* the client may see what went wrong */
	bool timed;        /* the server wants to know what its time is spent on */
} call_t;

/* Descriptors of the server's offer. */
typedef struct {
	int pipes[2]; /* to read from, to write to */
	int box[3];   /* memory, page, bell */
} call_offer;

/* As PRONGHORN_PIPES and PRONGHORN_RING name them. NULL, or what is wrong. */
const char *call_read_offer(const char *pipes, const char *box, call_offer *offer);

/* Waits until the server speaks. NULL, or what is wrong. */
const char *call_greet(const call_offer *offer);

/* Then maps the box, and announces this process. NULL, or what is wrong. */
const char *call_attach(const call_offer *offer, const char *version);

/* Waits for the next call. NULL: the server wants this process to end, or is gone. Valid until it
 * is called again. */
const call_t *call_next(void);

/* The value of a variable, NULL when the call has none of this name. */
char *call_value(const call_t *call, const char *name, size_t length);

/* Ends the reply; what is written after that goes nowhere. With `busy` the worker is not free yet.
 * False: it had ended. */
bool call_end(bool busy);

/* Hands the server what PHP writes to its log. False: the server can't have it. */
bool call_log(const call_t *of, const char *message, bool by_php);

/* This worker takes the next call. */
void call_free(void);

#endif
