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

    /**
     * Takes what stores of Laravel take.
     *
     * @param int|float|string|null $seconds none or 0: until it is released
     * @param string|int|null $owner
     */
    public function __construct(Store $store, string $name, mixed $seconds, mixed $owner = null)
    {
        parent::__construct($name, $seconds, $owner === null ? null : (string) $owner);
        $this->entry = new LockEntry($store, $name);
    }

    public function acquire()
    {
        return $this->entry->take($this->owner, self::ttl($this->seconds));
    }

    public function release()
    {
        return $this->entry->give($this->owner);
    }

    /**
     * Begins its time anew; Laravel 12 asks for it.
     *
     * @param int|float|string|null $seconds by default those of before; 0: until it is released
     */
    public function refresh($seconds = null)
    {
        return $this->entry->renew($this->owner, self::ttl($seconds ?? $this->seconds));
    }

    public function forceRelease()
    {
        $this->entry->remove();
    }

    protected function getCurrentOwner()
    {
        return $this->entry->owner();
    }

    /** Null is until it is released. */
    private static function ttl(mixed $seconds): ?float
    {
        return $seconds > 0 ? (float) $seconds : null;
    }
}
