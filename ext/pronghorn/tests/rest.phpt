--TEST--
How long it was at what a call had left, a worker says when it is free again
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/classic.inc';

use Pronghorn\Internal\Native;
use Pronghorn\Tests\Support\Codec;

/** In tens of microseconds; nothing before it is there. */
$told = static fn (string $bytes): ?int => preg_match('/\x86\0(..)\x01\0\0\0$/s', $bytes, $found) ? unpack('v', $found[1])[1] : null;
$isTwo = static fn (?int $rest): bool => $rest >= 200 && $rest < 60_000;

[$box, $ring] = attached();
$box->put(Codec::frame(Codec::request(['call' => 1]), ''));
$ring->next();
foreach ([Native::BUSY, Native::BUSY, 0] as $flags) {
    $ring->reply(1, 200, [], 'done', $flags);
    usleep(2000);
    $ring->free(1);
    $rest = $told($box->take());
    var_dump($flags ? $isTwo($rest) : $rest);
}
$ring->free(1);
var_dump($told($box->take()));

echo "A script:\n";
$scripts = new Scripts();
$scripts->announcement();
$path = script('fastcgi_finish_request(); usleep(2000);');
$scripts->put(Scripts::call(1, ['REQUEST_METHOD' => 'GET', 'SCRIPT_FILENAME' => $path, 'SCRIPT_NAME' => '/a.php']));
for ($bytes = '', $until = microtime(true) + 10; $told($bytes) === null && microtime(true) < $until; usleep(500)) {
    $bytes .= $scripts->box->take();
}
var_dump($isTwo($told($bytes)));
$scripts->put(Codec::control('{"stop":true}'));
$scripts->end();
?>
--EXPECT--
bool(true)
bool(true)
int(0)
int(0)
A script:
bool(true)
