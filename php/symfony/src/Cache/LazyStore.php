<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Cache;

use Pronghorn\Cache\Cache;
use Pronghorn\Cache\Store;

/** A storage that is opened by its first use: a command that keeps nothing needs no server. */
final class LazyStore implements Store
{
    private ?Store $store = null;

    public function __construct(private readonly string $storage)
    {
    }

    public function get(string $key, mixed $default = null): mixed
    {
        return $this->store()->get($key, $default);
    }

    public function many(array $keys): array
    {
        return $this->store()->many($keys);
    }

    public function set(string $key, mixed $value, ?float $ttl = null): bool
    {
        return $this->store()->set($key, $value, $ttl);
    }

    public function add(string $key, mixed $value, ?float $ttl = null): bool
    {
        return $this->store()->add($key, $value, $ttl);
    }

    public function delete(string $key): bool
    {
        return $this->store()->delete($key);
    }

    public function increment(string $key, int $by = 1, ?float $ttl = null): int
    {
        return $this->store()->increment($key, $by, $ttl);
    }

    public function compareAndSwap(string $key, mixed $old, mixed $new, ?float $ttl = null): bool
    {
        return $this->store()->compareAndSwap($key, $old, $new, $ttl);
    }

    public function clear(string $prefix = ''): int
    {
        return $this->store()->clear($prefix);
    }

    /** Bytes that an entry may have, if that is known. */
    public function longest(): ?int
    {
        $store = $this->store();

        return \method_exists($store, 'longest') ? $store->longest() : null;
    }

    private function store(): Store
    {
        return $this->store ??= Cache::open($this->storage)->store;
    }
}
