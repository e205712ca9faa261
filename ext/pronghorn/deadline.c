#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "deadline.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "clock.h"
#include "native_numbers.h"
#include "zend_exceptions.h"

#if PHP_VERSION_ID >= 80200
typedef zend_atomic_bool interrupt_flag;
#else
typedef volatile zend_bool interrupt_flag;
#endif

static zend_class_entry *exceeded;
static void (*interrupted)(zend_execute_data *frame);
/* Of the thread that runs calls. The handler has no other way to them: with threads they are found
 * by functions that no handler may call. */
static pthread_t owner;
static interrupt_flag *flag;
static bool watching;
/* The call that the last signal named. It may be over: the signal was on its way while its reply
 * was. */
static _Atomic uint32_t late;
/* The call under way, 0 between two, and the one into which the exception was thrown. */
static uint32_t current, told;
/* The call that has work left, until that begins. */
static uint32_t left;
static bool in_work_left;
/* The last call whose reply left it work, until that is told to be done, and when it was replied
 * to. */
static uint32_t replied;
static int64_t replied_at;

static void interrupt_soon(void)
{
#if PHP_VERSION_ID >= 80200
	zend_atomic_bool_store_ex(flag, true);
#else
	*flag = true;
#endif
}

static void on_signal(int number, siginfo_t *about, void *context)
{
	if (about->si_code == SI_QUEUE) {
		atomic_store(&late, (uint32_t) (uintptr_t) about->si_value.sival_ptr);
	}
	if (!pthread_equal(pthread_self(), owner)) {
		/* It is to end what its own thread waits for, as well. */
		pthread_kill(owner, number);
		return;
	}
	interrupt_soon();
}

/* Between two lines of PHP. */
static void on_interrupt(zend_execute_data *frame)
{
	if (interrupted != NULL) {
		interrupted(frame);
	}
	if (!watching || !pthread_equal(pthread_self(), owner) || EG(exception) != NULL) {
		return;
	}
	if (EG(current_execute_data) == NULL || EG(current_execute_data)->func == NULL) {
		/* Behind a function that was made for one call, such as FFI's, and is gone: a trace can't
		 * begin there. */
		interrupt_soon();
		return;
	}
	uint32_t call = atomic_exchange(&late, 0);
	if (call == 0 || call != current) {
		return;
	}
	const char *what = in_work_left ? "What a call has deferred" : "The call";
	if (told == call) {
		zend_error_noreturn(E_ERROR, "%s has passed its deadline, and goes on after %s was thrown", what, ZSTR_VAL(exceeded->name));
	}
	told = call;
	zend_throw_exception_ex(exceeded, 0, "%s has passed its deadline", what);
}

void deadline_startup(zend_class_entry *class)
{
	exceeded = class;
	interrupted = zend_interrupt_function;
	zend_interrupt_function = on_interrupt;
}

bool deadline_watch(void)
{
	/* No SA_RESTART: sleep and select are to end. */
	struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
	owner = pthread_self();
	flag = &EG(vm_interrupt);
	watching = sigaction(DEADLINE_SIGNAL, &action, NULL) == 0;
	return watching;
}

void deadline_begins(uint32_t call)
{
	current = call;
	told = left = 0;
	in_work_left = false;
}

void deadline_ends(uint32_t with_work_left)
{
	current = 0;
	left = with_work_left;
	if (with_work_left != 0) {
		replied = with_work_left;
		replied_at = clock_nanoseconds();
	}
}

bool deadline_begins_work_left(void)
{
	bool is_left = left != 0;
	if (is_left) {
		deadline_begins(~left);
		in_work_left = true;
	}
	return is_left;
}

uint16_t deadline_rest(uint32_t call)
{
	if (call != replied) {
		return 0;
	}
	replied = 0;
	int64_t units = (clock_nanoseconds() - replied_at) / (NATIVE_REST_UNIT_US * 1000);
	return (uint16_t) MAX(1, MIN(units, UINT16_MAX));
}
