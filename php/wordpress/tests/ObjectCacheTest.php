<?php

declare(strict_types=1);

namespace Pronghorn\WordPress\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Cache\Store;
use Pronghorn\Cache\Tests\Support\ArrayStore;
use Pronghorn\ConnectionLost;
use Pronghorn\WordPress\ObjectCache;

final class ObjectCacheTest extends TestCase
{
    private ArrayStore $store;
    private ObjectCache $cache;

    protected function setUp(): void
    {
        $this->store = new ArrayStore();
        $this->cache = $this->request();
    }

    /** That of another request, which shares the storage. */
    private function request(string $site = 'shop', int $blog = 0): ObjectCache
    {
        return new ObjectCache($this->store, $site, $blog);
    }

    public function testWhatOneRequestSetsAnotherGets(): void
    {
        self::assertTrue($this->cache->set('a', [1], 'posts', 0));
        self::assertSame([1], $this->request()->get('a', 'posts', false, $found));
        self::assertTrue($found);
        self::assertFalse($this->request()->get('a', '', false, $found));
        self::assertFalse($found);
        self::assertFalse($this->request('other')->get('a', 'posts'));
        self::assertTrue($this->cache->set('no', false, 'posts', 0));
        self::assertFalse($this->request()->get('no', 'posts', false, $found));
        self::assertTrue($found);
    }

    public function testAnEntryEndsAndIsReadOnceInARequest(): void
    {
        $this->cache->set('a', 1, '', 10);
        $this->store->now = 11.0;
        self::assertSame(1, $this->cache->get('a', ''));
        self::assertFalse($this->cache->get('a', '', true));
        self::assertFalse($this->cache->get('a', ''));
        self::assertSame([1, 2], [$this->cache->cache_hits, $this->cache->cache_misses]);
    }

    public function testAddReplaceAndDelete(): void
    {
        self::assertFalse($this->cache->replace('a', 1, '', 0));
        self::assertTrue($this->cache->add('a', 1, '', 0));
        self::assertFalse($this->cache->add('a', 2, '', 0));
        self::assertFalse($this->request()->add('a', 2, '', 0));
        self::assertTrue($this->request()->replace('a', 3, '', 0));
        $this->cache->forget();
        self::assertSame(3, $this->cache->get('a', ''));
        self::assertTrue($this->request()->delete('a', ''));
        self::assertFalse($this->request()->delete('a', ''));
    }

    public function testNumbersAreAddedToByAllWorkersAndNeverGoBelowZero(): void
    {
        self::assertFalse($this->cache->increment('a', 1, ''));
        $this->cache->set('a', 5, '', 10);
        self::assertSame(7, $this->request()->increment('a', 2, ''));
        self::assertSame(8, $this->cache->increment('a', 1, ''));
        self::assertSame(0, $this->request()->increment('a', -20, ''));
        self::assertSame(0, $this->request()->get('a', ''));
        $this->cache->set('text', 'x', '', 0);
        self::assertSame(4, $this->cache->increment('text', 4, ''));
        $this->cache->set('number', '6', '', 0);
        self::assertSame(5, $this->cache->increment('number', -1, ''));
    }

    /**
     * As with WordPress's own cache.
     *
     * @dataProvider sums
     */
    public function testASumIsWhatPhpMakesOfIt(mixed $value, int|float $by, int|float $sum): void
    {
        $this->cache->set('a', $value, '', 0);
        self::assertSame($sum, $this->request()->increment('a', $by, ''));
        self::assertSame($sum, $this->request()->get('a', ''));
    }

    /** @return array<string, array{mixed, int|float, int|float}> */
    public static function sums(): array
    {
        return [
            'beyond the largest integer' => [\PHP_INT_MAX, 1, (float) \PHP_INT_MAX],
            'by the negated smallest integer' => [1, -\PHP_INT_MIN, 1 - (float) \PHP_INT_MIN],
            'a fraction' => [2.5, 1, 3.5],
            'a fraction in a string' => ['2.5', -1, 1.5],
            'a fraction below zero' => [0.5, -1, 0],
        ];
    }

    public function testManyAreAskedForAtOnce(): void
    {
        $this->request()->set('a', 1, '', 0);
        $this->request()->set(7, 2, '', 0);
        self::assertSame(['a' => 1, 'b' => false, 7 => 2], $this->cache->many(['a', 'b', 7], ''));
        $this->request()->set('a', 3, '', 0);
        self::assertSame(['a' => 1], $this->cache->many(['a'], ''));
        self::assertSame(['a' => 3], $this->cache->many(['a'], '', true));
    }

    public function testPassingGroupsStayInTheRequest(): void
    {
        $this->cache->addPassingGroups(['counts']);
        $this->cache->set('a', 1, 'counts', 0);
        self::assertSame(1, $this->cache->get('a', 'counts'));
        self::assertSame(1, $this->cache->get('a', 'counts', true));
        self::assertFalse($this->request()->get('a', 'counts'));
        self::assertTrue($this->cache->delete('a', 'counts'));
        self::assertFalse($this->cache->get('a', 'counts'));
    }

    public function testSitesOfANetworkShareGlobalGroupsAlone(): void
    {
        [$first, $second] = [$this->request('net', 1), $this->request('net', 2)];
        $first->addGlobalGroups(['users']);
        $second->addGlobalGroups(['users']);
        $first->set('a', 'of 1', 'posts', 0);
        $first->set('a', 'of all', 'users', 0);
        self::assertFalse($second->get('a', 'posts'));
        self::assertSame('of all', $second->get('a', 'users'));
        $second->switchToBlog(1);
        self::assertSame('of 1', $second->get('a', 'posts'));
    }

    public function testFlushesEndWhatTheyName(): void
    {
        $this->request('other')->set('a', 1, 'x', 0);
        $this->cache->set('a', 1, 'x', 0);
        $this->cache->set('a', 2, 'y', 0);
        self::assertTrue($this->cache->flushGroup('x'));
        self::assertSame([false, 2], [$this->cache->get('a', 'x'), $this->request()->get('a', 'y')]);
        self::assertTrue($this->cache->flush());
        self::assertFalse($this->request()->get('a', 'y'));
        self::assertSame(1, $this->request('other')->get('a', 'x'));
    }

    public function testNamesOfGroupsAndSitesWithColonsAreTheirOwn(): void
    {
        $this->cache->set('h:k', 'of g', 'g', 0);
        self::assertFalse($this->request()->get('k', 'g:h'));
        $this->cache->set('k', 'of g:h', 'g:h', 0);
        $this->cache->set('k', 'of g%3Ah', 'g%3Ah', 0);
        $this->cache->flushGroup('g');
        self::assertSame(['of g:h', false], [$this->request()->get('k', 'g:h'), $this->request()->get('h:k', 'g')]);
        self::assertSame('of g%3Ah', $this->request()->get('k', 'g%3Ah'));
        $this->request('shop:eu')->set('k', 'of the other', 'g', 0);
        $this->cache->flush();
        self::assertSame('of the other', $this->request('shop:eu')->get('k', 'g'));
    }

    public function testTheValueOfBeforeDoesNotOutliveOneThatCanNotBeSerialized(): void
    {
        $this->cache->set('a', 'old', '', 0);
        $log = \ini_set('error_log', '/dev/null');
        self::assertTrue($this->cache->set('a', static fn (): int => 1, '', 0));
        \ini_set('error_log', (string) $log);
        self::assertInstanceOf(\Closure::class, $this->cache->get('a', ''));
        self::assertFalse($this->request()->get('a', ''));
    }

    public function testAnObjectIsCopied(): void
    {
        $post = (object) ['title' => 'old'];
        $this->cache->set('a', $post, '', 0);
        $post->title = 'new';
        $this->cache->get('a', '')->title = 'newer';
        self::assertSame('old', $this->cache->get('a', '')->title);
    }

    public function testASiteGoesOnWithoutAStorage(): void
    {
        $gone = $this->createMock(Store::class);
        $gone->expects(self::once())->method('many')->willThrowException(new ConnectionLost('gone'));
        $cache = new ObjectCache($gone, 'shop');
        $log = \ini_set('error_log', '/dev/null');
        self::assertFalse($cache->get('a', ''));
        self::assertTrue($cache->set('a', 1, '', 0));
        self::assertSame([1, false], [$cache->get('a', ''), $cache->get('b', '')]);
        \ini_set('error_log', (string) $log);
    }

    public function testWhatTheStorageCanNotKeepIsKeptForTheRequest(): void
    {
        $small = $this->createMock(Store::class);
        $small->method('set')->willReturn(false);
        // What was there before would be wrong now.
        $small->expects(self::once())->method('delete')->with('shop::default:a');
        $cache = new ObjectCache($small, 'shop');
        self::assertTrue($cache->set('a', 'long', '', 0));
        self::assertSame('long', $cache->get('a', ''));
    }
}
