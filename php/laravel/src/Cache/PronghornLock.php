<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Cache;

use Illuminate\Cache\Lock;
use Pronghorn\Cache\Internal\LockEntry;
use Pronghorn\Cache\Store;

/** A lock of Laravel in a storage of the server. */
final class PronghornLock extends Lock
{
    private readonly LockEntry $entry;

    public function __construct(Store $store, string $name, int $seconds, ?string $owner = null)
    {
        parent::__construct($name, $seconds, $owner);
        $this->entry = new LockEntry($store, $name);
    }

    public function acquire()
    {
        return $this->entry->take($this->owner, $this->seconds > 0 ? (float) $this->seconds : null);
    }

    public function release()
    {
        return $this->entry->give($this->owner);
    }

    /**
     * Begins its time anew; Laravel 12 asks for it.
     *
     * @param ?int $seconds by default those of before; 0: until it is released
     */
    public function refresh($seconds = null)
    {
        $seconds ??= $this->seconds;

        return $this->entry->renew($this->owner, $seconds > 0 ? (float) $seconds : null);
    }

    public function forceRelease()
    {
        $this->entry->remove();
    }

    protected function getCurrentOwner()
    {
        return $this->entry->owner();
    }
}
