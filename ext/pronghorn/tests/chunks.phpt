--TEST--
Memory that a call gives back is kept for the next ones, as long as they need it
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php
if (!extension_loaded('ffi')) die('skip needs FFI');
if (getenv('USE_ZEND_ALLOC') === '0') die('skip needs the heap of PHP');
if (PHP_DEBUG) die('skip debug builds of PHP have no heap with a storage');
?>
--INI--
memory_limit=128M
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Tests\Support\Codec;

const PATIENCE = 100;

[$box, $ring] = attached(PATIENCE);
/** How many pages a call has touched for the first time. */
$call = static function (int $number, callable $work) use ($box, $ring): int {
    $box->put(Codec::frame(Codec::request(['call' => $number])));
    $ring->next();
    $before = getrusage()['ru_minflt'];
    $work();
    $pages = getrusage()['ru_minflt'] - $before;
    $ring->reply($number, 200, [], 'done', 0);
    $box->reset();

    return $pages;
};
/** Six of eight megabytes: PHP itself keeps some. */
$many = (6 << 20) / (int) shell_exec('getconf PAGESIZE');
$megabytes = static function (int $count): array {
    return array_map(static fn (): string => str_repeat('0123456789abcdef', 65536), range(1, $count));
};
$usage = memory_get_usage(true);

echo "A call that needs eight megabytes, and again:\n";
var_dump($call(1, fn () => $megabytes(8)) >= $many);
foreach ([2, 3, 4] as $number) {
    var_dump($call($number, fn () => $megabytes(8)) < $many / 10);
    usleep(PATIENCE * 1200);
}
echo "PHP does not count what is kept:\n";
var_dump(memory_get_usage(true) - $usage <= 4 << 20);

echo "Of 24 megabytes, 16 are:\n";
$call(5, fn () => $megabytes(24));
$pages = $call(6, fn () => $megabytes(24));
var_dump($pages > $many, $pages < $many * 3);

echo "None that nobody has needed for a while:\n";
foreach ([7, 8, 9] as $number) {
    usleep(PATIENCE * 1200);
    $call($number, fn () => null);
}
var_dump($call(10, fn () => $megabytes(8)) >= $many);
echo "Also where no call comes:\n";
$resident = static fn (): int => (int) explode(' ', file_get_contents('/proc/self/statm'))[1];
$before = $resident();
pcntl_signal(SIGALRM, static function () use ($box): void {
    $box->put(Codec::frame(Codec::request(['call' => 11])));
});
pcntl_async_signals(true);
pcntl_alarm(1);
var_dump($ring->next()->id, $before - $resident() >= $many * 0.8);
$box->reset();

echo "Blocks that are longer than a chunk grow and shrink:\n";
$call(12, static function (): void {
    // As long as a chunk, and no chunks: what comes next in their places are some.
    $blocks = array_map(static fn (): string => str_repeat('x', 2 * 1024 * 1024 - 32), range(1, 8));
    unset($blocks);
    $small = array_map(static fn (int $i): array => [$i], range(1, 100000));
    var_dump(memory_get_usage(true) - memory_get_usage() < 4 << 20);
    unset($small);
    $text = '';
    for ($i = 0; $i < 48; $i++) {
        $text .= str_repeat(chr(65 + $i), 131072);
    }
    var_dump(strlen($text), crc32($text) === crc32(implode('', array_map(static fn (int $i): string => str_repeat(chr(65 + $i), 131072), range(0, 47)))));
    $stream = fopen('php://memory', 'w+');
    fwrite($stream, $text);
    fseek($stream, 131072 * 24 + 1);
    $half = fread($stream, 20 * 1024 * 1024);
    var_dump(strlen($half), $half === substr($text, 131072 * 24 + 1));
});
?>
--EXPECT--
A call that needs eight megabytes, and again:
bool(true)
bool(true)
bool(true)
bool(true)
PHP does not count what is kept:
bool(true)
Of 24 megabytes, 16 are:
bool(true)
bool(true)
None that nobody has needed for a while:
bool(true)
Also where no call comes:
int(11)
bool(true)
Blocks that are longer than a chunk grow and shrink:
bool(true)
int(6291456)
bool(true)
int(3145727)
bool(true)
