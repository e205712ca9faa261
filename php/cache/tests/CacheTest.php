<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Cache\Cache;
use Pronghorn\Cache\Internal\Computing;
use Pronghorn\Cache\InvalidKey;
use Pronghorn\Cache\Lock;
use Pronghorn\Cache\Pool;
use Pronghorn\Cache\Rpc;
use Pronghorn\Cache\Store;
use Pronghorn\Cache\Tests\Support\ArrayStore;
use Pronghorn\Rpc as Connection;

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
        self::assertSame(['b' => 1, 'no' => 'none'], $this->cache->getMultiple(['b', 'no'], 'none'));
        $found = [];
        foreach ($this->cache->getMultiple(['b', '7']) as $key => $value) {
            $found[] = [$key, $value];
        }
        self::assertSame([['b', 1], ['7', 2]], $found);
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

    /** A visitor may give a whole key: the names of locks, tags and computations are not his. */
    public function testKeysWithANulAreKeysOfTheirOwn(): void
    {
        $lock = new Lock($this->store, 'a', 60);
        self::assertTrue($lock->acquire());
        $cache = new Cache($this->store);
        $cache->setTagged('tagged', 1, ['t']);
        $before = $this->store->entries;
        $pool = new Pool($this->store);
        foreach (["lock\0a", "tag\0t", "a\0computing", "nul\0", "\0"] as $number => $key) {
            self::assertFalse($cache->has($key));
            self::assertTrue($cache->set($key, $number));
            self::assertSame($number, $cache->get($key));
            self::assertSame([$key => $number], $cache->getMultiple([$key]));
            self::assertSame($number + 1, $cache->increment($key));
            self::assertTrue($cache->compareAndSwap($key, $number + 1, 'new'));
            self::assertSame('new', $pool->getItem($key)->get());
            self::assertSame($key, $pool->getItem($key)->getKey());
            self::assertTrue($cache->delete($key));
            self::assertFalse($cache->has($key));
            self::assertTrue($cache->add($key, $number));
            self::assertTrue($pool->deleteItem($key));
        }
        self::assertSame($before, $this->store->entries);
        self::assertTrue($lock->isHeld());
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
        yield 'no number' => [static fn (Cache $cache) => $cache->set('a', 1, NAN)];
        yield 'no number of several' => [static fn (Cache $cache) => $cache->setMultiple(['a' => 1], NAN)];
    }

    /** @dataProvider writes */
    public function testNoNumberIsNoTimeToLive(callable $write): void
    {
        // Nobody answers: it is refused before anything is sent.
        $listener = stream_socket_server('tcp://127.0.0.1:0');
        $rpc = Connection::connect('tcp://' . stream_socket_get_name($listener, false), 1);
        $store = new Rpc($rpc, 'fast');
        $this->expectException(\ValueError::class);
        $this->expectExceptionMessage('NAN');
        $write($store);
    }

    /** @return iterable<string, array{callable}> */
    public static function writes(): iterable
    {
        yield 'set' => [static fn (Store $store) => $store->set('a', 1, NAN)];
        yield 'add' => [static fn (Store $store) => $store->add('a', 1, NAN)];
        yield 'increment' => [static fn (Store $store) => $store->increment('a', 1, NAN)];
        yield 'compareAndSwap' => [static fn (Store $store) => $store->compareAndSwap('a', 1, 2, NAN)];
    }

    /** @dataProvider noTimes */
    public function testANumberIsNotBegunForNoTime(float $ttl): void
    {
        // Nobody answers: it is refused before anything is sent, as by shared memory.
        $listener = stream_socket_server('tcp://127.0.0.1:0');
        $rpc = Connection::connect('tcp://' . stream_socket_get_name($listener, false), 1);
        $this->expectException(\ValueError::class);
        $this->expectExceptionMessage('above 0');
        (new Rpc($rpc, 'fast'))->increment('a', 5, $ttl);
    }

    /** @return iterable<string, array{float}> */
    public static function noTimes(): iterable
    {
        yield 'none' => [0.0];
        yield 'the past' => [-1.5];
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

    public function testAValueIsComputedWhereTheStorageTakesNothing(): void
    {
        $since = hrtime(true);
        $cache = new Cache($this->createStub(Store::class));
        $told = $this->logged(
            static fn () => self::assertSame('value', $cache->remember('a', 60, static fn () => 'value')),
        );
        self::assertLessThan(10, (hrtime(true) - $since) / 1e9);
        self::assertCount(1, $told);
    }

    public function testWhatIsNotKeptIsComputedSideBySideAndToldOnce(): void
    {
        $this->store->longest = 200;
        $inside = 0;
        $long = str_repeat('secret', 100);
        $told = $this->logged(function () use ($long, &$inside): void {
            $compute = static fn (): string => $long;
            self::assertSame($long, $this->cache->remember('told:secret', 60, $compute));
            $since = hrtime(true);
            // Others come while one computes.
            $nested = function () use ($compute, $long, &$inside): string {
                $inside++;
                self::assertSame($long, $this->other()->remember('told:secret', 60, $compute));

                return $long;
            };
            self::assertSame($long, $this->cache->remember('told:secret', 60, $nested));
            self::assertSame($long, $this->cache->remember('told:other', 60, $compute));
            self::assertLessThan(0.5e9, hrtime(true) - $since);
        });
        self::assertSame(1, $inside);
        self::assertCount(1, $told, implode("\n", $told));
        self::assertStringContainsString('`app:told:`', $told[0]);
        self::assertStringContainsString('at most 200', $told[0]);
        self::assertMatchesRegularExpression('/ 6\d\d bytes/', $told[0]);
        self::assertStringNotContainsString('secret', $told[0]);

        self::assertSame(1, $this->cache->remember('told:secret', 60, static fn () => 1), 'it is shorter now');
        self::assertSame(1, $this->cache->remember('told:secret', 60, static fn () => self::fail('it is kept')));
        $this->cache->delete('told:secret');
        $alone = new Computing($this->store, 'app:told:secret', 30);
        self::assertTrue($alone->take(), 'one at a time again');
        $alone->give();
    }

    public function testAStaleValueIsUsedWhileTheNewOneIsNotKept(): void
    {
        $this->cache->remember('a', 1e-6, static fn () => 'old', 60);
        $this->store->longest = 200;
        $long = str_repeat('x', 500);
        $this->logged(function () use ($long): void {
            $inside = null;
            $value = $this->cache->remember('a', 60, function () use ($long, &$inside): string {
                $inside = $this->cache->remember('a', 60, static fn () => self::fail('it is computed'), 60);

                return $long;
            }, 60);
            self::assertSame(['old', $long], [$inside, $value]);
            self::assertSame($long, $this->cache->remember('a', 60, static fn () => $long, 60));
        });
    }

    public function testWhatCanNotBeSerializedHoldsNobodyUp(): void
    {
        $refused = 0;
        for ($i = 0; $i < 2; $i++) {
            try {
                $this->cache->remember('a', 60, fn () => static fn () => 1);
            } catch (\Exception $exception) {
                self::assertStringContainsString('Closure', $exception->getMessage());
                $refused++;
            }
            self::assertFalse((new Computing($this->store, 'app:a', 30))->take(), 'nobody has it alone');
        }
        self::assertSame(2, $refused, 'each is told');
        self::assertSame(1, $this->cache->remember('a', 60, static fn () => 1));
    }

    /** A cache as another process has it. */
    private function other(): Cache
    {
        return new Cache($this->store, 'app:');
    }

    /**
     * What goes into the log meanwhile.
     *
     * @return list<string>
     */
    private function logged(callable $function): array
    {
        $file = (string) tempnam(sys_get_temp_dir(), 'log');
        $before = ini_set('error_log', $file);
        try {
            $function();

            return (array) file($file, FILE_IGNORE_NEW_LINES);
        } finally {
            ini_set('error_log', (string) $before);
            unlink($file);
        }
    }

    public function testOthersAreGivenTheStaleValueWhileOneComputes(): void
    {
        $this->cache->remember('a', 1e-6, static fn () => 'old', 60);
        $inside = null;
        $value = $this->cache->remember('a', 60, function () use (&$inside): string {
            $inside = $this->cache->remember('a', 60, static fn () => self::fail('it is being computed'), 60);

            return 'new';
        }, 60);
        self::assertSame(['old', 'new'], [$inside, $value]);
        self::assertSame('new', $this->cache->remember('a', 60, static fn () => self::fail('it is fresh')));
    }

    public function testWhatIsRememberedIsReadAsAnyOther(): void
    {
        $this->cache->remember('menu', 60, static fn () => ['x'], tags: ['t']);
        $this->cache->remember('none', 60, static fn () => null);
        self::assertSame(['x'], $this->cache->get('menu'));
        self::assertNull($this->cache->get('none', 'default'));
        self::assertTrue($this->cache->has('none'));
        self::assertSame(['menu' => ['x'], 'none' => null], $this->cache->getMultiple(['menu', 'none'], 'default'));
        $item = (new Pool($this->store, 'app:'))->getItem('menu');
        self::assertSame([true, ['x']], [$item->isHit(), $item->get()]);
        $this->cache->invalidateTags(['t']);
        self::assertSame('default', $this->cache->get('menu', 'default'));

        $this->cache->remember('stale', 1e-6, static fn () => 'x', 60);
        self::assertSame('default', $this->cache->get('stale', 'default'));
        self::assertFalse($this->cache->has('stale'));
        self::assertSame(['stale' => 0], $this->cache->getMultiple(['stale'], 0));
        self::assertFalse((new Pool($this->store, 'app:'))->hasItem('stale'));
    }

    public function testWhatWasSetIsRememberedAsItIs(): void
    {
        $none = static fn () => self::fail('it is there');
        foreach (['text', null, ['lat', 9e18], [1, microtime(true) + 60]] as $value) {
            $this->cache->set('a', $value);
            self::assertSame($value, $this->cache->remember('a', 60, $none));
        }
    }

    public function testACallThatAsksForItsOwnKeyComputesIt(): void
    {
        $since = hrtime(true);
        $value = $this->cache->remember('a', 60, fn () => 'outer ' . $this->cache->remember('a', 60, fn () => 'inner'));
        self::assertSame('outer inner', $value);
        self::assertLessThan(5e9, hrtime(true) - $since);
        self::assertSame('outer inner', $this->cache->get('a'));
        try {
            $this->cache->remember('b', 60, static fn () => throw new \RuntimeException('no'));
        } catch (\RuntimeException) {
            self::assertSame(1, $this->cache->remember('b', 60, static fn () => 1), 'the place is given back');
        }
    }

    public function testOneGoesOnInThePlaceOfAProcessThatIsDead(): void
    {
        $waits = [PHP_BINARY, '-r', 'echo getmypid(); fgets(STDIN);'];
        $child = proc_open($waits, [['pipe', 'r'], ['pipe', 'w']], $pipes);
        self::assertNotFalse($child);
        $pid = (int) fread($pipes[1], 20);
        // As it would have taken the place.
        $computing = new Computing($this->store, 'app:a', 30);
        self::assertTrue($computing->take());
        $mine = $this->store->get("lock\0app:a\0computing");
        $since = explode(' ', explode(') ', file_get_contents("/proc/$pid/stat"))[1])[19];
        $theirs = preg_replace('/\|\d+\|\d+\|/', "|$pid|$since|", $mine);
        $computing->give();
        $this->store->set("lock\0app:a\0computing", $theirs, 30);
        $other = new Computing($this->store, 'app:a', 30);
        self::assertFalse($other->take() || $other->inherit(), 'it is there');
        fclose($pipes[0]);
        proc_close($child);
        self::assertTrue($other->inherit());
        self::assertFalse((new Computing($this->store, 'app:a', 30))->inherit(), 'one of those who wait');
        $other->give();
        $this->store->set("lock\0app:a\0computing", $theirs, 30);
        self::assertSame(1, $this->cache->remember('a', 60, static fn () => 1));
    }

    /** @dataProvider reserved */
    public function testReservedSignsAreMistakesWhereThatIsWanted(callable $call): void
    {
        $call($this->cache);
        $this->expectException(InvalidKey::class);
        $call(new Cache($this->store, 'app:', true));
    }

    /** @return iterable<string, array{callable}> */
    public static function reserved(): iterable
    {
        foreach (str_split('{}()/\\@:') as $sign) {
            yield "get $sign" => [static fn (Cache $cache) => $cache->get("a{$sign}b")];
        }
        yield 'set' => [static fn (Cache $cache) => $cache->set('a:b', 1)];
        yield 'has' => [static fn (Cache $cache) => $cache->has('a:b')];
        yield 'delete' => [static fn (Cache $cache) => $cache->delete('a:b')];
        yield 'getMultiple' => [static fn (Cache $cache) => $cache->getMultiple(['a', 'a:b'])];
        yield 'setMultiple' => [static fn (Cache $cache) => $cache->setMultiple(['a' => 1, 'a:b' => 1])];
        yield 'deleteMultiple' => [static fn (Cache $cache) => $cache->deleteMultiple(['a', 'a:b'])];
        yield 'a fraction of a second' => [static fn (Cache $cache) => $cache->set('a', 1, 2.5)];
        yield 'remember' => [static fn (Cache $cache) => $cache->remember('a:b', 60, static fn () => 1)];
    }

    public function testTheLongestKeyIsTakenByAll(): void
    {
        $key = str_repeat('a', 64_996);
        self::assertTrue($this->cache->set($key, 1));
        self::assertSame(2, $this->cache->increment($key));
        self::assertTrue($this->cache->compareAndSwap($key, 2, 3));
        self::assertSame(3, $this->cache->get($key));
        self::assertTrue($this->cache->deleteMultiple([$key]));
        self::assertSame(5, $this->cache->remember($key, 60, static fn () => 5));
        self::assertTrue($this->cache->setTagged('b', 1, [str_repeat('t', 64_992)]));
    }

    /** @dataProvider noKeys */
    public function testWhatIsNoStringIsNoKey(mixed $key): void
    {
        $pairs = static function () use ($key): iterable {
            yield $key => 1;
        };
        $calls = [
            fn () => $this->cache->get($key),
            fn () => $this->cache->set($key, 1),
            fn () => $this->cache->has($key),
            fn () => $this->cache->delete($key),
            fn () => $this->cache->getMultiple(['a', $key]),
            fn () => $this->cache->deleteMultiple(['a', $key]),
        ];
        if (!is_int($key)) {
            $calls[] = fn () => $this->cache->setMultiple($pairs());
        }
        if (is_string($key)) {
            // PHP's own types refuse the others.
            array_push(
                $calls,
                fn () => $this->cache->add($key, 1),
                fn () => $this->cache->increment($key),
                fn () => $this->cache->compareAndSwap($key, 1, 2),
                fn () => $this->cache->setTagged($key, 1, ['t']),
                fn () => $this->cache->remember($key, 60, static fn () => 1),
                fn () => $this->cache->setTagged('b', 1, ['t', $key]),
                fn () => $this->cache->invalidateTags(['t', $key]),
            );
        }
        $this->store->set('app:a', 'kept');
        foreach ($calls as $number => $call) {
            try {
                $call();
                self::fail("call $number");
            } catch (InvalidKey) {
                self::assertSame('kept', $this->store->get('app:a'), 'nothing is done in part');
            }
        }
    }

    /** @return iterable<string, array{mixed}> */
    public static function noKeys(): iterable
    {
        yield 'nothing' => [''];
        yield 'too much' => [str_repeat('a', 64_997)];
        yield 'far too much' => [str_repeat('a', 1 << 20)];
        yield 'null' => [null];
        yield 'yes' => [true];
        yield 'a number' => [2];
        yield 'a fraction' => [2.5];
        yield 'a list' => [['a']];
        yield 'an object' => [new \stdClass()];
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
