#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "title.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The numbers of fields in /proc/self/stat (proc(5)): the name, which may have spaces, and where
 * the arguments begin. */
#define NAME 2
#define ARGUMENTS 48

/* Where the kernel looks for the arguments. Their memory is the process's own. `with_environment`:
 * the length with what is behind them, which PHP's own titles run over. */
static char *find_arguments(size_t *length, size_t *with_environment)
{
	char text[2048];
	FILE *file = fopen("/proc/self/stat", "r");
	if (file == NULL) {
		return NULL;
	}
	text[fread(text, 1, sizeof text - 1, file)] = '\0';
	fclose(file);
	const char *field = strrchr(text, ')');
	for (unsigned number = NAME; number < ARGUMENTS - 1 && field != NULL; number++) {
		field = strchr(field + 1, ' ');
	}
	unsigned long begin, end, environment, end_of_all;
	if (field == NULL || sscanf(field + 1, "%*s %lu %lu %lu %lu", &begin, &end, &environment, &end_of_all) != 4 || end <= begin) {
		return NULL;
	}
	/* Under valgrind, and emulators, they are those of another program, and this one's lie
	 * elsewhere. */
	if ((char *) begin != program_invocation_name) {
		return NULL;
	}
	*length = (size_t) (end - begin);
	*with_environment = environment == end && end_of_all > end ? (size_t) (end_of_all - begin) : *length;
	return (char *) begin;
}

void title_set(const char *title)
{
	size_t room, all;
	char *arguments = find_arguments(&room, &all);
	if (arguments == NULL) {
		return;
	}
	/* The last byte stays a NUL: with another one there the kernel would take the environment for a
	 * part of it. */
	size_t length = strnlen(title, room - 1);
	memset(arguments, 0, room);
	memcpy(arguments, title, length);
}

static char *kept;
static size_t kept_length;

void title_keep(void)
{
	size_t room;
	const char *arguments = kept == NULL ? find_arguments(&room, &kept_length) : NULL;
	if (arguments != NULL && (kept = malloc(kept_length)) != NULL) {
		memcpy(kept, arguments, kept_length);
	}
}

void title_put_back(void)
{
	size_t room, all;
	char *arguments = kept == NULL ? NULL : find_arguments(&room, &all);
	if (arguments != NULL && all == kept_length) {
		memcpy(arguments, kept, all);
	}
}
