<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Lock;

use Pronghorn\Cache\Store;
use Symfony\Component\Lock\Exception\InvalidTtlException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\PersistingStoreInterface;
use Symfony\Component\Lock\Store\ExpiringStoreTrait;

/** Locks of Symfony in a storage of the server: entries that name their owner. */
final class PronghornStore implements PersistingStoreInterface
{
    use ExpiringStoreTrait;

    /** Who has a lock that was given back, for the moment until its entry ends. */
    private const NOBODY = '';

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
        $owner = $this->owner($key);
        $isOurs = $this->store->add(self::name($key), $owner, $this->initialTtl)
            || $this->store->compareAndSwap(self::name($key), self::NOBODY, $owner, $this->initialTtl)
            || $this->store->compareAndSwap(self::name($key), $owner, $owner, $this->initialTtl);
        if (!$isOurs) {
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
        $owner = $this->owner($key);
        $isOurs = $this->store->compareAndSwap(self::name($key), $owner, $owner, $ttl)
            || $this->store->add(self::name($key), $owner, $ttl);
        if (!$isOurs) {
            throw new LockConflictedException();
        }
        $this->checkNotExpired($key);
    }

    public function delete(Key $key): void
    {
        // Not a look and then a deletion: between the two another one may have acquired it.
        $this->store->compareAndSwap(self::name($key), $this->owner($key), self::NOBODY, 0.001);
    }

    public function exists(Key $key): bool
    {
        return $this->store->get(self::name($key)) === $this->owner($key);
    }

    private function owner(Key $key): string
    {
        if (!$key->hasState(self::class)) {
            $key->setState(self::class, \bin2hex(\random_bytes(16)));
        }

        return $key->getState(self::class);
    }

    private static function name(Key $key): string
    {
        return "lock\0$key";
    }
}
