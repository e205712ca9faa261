<?php

// What all workers share: a value that one of them computes, a counter, a lock, a limit.

declare(strict_types=1);

use Pronghorn\Cache\Cache;
use Pronghorn\Cache\Lock;
use Pronghorn\Cache\RateLimiter;
use Pronghorn\Request;
use Pronghorn\Response;

require __DIR__ . '/../../php/autoload.php';
// With Composer: composer require psr/simple-cache. Debian has it as php-psr-simple-cache.
interface_exists(Psr\SimpleCache\CacheInterface::class) || require 'Psr/SimpleCache/autoload.php';

$cache = Cache::open('app', prefix: 'demo:');
$limiter = RateLimiter::tokenBucket($cache->store, 'limited', limit: 3, seconds: 60);

Pronghorn\serve(static function (Request $request) use ($cache, $limiter): string|Response {
    switch ($request->path) {
        case '/limited':
            $wait = $limiter->take($request->query()['client'] ?? 'anybody');

            return $wait > 0
                ? new Response("Too often.\n", 429, ['retry-after' => (string) ceil($wait)])
                : "You are welcome.\n";
        case '/once':
            // One at a time, whichever worker has the request.
            $lock = new Lock($cache->store, 'import', ttl: 10);
            if (!$lock->acquire(wait: 2)) {
                return new Response("Somebody else is at it.\n", 409);
            }
            try {
                return "Done as number {$lock->token()}.\n";
            } finally {
                $lock->release();
            }
        case '/session':
            session_start();
            $_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;

            return "You were here {$_SESSION['visits']} times.\n";
        default:
            $visits = $cache->increment('visits');
            $built = $cache->remember('page', 60, static fn (): string => 'built by ' . getmypid(), stale: 600);

            return "Visit $visits of a page $built.\n";
    }
});
