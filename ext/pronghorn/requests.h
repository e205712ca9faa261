/* Calls of a kept worker as requests of PHP's own: superglobals, php://input, header(), sessions,
 * output, and what a call has changed in PHP is changed back after it. The process stays PHP's
 * command line, in the one request that its worker script is. */
#ifndef PRONGHORN_REQUESTS_H
#define PRONGHORN_REQUESTS_H

#include "php.h"

#include "native.h"

/* Once for the process. */
void requests_startup(void);

/* From now on calls are requests. In a front controller's process PHP's output is the body of
 * replies. `form` is given a request whose form the server has taken apart, and returns what $_POST
 * and $_FILES are, and the paths of the files. */
void requests_take_over(const native_slots *slots, bool front, zval *form);

/* For calls that are no requests: what is there now is there again after requests_reset(), which
 * runs the functions for the end of the call. True: code of the application may have run meanwhile,
 * or a session is open, and settings stay until it is closed. */
void requests_keep(void);
bool requests_reset(void);
void requests_let_go(void);

/* Whether they are, whether one is under way, and whether PHP's output is their reply. */
bool requests_on(void);
bool requests_under_way(void);
bool requests_are_front(void);

/* Whether the functions for the end of the call have run. */
bool requests_are_finished(void);

/* The call whose exchange this is begins; its request and where its body is asked for, if it did
 * not come with it. */
void requests_begin(zend_object *request, zend_object *body);

/* All that may still say something of the reply: functions for the end of the call, and the
 * session is written. Once for a call. */
void requests_finish(void);

/* Whether code of the application may run there. */
bool requests_have_end(void);

/* Calls what waits for the head of a reply (header_register_callback()), before requests_head().
 * What it prints is of the call. `has_type`: PHP has a default type for it. */
void requests_call_back_for_head(bool has_type);

/* Status and headers of a reply with what PHP was told of them. The caller releases the headers.
 * `has_length`: the length that they name is that of the body. `has_type`: as above. */
zend_array *requests_head(uint16_t *status, zend_array *headers, bool has_length, bool has_type);

/* What PHP's output is, is the reply: ends it. False: it had ended. */
bool requests_reply(uint8_t flags);

/* A fatal error has ended the call, and the process's request is about to end: runs the functions
 * for the end of the call. Whether they, or what came before, had something to say, which is the
 * reply now; before it, `tell` is called. */
bool requests_last(zval *tell);

/* The call is over. */
void requests_end(void);

/* The same for what destructors have left that ran behind it, when its last values were freed.
 * False: they leave something each time, and this process gets no other call. */
bool requests_settle(void);

/* Values of it are freed later, so that there may be something. */
void requests_unsettled(void);

/* At the end of the process's request. */
void requests_give_back(void);

#endif
