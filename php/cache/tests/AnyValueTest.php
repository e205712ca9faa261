<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Cache\Cache;
use Pronghorn\Cache\Pool;
use Pronghorn\Cache\Tests\Support\ArrayStore;

/** Whatever is kept is read as it was, also what looks like an entry of tags or of `remember()`. */
final class AnyValueTest extends TestCase
{
    /** Keys that mean something in an entry, or have meant something. */
    private const KEYS = ["\0tags", "\0fresh", "\0value", '', "\0", 'otp', "tag\0t", "app:tag\0t", 0, 1];

    private ArrayStore $store;
    private Cache $cache;

    protected function setUp(): void
    {
        $this->store = new ArrayStore();
        $this->cache = new Cache($this->store, 'app:');
    }

    /** @dataProvider sent */
    public function testWhatAVisitorSendsIsNoEntryOfTheCache(string $json): void
    {
        $this->store->set('otp', '493201');
        $value = json_decode($json, true);
        $this->expectKept($value);
        $this->cache->set('a', $value);
        $this->cache->set('b', 'of another one');
        self::assertSame(['a' => $value, 'b' => 'of another one'], $this->cache->getMultiple(['a', 'b']));
    }

    /** @return iterable<array{string}> */
    public static function sent(): iterable
    {
        yield ['{"\u0000tags": {"otp": "493201"}, "\u0000value": "the guess is right"}'];
        yield ['{"\u0000tags": {"otp": "000000"}, "\u0000value": "the guess is wrong"}'];
        yield ['{"\u0000tags": {"": 1}, "\u0000value": 1}'];
        yield ['{"\u0000tags": {"5": 1}, "\u0000value": 1}'];
        yield ['{"\u0000tags": {"a": [1]}, "\u0000value": 1}'];
        yield ['{"\u0000tags": {"app:tag\u0000t": 1}, "\u0000value": 1}'];
        yield ['{"\u0000tags": {}, "\u0000value": 1}'];
        yield ['{"\u0000tags": {"a": 1}, "x": 1}'];
        yield ['{"\u0000fresh": 1.0}'];
        yield ['{"\u0000fresh": 1.0, "\u0000value": 1}'];
        yield ['{"\u0000fresh": 1e300, "\u0000value": {"is_admin": true}}'];
        yield ['{"\u0000fresh": 1e300, "\u0000value": {"\u0000fresh": 1e300, "\u0000value": 1}}'];
    }

    /**
     * The same of what came into the storage past this package, or before it told the two apart.
     *
     * @dataProvider foreign
     */
    public function testAnEntryOfSomebodyElseTellsNothingOfOthers(array $kept): void
    {
        $this->store->set('otp', '493201');
        $this->store->set('app:a', $kept);
        $this->cache->set('b', 1);
        self::assertSame(['a' => $kept, 'b' => 1], $this->cache->getMultiple(['a', 'b']));
        self::assertSame($kept, $this->cache->get('a'));
        self::assertSame($kept, $this->cache->remember('a', 60, static fn () => self::fail('it is there')));
    }

    /** @return iterable<array{array<mixed>}> */
    public static function foreign(): iterable
    {
        yield [["\0tags" => ['otp' => '493201'], "\0value" => 1]];
        yield [["\0tags" => ['otp' => 1], "\0value" => 1]];
        yield [["\0tags" => ['' => 1], "\0value" => 1]];
        yield [["\0tags" => ["app:tag\0t" => 'x'], "\0value" => 1]];
        yield [["\0tags" => ["app:tag\0" . str_repeat('t', 70_000) => 1], "\0value" => 1]];
        yield [["\0tags" => ["app:tag\0t" => 1]]];
        yield [["\0tags" => ["app:tag\0t" => 1], "\0value" => 1, 'x' => 1]];
        yield [["\0fresh" => 1.0]];
        yield [["\0fresh" => 1.0, "\0value" => 1, 'x' => 1]];
    }

    public function testEntriesOfBeforeAreRead(): void
    {
        $this->store->set("app:tag\0t", 7);
        $fresh = ["\0fresh" => microtime(true) + 60, "\0value" => 'computed'];
        $this->store->set('app:fresh', $fresh);
        $this->store->set('app:tagged', ["\0tags" => ["app:tag\0t" => 7], "\0value" => 'tagged']);
        $this->store->set('app:both', ["\0tags" => ["app:tag\0t" => 7], "\0value" => $fresh]);
        $all = ['fresh' => 'computed', 'tagged' => 'tagged', 'both' => 'computed'];
        self::assertSame($all, $this->cache->getMultiple(array_keys($all)));
        $this->cache->invalidateTags(['t']);
        $all = ['fresh' => 'computed', 'tagged' => null, 'both' => null];
        self::assertSame($all, $this->cache->getMultiple(array_keys($all)));
    }

    public function testAnyValueIsReadAsItWasKept(): void
    {
        mt_srand(46);
        for ($round = 0; $round < 2000; $round++) {
            $this->expectKept(self::someValue(4));
        }
    }

    private function expectKept(mixed $value): void
    {
        $pool = new Pool($this->store, 'app:');
        $before = ["\0fresh" => 1.0, "\0value" => 'before'];
        $ways = [
            fn () => $this->cache->set('k', $value),
            fn () => $this->cache->setMultiple(['k' => $value]),
            fn () => $this->cache->setTagged('k', $value, []),
            fn () => $this->cache->setTagged('k', $value, ['t']),
            fn () => $this->cache->add('k', $value),
            fn () => $this->cache->set('k', $before) && $this->cache->compareAndSwap('k', $before, $value),
            fn () => $pool->save($pool->getItem('k')->set($value)),
            fn () => $pool->save($pool->getItem('k')->set($value)->tag('t')),
            fn () => [$this->cache->remember('k', 60, static fn () => $value)],
            fn () => [$this->cache->remember('k', 60, static fn () => $value, 60, ['t'])],
        ];
        $expected = serialize($value);
        foreach ($ways as $number => $keep) {
            $this->cache->delete('k');
            self::assertNotFalse($keep(), "way $number");
            self::assertTrue($this->cache->has('k'), "way $number");
            $found = [
                $this->cache->get('k', 'none'),
                [...$this->cache->getMultiple(['k'], 'none')]['k'],
                $this->cache->remember('k', 60, static fn () => 'none'),
                $pool->getItem('k')->get(),
            ];
            foreach ($found as $one) {
                self::assertSame($expected, serialize($one), "way $number");
            }
        }
    }

    private static function someValue(int $depth): mixed
    {
        $kind = mt_rand(0, $depth > 0 ? 11 : 6);
        if ($kind > 6) {
            $array = [];
            for ($left = mt_rand(0, 3); $left > 0; $left--) {
                $array[self::KEYS[mt_rand(0, count(self::KEYS) - 1)]] = self::someValue($depth - 1);
            }

            return $kind === 11 ? new \ArrayObject($array) : $array;
        }

        return [
            null,
            mt_rand(0, 1) === 0,
            mt_rand(-2, 2),
            [1.0, 1e300, INF, NAN, -0.0, microtime(true) + 60][mt_rand(0, 5)],
            ['', "\0", "\xFF", '493201', 'b:0;', 'N;'][mt_rand(0, 5)],
            PHP_INT_MAX,
            new \DateTimeImmutable('2026-01-01'),
        ][$kind];
    }
}
