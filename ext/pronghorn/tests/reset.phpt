--TEST--
What a call changes in PHP is changed back after it
--EXTENSIONS--
pronghorn
session
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--INI--
include_path=.:/usr/share/php
session.save_path={TMP}
session.gc_probability=0
date.timezone=UTC
max_execution_time=0
--FILE--
<?php
require __DIR__ . '/requests.inc';

use Pronghorn\Request;

// What holds at the boot is kept.
ini_set('precision', '10');
ini_set('memory_limit', '512M');
date_default_timezone_set('Europe/Paris');
putenv('BOOT=1');
set_error_handler($handler = fn () => false);
chdir(__DIR__);
stream_context_set_default(['http' => ['timeout' => 7]]);
stream_context_set_params(stream_context_get_default(), ['notification' => fn () => 'the boot']);
stream_wrapper_register('boot', Wrapper::class);
class Wrapper
{
    public $context;
}

openlog('boot', LOG_PERROR, LOG_LOCAL1);

/** What is written to stderr beside the log of the system. */
function logged(): string
{
    $library = FFI::cdef('int open(const char *path, int flags, int mode); int dup(int of); int dup2(int of, int as); int close(int of);');
    $path = ini_get('session.save_path') . '/logged-' . getmypid();
    $stderr = $library->dup(2);
    $file = $library->open($path, 01101, 0600); // to write, made anew
    $library->dup2($file, 2);
    syslog(LOG_INFO, 'x');
    $library->dup2($stderr, 2);
    $library->close($file);
    $library->close($stderr);
    $logged = file_get_contents($path);
    unlink($path);

    return $logged;
}

function hasDirectory(): bool
{
    try {
        return readdir() !== false;
    } catch (TypeError) {
        return false;
    }
}

/** Whether there is something to search in and for, and it is found. */
function found(): bool
{
    try {
        return @mb_ereg_search();
    } catch (Error) {
        return false;
    }
}

/** What there is, by the names of the reset list. */
function state(): array
{
    $error = set_error_handler(null);
    restore_error_handler();
    $exception = set_exception_handler(null);
    restore_exception_handler();
    $mask = umask();
    $state = [
        'ini' => ini_get('precision') . ini_get('memory_limit') . ini_get('display_errors') . ini_get('session.name') . ini_get('include_path'),
        'guarded ini' => array_map('ini_get', ['open_basedir', 'pronghorn.session_lock_timeout', 'sendmail_from', 'highlight.string', 'date.default_latitude', 'opcache.enable', 'zend.assertions']),
        'root' => is_dir('/'),
        'time limit' => ini_get('max_execution_time'),
        'error_reporting' => error_reporting(),
        'locale' => setlocale(LC_ALL, '0'),
        'time zone' => date_default_timezone_get(),
        'umask' => $mask,
        'folder' => basename(getcwd()),
        'environment' => getenv('BOOT') . '/' . json_encode(getenv('CALL')),
        'error handler' => $error === $GLOBALS['handler'],
        'exception handler' => $exception,
        'last error' => error_get_last(),
        'buffers' => ob_get_level(),
        'strtok' => @strtok('/'),
        'context' => stream_context_get_options(stream_context_get_default()),
        'notified by it' => is_callable($notified = stream_context_get_params(stream_context_get_default())['notification'] ?? null) ? $notified() : null,
        'wrappers' => array_values(array_intersect(stream_get_wrappers(), ['file', 'boot', 'call'])),
        'connection' => connection_status() . ignore_user_abort(),
        'session' => [session_status(), session_id(), session_name(), session_get_cookie_params()['lifetime'], ini_get('session.save_handler'), $_SESSION ?? null],
        'headers' => [headers_list(), http_response_code()],
        'directory' => hasDirectory(),
        'log' => logged(),
    ];
    if (extension_loaded('mbstring')) {
        $state['mb'] = [mb_internal_encoding(), mb_http_output(), mb_language(), mb_substitute_character(), mb_detect_order()];
    }
    if (function_exists('mb_regex_encoding')) {
        $state['mb'][] = @mb_regex_encoding() . @mb_regex_set_options();
        $state['mb_search'] = [@mb_ereg_search_getpos(), @mb_ereg_search_getregs(), found()];
    }
    if (extension_loaded('libxml')) {
        $state['libxml'] = [libxml_use_internal_errors(), count(libxml_get_errors()), function_exists('libxml_get_external_entity_loader') ? libxml_get_external_entity_loader() : null];
    }

    if (extension_loaded('mysqli')) {
        $state['mysqli'] = [(new mysqli_driver())->report_mode, mysqli_connect_errno(), mysqli_connect_error()];
    }
    if (function_exists('posix_setrlimit')) {
        $state['limits'] = posix_getrlimit();
    }
    if (extension_loaded('pcntl')) {
        $state['alarm'] = pcntl_alarm(0);
    }

    return $state;
}

$changes = [
    // Before one starts a session.
    'values of no session' => function () { $_SESSION['user'] = 'A'; },
    'values of no session, at the end' => function () { register_shutdown_function(function () { $_SESSION['user'] = 'A'; }); },
    'ini' => function () { ini_set('precision', '5'); ini_set('memory_limit', '1G'); ini_set('display_errors', '0'); set_include_path('/nowhere'); },
    'ini of the boot, given back' => function () { ini_restore('precision'); ini_restore('memory_limit'); },
    'open_basedir' => function () { ini_set('open_basedir', __DIR__ . '/inner'); },
    'opcache' => function () { ini_set('opcache.enable', '0'); },
    'ini that tells nobody' => function () {
        foreach (['pronghorn.session_lock_timeout', 'sendmail_from', 'highlight.string', 'date.default_latitude'] as $name) {
            ini_set($name, '7');
        }
    },
    'time limit' => function () { set_time_limit(7); },
    'error_reporting' => function () { error_reporting(E_ERROR); },
    'silence that an exit leaves' => function () { @(function () { exit; })(); },
    'locale' => function () { setlocale(LC_ALL, 'C', 'POSIX'); setlocale(LC_CTYPE, 'C'); setlocale(LC_NUMERIC, 'C.UTF-8'); },
    'time zone' => function () { date_default_timezone_set('Asia/Tokyo'); },
    'umask' => function () { umask(0777); },
    'folder' => function () { chdir('/'); },
    'environment' => function () { putenv('CALL=1'); putenv('BOOT=2'); },
    'environment of the boot, taken away' => function () { putenv('BOOT'); },
    'error handler' => function () { set_error_handler('strlen'); set_error_handler(fn () => true); },
    'error handler, taken away' => function () { restore_error_handler(); },
    'exception handler' => function () { set_exception_handler(fn () => 1); },
    'last error' => function () { $GLOBALS['undefined' . random_int(0, 9)] ?? null; @trigger_error('x'); },
    'buffers' => function () { ob_start(); ob_start(); },
    'strtok' => function () { strtok('a/b/c', '/'); },
    'notified by the context' => function () { stream_context_set_params(stream_context_get_default(), ['notification' => fn () => 'the call']); },
    'context' => function () { stream_context_set_default(['http' => ['header' => 'Cookie: secret']]); },
    'wrappers' => function () { stream_wrapper_register('call', Wrapper::class); stream_wrapper_unregister('boot'); stream_wrapper_unregister('file'); },
    'connection' => function () { ignore_user_abort(true); },
    'session' => function () { session_name('other'); session_set_cookie_params(77); session_set_save_handler(new SessionHandler()); session_id('chosen'); session_start(); },
    'headers' => function () { header('X-A: 1'); http_response_code(404); },
    'directory' => function () { $GLOBALS['opened'] = opendir(__DIR__); },
    'directory of an object' => function () { dir(__DIR__); },
    'log' => function () { openlog('call', LOG_PERROR | LOG_PID, LOG_LOCAL0); },
    'log, closed' => function () { closelog(); },
    'shutdown function' => function () { register_shutdown_function(function () { ini_set('precision', '3'); chdir('/'); }); },
];
if (extension_loaded('mbstring')) {
    $changes['mb'] = function () { mb_internal_encoding('ASCII'); mb_http_output('ASCII'); mb_language('Japanese'); mb_substitute_character(0x3F); mb_detect_order('ASCII'); };
}
if (function_exists('mb_regex_encoding')) {
    $changes['mb_search'] = function () { @mb_ereg_search_init('the text of a visitor', 't'); @mb_ereg_search(); };
    $changes['mb_regex'] = function () { @mb_regex_encoding('ASCII'); @mb_regex_set_options('i'); };
}
if (extension_loaded('mysqli')) {
    $changes['mysqli'] = function () { mysqli_report(MYSQLI_REPORT_OFF); };
    $connections = [
        'function' => fn () => mysqli_connect('localhost', '', '', '', 0, '/nowhere'),
        'real function' => fn () => mysqli_real_connect(mysqli_init(), 'localhost', '', '', '', 0, '/nowhere'),
        'object' => fn () => new mysqli('localhost', '', '', '', 0, '/nowhere'),
        'object of a class' => fn () => new class ('localhost', '', '', '', 0, '/nowhere') extends mysqli {
        },
        'method' => fn () => (new mysqli())->connect('localhost', '', '', '', 0, '/nowhere'),
        'real method' => fn () => (new mysqli())->real_connect('localhost', '', '', '', 0, '/nowhere'),
    ];
    foreach ($connections as $by => $connect) {
        $changes["error of mysqli by a $by"] = function () use ($connect) {
            try {
                @$connect();
            } catch (mysqli_sql_exception) {
                mysqli_connect_errno() === 2002 || throw new Error('there is no error');
            }
        };
    }
}
if (function_exists('posix_setrlimit')) {
    $changes['limits'] = function () {
        $hard = posix_getrlimit()['hard filesize'];
        posix_setrlimit(POSIX_RLIMIT_FSIZE, 1 << 40, $hard === 'unlimited' ? POSIX_RLIMIT_INFINITY : $hard);
    };
}
if (extension_loaded('pcntl')) {
    $changes['alarm'] = function () { pcntl_alarm(300); };
}
if (extension_loaded('libxml')) {
    $changes['libxml'] = function () {
        libxml_use_internal_errors(true);
        libxml_set_external_entity_loader(fn () => null);
        libxml_set_streams_context(stream_context_create());
        !extension_loaded('simplexml') || simplexml_load_string('<broken');
    };
}

$worker = new RequestWorker();
$ask = function () use ($worker): array {
    return json_decode($worker->answer(fn (Request $request) => json_encode(state()))[0]->body, true);
};
$boot = $ask();
$tell = fn (string ...$words) => fwrite(STDOUT, implode($words) . "\n");
$tell(json_encode(array_intersect_key($boot, ['ini' => 0, 'time limit' => 0])), ' ', $boot['time zone'], ' ', $boot['environment'], ' ', json_encode($boot['error handler']));
foreach ($changes as $name => $change) {
    $worker->answer(function (Request $request) use ($change, $name) {
        $change();

        return 'changed';
    });
    foreach ($ask() as $of => $state) {
        if ($state !== $boot[$of]) {
            $tell("$name leaves $of: ", json_encode($state), ' and not ', json_encode($boot[$of]));
        }
    }
}

// A seed of a visitor does not say what the next one draws.
$draws = [];
for ($i = 0; $i < 3; $i++) {
    $worker->answer(function (Request $request) { mt_srand(5); return ''; });
    $draws[] = $worker->answer(fn (Request $request) => (string) mt_rand())[0]->body;
}
$tell((string) count(array_unique($draws)), ' draws');

// All of it, a thousand times, and the memory stays where it was.
$everything = function (Request $request) use ($changes) {
    foreach ($changes as $name => $change) {
        $name === 'silence that an exit leaves' || $change();
    }

    return 'changed';
};
$memory = 0;
for ($i = 0; $i < 1000; $i++) {
    @$worker->answer($everything);
    if ($i === 100) {
        $memory = memory_get_usage();
    }
}
$grown = memory_get_usage() - $memory;
$tell($grown < 4096 * 16 ? 'no growth' : "$grown bytes more");
foreach ($ask() as $of => $state) {
    $state === $boot[$of] || $tell("a thousand calls leave $of: ", json_encode($state));
}
// Who holds a directory reads on.
$tell(is_resource($opened) && readdir($opened) !== false ? 'still open' : 'closed');
$tell(json_encode([getenv('BOOT'), ini_get('precision'), date_default_timezone_get()]));
?>
--EXPECT--
{"ini":"10512M1PHPSESSID.:\/usr\/share\/php","time limit":"0"} Europe/Paris 1/false true
3 draws
no growth
still open
["1","10","Europe\/Paris"]
