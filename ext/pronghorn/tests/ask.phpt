--TEST--
A method of the server is called while a call is under way, past calls that are taken back
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Internal\Native;
use Pronghorn\Tests\Support\Codec;

use function Pronghorn\Internal\{ring_answer, ring_ask};

[$box, $ring] = attached();
$call = static fn (int $number): string => Codec::frame(Codec::request(['call' => $number]), '');
$message = static fn (int $kind, int $number, int $small, string $body): string
    => Codec::frame(pack('CCvV', $kind, 0, $small, $number), $body);

var_dump(ring_ask(1, 'a.B', '[]'));
$box->put($call(1) . $call(2));
var_dump($ring->next()->id, ring_ask(1, 'a.B', '[]'), bin2hex($box->take()));

// The call ahead is passed over; so are answers to questions before, and a ping is answered.
$box->takeBack(2);
$box->put($message(Native::ANSWER, 7, 0, 'old') . $message(Native::PING, 3, 0, '') . $message(Native::ANSWER, 1, 0, '"new"'));
$box->offer();
var_dump(ring_answer(1), bin2hex($box->take()));

// Another message is PHP's; a failure is told from a result.
$box->put($message(Native::CANCEL, 1, 0, '') . $message(Native::ANSWER, 1, 1, 'no'));
$box->offer();
var_dump($ring->ask('a.C', '{}'), $ring->cancelled(1));

// One that the box can't hold at once.
$long = $message(Native::ANSWER, 3, 0, str_repeat('x', 300_000));
$sent = $box->put($long);
var_dump(ring_ask(3, 'a.D', ''));
$rest = substr($long, $sent);
pcntl_signal(SIGALRM, function () use ($box, &$rest): void {
    $rest = substr($rest, $box->put($rest));
});
pcntl_async_signals(true);
pcntl_alarm(1);
[$isResult, $result] = ring_answer(3);
var_dump($isResult, strlen($result), $rest);

// After the reply there is no call; after one that is busy there is, until it says that it is free.
$ring->reply(1, 200, [], '', Native::BUSY);
var_dump(ring_ask(4, 'a.E', ''));
$ring->free(1);
var_dump(ring_ask(5, 'a.E', ''));
$box->put('no frame at all, and that is not awaited');
$box->put($call(4));
var_dump(substr(ring_answer(4), 0, 8));
?>
--EXPECT--
bool(false)
int(1)
bool(true)
string(58) "14020d000000936a2fa100000b0000008d00000001000000612e425b5d"
array(2) {
  [0]=>
  bool(true)
  [1]=>
  string(5) ""new""
}
string(48) "140208000000a19af1960000080000009100000003000000"
array(2) {
  [0]=>
  bool(false)
  [1]=>
  string(2) "no"
}
bool(true)
bool(true)
bool(true)
int(300000)
string(0) ""
bool(true)
bool(false)
string(8) "no frame"
