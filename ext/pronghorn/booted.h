/* A zygote that has booted an application: the workers of a kept pool are forked from it.
 * docs/decisions/0037-fork-of-a-booted-application.md says why it is so. */
#ifndef PRONGHORN_BOOTED_H
#define PRONGHORN_BOOTED_H

#include <stdbool.h>

/* Before any script is compiled. */
void booted_startup(void);

/* The application begins. */
void booted_begin(void);

/* Freezes the process and forks workers for the server, as often as that wants one. Returns in each
 * worker, which finds its descriptors in the environment as one that was started does; in the
 * zygote only when the server wants it to be a worker itself. False: nobody wants this process to
 * be a zygote. `is_warm`: it has answered what new workers would be asked. */
bool booted_serve(int control, bool is_warm);

/* Whether this process is one that still boots. */
bool booted_is_booting(void);

#endif
