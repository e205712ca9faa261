--TEST--
With two processors, a worker of quick calls sleeps at that of the server's thread now and then
--EXTENSIONS--
pronghorn
pcntl
posix
--SKIPIF--
<?php
if (!extension_loaded('ffi')) die('skip needs FFI');
require __DIR__ . '/source.inc';
if (!is_file(SOURCE . '/ext/pronghorn/visits.c')) die('skip workers make no visits');
if (!preg_match('~^Cpus_allowed_list:\s+\d+[-,]~m', file_get_contents('/proc/self/status'))) die('skip needs two processors');
?>
--FILE--
<?php
require __DIR__ . '/common.inc';

use Pronghorn\Tests\Support\Codec;

function processors(int $pid): string
{
    preg_match('~^Cpus_allowed_list:\s+(\S+)~m', file_get_contents("/proc/$pid/status"), $found);

    return $found[1];
}

/** Where the parent may run: the first that is not as usual, if there is one in so many seconds. */
function seen(string $usual, float $seconds): string
{
    $until = microtime(true) + $seconds;
    while (($seen = processors(posix_getppid())) === $usual && microtime(true) < $until);

    return $seen;
}

// Two of them, if there are more.
preg_match('~^(\d+)([-,])(\d+)~', processors(getmypid()), $first);
$second = $first[2] === '-' ? $first[1] + 1 : $first[3];
exec("taskset -cp $first[1],$second " . getmypid());
[$box, $ring] = attached(20);
$usual = processors(getmypid());
$last = (int) preg_replace('~.*\D~', '', $usual);
/** Where the worker may run while it waits for its next call, which comes when that is seen, or after a while. */
$waits = static function (int $number) use ($box, $ring, &$usual, $last): void {
    $observer = pcntl_fork();
    if ($observer === 0) {
        $seen = seen($usual, 1);
        echo match ($seen) {
            $usual => 'anywhere',
            (string) $last => 'there',
            default => $seen,
        }, "\n";
        $box->put(Codec::frame(Codec::request(['call' => $number])));
        posix_kill(getmypid(), SIGKILL);
    }
    var_dump($ring->next()->id === $number, processors(getmypid()) === $usual);
    pcntl_waitpid($observer, $status);
    // The child alone knows what it has put.
    $box->reset();
};

echo "Its calls are not quick:\n";
$waits(1);
echo "They are:\n";
$box->quicken($last);
$waits(2);
$waits(3);
/** Whether two visits are less than 100 milliseconds apart, with so long calls; null where calls alone take so long. */
$soonAgain = static function (int $length) use ($box, $ring, $usual): ?bool {
    $begun = microtime(true);
    $before = -INF;
    for ($number = 4; $number < 40; $number++) {
        $now = microtime(true);
        if ($number > 8 && $now - $begun > 0.02 * ($number - 4)) {
            return null;
        }
        $observer = pcntl_fork();
        if ($observer === 0) {
            $seen = seen($usual, 0.01);
            $box->put(Codec::frame(Codec::request(['call' => $number]), str_repeat('x', $length)));
            posix_kill(getmypid(), $seen === $usual ? SIGTERM : SIGKILL);
        }
        $ring->next();
        pcntl_waitpid($observer, $status);
        $box->reset();
        if (pcntl_wtermsig($status) === SIGKILL) {
            if ($now - $before < 0.09) {
                return true;
            }
            $before = $now;
        }
    }

    return false;
};
echo "They are short, or long:\n";
var_dump($soonAgain(10) ?? false, $soonAgain(8000) ?? true);
echo "The thread is where this worker may not run:\n";
exec('taskset -cp ' . (int) $usual . ' ' . getmypid());
$usual = processors(getmypid());
$waits(40);
?>
--EXPECT--
Its calls are not quick:
anywhere
bool(true)
bool(true)
They are:
there
bool(true)
bool(true)
there
bool(true)
bool(true)
They are short, or long:
bool(false)
bool(true)
The thread is where this worker may not run:
anywhere
bool(true)
bool(true)
