<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Cache\Cache;
use Pronghorn\Cache\InvalidKey;
use Pronghorn\Cache\Pool;
use Pronghorn\Cache\Tests\Support\ArrayStore;

final class TagsTest extends TestCase
{
    private ArrayStore $store;
    private Cache $cache;

    protected function setUp(): void
    {
        $this->store = new ArrayStore();
        $this->cache = new Cache($this->store, 'app:');
    }

    public function testWhatHasATagGoesWithIt(): void
    {
        self::assertTrue($this->cache->setTagged('a', null, ['one', 'both'], 60));
        self::assertTrue($this->cache->setTagged('b', ['x' => 1], ['two', 'both'], 60));
        self::assertTrue($this->cache->setTagged('c', 'no tag', []));
        $this->cache->set('d', ['not' => 'tagged']);
        self::assertTrue($this->cache->has('a'), 'null is a value');
        self::assertSame(['x' => 1], $this->cache->get('b'));
        $all = fn (): array => [...$this->cache->getMultiple(['a', 'b', 'c', 'd'], '-')];
        self::assertSame(
            ['a' => null, 'b' => ['x' => 1], 'c' => 'no tag', 'd' => ['not' => 'tagged']],
            $all(),
        );
        $this->cache->invalidateTags(['one']);
        self::assertFalse($this->cache->has('a'));
        self::assertSame('-', $this->cache->get('a', '-'));
        self::assertSame(['x' => 1], $this->cache->get('b'));
        $this->cache->setTagged('a', 'new', ['one']);
        self::assertSame('new', $this->cache->get('a'));
        $this->cache->invalidateTags(['both', 'unknown']);
        self::assertSame(['a' => 'new', 'b' => '-', 'c' => 'no tag', 'd' => ['not' => 'tagged']], $all());
    }

    public function testATagThatMadeRoomTakesItsEntriesAlong(): void
    {
        $this->cache->setTagged('a', 1, ['t']);
        $this->store->delete("app:tag\0t");
        $this->cache->setTagged('b', 2, ['t']);
        self::assertNull($this->cache->get('a'), 'the tag has another number now');
        self::assertSame(2, $this->cache->get('b'));
    }

    public function testTagsAreThoseOfTheirPrefix(): void
    {
        $other = new Cache($this->store, 'other:');
        $other->setTagged('a', 1, ['t']);
        $this->cache->invalidateTags(['t']);
        self::assertSame(1, $other->get('a'));
    }

    public function testWhatIsInvalidatedWhileItIsComputedIsNotKept(): void
    {
        $compute = function (): string {
            $this->cache->invalidateTags(['t']);

            return 'old';
        };
        self::assertSame('old', $this->cache->remember('a', 60, $compute, tags: ['t']));
        $new = static fn (): string => 'new';
        self::assertSame('new', $this->cache->remember('a', 60, $new, tags: ['t']));
        self::assertSame('new', $this->cache->remember('a', 60, static fn () => self::fail('it is there')));
        $this->cache->invalidateTags(['t']);
        $third = static fn (): string => 'third';
        self::assertSame('third', $this->cache->remember('a', 60, $third, stale: 60, tags: ['t']));
    }

    public function testItemsOfAPoolHaveTags(): void
    {
        $pool = new Pool($this->store, 'pool.');
        $pool->save($pool->getItem('a')->set(1)->tag('x')->tag(['y', '7']));
        $pool->save($pool->getItem('b')->set(2));
        $pool->saveDeferred($pool->getItem('c')->set(3)->tag('y'));
        self::assertSame(1, $pool->getItem('a')->get());
        self::assertTrue($pool->invalidateTags(['y']));
        self::assertFalse($pool->hasItem('a'));
        self::assertFalse($pool->hasItem('c'));
        self::assertTrue($pool->hasItem('b'));
        $pool->save($pool->getItem('a')->set(4)->tag('7'));
        $pool->invalidateTags(['7']);
        self::assertFalse($pool->hasItem('a'));
    }

    public function testATagIsAText(): void
    {
        $this->expectException(InvalidKey::class);
        $this->cache->setTagged('a', 1, ['']);
    }
}
