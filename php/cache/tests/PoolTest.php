<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Cache\InvalidItem;
use Pronghorn\Cache\Item;
use Pronghorn\Cache\Pool;
use Pronghorn\Cache\Tests\Support\ArrayStore;
use Psr\Cache\CacheItemInterface;
use Psr\Cache\InvalidArgumentException;

final class PoolTest extends TestCase
{
    private ArrayStore $store;
    private Pool $pool;

    protected function setUp(): void
    {
        $this->store = new ArrayStore();
        $this->pool = new Pool($this->store, 'app.');
    }

    public function testAnItemIsKeptAndFound(): void
    {
        $item = $this->pool->getItem('a');
        self::assertFalse($item->isHit());
        self::assertNull($item->get());
        self::assertTrue($this->pool->save($item->set(null)));
        $found = $this->pool->getItem('a');
        self::assertTrue($found->isHit(), 'null is a value');
        self::assertSame('a', $found->getKey());
        self::assertTrue($this->pool->save($found->set(['x' => 1])));
        self::assertSame(['x' => 1], $this->pool->getItem('a')->get());
        self::assertTrue($this->pool->hasItem('a'));
        self::assertSame(['x' => 1], $this->store->get('app.a'));
        self::assertTrue($this->pool->deleteItem('a'));
        self::assertFalse($this->pool->hasItem('a'));
    }

    public function testSeveralItems(): void
    {
        $this->pool->save($this->pool->getItem('7')->set('seven'));
        $items = $this->pool->getItems(['no', '7']);
        $found = [];
        foreach ($items as $key => $item) {
            $found[] = [$key, $item->getKey(), $item->get(), $item->isHit()];
        }
        self::assertSame([['no', 'no', null, false], ['7', '7', 'seven', true]], $found);
        self::assertSame([], $this->pool->getItems());
        self::assertTrue($this->pool->deleteItems(['no', '7']));
        self::assertFalse($this->pool->hasItem('7'));
    }

    public function testAnItemEnds(): void
    {
        $this->pool->save($this->pool->getItem('soon')->set(1)->expiresAfter(60));
        $this->pool->save($this->pool->getItem('day')->set(1)->expiresAfter(new \DateInterval('P1D')));
        $this->pool->save($this->pool->getItem('then')->set(1)->expiresAt(new \DateTimeImmutable('+1 hour')));
        $this->pool->save($this->pool->getItem('ever')->set(1)->expiresAt(null)->expiresAfter(null));
        $this->store->now = 61.0;
        self::assertFalse($this->pool->hasItem('soon'));
        self::assertTrue($this->pool->hasItem('then'));
        $this->store->now = 3601.0;
        self::assertFalse($this->pool->hasItem('then'));
        self::assertTrue($this->pool->hasItem('day'));
        $this->store->now = 86401.0;
        self::assertFalse($this->pool->hasItem('day'));
        self::assertTrue($this->pool->hasItem('ever'));
    }

    public function testWhatIsDeferredIsThereAndKeptLater(): void
    {
        $item = $this->pool->getItem('a')->set(1);
        self::assertTrue($this->pool->saveDeferred($item));
        self::assertSame(1, $this->pool->getItem('a')->get());
        self::assertTrue($this->pool->hasItem('a'));
        self::assertNull($this->store->get('app.a'));
        self::assertTrue($this->pool->commit());
        self::assertSame(1, $this->store->get('app.a'));

        $this->pool->saveDeferred($this->pool->getItem('over')->set(1)->expiresAfter(-1));
        self::assertFalse($this->pool->hasItem('over'));
        $this->pool->saveDeferred($this->pool->getItem('gone')->set(1));
        self::assertTrue($this->pool->deleteItem('gone'));
        $this->pool->saveDeferred($this->pool->getItem('late')->set(1));
        $this->setUpAnew();
        self::assertNull($this->store->get('app.gone'));
        self::assertSame(1, $this->store->get('app.late'));
    }

    /** The pool of before ends. */
    private function setUpAnew(): void
    {
        $this->pool = new Pool($this->store, 'app.');
    }

    public function testAPrefixIsClearedAlone(): void
    {
        $other = new Pool($this->store, 'other.');
        $this->pool->save($this->pool->getItem('a')->set(1));
        $other->save($other->getItem('a')->set(2));
        self::assertTrue($this->pool->clear());
        self::assertFalse($this->pool->hasItem('a'));
        self::assertSame(2, $other->getItem('a')->get());
    }

    /** @return array<string, array{callable(Pool): mixed}> */
    public static function mistakes(): array
    {
        return [
            'no key' => [static fn (Pool $pool) => $pool->getItem('')],
            'a reserved sign' => [static fn (Pool $pool) => $pool->getItems(['a', 'b:c'])],
            'a long key' => [static fn (Pool $pool) => $pool->hasItem(\str_repeat('k', 65_001))],
            'a long key with its prefix' => [static fn (Pool $pool) => $pool->hasItem(\str_repeat('k', 64_997))],
            'a long key to save' => [static fn (Pool $pool) => $pool->getItem(\str_repeat('k', 1 << 20))],
            'null for a key' => [static fn (Pool $pool) => $pool->getItem(null)],
            'a number for a key' => [static fn (Pool $pool) => $pool->getItems(['a', 5])],
            'a list for a key' => [static fn (Pool $pool) => $pool->deleteItems(['a', ['b']])],
            'a tag that is none' => [static fn (Pool $pool) => $pool->save($pool->getItem('a')->tag(''))],
            'a long tag' => [static fn (Pool $pool) => $pool->save($pool->getItem('a')->tag(\str_repeat('t', 65_001)))],
            'a tag that is none and is invalidated' => [static fn (Pool $pool) => $pool->invalidateTags(['a', ''])],
            'a key to delete' => [static fn (Pool $pool) => $pool->deleteItem('a/b')],
            'a time that is none' => [static fn (Pool $pool) => $pool->getItem('a')->expiresAfter('soon')],
            'a moment that is none' => [static fn (Pool $pool) => $pool->getItem('a')->expiresAt('soon')],
        ];
    }

    /** @dataProvider mistakes */
    public function testAMistakeIsNamed(callable $mistake): void
    {
        $this->expectException(InvalidArgumentException::class);
        $mistake($this->pool);
    }

    public function testAnItemOfSomebodyElseIsRefused(): void
    {
        $this->expectException(InvalidItem::class);
        $this->pool->save($this->createMock(CacheItemInterface::class));
    }

    public function testAnItemIsOfThisPackage(): void
    {
        self::assertInstanceOf(Item::class, $this->pool->getItem('a'));
    }
}
