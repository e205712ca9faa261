#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "classic_ini.h"

#include <sys/mman.h>

#include "SAPI.h"
#include "php_globals.h"
#include "php_ini.h"
#include "zend_ini_scanner.h"

#if defined(ZTS) && defined(COMPILE_DL_PRONGHORN)
ZEND_TSRMLS_CACHE_EXTERN()
#endif

/* Where php.ini was found, and the files beside it, with a comma and a line end between each
 * two. */
extern PHPAPI char *php_ini_opened_path;
extern PHPAPI char *php_ini_scanned_files;

/* A php.ini has 70 KB. */
#define LONGEST_FILE (4 << 20)

/* What the command line fixes, and what holds where php.ini has nothing: for scripts, and for kept
 * workers, where NULL leaves what there is. */
static struct {
	const char *name;
	const char *of_scripts;
	const char *of_kept;
	char *found;
} fixed[] = {
	{"html_errors", "1", "0", NULL},
	/* Not PHP's own default: a query string must not become the arguments of a program. */
	{"register_argc_argv", "0", "0", NULL},
	{"implicit_flush", "0", "0", NULL},
	{"output_buffering", "0", "0", NULL},
	{"max_execution_time", "30", NULL, NULL},
	{"max_input_time", "-1", NULL, NULL},
};
#define FIXED (sizeof fixed / sizeof *fixed)
/* The last line of the block in which the command line does so; what follows is of its options
 * -d. */
#define LAST_FIXED "max_input_time=-1\n"

static void on_entry(zval *name, zval *value, zval *index, int kind, void *elsewhere)
{
	bool *inside = elsewhere;
	if (kind == ZEND_INI_PARSER_SECTION) {
		/* Settings of a host or a folder. */
		*inside = strncasecmp(Z_STRVAL_P(name), "HOST", 4) == 0 || strncasecmp(Z_STRVAL_P(name), "PATH", 4) == 0;
	}
	if (kind != ZEND_INI_PARSER_ENTRY || value == NULL || *inside) {
		return;
	}
	for (size_t i = 0; i < FIXED; i++) {
		if (strcmp(fixed[i].name, Z_STRVAL_P(name)) == 0) {
			free(fixed[i].found);
			fixed[i].found = strdup(Z_STRVAL_P(value));
		}
	}
}

static void read_text(char *text)
{
	bool elsewhere = false;
	zend_parse_ini_string(text, true, ZEND_INI_SCANNER_NORMAL, on_entry, &elsewhere);
}

static void read_file(const char *path)
{
	FILE *file = fopen(path, "r");
	if (file == NULL) {
		return;
	}
	/* The scanner looks at bytes behind the end. Not of malloc: the second file would get what the
	 * first gave back, 4 MB to fill with zeros, which stay in each process that reads them. */
	const size_t room = LONGEST_FILE + ZEND_MMAP_AHEAD;
	char *text = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (text != MAP_FAILED) {
		if (fread(text, 1, LONGEST_FILE, file) > 0) {
			read_text(text);
		}
		munmap(text, room);
	}
	fclose(file);
}

static void read_files(const char *list)
{
	char *files = strdup(list), *rest = files, *file;
	while (files != NULL && (file = strsep(&rest, ",")) != NULL) {
		file += strspn(file, "\n");
		file[strcspn(file, "\n")] = '\0';
		read_file(file);
	}
	free(files);
}

/* For the whole process, as if it had been in php.ini. What a script has set by then stays. */
static void set(const char *name, const char *value, bool is_start)
{
	zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), name, strlen(name));
	zval *written = cfg_get_entry(name, strlen(name));
	if (entry == NULL || entry->modified) {
		return;
	}
	/* A string of a request would go before the setting. */
	zend_string *text = is_start ? zend_string_init_interned(value, strlen(value), true) : zend_string_init(value, strlen(value), true);
	if (entry->on_modify == NULL
		|| entry->on_modify(entry, text, entry->mh_arg1, entry->mh_arg2, entry->mh_arg3, ZEND_INI_STAGE_STARTUP) == SUCCESS) {
		entry->value = text;
	}
	if (written != NULL && Z_TYPE_P(written) == IS_STRING) {
		ZVAL_STR(written, zend_string_init(value, strlen(value), true));
	}
}

void classic_ini_find(void)
{
	static bool is_found;
	if (is_found) {
		return;
	}
	is_found = true;
	if (php_ini_opened_path != NULL) {
		read_file(php_ini_opened_path);
	}
	if (php_ini_scanned_files != NULL) {
		read_files(php_ini_scanned_files);
	}
	const char *forced = sapi_module.ini_entries == NULL ? NULL : strstr(sapi_module.ini_entries, LAST_FIXED);
	if (forced != NULL) {
		char *options = strdup(forced + sizeof LAST_FIXED - 1);
		if (options != NULL) {
			read_text(options);
		}
		free(options);
	}
}

void classic_ini_restore(void)
{
	classic_ini_find();
	for (size_t i = 0; i < FIXED; i++) {
		set(fixed[i].name, fixed[i].found != NULL ? fixed[i].found : fixed[i].of_scripts, true);
	}
}

void classic_ini_restore_kept(void)
{
	classic_ini_find();
	for (size_t i = 0; i < FIXED; i++) {
		const char *value = fixed[i].found != NULL ? fixed[i].found : fixed[i].of_kept;
		if (value != NULL) {
			set(fixed[i].name, value, false);
		}
	}
}

/* ---- Of hosts and folders ---- */

/* What the files .user.ini of a folder and of those above it say. */
typedef struct {
	time_t expires;
	HashTable settings;
} user_settings;

/* By the path of the folder. */
static HashTable known;

/* Folders that are remembered. Beyond, all are forgotten. */
#define MOST_KNOWN 10000

static void forget_setting(zval *value)
{
	if (Z_TYPE_P(value) == IS_STRING) {
		zend_string_release_ex(Z_STR_P(value), true);
	} else if (Z_TYPE_P(value) == IS_ARRAY) {
		zend_hash_destroy(Z_ARRVAL_P(value));
		free(Z_ARR_P(value));
	}
}

static void forget_folder(zval *value)
{
	user_settings *of = Z_PTR_P(value);
	zend_hash_destroy(&of->settings);
	pefree(of, true);
}

/* The files from the root down to the folder, or of the folder alone when it lies elsewhere.
 * `folder` ends with a slash. */
static void read_user_settings(HashTable *into, char *folder, size_t length, const char *root, size_t root_length)
{
	if (root_length >= length || strncmp(folder, root, root_length) != 0) {
		php_parse_user_ini_file(folder, PG(user_ini_filename), into);
		return;
	}
	for (char *slash = folder + root_length; (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		php_parse_user_ini_file(folder, PG(user_ini_filename), into);
		*slash = '/';
	}
}

static void apply_user_settings(char *folder, size_t length, const char *root, size_t root_length)
{
	if (known.nTableSize == 0) {
		zend_hash_init(&known, 8, NULL, forget_folder, true);
	}
	time_t now = (time_t) sapi_get_request_time();
	user_settings *of = zend_hash_str_find_ptr(&known, folder, length);
	if (of == NULL) {
		if (zend_hash_num_elements(&known) >= MOST_KNOWN) {
			zend_hash_clean(&known);
		}
		of = pecalloc(1, sizeof *of, true);
		zend_hash_init(&of->settings, 0, NULL, forget_setting, true);
		zend_hash_str_add_new_ptr(&known, folder, length, of);
	}
	if (now > of->expires) {
		zend_hash_clean(&of->settings);
		read_user_settings(&of->settings, folder, length, root, root_length);
		of->expires = now + PG(user_ini_cache_ttl);
	}
	php_ini_activate_config(&of->settings, PHP_INI_PERDIR, PHP_INI_STAGE_HTACCESS);
}

void classic_ini_activate(const char *script, const char *root, const char *host)
{
	if (host != NULL && php_ini_has_per_host_config()) {
		char *name = estrdup(host);
		zend_str_tolower(name, strlen(name));
		php_ini_activate_per_host_config(name, strlen(name));
		efree(name);
	}
	bool has_user_files = PG(user_ini_filename) != NULL && *PG(user_ini_filename) != '\0';
	const char *slash = strrchr(script, '/');
	if (slash == NULL || (!has_user_files && !php_ini_has_per_dir_config())) {
		return;
	}
	size_t length = (size_t) (slash + 1 - script), root_length = root == NULL ? 0 : strlen(root);
	char *folder = estrndup(script, length);
	php_ini_activate_per_dir_config(folder, length);
	if (has_user_files && root_length > 0) {
		apply_user_settings(folder, length, root, root[root_length - 1] == '/' ? root_length - 1 : root_length);
	}
	efree(folder);
}
