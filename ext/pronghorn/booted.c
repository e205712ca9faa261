#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "booted.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "php.h"
#include "SAPI.h"
#include "zend_exceptions.h"
#include "zend_gc.h"
#if PHP_VERSION_ID >= 80200
#include "ext/random/php_random.h"
#else
#include "ext/standard/basic_functions.h"
#include "ext/standard/php_lcg.h"
#include "ext/standard/php_random.h"
#endif

#include "classic_ini.h"
#include "held.h"
#include "zygote.h"

#if defined(ZTS) && defined(COMPILE_DL_PRONGHORN)
ZEND_TSRMLS_CACHE_EXTERN()
#endif

/* By which descriptor the server orders workers; set by it in a zygote alone. */
#define ZYGOTE "PRONGHORN_ZYGOTE"
#define PIPES "PRONGHORN_PIPES"
#define RING "PRONGHORN_RING"
/* A duplicate of stdout or stderr more than these stays that of the zygote. */
#define COPIES 32
/* Of what an application may hold open, so much is told. */
#define REFUSAL 1024
/* As much of the call by which it got what belongs to one process. */
#define OWN 384

static bool is_one;
static pid_t process;
static int (*deactivate_before)(void);

void booted_startup(void)
{
	is_one = getenv(ZYGOTE) != NULL;
	process = getpid();
	if (is_one) {
		held_startup();
	}
}

/* The server has taken it as a worker of another kind. */
static void give_up(void)
{
	is_one = false;
	unsetenv(ZYGOTE);
}

/* A process that a worker has started may have inherited the name, and another file of that
 * number. */
static bool is_control(int descriptor)
{
	int domain = 0;
	socklen_t length = sizeof domain;
	return getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

void booted_begin(void)
{
	const char *control = getenv(ZYGOTE);
	if (!is_one || control == NULL) {
		return;
	}
	if (!is_control(atoi(control))) {
		held_end();
		give_up();
		return;
	}
	fcntl(atoi(control), F_SETFD, FD_CLOEXEC);
	held_begin(atoi(control), give_up);
}

/* ---- What stdout and stderr are also known as ---- */

typedef struct {
	int descriptor, of;
} copy_t;

/* Those that the application has made, such as `php://stderr`. */
static size_t find_copies(copy_t *copies)
{
	const int most = (int) MIN(sysconf(_SC_OPEN_MAX), 4096);
	size_t count = 0;
	for (int of = STDOUT_FILENO; of <= STDERR_FILENO; of++) {
		struct stat standard, other;
		if (fstat(of, &standard) != 0 || !S_ISFIFO(standard.st_mode)) {
			continue;
		}
		for (int descriptor = STDERR_FILENO + 1; descriptor < most && count < COPIES; descriptor++) {
			if (fstat(descriptor, &other) == 0 && other.st_dev == standard.st_dev && other.st_ino == standard.st_ino) {
				copies[count++] = (copy_t) {.descriptor = descriptor, .of = of};
			}
		}
	}
	return count;
}

static void renew_copies(const copy_t *copies, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		held_replace(copies[i].descriptor, copies[i].of);
	}
}

/* ---- Forks ---- */

/* What workers share should be as little as can be, and no worker should collect it once more. */
static void freeze(void)
{
	/* For their superglobals: some forty files, which each worker would read. */
	classic_ini_find();
	zend_gc_collect_cycles();
	zend_mm_gc(zend_mm_get_heap());
	fflush(NULL);
}

/* Each worker draws random numbers of its own, whatever the boot has drawn. */
static void renew_random(void)
{
#if PHP_VERSION_ID >= 80200
	RANDOM_G(mt19937_seeded) = false;
	RANDOM_G(combined_lcg_seeded) = false;
#else
	BG(mt_rand_is_seeded) = false;
	/* Its seed is PHP's own: each worker begins elsewhere. */
	uint16_t skipped = (uint16_t) getpid();
	php_random_bytes_silent(&skipped, sizeof skipped);
	while (skipped-- > 0) {
		php_combined_lcg();
	}
#endif
}

/* A library has a generator that the boot has drawn from, or may have. */
static void seed_library(const char *function, const char *format)
{
	uint64_t seeds[2];
	zval name, arguments[2], result;
	if (zend_hash_str_find_ptr(CG(function_table), function, strlen(function)) == NULL
		|| php_random_bytes_silent(seeds, sizeof seeds) != SUCCESS) {
		return;
	}
	uint32_t count = 0;
	for (; format[count] != '\0'; count++) {
		if (format[count] == 's') {
			ZVAL_STR(&arguments[count], strpprintf(0, "0x%016" PRIx64 "%016" PRIx64, seeds[0], seeds[1]));
		} else {
			/* What it takes is above 0. */
			ZVAL_LONG(&arguments[count], 1 + (zend_long) (seeds[count] % 0x7FFFFFF0));
		}
	}
	ZVAL_STRING(&name, function);
	ZVAL_UNDEF(&result);
	call_user_function(NULL, NULL, &name, &result, count, arguments);
	zend_clear_exception();
	zval_ptr_dtor(&result);
	zval_ptr_dtor(&name);
	for (uint32_t i = 0; i < count; i++) {
		zval_ptr_dtor(&arguments[i]);
	}
}

/* Generators that are not PHP's own: of GMP, of PECL's stats, and those of the C library, which
 * other libraries draw from. What is cryptographic looks at the process by itself (OpenSSL,
 * libgcrypt), or draws from the kernel (libsodium, libuuid). */
static void renew_libraries(void)
{
	unsigned seed;
	seed_library("gmp_random_seed", "s");
	seed_library("stats_rand_setall", "ll");
	if (php_random_bytes_silent(&seed, sizeof seed) == SUCCESS) {
		srand(seed);
		srand48((long) (seed ^ 0x5DEECE66u));
	}
}

/* SQLite's generator, which all its databases draw from, is seeded with the first number, so by each
 * worker if there was none since this. SQLite does it itself where a file is opened, but not for a
 * database in memory. */
static void forget_sqlite_seed(void)
{
	void (*draw)(int, void *);
	*(void **) &draw = dlsym(RTLD_DEFAULT, "sqlite3_randomness");
	if (draw != NULL) {
		draw(0, NULL);
	}
}

/* The end of a request of a worker is the end of its process. The end of PHP's modules, of which
 * nobody has anything, costs several milliseconds, and copies memory that was shared until then. */
static int leave(void)
{
	if (deactivate_before != NULL) {
		deactivate_before();
	}
	fflush(NULL);
	_exit(EG(exit_status));
}

/* As a process finds them that was started for this. */
static void name_descriptors(const call_offer *offer)
{
	char numbers[64];
	snprintf(numbers, sizeof numbers, "%d,%d", offer->pipes[0], offer->pipes[1]);
	setenv(PIPES, numbers, 1);
	snprintf(numbers, sizeof numbers, "%d,%d,%d", offer->box[0], offer->box[1], offer->box[2]);
	setenv(RING, numbers, 1);
}

/* The server speaks when it has taken over this process as its child. */
static bool wait_for_server(const zygote_order *order)
{
	struct pollfd spoken = {.fd = order->offer.pipes[0], .events = POLLIN};
	while (poll(&spoken, 1, -1) < 0 && errno == EINTR) {
	}
	return zygote_is_adopted(order);
}

bool booted_is_booting(void)
{
	/* Not in a child that the application has forked. */
	return is_one && getpid() == process;
}

bool booted_serve(int control, bool is_warm)
{
	char refusal[REFUSAL], own[OWN];
	copy_t copies[COPIES];
	zygote_order order = {0};
	if (!is_one) {
		return false;
	}
	is_one = false;
	held_end();
	freeze();
	forget_sqlite_seed();
	const size_t count = find_copies(copies);
	const zygote_boot boot = {
		.is_warm = is_warm,
		.refusal = held_any(refusal, sizeof refusal) ? refusal : NULL,
		.own = held_own(own, sizeof own) ? own : NULL,
	};
	if (!zygote_serve(control, &boot, &order)) {
		/* What the application has registered for its end is the workers'. */
		_exit(0);
	}
	unsetenv(ZYGOTE);
	if (!order.is_forked) {
		return true;
	}
	renew_copies(copies, count);
	held_reopen();
	renew_random();
	renew_libraries();
	name_descriptors(&order.offer);
	deactivate_before = sapi_module.deactivate;
	sapi_module.deactivate = leave;
	if (!wait_for_server(&order)) {
		_exit(1);
	}
	return true;
}
