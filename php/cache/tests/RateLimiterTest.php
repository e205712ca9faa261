<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Cache\RateLimiter;
use Pronghorn\Cache\Store;
use Pronghorn\Cache\Tests\Support\ArrayStore;

final class RateLimiterTest extends TestCase
{
    public function testABucketTakesABurstAndNoMore(): void
    {
        $limiter = RateLimiter::tokenBucket(new ArrayStore(), 'api', 5, 600);
        for ($i = 0; $i < 5; $i++) {
            self::assertSame(0.0, $limiter->take('a'), "$i");
        }
        $wait = $limiter->take('a');
        self::assertGreaterThan(100, $wait);
        self::assertLessThanOrEqual(120, $wait);
        self::assertSame(0.0, $limiter->take('b'), 'each client has its own');
    }

    public function testAWindowCountsThoseThatGoThrough(): void
    {
        $limiter = RateLimiter::slidingWindow(new ArrayStore(), 'api', 3, 3600);
        for ($i = 0; $i < 3; $i++) {
            self::assertSame(0.0, $limiter->take('a'), "$i");
        }
        for ($i = 0; $i < 3; $i++) {
            self::assertGreaterThan(0, $limiter->take('a'));
        }
        self::assertSame(0.0, $limiter->take('b'));
    }

    public function testAClientMayHaveALongName(): void
    {
        $store = new ArrayStore();
        $long = str_repeat('a', 1 << 20);
        foreach ([RateLimiter::tokenBucket(...), RateLimiter::slidingWindow(...)] as $number => $new) {
            $limiter = $new($store, "api$number", 1, 3600);
            self::assertSame(0.0, $limiter->take($long));
            self::assertGreaterThan(0, $limiter->take($long));
            self::assertSame(0.0, $limiter->take("{$long}b"));
        }
    }

    public function testAStorageThatTakesNothingIsSaid(): void
    {
        $limiter = RateLimiter::tokenBucket($this->createStub(Store::class), 'api', 5, 600);
        $this->expectExceptionMessage('The storage has no room');
        $limiter->take('a');
    }

    public function testALimitThatMakesNoSenseIsRefused(): void
    {
        $this->expectException(\ValueError::class);
        RateLimiter::tokenBucket(new ArrayStore(), 'api', 0, 1);
    }
}
