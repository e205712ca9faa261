<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Tests\Suites;

use Pronghorn\Cache\Cache;
use Psr\Cache\CacheItemPoolInterface;
use Symfony\Component\Cache\Adapter\Psr16Adapter;
use Symfony\Component\Cache\Tests\Adapter\AdapterTestCase;

/** Symfony's tests of adapters, for `cache.adapter.pronghorn` over a server: scripts/compat-suites. */
final class CacheSuite extends AdapterTestCase
{
    /** @var array<string, string> */
    protected $skippedTests = [
        'testPrune' => 'The server removes what is over.',
        'testClearPrefix' => 'PSR-16, by which Symfony asks, has no way to say it.',
    ];

    public function createCachePool(int $defaultLifetime = 0): CacheItemPoolInterface
    {
        return new Psr16Adapter(Cache::open('suites', 'cache:'), 'ns', $defaultLifetime);
    }
}
