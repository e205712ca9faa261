<?php

declare(strict_types=1);

namespace Pronghorn\Cache;

use Pronghorn\Cache\Internal\Keys;
use Pronghorn\Cache\Internal\Window;

/**
 * Lets so many through in a time, over all workers: a token bucket, which takes bursts, or a
 * sliding window, which does not.
 */
final class RateLimiter
{
    /** Far more than there are processes that change a client's bucket at the same time. */
    private const ROUNDS = 1000;

    private function __construct(
        private readonly Store $store,
        private readonly string $name,
        private readonly int $limit,
        private readonly float $seconds,
        private readonly bool $isBucket,
    ) {
        if ($limit < 1 || !($seconds > 0)) {
            throw new \ValueError('A limit is at least 1, in a time above 0 seconds.');
        }
    }

    /** A bucket of `$limit` tokens, filled evenly in `$seconds`. */
    public static function tokenBucket(Store $store, string $name, int $limit, float $seconds): self
    {
        return new self($store, $name, $limit, $seconds, true);
    }

    /**
     * At most `$limit` in any `$seconds`. What went through is counted by fiftieths of that time,
     * so that a place is free again up to a fiftieth later than it might be.
     */
    public static function slidingWindow(Store $store, string $name, int $limit, float $seconds): self
    {
        return new self($store, $name, $limit, $seconds, false);
    }

    /**
     * Takes a place for this client, if there is one.
     *
     * @return float 0: it goes through; else the seconds after which it is worth trying again
     */
    public function take(string $client): float
    {
        $key = "limit\0" . Keys::shortened("$this->name\0$client") . ($this->isBucket ? '' : "\0window");
        // With others at the same time one of them gets on in each round.
        for ($rounds = 0; $rounds < self::ROUNDS; $rounds++) {
            $now = \microtime(true);
            $kept = $this->store->get($key);
            [$wait, $next, $ttl] = $this->isBucket ? $this->bucket($kept, $now) : $this->window($kept, $now);
            if ($wait > 0) {
                return $wait;
            }
            if ($kept === null ? $this->store->add($key, $next, $ttl) : $this->replaces($key, $kept, $next, $ttl)) {
                return 0.0;
            }
        }
        throw new \Error('The storage has no room');
    }

    /**
     * Kept is the moment at which the bucket will be full again.
     *
     * @return array{float, float, float} seconds to wait; what is kept if they are 0, and for how long
     */
    private function bucket(mixed $kept, float $now): array
    {
        $each = $this->seconds / $this->limit;
        // A time further ahead than one filling was kept before the clock was set back.
        $full = \min(\max(\is_float($kept) ? $kept : $now, $now), $now + $this->seconds) + $each;
        $wait = $full - $now - $this->seconds;

        return [$wait > 1e-9 ? $wait : 0.0, $full, $full - $now + 1];
    }

    /** @return array{float, string, float} as of {@see bucket} */
    private function window(mixed $kept, float $now): array
    {
        $window = new Window($this->limit, $this->seconds);

        return [...$window->take($kept, $now), $this->seconds + $window->part + 1];
    }

    private function replaces(string $key, mixed $kept, mixed $next, float $ttl): bool
    {
        return $this->store->compareAndSwap($key, $kept, $next, $ttl) ?: $this->store->add($key, $next, $ttl);
    }
}
