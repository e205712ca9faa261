--TEST--
That a worker is free again, the server hears with its next answer or before its sleep
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Internal\Native;
use Pronghorn\Tests\Support\Codec;

[$box, $ring] = attached();
$call = static fn (int $number): string => Codec::frame(Codec::request(['call' => $number]), '');
$rings = static function (callable $step) use ($box): bool {
    $box->park();
    $step();
    return $box->wasRung();
};
$reply = static fn (int $number): callable => fn () => $ring->reply($number, 200, [], 'done', Native::BUSY);
$free = static fn (int $number): callable => fn () => $ring->free($number);

echo "Another call lies there:\n";
$box->put($call(1) . $call(2));
var_dump($ring->next()->id, $rings($reply(1)), $rings($free(1)));
var_dump($ring->next()->id, $rings($reply(2)));
echo "None:\n";
var_dump($rings($free(2)));
echo "One that is taken back:\n";
$box->put($call(3) . $call(4));
var_dump($ring->next()->id, $rings($reply(3)), $rings($free(3)), $box->takeBack(4));
$box->hangUp();
var_dump($ring->next(), $box->wasRung());
?>
--EXPECT--
Another call lies there:
int(1)
bool(true)
bool(false)
int(2)
bool(true)
None:
bool(true)
One that is taken back:
int(3)
bool(true)
bool(false)
bool(true)
NULL
bool(true)
