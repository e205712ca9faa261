<?php

declare(strict_types=1);

namespace Pronghorn\Cache;

/**
 * What a storage can do, wherever it is. With the extension this interface is its own, and this
 * file is not loaded.
 *
 * A key has 1 to 65,536 bytes, of any value. A `$ttl` is in seconds; null is for ever, as long as
 * there is room: what was not read for the longest time goes first.
 */
interface Store
{
    public function get(string $key, mixed $default = null): mixed;

    /**
     * @param list<string> $keys
     * @return array<string, mixed> what is there
     */
    public function many(array $keys): array;

    /** False: there is no room, or the value is too long. A `$ttl` of 0 or less removes the key. */
    public function set(string $key, mixed $value, ?float $ttl = null): bool;

    /** Keeps it where nothing is there; false: something is. */
    public function add(string $key, mixed $value, ?float $ttl = null): bool;

    /** Whether it was there. */
    public function delete(string $key): bool;

    /**
     * Adds to an integer, which begins with 0. The `$ttl` is that of a new one, and above 0.
     *
     * @return int the sum
     * @throws \ValueError when something else is there, the sum is too large, or the `$ttl` is not
     *     above 0
     */
    public function increment(string $key, int $by = 1, ?float $ttl = null): int;

    /** Replaces the value if it is `$old`; false: it is not. */
    public function compareAndSwap(string $key, mixed $old, mixed $new, ?float $ttl = null): bool;

    /**
     * Removes all keys that begin so.
     *
     * @return int how many
     */
    public function clear(string $prefix = ''): int;
}
