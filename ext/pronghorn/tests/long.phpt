--TEST--
Frames that are longer than the box, while somebody else reads and writes at its other end
--EXTENSIONS--
pronghorn
pcntl
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Internal\Frame;
use Pronghorn\Tests\Support\Codec;

[$box, $ring] = attached(5000);
$body = str_repeat(random_bytes(1000), 3000);
if (pcntl_fork() === 0) {
    // The server: gives as there is room, takes what comes, says whether it is the same.
    $pipe = fopen("php://fd/$box->pipe", 'r');
    for ($rest = Codec::frame(Codec::request(['call' => 8]), $body); $rest !== ''; $rest = substr($rest, $sent)) {
        if (($sent = $box->put($rest)) === 0) {
            $box->sleepUnless(fn () => $box->room() > 0, $pipe);
        }
    }
    for ($reply = ''; strlen($reply) < 12 || strlen($reply) < Frame::length($reply); $reply .= $box->take()) {
        $box->sleepUnless($box->hasMore(...), $pipe);
    }
    [$message] = Codec::messages($reply);
    exit($message->body === $body && $message->headers === [['X-A', 'b']] ? 0 : 1);
}
$exchange = $ring->next();
var_dump($exchange->request->body() === $body);
$ring->reply($exchange->id, 200, ['X-A' => 'b'], $body);
pcntl_wait($status);
var_dump(pcntl_wexitstatus($status));
?>
--EXPECT--
bool(true)
int(0)
