/* What a loop that waits for another processor does between two looks. */
#ifndef PRONGHORN_PAUSE_H
#define PRONGHORN_PAUSE_H

static inline void pause_processor(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
