--TEST--
A call that the server has taken back is passed over, also on the way to a cancel
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Tests\Support\Codec;

[$box, $ring] = attached();
$call = static fn (int $number): string => Codec::frame(Codec::request(['call' => $number]), '');
$cancel = Codec::frame(pack('CCvV', 0x10, 0, 0, 1), '');
$box->put($call(1) . $call(2) . $call(3) . $cancel . $call(4));
var_dump($ring->next()->id, $box->takeBack(1));
var_dump($box->takeBack(2), $ring->cancelled(1));
var_dump($box->takeBack(3), $ring->cancelled(1));
var_dump($ring->next()->id);
$box->put($call(5) . $call(6));
var_dump($box->takeBack(5), $ring->next()->id, $box->takeBack(6));
?>
--EXPECT--
int(1)
bool(false)
bool(true)
bool(false)
bool(true)
bool(true)
int(4)
bool(true)
int(6)
bool(false)
