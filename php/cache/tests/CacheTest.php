<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Cache\Cache;
use Pronghorn\Cache\InvalidKey;
use Pronghorn\Cache\Tests\Support\ArrayStore;

final class CacheTest extends TestCase
{
    private ArrayStore $store;
    private Cache $cache;

    protected function setUp(): void
    {
        $this->store = new ArrayStore();
        $this->cache = new Cache($this->store, 'app:');
    }

    public function testPsr16(): void
    {
        self::assertSame(5, $this->cache->get('a', 5));
        self::assertTrue($this->cache->set('a', null));
        self::assertTrue($this->cache->has('a'));
        self::assertNull($this->cache->get('a', 5));
        self::assertTrue($this->cache->setMultiple(['b' => 1, '7' => 2], new \DateInterval('PT1M')));
        self::assertSame(
            ['b' => 1, '7' => 2, 'no' => 'none'],
            $this->cache->getMultiple(['b', '7', 'no'], 'none'),
        );
        self::assertTrue($this->cache->deleteMultiple(['b', 'no']));
        self::assertFalse($this->cache->has('b'));
        $this->store->now = 60.0;
        self::assertFalse($this->cache->has('7'));
    }

    public function testAPrefixIsACacheOfItsOwn(): void
    {
        $other = new Cache($this->store, 'other:');
        $this->cache->set('a', 1);
        $other->set('a', 2);
        self::assertSame(1, $this->cache->get('a'));
        $this->cache->set('list:1', 1);
        self::assertSame(1, $this->cache->clearPrefix('list:'));
        self::assertTrue($this->cache->clear());
        self::assertFalse($this->cache->has('a'));
        self::assertSame(2, $other->get('a'));
    }

    /** @dataProvider mistakes */
    public function testMistakesAreThoseOfPsr16(callable $mistake): void
    {
        $this->expectException(InvalidKey::class);
        $mistake($this->cache);
    }

    /** @return iterable<string, array{callable}> */
    public static function mistakes(): iterable
    {
        yield 'no key' => [static fn (Cache $cache) => $cache->get('')];
        yield 'another type' => [static fn (Cache $cache) => $cache->get(5)];
        yield 'no list' => [static fn (Cache $cache) => $cache->getMultiple('a')];
        yield 'no time' => [static fn (Cache $cache) => $cache->set('a', 1, 'soon')];
    }

    public function testAValueIsComputedOnceWhileItIsFresh(): void
    {
        $count = 0;
        $compute = static function () use (&$count): ?int {
            $count++;

            return null;
        };
        for ($i = 0; $i < 3; $i++) {
            self::assertNull($this->cache->remember('a', 60, $compute));
        }
        self::assertSame(1, $count, 'null is a value too');
    }

    public function testOthersAreGivenTheStaleValueWhileOneComputes(): void
    {
        $this->store->set('app:a', ['old', microtime(true) - 1]);
        $inside = null;
        $value = $this->cache->remember('a', 60, function () use (&$inside): string {
            $inside = $this->cache->remember('a', 60, static fn () => self::fail('it is being computed'), 60);

            return 'new';
        }, 60);
        self::assertSame(['old', 'new'], [$inside, $value]);
        self::assertSame('new', $this->cache->remember('a', 60, static fn () => self::fail('it is fresh')));
    }

    public function testWhatIsThrownIsThrownAndTheNextOneTriesAgain(): void
    {
        try {
            $this->cache->remember('a', 60, static fn () => throw new \RuntimeException('no'));
            self::fail('it was thrown');
        } catch (\RuntimeException $thrown) {
            self::assertSame('no', $thrown->getMessage());
        }
        self::assertSame(1, $this->cache->remember('a', 60, static fn () => 1));
    }
}
