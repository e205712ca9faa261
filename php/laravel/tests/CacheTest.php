<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Cache\ArrayStore;
use Illuminate\Cache\CacheServiceProvider;
use Illuminate\Cache\Repository;
use Illuminate\Config\Repository as Config;
use Illuminate\Foundation\Application;
use Illuminate\Log\LogServiceProvider;
use Illuminate\Session\CacheBasedSessionHandler;
use Illuminate\Session\SessionServiceProvider;
use Monolog\Handler\PsrHandler;
use Monolog\Logger;
use PHPUnit\Framework\TestCase;
use Pronghorn\Cache\Cache;
use Pronghorn\Cache\Tests\Support\ArrayStore as Storage;
use Pronghorn\Laravel\Cache\PronghornStore;
use Pronghorn\Laravel\PronghornServiceProvider;
use Psr\SimpleCache\InvalidArgumentException;

final class CacheTest extends TestCase
{
    private Storage $storage;
    private Repository $cache;

    protected function setUp(): void
    {
        $this->storage = new Storage();
        $this->cache = new Repository(new PronghornStore(fn () => new Cache($this->storage, 'shop:'), 'shop:'));
    }

    public function testValuesAreKeptUnderThePrefix(): void
    {
        $this->cache->put('a', ['x' => 1], 10);
        $this->cache->forever('b', 2);
        self::assertSame(['x' => 1], $this->storage->get('shop:a'));
        self::assertSame(['a' => ['x' => 1], 'b' => 2, 'c' => null], $this->cache->many(['a', 'b', 'c']));
        self::assertSame(['a' => ['x' => 1], 'c' => 7], $this->cache->many(['a', 'c' => 7]));
        $this->storage->now = 11;
        self::assertFalse($this->cache->has('a'));
        self::assertTrue($this->cache->forget('b'));
        self::assertFalse($this->cache->forget('b'));
        $this->cache->putMany(['d' => 1, 'e' => 2], 10);
        $this->storage->set('other', 1);
        $this->cache->flush();
        self::assertNull($this->cache->get('d'));
        self::assertSame(1, $this->storage->get('other'), 'another prefix');
    }

    public function testNumbersAndWhatIsThereAlready(): void
    {
        self::assertSame(3, $this->cache->increment('n', 3));
        self::assertSame(2, $this->cache->decrement('n'));
        self::assertFalse($this->cache->add('n', 9, 10));
        self::assertTrue($this->cache->add('m', 9, 10));
        self::assertSame(5, $this->cache->remember('r', 10, fn () => 5));
        self::assertSame(5, $this->cache->remember('r', 10, fn () => 6));
        $store = $this->cache->getStore();
        self::assertTrue($store->touch('m', 100));
        $this->storage->now = 50;
        self::assertSame(9, $this->cache->get('m'));
        self::assertFalse($store->touch('nothing', 100));
    }

    public function testItKeepsWhatLaravelsOwnStoreKeeps(): void
    {
        $values = [null, false, true, 0, -1, 1.5, '', '0', '12', "\0\xff", [], ['a' => [1]]];
        $keys = ['1', 2, 'a:b', '{x}', 'a/b\\c', '@(', 'ü', 'a b', \str_repeat('l', 300)];
        $look = static function (Repository $cache) use ($values, $keys): array {
            $seen = [$cache->putMany([10 => 'a', '11' => 'b', 'c' => 'd'], 10), $cache->many([10, '11', 'c', 'none'])];
            foreach ($values as $value) {
                $seen[] = [$cache->put('value', $value, 10), $cache->get('value', 'default'), $cache->has('value')];
            }
            foreach ($keys as $key) {
                $seen[] = [$cache->put($key, 'kept', 10), $cache->get($key), $cache->forget($key), $cache->get($key)];
            }
            foreach ([0, -5, new \DateInterval('PT10S'), new \DateTimeImmutable('-10 seconds'), null] as $time) {
                $seen[] = [$cache->put('time', 1, 10), $cache->put('time', 2, $time), $cache->get('time')];
            }

            $seen[] = [$cache->add('added', 1, 0), $cache->pull('c'), $cache->pull('c', 'gone')];

            return [...$seen, $cache->clear()];
        };
        self::assertSame($look(new Repository(new ArrayStore(true))), $look($this->cache));
    }

    public function testWhatIsNoIntegerIsNotCounted(): void
    {
        foreach (['7', 1.5, 'text', true] as $value) {
            $this->cache->put('n', $value, 10);
            self::assertFalse($this->cache->increment('n'));
            self::assertSame($value, $this->cache->get('n'));
        }
    }

    public function testOnlyIntegersAreAdded(): void
    {
        $this->cache->put('n', 7, 10);
        foreach ([1.5, '1.5', 'text', '', [], INF, NAN, 1e20, PHP_INT_MAX] as $by) {
            self::assertFalse($this->cache->increment('n', $by));
            self::assertSame(7, $this->cache->get('n'));
        }
        foreach ([1.5, '1.5', 'text', '', [], INF, NAN, 1e20, PHP_INT_MIN] as $by) {
            self::assertFalse($this->cache->decrement('n', $by));
            self::assertSame(7, $this->cache->get('n'));
        }
        foreach ([2, '2', 2.0] as $by) {
            self::assertSame(9, $this->cache->increment('n', $by));
            self::assertSame(7, $this->cache->decrement('n', $by));
        }
    }

    public function testAKeyWithANulIsNoLockOfAnybody(): void
    {
        $cache = new Repository(new PronghornStore(fn () => new Cache($this->storage), ''));
        self::assertTrue($cache->lock('a', 10)->get());
        foreach (["lock\0a", "a\0computing"] as $key) {
            self::assertNull($cache->get($key));
            self::assertTrue($cache->put($key, 1, 10));
            self::assertSame([$key => 1], $cache->many([$key]));
            self::assertTrue($cache->forget($key));
        }
        self::assertFalse($cache->lock('a', 10)->get());
    }

    /** @dataProvider noKeys */
    public function testWhatIsNoKeyIsTheMistakeOfPsr16(string $key): void
    {
        $cache = new Repository(new PronghornStore(fn () => new Cache($this->storage), ''));
        $calls = [
            fn () => $cache->get($key),
            fn () => $cache->has($key),
            fn () => $cache->many(['a', $key]),
            fn () => $cache->getMultiple(['a', $key]),
            fn () => $cache->put($key, 1, 10),
            fn () => $cache->set($key, 1),
            fn () => $cache->putMany([$key => 1], 10),
            fn () => $cache->setMultiple([$key => 1], 10),
            fn () => $cache->forever($key, 1),
            fn () => $cache->add($key, 1, 10),
            fn () => $cache->increment($key),
            fn () => $cache->decrement($key),
            fn () => $cache->forget($key),
            fn () => $cache->delete($key),
            fn () => $cache->remember($key, 10, static fn () => 1),
        ];
        foreach ($calls as $number => $call) {
            try {
                $call();
                self::fail("call $number");
            } catch (InvalidArgumentException $mistake) {
                self::assertStringStartsWith('A key has 1 to 65000 bytes', $mistake->getMessage());
            }
        }
    }

    /** @return iterable<string, array{string}> */
    public static function noKeys(): iterable
    {
        yield 'nothing' => [''];
        yield 'too much' => [str_repeat('a', 65_001)];
        yield 'far too much' => [str_repeat('a', 1 << 20)];
    }

    public function testALockMayHaveALongName(): void
    {
        $name = str_repeat('n', 1 << 20);
        self::assertTrue($this->cache->lock($name, 10)->get());
        self::assertFalse($this->cache->lock($name, 10)->get());
        self::assertTrue($this->cache->lock("$name.", 10)->get());
    }

    public function testTagsAreClearedTogether(): void
    {
        $this->cache->tags(['people'])->put('ada', 1, 10);
        $this->cache->tags(['people'])->flush();
        self::assertNull($this->cache->tags(['people'])->get('ada'));
    }

    public function testALockIsItsOwners(): void
    {
        $mine = $this->cache->lock('import', 10);
        self::assertTrue($mine->get());
        self::assertFalse($this->cache->lock('import', 10)->get());
        self::assertFalse($this->cache->lock('import', 10)->release());
        self::assertFalse($this->cache->lock('import', 10)->refresh(20));
        self::assertTrue($mine->refresh(20));
        $this->storage->now = 15;
        self::assertFalse($this->cache->lock('import', 10)->get(), 'its time has begun anew');
        self::assertTrue($this->cache->restoreLock('import', $mine->owner())->release());
        self::assertTrue($this->cache->lock('import', 10)->get(), 'also before its entry has ended');
        $this->storage->now = 26;
        self::assertTrue($this->cache->lock('import')->get());
        self::assertFalse($mine->release());
        $this->cache->lock('import')->forceRelease();
        self::assertSame('done', $this->cache->lock('import', 5)->get(fn () => 'done'));
    }

    public function testALockTakesWhatLaravelsOwnTake(): void
    {
        foreach (['10', 10.5] as $number => $seconds) {
            $this->storage->now = 0;
            self::assertTrue($this->cache->lock("timed $number", $seconds)->get());
            $this->storage->now = 9;
            self::assertFalse($this->cache->lock("timed $number", $seconds)->get());
            $this->storage->now = 11;
            self::assertTrue($this->cache->lock("timed $number", $seconds)->get());
        }
        foreach ([0, '0', null] as $number => $seconds) {
            self::assertTrue($this->cache->lock("for ever $number", $seconds)->get());
            $this->storage->now += 1e9;
            self::assertFalse($this->cache->lock("for ever $number", $seconds)->get());
        }
        $lock = $this->cache->lock('numbered', 10, 42);
        self::assertTrue($lock->get());
        self::assertTrue($lock->refresh('20'));
        self::assertFalse($this->cache->lock('numbered', 10, 43)->get());
        self::assertFalse($this->cache->restoreLock('numbered', 43)->release());
        self::assertTrue($this->cache->restoreLock('numbered', 42)->release());
    }

    public function testAnOwnerMayBeAnEmptyText(): void
    {
        $nameless = $this->cache->lock('import', 10, '');
        self::assertFalse($nameless->refresh(), 'nobody has it');
        self::assertFalse($nameless->release(), 'nobody has it');
        self::assertTrue($nameless->get());
        self::assertFalse($this->cache->lock('import', 10, '')->get());
        self::assertFalse($this->cache->lock('import', 10, 'x')->get());
        self::assertTrue($nameless->refresh());
        self::assertTrue($nameless->release());
        self::assertFalse($nameless->release(), 'it is given back');
        self::assertTrue($this->cache->lock('import', 10, 'x')->get());
    }

    public function testTheDriversAreThere(): void
    {
        $app = new Application('/nowhere');
        $app->instance('config', new Config([
            'cache' => [
                'default' => 'ours',
                'prefix' => 'shop',
                'stores' => ['ours' => ['driver' => 'pronghorn', 'storage' => 'app']],
            ],
            'session' => [
                'driver' => 'pronghorn', 'store' => 'ours', 'lifetime' => 120, 'cookie' => 'c', 'encrypt' => false,
            ],
            'logging' => [
                'default' => 'ours',
                'channels' => ['ours' => ['driver' => 'pronghorn', 'level' => 'warning']],
            ],
        ]));
        $app->register(CacheServiceProvider::class);
        $app->register(LogServiceProvider::class);
        $app->register(SessionServiceProvider::class);
        $app->register(PronghornServiceProvider::class);
        $store = $app->make('cache')->store()->getStore();
        self::assertInstanceOf(PronghornStore::class, $store);
        self::assertSame('shop', $store->getPrefix());
        $handlers = $app->make('log')->channel()->getHandlers();
        self::assertInstanceOf(PsrHandler::class, $handlers[0]);
        self::assertSame(Logger::toMonologLevel('warning'), $handlers[0]->getLevel());
        $sessions = $app->make('session')->driver()->getHandler();
        self::assertInstanceOf(CacheBasedSessionHandler::class, $sessions);
        self::assertInstanceOf(PronghornStore::class, $sessions->getCache()->getStore());
    }
}
