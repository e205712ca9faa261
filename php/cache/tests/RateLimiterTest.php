<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Cache\Internal\Keys;
use Pronghorn\Cache\Internal\Window;
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

    public function testABucketOutlivesAClockThatIsSetBack(): void
    {
        $store = new ArrayStore();
        $limiter = RateLimiter::tokenBucket($store, 'api', 5, 10);
        $store->set("limit\0" . Keys::shortened("api\0a"), \microtime(true) + 3600, 3600);
        $wait = $limiter->take('a');
        self::assertGreaterThan(0, $wait);
        self::assertLessThanOrEqual(2, $wait);
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

    /** @dataProvider windows */
    public function testNoTimeHasMoreThanTheLimit(int $limit, float $seconds, float $apart): void
    {
        mt_srand(46);
        $window = new Window($limit, $seconds);
        [$kept, $now, $through] = [null, 1.8e9, []];
        for ($i = 0; $i < 5000; $i++) {
            // Now and then nobody comes for a while.
            $now += $apart * mt_rand() / mt_getrandmax() * (mt_rand(0, 200) === 0 ? 100 : 1);
            [$wait, $next] = $window->take($kept, $now);
            $number = count($through) - $limit;
            if ($wait > 0) {
                self::assertSame(0.0, $window->take($kept, $now + $wait + 1e-6)[0], 'what it says is right');
                $late = $now - $through[$number] - $seconds;
                self::assertLessThan($window->part + 1e-6, $late, 'it is free a part late at most');
                continue;
            }
            self::assertTrue($number < 0 || $now - $through[$number] > $seconds - 1e-6, "$limit in $seconds s");
            [$kept, $through[]] = [$next, $now];
            self::assertLessThan(1200, strlen($kept));
        }
        self::assertGreaterThan($limit, count($through));
    }

    /** @return iterable<array{int, float, float}> a limit, its seconds, and seconds between two */
    public static function windows(): iterable
    {
        yield 'far too many' => [50, 2.0, 0.002];
        yield 'a few too many' => [50, 2.0, 0.07];
        yield 'one' => [1, 0.5, 0.1];
        yield 'many' => [1000, 60.0, 0.1];
        yield 'in a day' => [100, 86_400.0, 300.0];
    }

    public function testAClockThatWasSetBackStopsNobody(): void
    {
        $window = new Window(1, 60.0);
        [, $kept] = $window->take(null, 2e9);
        self::assertSame(0.0, $window->take($kept, 1.8e9)[0]);
        self::assertGreaterThan(0, $window->take($kept, 2e9 - 1)[0], 'clocks of two machines may differ');
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
