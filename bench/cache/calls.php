<?php

// Calls one function of a storage in memory for some seconds, in one process or in several at once,
// on one key. Says how many nanoseconds a call took, of each process.
//
// calls.php WHO WHAT PROCESSES SECONDS [PORT OF REDIS]

declare(strict_types=1);

const PIECE = 2000;

[, $who, $what, $processes, $seconds, $port] = $argv + [5 => '0'];
$value = str_repeat('v', 100);
$cache = $who === 'pronghorn' ? Pronghorn\Cache\SharedMemory::open('it') : null;
if ($who === 'pronghorn' && $cache === null) {
    fwrite(STDERR, "the storage is not mapped\n");
    exit(1);
}
$redis = $who === 'redis' ? new Redis() : null;
$redis?->connect('127.0.0.1', (int) $port);
$key = 'bench:key';
$set = static function (string $key, mixed $value) use ($cache, $redis): void {
    match (true) {
        $cache !== null => $cache->set($key, $value),
        $redis !== null => $redis->set($key, $value),
        default => apcu_store($key, $value),
    };
};
$set($key, $value);
$set("$key:n", 0);

/** Nanoseconds of a piece of calls. */
$piece = match ("$who $what") {
    'pronghorn get' => static function () use ($cache, $key): void {
        for ($i = 0; $i < PIECE; $i++) {
            $found = $cache->get($key);
        }
    },
    'pronghorn set' => static function () use ($cache, $key, $value): void {
        for ($i = 0; $i < PIECE; $i++) {
            $cache->set($key, $value);
        }
    },
    'pronghorn increment' => static function () use ($cache, $key): void {
        $key = "$key:n";
        for ($i = 0; $i < PIECE; $i++) {
            $cache->increment($key);
        }
    },
    'apcu get' => static function () use ($key): void {
        for ($i = 0; $i < PIECE; $i++) {
            $found = apcu_fetch($key);
        }
    },
    'apcu set' => static function () use ($key, $value): void {
        for ($i = 0; $i < PIECE; $i++) {
            apcu_store($key, $value);
        }
    },
    'apcu increment' => static function () use ($key): void {
        $key = "$key:n";
        for ($i = 0; $i < PIECE; $i++) {
            apcu_inc($key);
        }
    },
    'redis get' => static function () use (&$redis, $key): void {
        for ($i = 0; $i < PIECE; $i++) {
            $found = $redis->get($key);
        }
    },
    'redis set' => static function () use (&$redis, $key, $value): void {
        for ($i = 0; $i < PIECE; $i++) {
            $redis->set($key, $value);
        }
    },
    'redis increment' => static function () use (&$redis, $key): void {
        $key = "$key:n";
        for ($i = 0; $i < PIECE; $i++) {
            $redis->incr($key);
        }
    },
    'pronghorn nothing' => static function () use ($key): void {
        for ($i = 0; $i < PIECE; $i++) {
            $found = $key;
        }
    },
};

$pipes = [];
for ($other = 1; $other < (int) $processes; $other++) {
    $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    if (pcntl_fork() === 0) {
        if ($redis !== null) {
            // A connection of its own: that of the parent is the parent's.
            $redis = new Redis();
            $redis->connect('127.0.0.1', (int) $port);
        }
        fwrite($pair[1], measure($piece, (float) $seconds) . "\n");
        exit(0);
    }
    fclose($pair[1]);
    $pipes[] = $pair[0];
}
$all = [measure($piece, (float) $seconds)];
foreach ($pipes as $pipe) {
    $all[] = (float) fgets($pipe);
}
echo array_sum($all) / count($all), "\n";

function measure(Closure $piece, float $seconds): float
{
    // The others begin at the same time, about.
    $piece();
    $begun = hrtime(true);
    $until = $begun + (int) ($seconds * 1e9);
    for ($calls = 0; hrtime(true) < $until; $calls += PIECE) {
        $piece();
    }

    return (hrtime(true) - $begun) / $calls;
}
