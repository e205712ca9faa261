/* Settings of a process that was started as php's command line and serves scripts: those that the
 * command line forces, and those of single hosts and folders. */
#ifndef PRONGHORN_CLASSIC_INI_H
#define PRONGHORN_CLASSIC_INI_H

#include "php.h"

/* Gives the settings that php's command line has fixed the values of php.ini. Once, before a module
 * starts. */
void classic_ini_restore(void);

/* Reads php.ini and the files beside it, once in a process and those that are forked from it. */
void classic_ini_find(void);

/* The same as classic_ini_restore() before the first call of a kept worker, whose boot has run with
 * those of the command line. */
void classic_ini_restore_kept(void);

/* Applies to a request what php.ini has for its host and the folder of its script, and the files
 * .user.ini from the root down to that folder. */
void classic_ini_activate(const char *script, const char *root, const char *host);

#endif
