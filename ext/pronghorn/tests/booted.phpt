--TEST--
A zygote of a booted application refuses to be forked while it holds what processes can't share
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php
if (getenv('USE_ZEND_ALLOC') === '0' && !str_contains((string) getenv('LD_PRELOAD'), 'asan')) {
    die('skip valgrind has files of its own open');
}
if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

/** What such a process says when its script has run this. */
function said(string $script, string ...$options): string
{
    $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_DGRAM, 0);
    $extension = loaded_extension();
    file_put_contents($file = __DIR__ . '/booted.script.php', "<?php\n$script\nPronghorn\\Internal\\zygote_serve(3, false);");
    $process = proc_open([PHP_BINARY, '-n', '-d', "extension=$extension", ...$options, $file], [['file', '/dev/null', 'r'], STDERR, STDERR, $pair[1]], $pipes, null,
        ['PRONGHORN_ZYGOTE' => '3'] + getenv());
    fclose($pair[1]);
    $said = fread($pair[0], 2000);
    proc_terminate($process, 9);
    proc_close($process);
    unlink($file);

    return preg_replace('~(/\S*/)?booted\.script\.php~', 'script', $said);
}

function loaded_extension(): string
{
    preg_match('~\S+/pronghorn\.so~', file_get_contents('/proc/self/maps'), $found);

    return $found[0];
}

echo said('$a = [1]; $a[] = &$a;'), "\n";
echo said('$pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);'), "\n";
echo said('$file = fopen(__FILE__, "r"); $closed = fopen(__FILE__, "r"); fclose($closed);'), "\n";
echo said('$log = fopen("/dev/null", "w"); $err = fopen("php://stderr", "w");'), "\n";
echo said('function open() { return array_map(fn ($name) => fopen($name, "r"), array_fill(0, 7, __FILE__)); } $all = open();'), "\n";

/** What it says when its script has called this function of the C library by FFI. */
function called(string $call, string $declared, string ...$options): string
{
    $options = [...$options, ...explode(' ', '-d extension=ffi -d ffi.enable=1 -d display_startup_errors=0 -d log_errors=0')];

    return said("\$c = FFI::cdef('$declared'); \$kept = \$c->$call;", ...$options);
}

// PHP makes a function for each call, which is gone behind it.
$open = 'int open(const char *path, int flags);';
echo called('open(__FILE__, 0)', $open), "\n";
echo called('open(__FILE__, 0); $kept = array_map([$c, "open"], [__FILE__], [0])', $open), "\n";
echo called('memfd_create("kept", 0)', 'int memfd_create(const char *name, unsigned flags);'), "\n";
$map = 'void *mmap(void *at, size_t length, int access, int flags, int of, long offset);';
echo called('mmap(null, 4096, 3, 0x21, -1, 0)', $map), "\n"; // MAP_SHARED | MAP_ANONYMOUS
echo called('mmap(null, 4096, 3, 0x22, -1, 0)', $map), "\n"; // MAP_PRIVATE | MAP_ANONYMOUS
echo called('getpid()', 'int getpid(void);'), "\n";
echo called('alarm(60)', 'unsigned alarm(unsigned seconds);'), "\n";
echo called('qsort($a = $c->new("int[2]"), 2, 4, fn ($a, $b) => (int) ($GLOBALS["opened"] ??= fopen(__FILE__, "r")))',
    'void qsort(void *at, size_t count, size_t size, int (*compare)(const int *, const int *));'), "\n";

// A request before the first one draws, which is gone.
file_put_contents($preload = __DIR__ . '/booted.preload.php', '<?php
    for ($i = 0; $i < 1000; $i++) { strrev((string) random_int(1, 9)); }
    FFI::cdef("' . $open . '")->open("/dev/null", 0);');
$user = posix_geteuid() === 0 ? ['-d', 'opcache.preload_user=root'] : [];
$opcache = ['-d', 'zend_extension=opcache', '-d', 'opcache.enable_cli=1', '-d', "opcache.preload=$preload", ...$user];
echo called('abs(3)', 'int abs(int number);', ...$opcache), "\n";
unlink($preload);
echo "end\n";
?>
--EXPECTF--
zygote 1 threads 1 jit 0 warm 0 %w
refuses a connection, opened by stream_socket_pair() in script:2; a connection, opened by stream_socket_pair() in script:2
refuses the file `script`, opened by fopen() in script:2
zygote 1 threads 1 jit 0 warm 0 %w
refuses the file `script`, opened by fopen() in script:2; the file `script`, opened by fopen() in script:2; the file `script`, opened by fopen() in script:2; the file `script`, opened by fopen() in script:2; the file `script`, opened by fopen() in script:2; and 2 more
refuses the file `script`, opened by open() in script:2
refuses the file `script`, opened by open() in script:2; the file `script`, opened by open() in script:2
refuses the file `/memfd:kept (deleted)`, opened by memfd_create() in script:2
refuses shared memory `/dev/zero (deleted)`, had by mmap() in script:2
zygote 1 threads 1 jit 0 warm 0 %w
zygote 1 threads 1 jit 0 warm 0 %w
getpid() in script:2
refuses an alarm, set by alarm() in script:2
refuses the file `script`, opened by fopen() in script:2
zygote 1 threads 1 jit 0 warm 0 %w
end
