#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "zygote.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "php.h"

/* With an order come stdout, stderr, both pipes, and the three of the ring. */
#define DESCRIPTORS 7
/* `fork`, the server's number, and that of the worker's place, with a space before each. */
#define LONGEST_ORDER 32
/* What it says first: facts, or why it can't be forked. */
#define MAX_SAID 1280
/* A name of a thread, as the kernel keeps it. */
#define THREAD_NAME 16
/* For `ps` and `top`, in which a zygote looks like its workers otherwise. */
#define NAME "php-zygote"

static void leave(const char *why)
{
	fprintf(stderr, "pronghorn: this zygote ends: %s\n", why);
	_exit(1);
}

/* ---- What it says of itself ---- */

/* Of which a forked child has one, whatever the others held at that moment. `name` becomes that of
 * another one. */
static unsigned count_threads(char *name)
{
	DIR *threads = opendir("/proc/self/task");
	unsigned count = 0;
	const struct dirent *thread;
	while (threads != NULL && (thread = readdir(threads)) != NULL) {
		if (thread->d_name[0] == '.') {
			continue;
		}
		count++;
		if (atoi(thread->d_name) != getpid()) {
			char path[64];
			snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", thread->d_name);
			FILE *comm = fopen(path, "r");
			if (comm != NULL) {
				if (fgets(name, THREAD_NAME, comm) == NULL) {
					name[0] = '\0';
				}
				fclose(comm);
			}
		}
	}
	if (threads != NULL) {
		closedir(threads);
	}
	/* Without /proc nobody can tell. */
	return MAX(count, 1);
}

/* As php.ini has it: OPcache itself tells only scripts. */
static bool has_jit(void)
{
	static const char *const off[] = {"", "0", "off", "no", "disable"};
	const char *jit = zend_ini_string(ZEND_STRL("opcache.jit"), false);
	if (jit == NULL || zend_ini_long(ZEND_STRL("opcache.jit_buffer_size"), false) == 0
		|| zend_ini_long(ZEND_STRL("opcache.enable"), false) == 0) {
		return false;
	}
	for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
		if (strcasecmp(jit, off[i]) == 0) {
			return false;
		}
	}
	return true;
}

/* False: the server is gone. */
static bool say(int control, const char *text)
{
	return send(control, text, strlen(text), MSG_NOSIGNAL) >= 0;
}

static bool introduce(int control, const zygote_boot *boot)
{
	char name[THREAD_NAME] = "", said[MAX_SAID];
	if (boot->refusal != NULL) {
		snprintf(said, sizeof said, "refuses %s", boot->refusal);
		return say(control, said);
	}
	unsigned threads = count_threads(name);
	name[strcspn(name, "\n")] = '\0';
	const int length = snprintf(said, sizeof said, "zygote 1 threads %u jit %d warm %d %s", threads, has_jit(), boot->is_warm, name);
	if (boot->own != NULL) {
		snprintf(said + length, sizeof said - (size_t) length, "\n%s", boot->own);
	}
	return say(control, said);
}

/* ---- Orders ---- */

/* False: there are none any more. */
static bool take_order(int control, int *descriptors, zygote_order *order)
{
	char text[LONGEST_ORDER + 1];
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
	} passed;
	struct iovec place = {text, LONGEST_ORDER};
	struct msghdr message = {
		.msg_iov = &place, .msg_iovlen = 1, .msg_control = &passed, .msg_controllen = sizeof passed,
	};
	ssize_t length;
	while ((length = recvmsg(control, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
	}
	if (length <= 0) {
		return false;
	}
	text[length] = '\0';
	const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	char *end;
	order->is_question = strcmp(text, "stuck?") == 0;
	order->is_forked = !order->is_question && strcmp(text, "serve") != 0;
	if (!order->is_forked) {
		return true;
	}
	long number = strncmp(text, "fork ", 5) == 0 ? strtol(text + 5, &end, 10) : 0;
	if (number > 0 && *end == ' ' && end[1] >= '0' && end[1] <= '9') {
		order->worker = strtol(end + 1, &end, 10);
	} else {
		number = 0;
	}
	bool is_whole = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 && head != NULL && head->cmsg_level == SOL_SOCKET
		&& head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(DESCRIPTORS * sizeof(int));
	if (number <= 0 || *end != '\0' || !is_whole) {
		leave("the server sent an order that this extension does not know: install the same release of both");
	}
	order->server = (pid_t) number;
	memcpy(descriptors, CMSG_DATA(head), DESCRIPTORS * sizeof(int));
	return true;
}

/* ---- Forking ---- */

/* A process that would be the zygote's child becomes the server's, which is to be told of its end,
 * when its parent ends: that is one between the two, which does nothing else. 0 in the worker, else
 * its number, or less than that with `errno` set. */
static pid_t fork_worker(void)
{
	int report[2], number = -EIO;
	if (pipe2(report, O_CLOEXEC) != 0) {
		return -1;
	}
	/* Until it ends, the one between uses the zygote's memory, and the worker is a copy of that: one
	 * copy of the page tables instead of two. Linux allows what POSIX does not, to fork there. */
	pid_t between = vfork();
	if (between == 0) {
		pid_t worker = fork();
		if (worker == 0) {
			close(report[0]);
			close(report[1]);
			return 0;
		}
		number = worker < 0 ? -errno : worker;
		if (worker > 0) {
			setpgid(worker, worker);
		}
		ssize_t written = write(report[1], &number, sizeof number);
		_exit(written == sizeof number ? 0 : 1);
	}
	if (between < 0) {
		number = -errno;
	}
	close(report[1]);
	if (between > 0) {
		ssize_t got;
		while ((got = read(report[0], &number, sizeof number)) < 0 && errno == EINTR) {
		}
		if (got != sizeof number) {
			number = -EIO;
		}
		/* With its end the worker has become the server's child. */
		while (waitpid(between, NULL, 0) < 0 && errno == EINTR) {
		}
	}
	close(report[0]);
	if (number < 0) {
		errno = -number;
		return -1;
	}
	return number;
}

/* What processes must not have in common, as a child of php-fpm does it. A request has a seed of
 * its own, and a timer of its process. NULL: not in all releases that this is built for. Looked
 * up before a fork, because in each worker that would bring in a page of every library. */
static void (*renew)(void);

static void become_worker(const int *descriptors, zygote_order *order)
{
	prctl(PR_SET_NAME, "php");
	dup2(descriptors[0], STDOUT_FILENO);
	dup2(descriptors[1], STDERR_FILENO);
	close(descriptors[0]);
	close(descriptors[1]);
	memcpy(order->offer.pipes, descriptors + 2, sizeof order->offer.pipes);
	memcpy(order->offer.box, descriptors + 4, sizeof order->offer.box);
	if (renew != NULL) {
		renew();
	}
}

/* ---- What workers share ---- */

/* Waits for the lock of APCu. */
static void ask_for_lock(void)
{
	zval name, key, result;
	if (!EG(active)) {
		/* No application was booted here. */
		zend_interned_strings_activate();
		zend_activate();
	}
	ZVAL_STRING(&name, "apcu_delete");
	ZVAL_STRING(&key, "pronghorn: nobody has set this");
	call_user_function(NULL, NULL, &name, &result, 1, &key);
}

/* A process that is killed while it has the lock of APCu, which lies in memory that all workers
 * share, keeps it: whoever asks for it then waits for ever. One that does so shows it, and is ended
 * by its alarm. */
static bool is_stuck(void)
{
	enum { SECONDS = 3 };
	if (zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("apcu_delete")) == NULL) {
		return false;
	}
	const pid_t asks = fork();
	if (asks == 0) {
		sigset_t none;
		sigemptyset(&none);
		signal(SIGALRM, SIG_DFL);
		alarm(SECONDS);
		pthread_sigmask(SIG_SETMASK, &none, NULL);
		ask_for_lock();
		_exit(0);
	}
	int status = 0;
	while (asks > 0 && waitpid(asks, &status, 0) < 0 && errno == EINTR) {
	}
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
}

/* It was started as a worker could be, too: nobody is at the other ends any more. */
static void give_back_offer(void)
{
	static const char *const offers[] = {"PRONGHORN_PIPES", "PRONGHORN_RING"};
	for (size_t i = 0; i < sizeof offers / sizeof *offers; i++) {
		char *number = getenv(offers[i]);
		while (number != NULL && *number >= '0' && *number <= '9') {
			close((int) strtol(number, &number, 10));
			number += *number == ',';
		}
		unsetenv(offers[i]);
	}
}

static bool has_handler(int number)
{
#ifdef ZEND_SIGNALS
	/* PHP has one of its own for them, which asks this. */
	return SIGG(handlers)[number - 1].handler != (void *) SIG_DFL;
#else
	struct sigaction action;
	return sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL;
#endif
}

/* PHP keeps a signal for a handler in memory, which all workers would have a copy of. One that is
 * blocked waits in the kernel, for this process alone. What ends this process still does. */
static void hold_signals(sigset_t *before)
{
	static const int ends[] = {SIGTERM, SIGINT, SIGQUIT};
	sigset_t held;
	sigfillset(&held);
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		if (!has_handler(ends[i])) {
			sigdelset(&held, ends[i]);
		}
	}
	pthread_sigmask(SIG_BLOCK, &held, before);
}

bool zygote_serve(int control, const zygote_boot *boot, zygote_order *order)
{
	sigset_t signals;
	int descriptors[DESCRIPTORS];
	char name[THREAD_NAME] = "php";
	fcntl(control, F_SETFD, FD_CLOEXEC);
	*(void **) &renew = dlsym(RTLD_DEFAULT, "php_child_init");
	prctl(PR_GET_NAME, name);
	prctl(PR_SET_NAME, NAME);
	/* What waits to be written would be written by each of them. */
	fflush(NULL);
	hold_signals(&signals);
	bool goes_on = introduce(control, boot);
	while (goes_on && take_order(control, descriptors, order)) {
		char answer[128];
		if (order->is_question) {
			goes_on = say(control, is_stuck() ? "stuck" : "free");
			continue;
		}
		if (!order->is_forked) {
			close(control);
			prctl(PR_SET_NAME, name);
			pthread_sigmask(SIG_SETMASK, &signals, NULL);
			return true;
		}
		give_back_offer();
		pid_t worker = fork_worker();
		if (worker == 0) {
			close(control);
			become_worker(descriptors, order);
			pthread_sigmask(SIG_SETMASK, &signals, NULL);
			return true;
		}
		if (worker > 0) {
			snprintf(answer, sizeof answer, "forked %ld", (long) worker);
		} else {
			snprintf(answer, sizeof answer, "failed %.100s", strerror(errno));
		}
		for (size_t i = 0; i < DESCRIPTORS; i++) {
			close(descriptors[i]);
		}
		goes_on = say(control, answer);
	}
	return false;
}

bool zygote_is_adopted(const zygote_order *order)
{
	/* Set before, it would have come at the end of the process between. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	return getppid() == order->server;
}
