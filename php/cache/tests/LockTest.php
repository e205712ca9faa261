<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Cache\Lock;
use Pronghorn\Cache\Tests\Support\ArrayStore;
use Pronghorn\Cache\Tests\Support\LateStore;

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

    public function testANameMayBeLong(): void
    {
        $store = new ArrayStore();
        $name = str_repeat('n', 1 << 20);
        [$one, $same, $other] = [new Lock($store, $name), new Lock($store, $name), new Lock($store, "$name.")];
        self::assertTrue($one->acquire());
        self::assertFalse($same->acquire());
        self::assertTrue($other->acquire());
        self::assertTrue($one->release());
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

    public function testWithoutRoomForItsTokenItIsNobodys(): void
    {
        $store = new ArrayStore();
        $store->longest = strlen("lock\0l" . serialize(str_repeat('x', 32)));
        self::assertFalse((new Lock($store, 'l'))->acquire());
        $store->longest = PHP_INT_MAX;
        self::assertTrue((new Lock($store, 'l'))->acquire());
    }

    /** Whoever is stopped between two steps, at any of them, has no token that counts afterwards. */
    public function testTheTokenOfALateOwnerIsNeverTheLargerOne(): void
    {
        for ($at = 1;; $at++) {
            $store = new ArrayStore();
            $b = new Lock($store, 'l', 10);
            $steps = 0;
            $late = new LateStore($store, static function () use (&$steps, $at, $store, $b): void {
                if (++$steps === $at) {
                    $store->now += 11;
                    self::assertTrue($b->acquire());
                }
            });
            $a = new Lock($late, 'l', 10);
            if (!$a->acquire()) {
                self::assertTrue($b->isHeld());
            } elseif ($b->token() > 0) {
                self::assertFalse($a->isHeld() && $b->isHeld());
                self::assertSame($a->isHeld(), $a->token() > $b->token(), "stopped before step $at");
            }
            if ($steps < $at) {
                break;
            }
        }
        self::assertGreaterThan(3, $at);
    }

    public function testTokensGrowAlthoughTheStorageIsCleared(): void
    {
        $store = new ArrayStore();
        $lock = new Lock($store, 'l');
        $last = 0;
        for ($i = 0; $i < 5; $i++) {
            self::assertTrue($lock->acquire());
            self::assertGreaterThan($last, $lock->token());
            $last = $lock->token();
            $lock->release();
            $store->clear();
        }
        // The clock was ahead.
        $store->set("lock-token\0l", $ahead = $last + 3_600_000_000);
        self::assertTrue($lock->acquire());
        self::assertSame($ahead + 1, $lock->token());
    }
}
