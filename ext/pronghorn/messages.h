/* What PHP says of errors while a kept worker has a call: goes to the server with the number of the
 * call, for a record that names the request. stderr would not say of which call it is. */
#ifndef PRONGHORN_MESSAGES_H
#define PRONGHORN_MESSAGES_H

#include <stdint.h>

/* The call under way; 0: there is none. */
typedef uint32_t messages_ask(void);

/* From now on. Outside of calls all is as before. */
void messages_take_over(messages_ask *who);
void messages_give_back(void);

#endif
