<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Internal;

use Pronghorn\Cache\Store;

/**
 * The entry of a storage that a lock is: it names its owner, with any text, or says that it is
 * nobody's. Each step is one step of the storage: between a look and a change another one may have
 * acquired it.
 */
final class LockEntry
{
    private const NOBODY = false;
    /** Seconds for which an entry that was given back is there as nobody's. */
    private const REST = 0.001;

    private readonly string $key;

    public function __construct(private readonly Store $store, string $name)
    {
        $this->key = "lock\0" . Keys::shortened($name);
    }

    /** Where it is nobody's. */
    public function take(string $owner, ?float $ttl): bool
    {
        return $this->store->add($this->key, $owner, $ttl)
            || $this->store->compareAndSwap($this->key, self::NOBODY, $owner, $ttl);
    }

    /** Begins the time of its owner anew. */
    public function renew(string $owner, ?float $ttl): bool
    {
        return $this->hand($owner, $owner, $ttl);
    }

    /** From one owner to the next. */
    public function hand(string $owner, string $next, ?float $ttl): bool
    {
        return $this->store->compareAndSwap($this->key, $owner, $next, $ttl);
    }

    /** False: it was another one's, or nobody's. */
    public function give(string $owner): bool
    {
        return $this->store->compareAndSwap($this->key, $owner, self::NOBODY, self::REST);
    }

    /** Takes it from whoever has it. */
    public function remove(): void
    {
        $this->store->delete($this->key);
    }

    /** Null: nobody. */
    public function owner(): ?string
    {
        $owner = $this->store->get($this->key);

        return \is_string($owner) ? $owner : null;
    }
}
