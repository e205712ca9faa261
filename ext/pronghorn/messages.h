/* What PHP says of errors while a kept worker has a call: goes to the server with the number of the
 * call, for a record that names the request. stderr would not say of which call it is. */
#ifndef PRONGHORN_MESSAGES_H
#define PRONGHORN_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "php.h"

/* What zend_error_cb points to. */
typedef void messages_report(int type, zend_string *file, const uint32_t line, zend_string *message);

/* Has PHP report an error, and knows what it writes to its log of it from what error_log() writes
 * there, whose words may be a visitor's. */
void messages_report_by(messages_report *report, int type, zend_string *file, const uint32_t line, zend_string *message);

/* Whether PHP's log is a file, or the system's. */
bool messages_have_file(void);

/* Whether what is written to the log now are words of PHP itself. Each error has one text. */
bool messages_are_by_php(void);

/* The call under way; 0: there is none. */
typedef uint32_t messages_ask(void);

/* From now on. Outside of calls all is as before. */
void messages_take_over(messages_ask *who);
void messages_give_back(void);

#endif
