--TEST--
What the server hears of at once, with the next answer, or before a sleep
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
echo "While two calls are enough:\n";
$box->areEnough(2);
$box->put($call(3) . $call(4) . $call(5) . $call(6));
$box->offer(3, 4, 5, 6);
foreach ([3, 4, 5, 6] as $number) {
    var_dump($ring->next()->id === $number && $rings(static fn () => $ring->reply($number, 200, [], 'done', 0)));
}
echo "One whose end is to come:\n";
$box->put($call(7) . $call(8) . $call(9));
$box->offer(7, 8, 9);
var_dump($ring->next()->id, $rings(static fn () => $ring->reply(7, 200, [], 'piece', more: true)));
var_dump($ring->next()->id, $rings($reply(8)));
var_dump($ring->next()->id, $rings($reply(9)));
$box->areEnough(0);
echo "One that is taken back:\n";
$box->put($call(13) . $call(14));
var_dump($ring->next()->id, $rings($reply(13)), $rings($free(13)), $box->takeBack(14));
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
While two calls are enough:
bool(false)
bool(false)
bool(true)
bool(true)
One whose end is to come:
int(7)
bool(true)
int(8)
bool(true)
int(9)
bool(true)
One that is taken back:
int(13)
bool(true)
bool(false)
bool(true)
NULL
bool(true)
