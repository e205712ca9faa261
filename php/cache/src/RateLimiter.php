<?php

declare(strict_types=1);

namespace Pronghorn\Cache;

use Pronghorn\Cache\Internal\Keys;

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

    /** At most `$limit` in any `$seconds`, by the counts of this window and of the last. */
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
        $key = "limit\0" . Keys::shortened("$this->name\0$client");

        return $this->isBucket ? $this->fromBucket($key) : $this->fromWindow($key);
    }

    /** Kept is the moment at which the bucket will be full again. */
    private function fromBucket(string $key): float
    {
        $each = $this->seconds / $this->limit;
        // With others at the same time one of them gets on in each round.
        for ($rounds = 0; $rounds < self::ROUNDS; $rounds++) {
            $now = \microtime(true);
            $kept = $this->store->get($key);
            $full = \max(\is_float($kept) ? $kept : $now, $now) + $each;
            if ($full > $now + $this->seconds + 1e-9) {
                return $full - $now - $this->seconds;
            }
            $ttl = $full - $now + 1;
            if ($kept === null ? $this->store->add($key, $full, $ttl) : $this->replaces($key, $kept, $full, $ttl)) {
                return 0.0;
            }
        }
        throw new \Error('The storage has no room');
    }

    private function replaces(string $key, mixed $kept, float $full, float $ttl): bool
    {
        return $this->store->compareAndSwap($key, $kept, $full, $ttl) ?: $this->store->add($key, $full, $ttl);
    }

    private function fromWindow(string $name): float
    {
        $now = \microtime(true);
        $window = (int) \floor($now / $this->seconds);
        $part = $now / $this->seconds - $window;
        $key = static fn (int $number): string => "$name\0$number";
        $before = (int) $this->store->get($key($window - 1), 0);
        $ttl = 2 * $this->seconds + 1;
        $mine = $this->store->increment($key($window), 1, $ttl);
        if ($before * (1 - $part) + $mine <= $this->limit) {
            return 0.0;
        }
        $this->store->increment($key($window), -1, $ttl);

        return \max($this->seconds * (1 - $part) / \max(1, $this->limit), 0.001);
    }
}
