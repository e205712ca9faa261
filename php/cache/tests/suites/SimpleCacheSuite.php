<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests\Suites;

use Cache\IntegrationTests\SimpleCacheTest;
use Pronghorn\Cache\Cache;
use Psr\SimpleCache\CacheInterface;

/** The public suite of PSR-16, for a strict cache over a server: scripts/compat-suites. */
final class SimpleCacheSuite extends SimpleCacheTest
{
    public function createSimpleCache(): CacheInterface
    {
        return Cache::open('suites', 'simple:', strict: true);
    }
}
