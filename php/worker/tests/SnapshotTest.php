<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Snapshot;
use Pronghorn\Tests\Support\Kept\Ancestor;
use Pronghorn\Tests\Support\Kept\Descendant;
use Pronghorn\Tests\Support\Kept\Lazy;
use Pronghorn\Tests\Support\Kept\Open;

final class SnapshotTest extends TestCase
{
    /** @var list<object> of maps, which keep none */
    private static array $keys = [];

    public function testTakesPropertiesOfAllClassesBack(): void
    {
        $object = new Descendant();
        $before = $object->look();
        $snapshot = Snapshot::of($object, $object);
        $count = Ancestor::$count;
        foreach ([1, 2] as $time) {
            if ($time === 1) {
                $object->change(new \stdClass());
            } else {
                $object->plain = $object->typed = 5;
                $object->list = [];
            }
            $snapshot->restore();
            self::assertSame($before, $object->look());
        }
        self::assertSame(1, $object->once, 'one that is readonly is left alone');
        self::assertSame($count + 1, Ancestor::$count, 'one that is static is left alone');
        $snapshot->restore();
        self::assertSame($before, $object->look());
    }

    public function testKeepsUnsetAndDeclaredPropertiesApart(): void
    {
        $object = new Descendant();
        unset($object->plain);
        $snapshot = Snapshot::of($object);
        $object->plain = 1;
        $snapshot->restore();
        self::assertFalse(isset($object->plain));
        $object->plain = 2;
        self::assertSame(2, $object->plain);
    }

    public function testAnotherObjectInAPropertyIsAsItIsByThen(): void
    {
        $inner = new \ArrayObject([1]);
        $outer = (object) ['inner' => $inner];
        $snapshot = Snapshot::of($outer);
        $inner[] = 2;
        $outer->inner = null;
        $snapshot->restore();
        self::assertSame($inner, $outer->inner);
        self::assertCount(2, $inner);
    }

    public function testSaysWhetherAnythingHadChanged(): void
    {
        $object = new Descendant();
        $open = (object) ['number' => \NAN, 'list' => [\NAN, [1]], 'text' => \str_repeat('text', 2)];
        $snapshot = Snapshot::of($object, $open);
        self::assertFalse($snapshot->restore());
        $object->change(new \stdClass());
        self::assertTrue($snapshot->restore());
        self::assertFalse($snapshot->restore());
        $open->list[] = 1;
        \array_pop($open->list);
        self::assertFalse($snapshot->restore(), 'the same in another array');
        $open->more = 1;
        self::assertTrue($snapshot->restore());
        unset($open->text);
        self::assertTrue($snapshot->restore());
        self::assertFalse($snapshot->restore());
    }

    /**
     * @dataProvider collections
     * @param \Closure(object, object): void $change
     */
    public function testObjectsOfPhpGetWhatTheyHeldBack(object $collection, \Closure $change): void
    {
        $before = \var_export($collection, true) . \print_r($collection, true);
        self::assertNotEmpty(Snapshot::contents($collection));
        $snapshot = Snapshot::of($collection);
        self::assertFalse($snapshot->restore());
        for ($time = 1; $time <= 2; $time++) {
            $change($collection, new \stdClass());
            self::assertTrue($snapshot->restore());
            self::assertSame($before, \var_export($collection, true) . \print_r($collection, true));
            self::assertFalse($snapshot->restore());
        }
    }

    /** @return iterable<string, array{object, \Closure}> */
    public static function collections(): iterable
    {
        [$key, $other] = self::$keys = [new \stdClass(), new \stdClass()];
        $map = new \WeakMap();
        $map[$key] = null;
        $map[$other] = ['a', \NAN];
        yield 'a key more' => [$map, static fn (\WeakMap $map, object $new) => $map[self::$keys[] = $new] = 1];
        yield 'another value' => [clone $map, static fn (\WeakMap $map) => $map[self::$keys[0]] = 1];
        yield 'a key less' => [clone $map, static function (\WeakMap $map) use ($other): void {
            unset($map[$other]);
        }];
        $storage = new \SplObjectStorage();
        $storage[$key] = 'about it';
        yield 'a storage' => [$storage, static function (\SplObjectStorage $storage, object $new) use ($key): void {
            $storage[$new] = 1;
            $storage[$key] = 2;
        }];
        yield 'an array' => [new \ArrayObject(['a' => 1, 'b' => [2]]), static function (\ArrayObject $array): void {
            $array['c'] = 3;
            unset($array['a']);
        }];
        yield 'a list of its own kind' => [new class (['a']) extends \ArrayObject {
            public function offsetSet(mixed $key, mixed $value): void
            {
                parent::offsetSet($key, "own $value");
            }
        }, static fn (\ArrayObject $array) => $array[] = 3];
        yield 'an iterator' => [new \ArrayIterator([1, 2]), static fn (\ArrayIterator $all) => $all[] = 3];
        $queue = new \SplQueue();
        $queue[] = 1;
        yield 'a queue' => [$queue, static fn (\SplQueue $queue) => $queue[] = 3];
        yield 'one that is empty by then' => [clone $queue, static fn (\SplQueue $queue) => $queue->dequeue()];
        $fixed = \SplFixedArray::fromArray([1, 2]);
        yield 'of a fixed size' => [$fixed, static function (\SplFixedArray $fixed): void {
            $fixed->setSize(3);
            $fixed[0] = 3;
        }];
        $heap = new \SplMinHeap();
        \array_map($heap->insert(...), [5, 1, 3]);
        yield 'a heap' => [$heap, static fn (\SplHeap $heap) => $heap->extract()];
        $time = new \DateTime('2020-07-01 01:02:03.4', new \DateTimeZone('Europe/Berlin'));
        yield 'a time' => [$time, static fn (\DateTime $time) => $time->modify('+1 year')];
        yield 'its zone' => [clone $time, static fn (\DateTime $time)
            => $time->setTimezone(new \DateTimeZone('+01:00'))];
        $urgent = new \SplPriorityQueue();
        \array_map($urgent->insert(...), ['a', 'b', 'c'], [1, 5, 3]);
        yield 'by priority' => [$urgent, static fn (\SplPriorityQueue $urgent) => $urgent->insert('d', 9)];
    }

    public function testAMapKeepsNoKey(): void
    {
        $map = new \WeakMap();
        $key = new \stdClass();
        $map[$key] = 1;
        $snapshot = Snapshot::of($map);
        unset($key);
        self::assertCount(0, $map);
        self::assertFalse($snapshot->restore());
    }

    public function testUndeclaredPropertiesComeAndGo(): void
    {
        $kept = new \stdClass();
        $objects = [
            (object) ['a' => 1, '5' => [1], 'kept' => $kept],
            new \stdClass(),
            new Open(),
            new class extends Open {
            },
        ];
        $objects[3]->extra = 'here';
        $before = \array_map('get_object_vars', $objects);
        $snapshot = Snapshot::of(...$objects);
        foreach ($objects as $object) {
            $object->added = 1;
            $object->{'7'} = 1;
            unset($object->a, $object->extra);
            $object->{'5'} = 'other';
        }
        $objects[2]->declared = 2;
        $snapshot->restore();
        self::assertEquals($before, \array_map('get_object_vars', $objects));
        self::assertSame($kept, $objects[0]->kept);
        $snapshot->restore();
        self::assertEquals($before, \array_map('get_object_vars', $objects));
    }

    public function testAPropertyThatIsBoundToAReferenceGetsItsValueThroughIt(): void
    {
        $object = new Descendant();
        $object->typed = 1;
        $snapshot = Snapshot::of($object);
        $plain = &$object->plain;
        $typed = &$object->typed;
        $list = &$object->list;
        $bare = &$object->bare;
        foreach ([$snapshot, Snapshot::of($object)] as $snapshot) {
            [$plain, $typed, $list, $bare] = ['other', 2, [], null];
            $snapshot->restore();
            self::assertSame([1.5, 1, ['redeclared'], 'bare'], [$plain, $typed, $list, $bare]);
        }

        $object = new Descendant();
        $snapshot = Snapshot::of($object);
        $object->typed = 1;
        $typed = &$object->typed;
        $snapshot->restore();
        self::assertFalse(isset($object->typed));
        $typed = 'no number, and nobody minds';
        self::assertFalse(isset($object->typed));
    }

    public function testPropertiesThatAreMadeWhenTheyAreReadAreMadeAgain(): void
    {
        $object = new Lazy();
        $snapshot = Snapshot::of($object);
        self::assertSame('made, made', $object->made);
        $snapshot->restore();
        self::assertSame('made, made', $object->made);
        self::assertSame(1, $object->calls, 'which was taken back as well');
        // PHP asks __get() for what was unset, not for what never was there.
        $this->expectExceptionMessage('must not be accessed before initialization');
        $object->never;
    }

    public function testLetsGoOfWhatCameSince(): void
    {
        $object = new Descendant();
        $snapshot = Snapshot::of($object);
        $service = new \stdClass();
        $gone = \WeakReference::create($service);
        $object->change($service);
        $object->plain = $service;
        unset($service);
        $snapshot->restore();
        self::assertNull($gone->get());
    }

    public function testNothingIsNothing(): void
    {
        Snapshot::of()->restore();
        Snapshot::of(new \Exception(), static fn () => 1, new \ArrayObject())->restore();
        self::assertTrue(true);
    }

    /** @requires PHP 8.4 */
    public function testLooksBehindHooksAndIntoLazyObjects(): void
    {
        $object = eval('return new class {
            public int $writes = 0;
            public string $hooked = "a" { get => "got $this->hooked"; set { $this->writes++; $this->hooked = $value; } }
            public string $virtual { get => "v"; set => 1; }
        };');
        $snapshot = Snapshot::of($object);
        $object->hooked = 'b';
        $snapshot->restore();
        self::assertSame(['got a', 0], [$object->hooked, $object->writes]);

        $object = eval('return new class extends ' . Open::class . ' {
            public int $declared = 1 { set => $value + 1; }
        };');
        $snapshot = Snapshot::of($object);
        $object->declared = 5;
        $snapshot->restore();
        self::assertSame(1, $object->declared);

        foreach (['newLazyGhost', 'newLazyProxy'] as $kind) {
            $lazy = (new \ReflectionClass(Open::class))->$kind($kind === 'newLazyGhost'
                ? static function (Open $open): void {
                    $open->declared = 5;
                }
                : static fn () => \array_reduce([5], static function (Open $open, int $value): Open {
                    $open->declared = $value;

                    return $open;
                }, new Open()));
            $snapshot = Snapshot::of($lazy);
            $lazy->declared = 6;
            $snapshot->restore();
            self::assertSame(5, $lazy->declared);
        }
    }
}
