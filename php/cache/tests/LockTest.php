<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Cache\Lock;
use Pronghorn\Cache\Tests\Support\ArrayStore;

final class LockTest extends TestCase
{
    public function testOneHasItUntilItGivesItBack(): void
    {
        $store = new ArrayStore();
        [$one, $two] = [new Lock($store, 'l'), new Lock($store, 'l')];
        self::assertTrue($one->acquire());
        self::assertFalse($two->acquire());
        self::assertFalse($two->acquire(0.01));
        self::assertFalse($two->release());
        self::assertTrue($one->isHeld());
        self::assertTrue($one->release());
        self::assertFalse($one->release());
        self::assertTrue($two->acquire());
        self::assertFalse($one->isHeld());
        self::assertGreaterThan($one->token(), $two->token());
    }

    public function testItEndsByItselfAndIsNotTakenFromTheNextOne(): void
    {
        $store = new ArrayStore();
        [$one, $two] = [new Lock($store, 'l', 10), new Lock($store, 'l', 10)];
        self::assertTrue($one->acquire());
        $store->now = 9.0;
        self::assertTrue($one->renew());
        $store->now = 18.0;
        self::assertFalse($two->acquire());
        $store->now = 19.0;
        self::assertTrue($two->acquire());
        self::assertFalse($one->renew());
        self::assertFalse($one->release());
        self::assertTrue($two->isHeld());
    }
}
