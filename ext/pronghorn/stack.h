/* Where the server finds PHP's stack, to read it from outside while a call takes long: addresses and
 * offsets of the engine that this was compiled for. */
#ifndef PRONGHORN_STACK_H
#define PRONGHORN_STACK_H

/* Writes them there, RING_STACK numbers of 64 bits: of the thread that calls this. */
void stack_publish(unsigned char *at);

#endif
