/* Goridge's RPC, as much as is needed of it: one call at a time over one connection of this process,
 * which is opened by the first call, and anew after it was lost. What comes is checked: the address
 * is of the server's environment, but anybody may listen there. */
#include "remote.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "ext/json/php_json.h"
#include "ext/standard/base64.h"

#include "pending.h"

/* A frame: version and words of the header, flags, length, a sum over these, two bytes of streams. */
#define HEAD 12
#define VERSION 0x10
#define JSON 0x08
#define ERROR 0x40
/* Of an answer: a session of 4 MB in base64, with room to spare. */
#define LONGEST_ANSWER (16u << 20)
/* Received at once: most answers, and the longest head. */
#define ANSWER 4096
/* Microseconds between two looks at what signals have made pending. */
#define LOOK 200000

/* Of this process and this thread: a forked child has a connection of its own. */
static __thread int connection = -1;
static __thread pid_t owner;
static __thread uint32_t calls;
/* Where the server listens; NULL: it does not. */
static char *address;

void remote_startup(void)
{
	const char *written = getenv("RR_RPC");
	address = written == NULL || *written == '\0' ? NULL : pestrdup(written, true);
}

static uint32_t sum_of(const unsigned char *bytes, size_t length)
{
	uint32_t sum = ~0u;
	for (size_t i = 0; i < length; i++) {
		sum ^= bytes[i];
		for (int bit = 0; bit < 8; bit++) {
			sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320u : 0);
		}
	}
	return ~sum;
}

static void put32(unsigned char *at, uint32_t number)
{
	for (int i = 0; i < 4; i++) {
		at[i] = (unsigned char) (number >> 8 * i);
	}
}

static uint32_t get32(const unsigned char *at)
{
	return (uint32_t) at[0] | (uint32_t) at[1] << 8 | (uint32_t) at[2] << 16 | (uint32_t) at[3] << 24;
}

static int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t) time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void give_up(void)
{
	if (connection >= 0 && owner == getpid()) {
		close(connection);
	}
	connection = -1;
}

/* ---- Connecting ---- */

static int connect_unix(const char *path)
{
	struct sockaddr_un place = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof place.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(place.sun_path, path);
	const int file = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (file >= 0 && connect(file, (struct sockaddr *) &place, sizeof place) != 0) {
		const int why = errno;
		close(file);
		errno = why;
		return -1;
	}
	return file;
}

static int connect_tcp(const char *name)
{
	char host[256];
	const char *colon = strrchr(name, ':');
	if (colon == NULL || (size_t) (colon - name) >= sizeof host) {
		errno = EINVAL;
		return -1;
	}
	const bool is_v6 = name[0] == '[' && colon[-1] == ']';
	const size_t length = (size_t) (colon - name) - (is_v6 ? 2 : 0);
	memcpy(host, name + is_v6, length);
	host[length] = '\0';
	struct addrinfo *found = NULL;
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	if (getaddrinfo(host, colon + 1, &hints, &found) != 0) {
		errno = EHOSTUNREACH;
		return -1;
	}
	int file = -1, why = ECONNREFUSED;
	for (const struct addrinfo *one = found; one != NULL && file < 0; one = one->ai_next) {
		file = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (file >= 0 && connect(file, one->ai_addr, one->ai_addrlen) != 0) {
			why = errno;
			close(file);
			file = -1;
		}
	}
	freeaddrinfo(found);
	errno = why;
	return file;
}

static bool open_connection(char **wrong)
{
	if (connection >= 0 && owner == getpid()) {
		/* Nothing is expected: what can be read is its end. */
		struct pollfd ended = {.fd = connection, .events = POLLIN};
		if (poll(&ended, 1, 0) == 0) {
			return true;
		}
		give_up();
	}
	if (address == NULL) {
		*wrong = estrdup("the server has no section `rpc`: write `rpc: {}`");
		return false;
	}
	connection = strncmp(address, "unix://", 7) == 0 ? connect_unix(address + 7) : connect_tcp(strncmp(address, "tcp://", 6) == 0 ? address + 6 : address);
	owner = getpid();
	if (connection < 0) {
		spprintf(wrong, 0, "%s does not answer: %s", address, strerror(errno));
		return false;
	}
	const struct timeval look = {.tv_usec = LOOK};
	setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look);
	setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &look, sizeof look);
	return true;
}

/* ---- Bytes ---- */

/* After so many bytes, or -1, and not all: whether to try again. False: `wrong` says why, or an
 * exception was thrown. */
static bool may_go_on(ssize_t done, int64_t until, char **wrong)
{
	if (done == 0 || (done < 0 && errno != EINTR && errno != EAGAIN)) {
		spprintf(wrong, 0, "the server closed the connection%s%s", done < 0 ? ": " : "", done < 0 ? strerror(errno) : "");
		return false;
	}
	if (now() >= until) {
		*wrong = estrdup("the server did not answer in time");
		return false;
	}
	/* The time limit of PHP, or a handler of a signal that throws. */
	return run_pending();
}

static bool send_all(const char *bytes, size_t length, int64_t until, char **wrong)
{
	while (length > 0) {
		const ssize_t sent = send(connection, bytes, length, MSG_NOSIGNAL);
		if (sent == (ssize_t) length) {
			return true;
		}
		if (!may_go_on(sent, until, wrong)) {
			return false;
		}
		bytes += MAX(sent, 0);
		length -= (size_t) MAX(sent, 0);
	}
	return true;
}

/* Receives until `least` bytes are there, and up to `most` that come with them. How many there are;
 * 0: `wrong` says why. */
static size_t receive(void *into, size_t there, size_t least, size_t most, int64_t until, char **wrong)
{
	while (there < least) {
		const ssize_t came = recv(connection, (char *) into + there, most - there, 0);
		there += (size_t) MAX(came, 0);
		if (there < least && !may_go_on(came, until, wrong)) {
			return 0;
		}
	}
	return there;
}

/* ---- A call ---- */

static bool send_call(const char *method, const smart_str *argument, int64_t until, char **wrong)
{
	const size_t name = strlen(method), length = name + ZSTR_LEN(argument->s);
	zend_string *frame = zend_string_alloc(HEAD + 8 + length, false);
	unsigned char *bytes = (unsigned char *) ZSTR_VAL(frame);
	bytes[0] = VERSION | (HEAD + 8) / 4;
	bytes[1] = JSON;
	put32(bytes + 2, (uint32_t) length);
	put32(bytes + 6, sum_of(bytes, 6));
	bytes[10] = bytes[11] = 0;
	put32(bytes + HEAD, ++calls);
	put32(bytes + HEAD + 4, (uint32_t) name);
	memcpy(bytes + HEAD + 8, method, name);
	memcpy(bytes + HEAD + 8 + name, ZSTR_VAL(argument->s), ZSTR_LEN(argument->s));
	const bool sent = send_all((char *) bytes, ZSTR_LEN(frame), until, wrong);
	zend_string_release(frame);
	return sent;
}

/* The payload of the answer, and its flags. NULL: `wrong` says why. */
static zend_string *receive_answer(int64_t until, unsigned char *flags, size_t *skip, char **wrong)
{
	unsigned char bytes[ANSWER];
	size_t there = receive(bytes, 0, HEAD, sizeof bytes, until, wrong);
	if (there == 0) {
		return NULL;
	}
	const size_t head = 4 * (bytes[0] & 0x0F), length = get32(bytes + 2);
	if ((bytes[0] & 0xF0) != VERSION || head < HEAD + 8 || get32(bytes + 6) != sum_of(bytes, 6) || length > LONGEST_ANSWER) {
		*wrong = estrdup("what listens there does not speak RPC");
		return NULL;
	}
	there = receive(bytes, there, head, sizeof bytes, until, wrong);
	if (there == 0) {
		return NULL;
	}
	*flags = bytes[1];
	*skip = get32(bytes + HEAD + 4);
	if (get32(bytes + HEAD) != calls || *skip > length || there > head + length) {
		*wrong = estrdup("the answer is one to another call");
		return NULL;
	}
	zend_string *payload = zend_string_alloc(length, false);
	memcpy(ZSTR_VAL(payload), bytes + head, there - head);
	ZSTR_VAL(payload)[length] = '\0';
	if (length > 0 && receive(ZSTR_VAL(payload), there - head, length, length, until, wrong) == 0) {
		zend_string_release(payload);
		return NULL;
	}
	return payload;
}

bool remote_call(const char *method, const smart_str *argument, double seconds, zval *answer, char **wrong)
{
	unsigned char flags;
	size_t skip;
	*wrong = NULL;
	ZVAL_UNDEF(answer);
	if (!open_connection(wrong)) {
		return false;
	}
	const int64_t until = now() + (int64_t) (seconds * 1000);
	if (!send_call(method, argument, until, wrong)) {
		give_up();
		return false;
	}
	zend_string *payload = receive_answer(until, &flags, &skip, wrong);
	if (payload == NULL) {
		give_up();
		return false;
	}
	const char *body = ZSTR_VAL(payload) + skip;
	const size_t length = ZSTR_LEN(payload) - skip;
	bool done = false;
	if (flags & ERROR) {
		*wrong = estrndup(body, MIN(length, 500));
	} else if (php_json_decode_ex(answer, body, length, PHP_JSON_OBJECT_AS_ARRAY, 8) == SUCCESS && Z_TYPE_P(answer) == IS_ARRAY) {
		done = true;
	} else {
		zval_ptr_dtor(answer);
		ZVAL_UNDEF(answer);
		*wrong = estrdup("the answer is no JSON");
	}
	zend_string_release(payload);
	return done;
}

/* ---- Arguments ---- */

static void begin_field(smart_str *argument, const char *name)
{
	smart_str_appendc(argument, ZSTR_LEN(argument->s) > 1 ? ',' : ' ');
	smart_str_appendc(argument, '"');
	smart_str_appends(argument, name);
	smart_str_appends(argument, "\":");
}

void remote_add_text(smart_str *argument, const char *name, const char *text, size_t length)
{
	begin_field(argument, name);
	smart_str_appendc(argument, '"');
	for (size_t i = 0; i < length; i++) {
		const unsigned char sign = (unsigned char) text[i];
		if (sign == '"' || sign == '\\') {
			smart_str_appendc(argument, '\\');
		}
		/* Names and requests: what is more than ASCII is not told. */
		smart_str_appendc(argument, sign < 0x20 || sign > 0x7E ? '?' : (char) sign);
	}
	smart_str_appendc(argument, '"');
}

void remote_add_bytes(smart_str *argument, const char *name, const char *bytes, size_t length)
{
	zend_string *encoded = php_base64_encode((const unsigned char *) bytes, length);
	begin_field(argument, name);
	smart_str_appendc(argument, '"');
	smart_str_append(argument, encoded);
	smart_str_appendc(argument, '"');
	zend_string_release(encoded);
}

void remote_add_number(smart_str *argument, const char *name, uint64_t number)
{
	begin_field(argument, name);
	smart_str_append_unsigned(argument, (zend_ulong) number);
}
