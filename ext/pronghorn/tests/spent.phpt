--TEST--
What a call's time was spent on stands before the end of its reply, when the server asks
--EXTENSIONS--
pronghorn
--SKIPIF--
<?php
if (!extension_loaded('ffi')) die('skip needs FFI');
if (getenv('USE_ZEND_ALLOC') === '0') die('skip valgrind and sanitizers change what computing takes');
?>
--FILE--
<?php
require __DIR__ . '/classic.inc';

use Pronghorn\Internal\Native;
use Pronghorn\Tests\Support\Codec;

/** Which of the two it was, mostly. Who computes may have to wait for a processor as well. */
$shown = static fn (array $told): string
    => $told['cpu'] > 15_000 ? 'computed' : ($told["blocked"] > 25_000 ? "blocked" : "short");
/** Each frame, shortly. */
$frames = static function (string $bytes) use ($shown): string {
    for ($said = []; $bytes !== ''; $bytes = substr($bytes, $length)) {
        $length = 16 + unpack('V', $bytes, 2)[1];
        ['k' => $kind, 'f' => $flags, 'c' => $call] = unpack('Ck/Cf/vs/Vc', $bytes, 16);
        $said[] = $kind === Native::SPENT
            ? "spent $call, flags $flags: " . $shown(unpack('Vcpu/Vblocked', $bytes, 24))
            : sprintf('%02x %d', $kind, $call);
    }

    return implode('; ', $said) . "\n";
};
$compute = static function (): void {
    $used = static fn (): float => getrusage()['ru_utime.tv_sec'] + getrusage()['ru_utime.tv_usec'] / 1e6;
    for ($until = $used() + 0.03; $used() < $until;) {
    }
};

[$box, $ring] = attached();
$serve = static function (int $flags, Closure $work) use ($box, $ring, $frames): void {
    $box->put(Codec::frame(Codec::request(['call' => 1, 'flags' => $flags]), ''));
    $ring->next();
    $work();
    echo $frames($box->take());
};
$serve(0, static fn () => $ring->reply(1, 200, [], 'nobody asked'));
$serve(Native::TIMED, static function () use ($ring, $compute): void {
    $compute();
    $ring->reply(1, 200, [], 'computed');
});
$serve(Native::TIMED, static function () use ($ring): void {
    $ring->reply(1, 200, [], 'streamed', 0, true);
    usleep(30_000);
    $ring->chunk(1, 'a', 0, true);
    $ring->chunk(1, 'b');
});
$box->put(Codec::frame(Codec::raw(['call' => 2, 'flags' => Native::TIMED]), 'bytes'));
$ring->next();
[$call, $cpu] = $box->timed();
echo "at call $call, which began after ", $cpu > 1_000_000 ? 'some' : 'no', " computing\n";
$ring->replyRaw(2, 'bytes');
echo $frames($box->take());
echo "at call {$box->timed()[0]}\n";

echo "A script:\n";
$scripts = new Scripts();
$scripts->announcement();
foreach (['usleep(30_000); echo "done";', 'echo str_repeat("a", 70_000);'] as $code) {
    $scripts->put(Scripts::call(3, ['REQUEST_METHOD' => 'GET', 'SCRIPT_FILENAME' => script($code)], Native::TIMED));
    // The end of the reply stands behind what it was spent on.
    $isOver = static fn (string $bytes): bool => preg_match('/spent 3.*; 8\d 3$/D', rtrim($frames($bytes))) === 1;
    for ($bytes = '', $until = microtime(true) + 10; !$isOver($bytes) && microtime(true) < $until;) {
        $scripts->box->sleepUnless($scripts->box->hasMore(...), STDIN);
        $bytes .= $scripts->box->take();
    }
    echo $frames($bytes);
}
$scripts->put(Codec::control('{"stop":true}'));
$scripts->end();
?>
--EXPECT--
81 1
spent 1, flags 128: computed; 81 1
81 1; 82 1; spent 1, flags 128: blocked; 82 1
at call 2, which began after some computing
spent 2, flags 128: short; 81 2
at call 0
A script:
spent 3, flags 128: blocked; 81 3
81 3; spent 3, flags 128: short; 82 3
