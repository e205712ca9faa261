<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests\Support;

use Pronghorn\Cache\Store;

/** What a storage does, in an array, with a clock that a test moves. */
final class ArrayStore implements Store
{
    public float $now = 0.0;
    /** Bytes that a key and its value, serialized, may have. */
    public int $longest = PHP_INT_MAX;
    /** @var array<string, array{mixed, ?float}> value and end */
    public array $entries = [];

    public function longest(): int
    {
        return $this->longest;
    }

    public function get(string $key, mixed $default = null): mixed
    {
        return $this->has($key) ? $this->entries[$key][0] : $default;
    }

    public function many(array $keys): array
    {
        $found = [];
        foreach ($keys as $key) {
            if ($this->has((string) $key)) {
                $found[$key] = $this->entries[$key][0];
            }
        }

        return $found;
    }

    public function set(string $key, mixed $value, ?float $ttl = null): bool
    {
        self::expectKey($key);
        $isIgbinary = function_exists('igbinary_serialize');
        $bytes = $isIgbinary ? (string) igbinary_serialize($value) : serialize($value);
        if (strlen($key . $bytes) > $this->longest) {
            return false;
        }
        $kept = $isIgbinary ? igbinary_unserialize($bytes) : unserialize($bytes);
        $this->entries[$key] = [$kept, $ttl === null ? null : $this->now + $ttl];

        return true;
    }

    public function add(string $key, mixed $value, ?float $ttl = null): bool
    {
        return !$this->has($key) && $this->set($key, $value, $ttl);
    }

    public function delete(string $key): bool
    {
        $was = $this->has($key);
        unset($this->entries[$key]);

        return $was;
    }

    public function increment(string $key, int $by = 1, ?float $ttl = null): int
    {
        if ($ttl !== null && $ttl <= 0) {
            throw new \ValueError('A time to live of a new integer must be above 0');
        }
        $before = $this->get($key, 0);
        $sum = is_int($before) ? $before + $by : null;
        if (!is_int($sum)) {
            throw new \ValueError('What is there is no integer, or the sum is too large');
        }
        $this->entries[$key] = [$sum, $this->has($key) ? $this->entries[$key][1] : ($ttl ? $this->now + $ttl : null)];

        return $sum;
    }

    public function compareAndSwap(string $key, mixed $old, mixed $new, ?float $ttl = null): bool
    {
        return $this->has($key) && $this->get($key) === $old && $this->set($key, $new, $ttl);
    }

    public function clear(string $prefix = ''): int
    {
        $gone = array_filter(array_keys($this->entries), fn ($key) => str_starts_with((string) $key, $prefix));
        foreach ($gone as $key) {
            unset($this->entries[$key]);
        }

        return count($gone);
    }

    /** As storages of the server. */
    private static function expectKey(string $key): void
    {
        if ($key === '' || strlen($key) > 65_536) {
            throw new \ValueError('A key must have 1 to 65536 bytes, has ' . strlen($key));
        }
    }

    private function has(string $key): bool
    {
        self::expectKey($key);
        $end = $this->entries[$key][1] ?? null;

        return isset($this->entries[$key]) && ($end === null || $end > $this->now);
    }
}
