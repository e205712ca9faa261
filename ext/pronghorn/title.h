/* What `ps` shows of a process in place of its command. Knows nothing of PHP. */
#ifndef PRONGHORN_TITLE_H
#define PRONGHORN_TITLE_H

/* As far as there is room where the command line stood, which nothing may read any more. */
void title_set(const char *title);

#endif
