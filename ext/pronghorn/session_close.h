/* Closes sessions of handlers that an application has set. */
#ifndef PRONGHORN_SESSION_CLOSE_H
#define PRONGHORN_SESSION_CLOSE_H

/* Once for the process, after the session module has started. */
void session_close_startup(void);

#endif
