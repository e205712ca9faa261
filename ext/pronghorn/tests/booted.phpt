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
function said(string $script): string
{
    $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_DGRAM, 0);
    $extension = loaded_extension();
    file_put_contents($file = __DIR__ . '/booted.script.php', "<?php\n$script\nPronghorn\\Internal\\zygote_serve(3, false);");
    $process = proc_open([PHP_BINARY, '-n', '-d', "extension=$extension", $file], [['file', '/dev/null', 'r'], STDERR, STDERR, $pair[1]], $pipes, null,
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
?>
--EXPECTF--
zygote 1 threads 1 jit 0 warm 0 %w
refuses a connection, opened by stream_socket_pair() in script:2; a connection, opened by stream_socket_pair() in script:2
refuses the file `script`, opened by fopen() in script:2
zygote 1 threads 1 jit 0 warm 0 %w
refuses the file `script`, opened by fopen() in script:2; the file `script`, opened by fopen() in script:2; the file `script`, opened by fopen() in script:2; the file `script`, opened by fopen() in script:2; the file `script`, opened by fopen() in script:2; and 2 more
