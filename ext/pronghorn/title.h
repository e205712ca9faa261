/* What `ps` shows of a process in place of its command. Knows nothing of PHP. */
#ifndef PRONGHORN_TITLE_H
#define PRONGHORN_TITLE_H

/* As far as there is room where the command line stood, which nothing may read any more. */
void title_set(const char *title);

/* Keeps what is shown now, once for a process; shows that again, if it was kept. */
void title_keep(void);
void title_put_back(void);

#endif
