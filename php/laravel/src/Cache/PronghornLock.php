<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Cache;

use Illuminate\Cache\Lock;
use Pronghorn\Cache\Store;

/** A lock of Laravel in a storage of the server: an entry that names its owner. */
final class PronghornLock extends Lock
{
    /** Who has a lock that was given back, for the moment until its entry ends. */
    private const NOBODY = '';

    public function __construct(private readonly Store $store, string $name, int $seconds, ?string $owner = null)
    {
        parent::__construct($name, $seconds, $owner);
    }

    public function acquire()
    {
        $ttl = $this->seconds > 0 ? (float) $this->seconds : null;

        return $this->store->add($this->key(), $this->owner, $ttl)
            || $this->store->compareAndSwap($this->key(), self::NOBODY, $this->owner, $ttl);
    }

    public function release()
    {
        // Not a look and then a deletion: between the two another one may have acquired it.
        return $this->store->compareAndSwap($this->key(), $this->owner, self::NOBODY, 0.001);
    }

    public function forceRelease()
    {
        $this->store->delete($this->key());
    }

    protected function getCurrentOwner()
    {
        return (string) $this->store->get($this->key(), self::NOBODY);
    }

    private function key(): string
    {
        return "lock\0$this->name";
    }
}
