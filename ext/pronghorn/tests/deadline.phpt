--TEST--
The deadline's signal ends the call that it names, and no other one
--EXTENSIONS--
pronghorn
posix
pcntl
--SKIPIF--
<?php if (!extension_loaded('ffi')) die('skip needs FFI'); ?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\DeadlineExceeded;
use Pronghorn\Internal\Exchange;
use Pronghorn\Internal\Native;
use Pronghorn\Tests\Support\Codec;
use const Pronghorn\Internal\DEADLINE_SIGNAL;

$libc = FFI::cdef('int sigqueue(int pid, int signal, size_t value);');
$signal = static function (int $call) use ($libc): void {
    $libc->sigqueue(getmypid(), DEADLINE_SIGNAL, $call);
    // It has come when this ends.
    usleep(1000);
};

[$box, $ring, $announced] = attached(5000);
echo json_encode($announced), "\n";

$call = static function (int $number, callable $do) use ($box, $ring): void {
    $box->put(Codec::frame(Codec::request(['call' => $number])));
    $ring->next();
    try {
        echo $do(), "\n";
    } catch (DeadlineExceeded $late) {
        echo get_class($late), ': ', $late->getMessage(), ' in line ', $late->getLine(), ', ', substr($late->getTraceAsString(), 0, 3), "\n";
    }
    $ring->reply($number, 200, [], 'x');
};

$call(1, function () use ($signal) {
    $signal(1);
    for (;;) {
    }
});
$call(2, function () use ($signal) {
    $signal(1);
    $signal(3);
    return 'of others';
});
$call(3, fn () => 'was signalled too early');
$signal(3);
$call(4, fn () => 'was signalled before');
$call(5, function () use ($signal) {
    try {
        array_map(fn (int $number) => $number === 500 ? $signal(5) : null, range(1, 1000));
    } catch (DeadlineExceeded) {
        return 'caught';
    }
});
$start = hrtime(true);
$call(6, function () use ($signal) {
    if (pcntl_fork() === 0) {
        usleep(50000);
        FFI::cdef('int sigqueue(int pid, int signal, size_t value);')->sigqueue(posix_getppid(), DEADLINE_SIGNAL, 6);
        posix_kill(getmypid(), SIGKILL);
    }
    sleep(10);
});
echo hrtime(true) - $start < 5e9 ? "soon\n" : "late\n";
// What is left to do after a reply goes by another number, while it is run.
$box->put(Codec::frame(Codec::request(['call' => 8])));
$ring->next();
$ring->reply(8, 200, [], 'x', Native::BUSY);
$left = ~8 & 0xFFFFFFFF;
$signal($left);
try {
    Pronghorn\Internal\until_exit(function () use ($signal, $left) {
        $signal(8);
        echo "signalled for its call\n";
        $signal($left);
        for (;;) {
        }
    });
} catch (DeadlineExceeded $late) {
    echo $late->getMessage(), "\n";
}
$signal($left);
Pronghorn\Internal\until_exit(fn () => $signal($left));
$call(7, function () use ($signal) {
    try {
        $signal(7);
        for (;;) {
        }
    } catch (DeadlineExceeded) {
    }
    $signal(7);
    for (;;) {
    }
});
?>
--EXPECTF--
{"ring":true,"deadline_signal":44}
Pronghorn\DeadlineExceeded: The call has passed its deadline in line %d, #0 
of others
was signalled too early
was signalled before
caught
Pronghorn\DeadlineExceeded: The call has passed its deadline in line %d, #0 
soon
signalled for its call
What a call has deferred has passed its deadline
%A
Fatal error: The call has passed its deadline, and goes on after Pronghorn\DeadlineExceeded was thrown in %s on line %d
