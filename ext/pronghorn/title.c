#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "title.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The numbers of fields in /proc/self/stat (proc(5)): the name, which may have spaces, and where
 * the arguments begin. */
#define NAME 2
#define ARGUMENTS 48

/* Where the kernel looks for the arguments. Their memory is the process's own. */
static char *find_arguments(size_t *length)
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
	unsigned long begin, end;
	if (field == NULL || sscanf(field + 1, "%*s %lu %lu", &begin, &end) != 2 || end <= begin) {
		return NULL;
	}
	/* Under valgrind, and emulators, they are those of another program, and this one's lie
	 * elsewhere. */
	if ((char *) begin != program_invocation_name) {
		return NULL;
	}
	*length = (size_t) (end - begin);
	return (char *) begin;
}

void title_set(const char *title)
{
	size_t room;
	char *arguments = find_arguments(&room);
	if (arguments == NULL) {
		return;
	}
	/* The last byte stays a NUL: with another one there the kernel would take the environment for a
	 * part of it. */
	size_t length = strnlen(title, room - 1);
	memset(arguments, 0, room);
	memcpy(arguments, title, length);
}
