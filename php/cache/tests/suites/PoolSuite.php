<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests\Suites;

use Cache\IntegrationTests\CachePoolTest;
use Pronghorn\Cache\Pool;
use Psr\Cache\CacheItemPoolInterface;

/** The public suite of PSR-6, for a pool over a server: scripts/compat-suites. */
final class PoolSuite extends CachePoolTest
{
    public function createCachePool(): CacheItemPoolInterface
    {
        return Pool::open('suites', 'pool:');
    }
}
