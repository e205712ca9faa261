<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests\Support;

use Pronghorn\Cache\Store;

/** A storage for a process that may be stopped before each step. */
final class LateStore implements Store
{
    public function __construct(private readonly Store $store, private readonly \Closure $before)
    {
    }

    public function get(string $key, mixed $default = null): mixed
    {
        return $this->step(__FUNCTION__, $key, $default);
    }

    public function many(array $keys): array
    {
        return $this->step(__FUNCTION__, $keys);
    }

    public function set(string $key, mixed $value, ?float $ttl = null): bool
    {
        return $this->step(__FUNCTION__, $key, $value, $ttl);
    }

    public function add(string $key, mixed $value, ?float $ttl = null): bool
    {
        return $this->step(__FUNCTION__, $key, $value, $ttl);
    }

    public function delete(string $key): bool
    {
        return $this->step(__FUNCTION__, $key);
    }

    public function increment(string $key, int $by = 1, ?float $ttl = null): int
    {
        return $this->step(__FUNCTION__, $key, $by, $ttl);
    }

    public function compareAndSwap(string $key, mixed $old, mixed $new, ?float $ttl = null): bool
    {
        return $this->step(__FUNCTION__, $key, $old, $new, $ttl);
    }

    public function clear(string $prefix = ''): int
    {
        return $this->step(__FUNCTION__, $prefix);
    }

    private function step(string $method, mixed ...$arguments): mixed
    {
        ($this->before)();

        return $this->store->$method(...$arguments);
    }
}
