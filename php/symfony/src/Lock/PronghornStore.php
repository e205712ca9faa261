<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Lock;

use Pronghorn\Cache\Internal\LockEntry;
use Pronghorn\Cache\Store;
use Symfony\Component\Lock\Exception\InvalidTtlException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\PersistingStoreInterface;
use Symfony\Component\Lock\Store\ExpiringStoreTrait;

/** Locks of Symfony in a storage of the server. */
final class PronghornStore implements PersistingStoreInterface
{
    use ExpiringStoreTrait;

    /** @param float $initialTtl seconds for which a lock is held before somebody says for how long */
    public function __construct(private readonly Store $store, private readonly float $initialTtl = 300.0)
    {
        if ($initialTtl <= 0) {
            throw new InvalidTtlException("The initial TTL is $initialTtl: it must be above 0.");
        }
    }

    public function save(Key $key): void
    {
        $key->reduceLifetime($this->initialTtl);
        [$entry, $owner] = [$this->entry($key), $this->owner($key)];
        if (!$entry->take($owner, $this->initialTtl) && !$entry->renew($owner, $this->initialTtl)) {
            throw new LockConflictedException();
        }
        $this->checkNotExpired($key);
    }

    public function putOffExpiration(Key $key, float $ttl): void
    {
        if ($ttl <= 0) {
            throw new InvalidTtlException("The TTL is $ttl: it must be above 0.");
        }
        $key->reduceLifetime($ttl);
        [$entry, $owner] = [$this->entry($key), $this->owner($key)];
        if (!$entry->renew($owner, $ttl) && !$entry->take($owner, $ttl)) {
            throw new LockConflictedException();
        }
        $this->checkNotExpired($key);
    }

    public function delete(Key $key): void
    {
        $this->entry($key)->give($this->owner($key));
    }

    public function exists(Key $key): bool
    {
        return $this->entry($key)->owner() === $this->owner($key);
    }

    private function owner(Key $key): string
    {
        if (!$key->hasState(self::class)) {
            $key->setState(self::class, \bin2hex(\random_bytes(16)));
        }

        return $key->getState(self::class);
    }

    private function entry(Key $key): LockEntry
    {
        return new LockEntry($this->store, (string) $key);
    }
}
