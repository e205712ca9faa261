/* A server API of its own inside stock php: scripts as under php-fpm, each call a whole request
 * from its start to its end. docs/reference/classic.md says what scripts get. */
#ifndef PRONGHORN_CLASSIC_H
#define PRONGHORN_CLASSIC_H

#include "php.h"

/* Takes the place of php's command line if the server started this process for scripts. Before any
 * other module starts: PCRE, FFI, libxml, phar and OPcache look once at the name of the server API,
 * then. */
void classic_prepare(void);

/* Whether it did. */
bool classic_is_on(void);

/* The script has ended: nobody reads its request's body any more. */
void classic_script_ended(void);

#endif
