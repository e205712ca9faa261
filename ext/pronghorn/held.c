#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "held.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "php.h"

/* Descriptors that are told apart. Who opened one with a greater number is not said. */
#define MOST 1024
/* What is in the way and not told by name is counted. */
#define TOLD 5
/* As many files that are appended to are each worker's own. */
#define APPENDED 64
/* Mappings of memory that processes share: PHP has one, and so has each of few extensions. */
#define MAPPINGS 64
/* Files whose names are looked at when the boot has ended. */
#define NAMES 16
/* So often it is asked whether the server still wants to know. */
#define CALLS 64

typedef struct {
	dev_t device;
	ino_t number;
} file_id;

/* What a descriptor was when the application began, and what was mapped. */
static file_id known[MOST], known_memory[MAPPINGS];
static size_t known_memory_count;
/* A call of a function of PHP. Nothing: an empty name. */
typedef struct {
	char function[96];
	char file[224];
	uint32_t line;
} place;

/* Calls that leave what no descriptor shows. Semaphores that are let go of are counted. */
typedef enum { NOTHING, OWN, NAMING, MAPPING, TIMER, ACQUIRING, RELEASING, KINDS } kind;

/* The call that has opened a descriptor, and the first of each kind. */
static place opened[MOST], first[KINDS];
/* Memory that a call of MAPPING has brought. */
static struct {
	file_id memory;
	place by;
} mapped[MAPPINGS];
static size_t mapped_count;
/* Files of tempnam(). One that is gone by the end of the boot was written and then renamed, as a cache
 * is: nobody goes on with its name. */
static struct {
	char *path;
	place by;
} named[NAMES];
static size_t named_count;
/* Semaphores of System V that are acquired. */
static size_t acquired;
static int lowest_before, control;
static bool was_next_open, is_watching, counts_own = true;
/* Files that are only appended to. */
static int appended[APPENDED];
static size_t appended_count;
static void (*over)(void);
static void (*called_before)(zend_execute_data *frame, zval *result);

/* ---- Who opens what ---- */

/* The lowest number that is free: what is opened next gets it. */
static int lowest_free(void)
{
	int lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (lowest >= 0) {
		close(lowest);
	}
	return lowest;
}

/* Calls it with the number of each open descriptor. False: nobody can tell. */
static bool each_open(void (*use)(int descriptor, void *with), void *with)
{
	DIR *all = opendir("/proc/self/fd");
	if (all == NULL) {
		return false;
	}
	const struct dirent *one;
	while ((one = readdir(all)) != NULL) {
		if (one->d_name[0] != '.' && atoi(one->d_name) != dirfd(all)) {
			use(atoi(one->d_name), with);
		}
	}
	closedir(all);
	return true;
}

/* The function is not asked of the frame: behind its call, one that was made for that, such as FFI's,
 * is gone. */
static void note(place *of, const zend_execute_data *frame, const zend_string *name, const zend_class_entry *class)
{
	snprintf(
		of->function, sizeof of->function, "%s%s%s",
		class == NULL ? "" : ZSTR_VAL(class->name), class == NULL ? "" : "::", name == NULL ? "" : ZSTR_VAL(name)
	);
	frame = frame->prev_execute_data;
	while (frame != NULL && (frame->func == NULL || !ZEND_USER_CODE(frame->func->type))) {
		frame = frame->prev_execute_data;
	}
	of->file[0] = '\0';
	if (frame != NULL) {
		snprintf(of->file, sizeof of->file, "%s", ZSTR_VAL(frame->func->op_array.filename));
		of->line = frame->opline->lineno;
	}
}

/* ---- Who gets what no descriptor shows ---- */

/* By what they do to the process; FFI's are called by the C library's names.
 *
 * What those of OWN return would be the same in all forks, where the application keeps it. A
 * generator that the boot has made goes on with the same numbers in each. */
static const struct {
	const char *function;
	kind of;
} functions[] = {
	{"getmypid", OWN}, {"posix_getpid", OWN}, {"random_bytes", OWN}, {"random_int", OWN}, {"mt_rand", OWN}, {"rand", OWN},
	{"lcg_value", OWN}, {"uniqid", OWN}, {"shuffle", OWN}, {"str_shuffle", OWN}, {"array_rand", OWN},
	{"openssl_random_pseudo_bytes", OWN}, {"openssl_pkey_new", OWN}, {"session_create_id", OWN}, {"tempnam", NAMING},
	{"posix_getpgrp", OWN}, {"posix_getpgid", OWN}, {"posix_getsid", OWN}, {"uuid_create", OWN}, {"uuid_make", OWN},
	{"sodium_crypto_box_seal", OWN}, {"getpid", OWN}, {"gettid", OWN}, {"getrandom", OWN},
	{"shmop_open", MAPPING}, {"shm_attach", MAPPING}, {"mmap", MAPPING}, {"mmap64", MAPPING}, {"shmat", MAPPING},
	{"pcntl_alarm", TIMER}, {"alarm", TIMER}, {"ualarm", TIMER}, {"setitimer", TIMER},
	{"sem_acquire", ACQUIRING}, {"sem_release", RELEASING}, {"sem_remove", RELEASING},
};
/* `gmp_random_bits()`, `sodium_crypto_secretbox_keygen()`, `sodium_crypto_sign_keypair()`,
 * `uuid_generate_random()`. */
static const char *const own_parts[] = {"gmp_random", "_keygen", "_keypair", "uuid_generate"};
static HashTable kinds;

static void name_functions(void)
{
	zend_hash_init(&kinds, sizeof functions / sizeof *functions, NULL, NULL, true);
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		zval of;
		ZVAL_LONG(&of, functions[i].of);
		zend_hash_str_add(&kinds, functions[i].function, strlen(functions[i].function), &of);
	}
}

/* With the key 0 no other process finds it: all forks would have one, where each process that boots
 * has its own. */
static bool is_private(const zend_execute_data *frame, const zend_string *name)
{
	return (zend_string_equals_literal(name, "sem_get") || zend_string_equals_literal(name, "msg_get_queue"))
		&& ZEND_CALL_NUM_ARGS(frame) > 0 && Z_TYPE_P(ZEND_CALL_ARG(frame, 1)) == IS_LONG && Z_LVAL_P(ZEND_CALL_ARG(frame, 1)) == 0;
}

/* By its name: a closure of a function has another handler. */
static kind kind_of(const zend_execute_data *frame)
{
	static const char generators[] = "Random\\";
	const zend_function *function = frame->func;
	const zend_class_entry *class = function->common.scope;
	const zend_string *name = function->common.function_name;
	if (name == NULL) {
		return NOTHING;
	}
	if (class != NULL && (function->common.fn_flags & ZEND_ACC_FAKE_CLOSURE) == 0) {
		return strncmp(ZSTR_VAL(class->name), generators, sizeof generators - 1) == 0 ? OWN : NOTHING;
	}
	const zval *of = zend_hash_find(&kinds, (zend_string *) name);
	if (of != NULL) {
		return (kind) Z_LVAL_P(of);
	}
	for (size_t i = 0; i < sizeof own_parts / sizeof *own_parts; i++) {
		if (strstr(ZSTR_VAL(name), own_parts[i]) != NULL) {
			return OWN;
		}
	}
	return is_private(frame, name) ? OWN : NOTHING;
}

/* Whether the server has closed its end, as it does when a script of another package has answered:
 * such a worker must not be slower for it. */
static bool is_over(void)
{
	char byte;
	const ssize_t got = recv(control, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

static void count_acquired(kind of, const zval *result)
{
	if (result == NULL || Z_TYPE_P(result) != IS_TRUE) {
		return;
	}
	if (of == ACQUIRING) {
		acquired++;
	} else if (acquired > 0 && --acquired == 0) {
		first[ACQUIRING].function[0] = '\0';
	}
}

static bool is_open(int descriptor)
{
	return fcntl(descriptor, F_GETFD) >= 0;
}

typedef struct {
	const zend_execute_data *frame;
	const zend_string *name;
	const zend_class_entry *class;
} call;

static void note_if_unnamed(int descriptor, void *with)
{
	const call *of = with;
	if (descriptor < MOST && opened[descriptor].function[0] == '\0') {
		note(&opened[descriptor], of->frame, of->name, of->class);
	}
}

/* Behind each call: what is open that was not? Of a pipe, PHP may keep the end with the greater
 * number: then the lowest that is free is what it was, and the next one is not free any more. */
static void look_for_opened(call *of)
{
	const int lowest = lowest_free();
	const bool is_next_open = lowest >= 0 && is_open(lowest + 1);
	if (EXPECTED(lowest == lowest_before && is_next_open == was_next_open) || lowest < 0) {
		return;
	}
	for (int descriptor = lowest_before; descriptor < lowest; descriptor++) {
		note_if_unnamed(descriptor, of);
	}
	if (is_next_open) {
		each_open(note_if_unnamed, of);
	}
	for (int closed = lowest; closed < MIN(lowest + (is_next_open ? 1 : 2), MOST); closed++) {
		opened[closed].function[0] = '\0';
	}
	lowest_before = lowest;
	was_next_open = is_next_open;
}

/* Calls it with each mapping of memory that other processes may write. False: nobody can tell. */
static bool each_shared_memory(void (*use)(const file_id *memory, const char *path, void *with), void *with)
{
	char line[PATH_MAX + 128], access[5], path[PATH_MAX + 32];
	FILE *maps = fopen("/proc/self/maps", "re");
	if (maps == NULL) {
		return false;
	}
	while (fgets(line, sizeof line, maps) != NULL) {
		unsigned high, low;
		unsigned long number;
		path[0] = '\0';
		if (sscanf(line, "%*s %4s %*s %x:%x %lu %4127[^\n]", access, &high, &low, &number, path) >= 4 && access[1] == 'w'
			&& access[3] == 's') {
			use(&(file_id) {.device = makedev(high, low), .number = number}, path, with);
		}
	}
	fclose(maps);
	return true;
}

static bool is_known_memory(const file_id *memory)
{
	for (size_t i = 0; i < known_memory_count; i++) {
		if (known_memory[i].device == memory->device && known_memory[i].number == memory->number) {
			return true;
		}
	}
	/* The server's, of which each process has a descriptor. */
	for (size_t i = 0; i < MOST; i++) {
		if (known[i].number != 0 && known[i].device == memory->device && known[i].number == memory->number) {
			return true;
		}
	}
	return false;
}

static place *who_mapped(const file_id *memory)
{
	for (size_t i = 0; i < mapped_count; i++) {
		if (mapped[i].memory.device == memory->device && mapped[i].memory.number == memory->number) {
			return &mapped[i].by;
		}
	}
	return NULL;
}

static void note_memory(const file_id *memory, const char *path, void *with)
{
	const call *of = with;
	if (mapped_count < MAPPINGS && !is_known_memory(memory) && who_mapped(memory) == NULL) {
		mapped[mapped_count].memory = *memory;
		note(&mapped[mapped_count++].by, of->frame, of->name, of->class);
	}
}

static void forget_named(void)
{
	while (named_count > 0) {
		free(named[--named_count].path);
	}
}

/* False: it can't be looked at later. */
static bool keep_named(const zval *result, const place *by)
{
	if (result == NULL || Z_TYPE_P(result) != IS_STRING) {
		return result != NULL;
	}
	char *path = named_count < NAMES ? strdup(Z_STRVAL_P(result)) : NULL;
	if (path == NULL) {
		return false;
	}
	named[named_count].path = path;
	named[named_count++].by = *by;
	return true;
}

/* Calls a function of PHP itself. Three system calls tell whether it has opened something. */
static void call_and_look(zend_execute_data *frame, zval *result)
{
	static unsigned calls;
	if (++calls % CALLS == 0 && is_over()) {
		held_end();
		over();
	}
	zend_string *name = frame->func->common.function_name;
	const zend_class_entry *class = frame->func->common.scope;
	const kind of = is_watching ? kind_of(frame) : NOTHING;
	const bool counts = of != NOTHING && ((of != OWN && of != NAMING) || counts_own);
	if (counts && (first[of].function[0] == '\0' || of == NAMING)) {
		note(&first[of], frame, name, class);
	}
	if (name != NULL) {
		zend_string_addref(name);
	}
	if (called_before != NULL) {
		called_before(frame, result);
	} else {
		execute_internal(frame, result);
	}
	if (EXPECTED(is_watching)) {
		if (of == ACQUIRING || of == RELEASING) {
			count_acquired(of, result);
		}
		if (of == NAMING && counts && !keep_named(result, &first[NAMING]) && first[OWN].function[0] == '\0') {
			first[OWN] = first[NAMING];
		}
		call done = {.frame = frame, .name = name, .class = class};
		if (of == MAPPING) {
			each_shared_memory(note_memory, &done);
		}
		look_for_opened(&done);
	}
	if (name != NULL) {
		zend_string_release(name);
	}
}

void held_startup(void)
{
	is_watching = true;
	name_functions();
	called_before = zend_execute_internal;
	zend_execute_internal = call_and_look;
}

void held_end(void)
{
	if (is_watching && zend_execute_internal == call_and_look) {
		zend_execute_internal = called_before;
	}
	is_watching = false;
}

/* ---- What is open ---- */

/* `with`: whether it is only a file that may have come since. */
static void know(int descriptor, void *with)
{
	struct stat what;
	if (descriptor < MOST && fstat(descriptor, &what) == 0 && (with == NULL || S_ISREG(what.st_mode))) {
		known[descriptor].device = what.st_dev;
		known[descriptor].number = what.st_ino;
	}
}

static void know_memory(const file_id *memory, const char *path, void *with)
{
	if (known_memory_count < MAPPINGS) {
		known_memory[known_memory_count++] = *memory;
	}
}

void held_begin(int of, void (*when_over)(void))
{
	control = of;
	over = when_over;
	if (is_watching) {
		/* OPcache's preloading was a request before this one. PHP has opened its script since, and
		 * what that request has drawn is gone; a persistent connection is not. */
		static bool has_begun;
		each_open(know, has_begun ? &has_begun : NULL);
		if (!has_begun) {
			each_shared_memory(know_memory, NULL);
		}
		has_begun = true;
		first[OWN].function[0] = '\0';
		forget_named();
		lowest_before = lowest_free();
		was_next_open = is_open(lowest_before + 1);
	}
}

static bool is_same(int descriptor, const struct stat *what)
{
	return descriptor < MOST && known[descriptor].number != 0 && known[descriptor].device == what->st_dev
		&& known[descriptor].number == what->st_ino;
}

/* A duplicate of what the process was started with, such as `php://stderr`. */
static bool is_standard(const struct stat *what)
{
	return is_same(STDIN_FILENO, what) || is_same(STDOUT_FILENO, what) || is_same(STDERR_FILENO, what);
}

typedef struct {
	char *text;
	size_t room, length;
	unsigned count;
} told;

static void add(told *to, const char *format, ...) ZEND_ATTRIBUTE_FORMAT(printf, 2, 3);
static void add(told *to, const char *format, ...)
{
	va_list values;
	va_start(values, format);
	const int length = vsnprintf(to->text + to->length, to->room - to->length, format, values);
	va_end(values);
	to->length = MIN(to->room - 1, to->length + (size_t) MAX(length, 0));
}

static void add_place(told *to, const place *of)
{
	add(to, "%s()", of->function);
	if (of->file[0] != '\0') {
		add(to, " in %s:%u", of->file, of->line);
	}
}

static void describe_socket(int descriptor, told *to)
{
	union {
		struct sockaddr any;
		struct sockaddr_in four;
		struct sockaddr_in6 six;
		struct sockaddr_un local;
		char room[sizeof(struct sockaddr_storage) + 1];
	} peer = {0};
	socklen_t length = sizeof(struct sockaddr_storage);
	char address[INET6_ADDRSTRLEN] = "";
	if (getpeername(descriptor, &peer.any, &length) != 0) {
		add(to, "a socket");
	} else if (peer.any.sa_family == AF_INET && inet_ntop(AF_INET, &peer.four.sin_addr, address, sizeof address) != NULL) {
		add(to, "a connection to %s:%u", address, ntohs(peer.four.sin_port));
	} else if (peer.any.sa_family == AF_INET6 && inet_ntop(AF_INET6, &peer.six.sin6_addr, address, sizeof address) != NULL) {
		add(to, "a connection to [%s]:%u", address, ntohs(peer.six.sin6_port));
	} else if (peer.any.sa_family == AF_UNIX && peer.local.sun_path[0] != '\0') {
		add(to, "a connection to %s", peer.local.sun_path);
	} else {
		add(to, "a connection");
	}
}

static bool is_sqlite(int descriptor)
{
	static const char begin[] = "SQLite format 3";
	char start[sizeof begin];
	return pread(descriptor, start, sizeof start, 0) == sizeof start && memcmp(start, begin, sizeof begin) == 0;
}

/* Whether it holds a lock, by flock() or fcntl(). */
static bool is_locked(int descriptor)
{
	char path[64], line[256];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", descriptor);
	FILE *facts = fopen(path, "re");
	bool is_there = facts == NULL;
	while (!is_there && fgets(line, sizeof line, facts) != NULL) {
		is_there = strncmp(line, "lock:", 5) == 0;
	}
	if (facts != NULL) {
		fclose(facts);
	}
	return is_there;
}

/* null, zero, full, random and urandom. Others, such as pseudo-terminals, have two ends. */
static bool is_plain_device(const struct stat *what)
{
	const unsigned number = minor(what->st_rdev);
	return S_ISCHR(what->st_mode) && major(what->st_rdev) == 1 && (number == 3 || number == 5 || (number >= 7 && number <= 9));
}

/* PHP keeps the file of `auto_prepend_file` open, and reads it no more. */
static bool is_prepended(const struct stat *what)
{
	struct stat prepended;
	const char *name = PG(auto_prepend_file);
	if (name == NULL || *name == '\0') {
		return false;
	}
	if (stat(name, &prepended) != 0) {
		zend_string *path = php_resolve_path(name, strlen(name), PG(include_path));
		const bool is_known = path != NULL && stat(ZSTR_VAL(path), &prepended) == 0;
		if (path != NULL) {
			zend_string_release(path);
		}
		if (!is_known) {
			return false;
		}
	}
	return prepended.st_dev == what->st_dev && prepended.st_ino == what->st_ino;
}

/* Whether two processes can go on with it: what is written at the end of a file whoever writes, and
 * devices. */
static bool may_be_shared(int descriptor, const struct stat *what)
{
	if (S_ISREG(what->st_mode)) {
		const int flags = fcntl(descriptor, F_GETFL);
		const bool is_appended = flags >= 0 && (flags & O_ACCMODE) == O_WRONLY && (flags & O_APPEND) != 0;
		return (is_appended && !is_locked(descriptor)) || is_prepended(what);
	}
	return is_plain_device(what);
}

static void describe(int descriptor, const struct stat *what, told *to)
{
	char path[PATH_MAX], link[64];
	snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
	const ssize_t length = readlink(link, path, sizeof path - 1);
	path[MAX(length, 0)] = '\0';
	if (S_ISSOCK(what->st_mode)) {
		describe_socket(descriptor, to);
	} else if (S_ISFIFO(what->st_mode)) {
		add(to, "a pipe");
	} else if (S_ISREG(what->st_mode)) {
		add(to, "%s `%s`", is_sqlite(descriptor) ? "the SQLite database" : "the file", path);
	} else {
		add(to, "`%s`", path);
	}
	if (descriptor < MOST && opened[descriptor].function[0] != '\0') {
		add(to, ", opened by ");
		add_place(to, &opened[descriptor]);
	}
}

/* Whether this one is told, and not only counted. */
static bool tells(told *to)
{
	to->count++;
	if (to->count <= TOLD) {
		add(to, to->count == 1 ? "" : "; ");
	}
	return to->count <= TOLD;
}

static void look_at(int descriptor, void *with)
{
	told *to = with;
	struct stat what;
	if (fstat(descriptor, &what) != 0 || is_same(descriptor, &what) || is_standard(&what)) {
		return;
	}
	if (may_be_shared(descriptor, &what)) {
		if (S_ISREG(what.st_mode) && appended_count < APPENDED) {
			appended[appended_count++] = descriptor;
		}
		return;
	}
	if (tells(to)) {
		describe(descriptor, &what, to);
	}
}

/* Who knows its name shares it however processes are started. What has none is each process's own,
 * unless they are forked. */
static bool has_name(const char *path)
{
	static const char deleted[] = " (deleted)", keyed[] = "/SYSV", keyless[] = "/SYSV00000000";
	const size_t length = strlen(path), end = sizeof deleted - 1;
	if (length < end || strcmp(path + length - end, deleted) != 0) {
		return *path != '\0';
	}
	return strncmp(path, keyed, sizeof keyed - 1) == 0 && strncmp(path, keyless, sizeof keyless - 1) != 0;
}

static void look_at_memory(const file_id *memory, const char *path, void *with)
{
	told *to = with;
	if (has_name(path) || is_known_memory(memory) || !tells(to)) {
		return;
	}
	add(to, "shared memory `%s`", path);
	const place *by = who_mapped(memory);
	if (by != NULL) {
		add(to, ", had by ");
		add_place(to, by);
	}
}

/* A fork has none of its parent's. */
static void look_at_timer(told *to)
{
	struct itimerval left;
	if (getitimer(ITIMER_REAL, &left) != 0 || (left.it_value.tv_sec == 0 && left.it_value.tv_usec == 0) || !tells(to)) {
		return;
	}
	add(to, "an alarm");
	if (first[TIMER].function[0] != '\0') {
		add(to, ", set by ");
		add_place(to, &first[TIMER]);
	}
}

/* Each worker would take it for its own, and let go of it. One whose object is gone is let go of. */
static void look_at_semaphores(told *to)
{
	bool is_there = false;
	for (uint32_t i = 1; acquired > 0 && !is_there && i < EG(objects_store).top; i++) {
		const zend_object *object = EG(objects_store).object_buckets[i];
		is_there = IS_OBJ_VALID(object) && zend_string_equals_literal(object->ce->name, "SysvSemaphore");
	}
	if (is_there && tells(to)) {
		add(to, "a semaphore, acquired by ");
		add_place(to, &first[ACQUIRING]);
	}
}

/* A process that the application has started, and nobody has waited for. Each worker would end it,
 * and none would get its exit code. Kernels without the list tell nothing. */
static void look_at_children(told *to)
{
	char path[64], name[64];
	long pid;
	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int) getpid());
	FILE *children = fopen(path, "re");
	while (children != NULL && fscanf(children, "%ld", &pid) == 1) {
		char state = '?';
		name[0] = '\0';
		snprintf(path, sizeof path, "/proc/%ld/stat", pid);
		FILE *facts = fopen(path, "re");
		if (facts != NULL) {
			/* A name with a bracket in it ends there. */
			if (fscanf(facts, "%*d (%63[^)]) %c", name, &state) < 1) {
				name[0] = '\0';
			}
			fclose(facts);
		}
		if (tells(to)) {
			const char *what = state == 'Z' ? "has started, and has not waited for" : "has started";
			add(to, "the process %ld (%s), which the boot %s", pid, name, what);
		}
	}
	if (children != NULL) {
		fclose(children);
	}
}

bool held_any(char *text, size_t room)
{
	told all = {.text = text, .room = room};
	text[0] = '\0';
	if (!each_open(look_at, &all)) {
		add(&all, "/proc is not there, which tells what is open");
		return true;
	}
	each_shared_memory(look_at_memory, &all);
	look_at_children(&all);
	look_at_timer(&all);
	look_at_semaphores(&all);
	if (all.count > TOLD) {
		add(&all, "; and %u more", all.count - TOLD);
	}
	return all.count > 0;
}

void held_count_own(bool counts)
{
	counts_own = counts;
}

bool held_own(char *text, size_t room)
{
	told all = {.text = text, .room = room};
	text[0] = '\0';
	const place *by = first[OWN].function[0] == '\0' ? NULL : &first[OWN];
	for (size_t i = 0; i < named_count && by == NULL; i++) {
		by = access(named[i].path, F_OK) == 0 ? &named[i].by : NULL;
	}
	if (by != NULL) {
		add_place(&all, by);
	}
	return by != NULL;
}

void held_replace(int descriptor, int by)
{
	const int flags = fcntl(descriptor, F_GETFD);
	dup3(by, descriptor, flags > 0 && (flags & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
}

void held_reopen(void)
{
	char path[64];
	for (size_t i = 0; i < appended_count; i++) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", appended[i]);
		const int own = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
		if (own >= 0) {
			held_replace(appended[i], own);
			close(own);
		}
	}
}
