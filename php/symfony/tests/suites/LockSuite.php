<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Tests\Suites;

use Pronghorn\Cache\Cache;
use Pronghorn\Symfony\Lock\PronghornStore;
use Symfony\Component\Lock\PersistingStoreInterface;
use Symfony\Component\Lock\Tests\Store\AbstractStoreTestCase;
use Symfony\Component\Lock\Tests\Store\ExpiringStoreTestTrait;

/** Symfony's tests of stores for locks, for ours over a server: scripts/compat-suites. */
final class LockSuite extends AbstractStoreTestCase
{
    use ExpiringStoreTestTrait;

    /** Microseconds by which clocks may differ. */
    protected function getClockDelay(): int
    {
        return 250_000;
    }

    public function getStore(): PersistingStoreInterface
    {
        return new PronghornStore(Cache::open('suites')->store);
    }
}
