/* Memory that a call gives back, kept for the next ones.
 *
 * PHP's heap takes memory from the kernel in chunks of 2 MB, and gives a chunk back as soon as
 * nothing in it is used. How many it should keep it learns when a script ends, and that of a worker
 * does not: a handler that takes another two megabytes has them mapped, touched page by page and
 * unmapped in each call. */
#ifndef PRONGHORN_CHUNKS_H
#define PRONGHORN_CHUNKS_H

/* From now on, of this thread's heap. Does nothing where PHP has another one, or can't be told. */
void chunks_keep(unsigned milliseconds);

/* Gives back those that nobody has needed for so many milliseconds. Cheap: it may be called before
 * each call. */
void chunks_look(void);

/* The end of it, before this code is unloaded. */
void chunks_let_go(void);

#endif
