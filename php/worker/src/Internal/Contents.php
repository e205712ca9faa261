<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * What objects of PHP itself hold inside, for {@see \Pronghorn\Snapshot}: in no property, but to be
 * had by their methods. These are called as PHP has them, whatever a subclass makes of them.
 */
final class Contents
{
    private const CLASSES = [
        \WeakMap::class, \SplObjectStorage::class, \ArrayObject::class, \ArrayIterator::class,
        \SplDoublyLinkedList::class, \SplFixedArray::class, \SplHeap::class, \SplPriorityQueue::class,
        \DateTime::class,
    ];

    /**
     * @param class-string $class of PHP
     * @param \WeakMap<object, mixed>|array<mixed> $kept in a map, so that it holds no key
     */
    private function __construct(
        private readonly object $object,
        private readonly string $class,
        private readonly \WeakMap|array $kept,
    ) {
    }

    /** Null: this is none of these objects. */
    public static function of(object $object): ?self
    {
        foreach (self::CLASSES as $class) {
            if ($object instanceof $class) {
                $isMap = $object instanceof \WeakMap;
                try {
                    return new self($object, $class, $isMap ? clone $object : self::look($object, $class));
                } catch (\Error) {
                    // A class that does not call its parent's constructor: it has nothing.
                }
            }
        }

        return null;
    }

    /** @return list<mixed> what it holds, or arrays of that */
    public function values(): array
    {
        if (!$this->kept instanceof \WeakMap) {
            return $this->kept;
        }
        $values = [];
        foreach ($this->kept as $key => $value) {
            \array_push($values, $key, $value);
        }

        return $values;
    }

    /** @return bool whether anything had changed */
    public function restore(): bool
    {
        if ($this->object instanceof \WeakMap && $this->kept instanceof \WeakMap) {
            return self::restoreMap($this->object, $this->kept);
        }
        $now = self::look($this->object, $this->class);
        if (Properties::areSame($now, $this->kept)) {
            return false;
        }
        $this->replace($now);

        return true;
    }

    /** @param array<mixed> $now */
    private function replace(array $now): void
    {
        match ($this->class) {
            \SplObjectStorage::class => $this->replaceStorage($now[0], $this->kept[0]),
            \SplDoublyLinkedList::class => $this->replaceList(\count($now[1])),
            \SplFixedArray::class => $this->replaceFixed(),
            \SplHeap::class, \SplPriorityQueue::class => $this->replaceHeap(\count($now)),
            \DateTime::class => $this->replaceTime(...$this->kept),
            // Without properties, which are not ours.
            default => $this->call('__unserialize', $this->kept + [2 => []]),
        };
    }

    /**
     * @param list<mixed> $now each object, and what it has with it
     * @param list<mixed> $kept
     */
    private function replaceStorage(array $now, array $kept): void
    {
        foreach (\array_chunk($now, 2) as [$object, $_]) {
            $this->call('offsetUnset', $object);
        }
        foreach (\array_chunk($kept, 2) as [$object, $about]) {
            $this->call('offsetSet', $object, $about);
        }
    }

    private function replaceList(int $count): void
    {
        for (; $count > 0; $count--) {
            $this->call('pop');
        }
        $this->call('__unserialize', $this->kept + [2 => []]);
    }

    private function replaceFixed(): void
    {
        $this->call('setSize', \count($this->kept));
        foreach ($this->kept as $place => $value) {
            $this->call('offsetSet', $place, $value);
        }
    }

    private function replaceHeap(int $count): void
    {
        $this->call('recoverFromCorruption');
        for (; $count > 0; $count--) {
            $this->call('extract');
        }
        foreach ($this->kept as $element) {
            $isWithPriority = $this->class === \SplPriorityQueue::class;
            $this->call('insert', ...($isWithPriority ? \array_values($element) : [$element]));
        }
    }

    private function replaceTime(int $seconds, string $microseconds, string $zone): void
    {
        $this->call('setTimezone', new \DateTimeZone($zone));
        $this->call('setTimestamp', $seconds);
        $this->call('modify', "+$microseconds microseconds");
    }

    private function call(string $method, mixed ...$arguments): void
    {
        (new \ReflectionMethod($this->class, $method))->invoke($this->object, ...$arguments);
    }

    /**
     * Without moving its iterator.
     *
     * @param class-string $class
     * @return array<mixed>
     */
    private static function look(object $object, string $class): array
    {
        $has = static fn (string $method): mixed => (new \ReflectionMethod($class, $method))->invoke($object);

        return match ($class) {
            \SplFixedArray::class => $has('toArray'),
            \SplHeap::class, \SplPriorityQueue::class => $has('__debugInfo')["\0$class\0heap"],
            \DateTime::class => [$has('getTimestamp'), \DateTime::createFromInterface($object)->format('u'),
                $has('getTimezone')->getName()],
            \SplObjectStorage::class => [$has('__serialize')[0]],
            \SplDoublyLinkedList::class => \array_slice($has('__serialize'), 0, 2),
            default => self::lookAtArray($has),
        };
    }

    /**
     * A copy: PHP's own is written to by the object. One around another object keeps that one.
     *
     * @param \Closure(string): mixed $has
     * @return array<mixed>
     */
    private static function lookAtArray(\Closure $has): array
    {
        $parts = $has('__serialize');
        unset($parts[2]);

        return \is_array($parts[1]) ? \array_replace($parts, [1 => $has('getArrayCopy')]) : $parts;
    }

    /**
     * @param \WeakMap<object, mixed> $map
     * @param \WeakMap<object, mixed> $kept
     */
    private static function restoreMap(\WeakMap $map, \WeakMap $kept): bool
    {
        $gone = $changed = [];
        foreach ($map as $key => $value) {
            if (!isset($kept[$key]) && !self::holdsNull($kept, $key)) {
                $gone[] = [$key, $value];
            } elseif (!Properties::areSame($value, $kept[$key])) {
                $changed[] = [$key, $value];
            }
        }
        foreach ($gone as [$key]) {
            unset($map[$key]);
        }
        foreach ($changed as [$key]) {
            $map[$key] = $kept[$key];
        }
        $isSmaller = \count($map) !== \count($kept);
        if ($isSmaller) {
            foreach ($kept as $key => $value) {
                $map[$key] = $value;
            }
        }

        return $gone !== [] || $changed !== [] || $isSmaller;
    }

    /** @param \WeakMap<object, mixed> $map where the key is not set */
    private static function holdsNull(\WeakMap $map, object $key): bool
    {
        try {
            return $map[$key] === null;
        } catch (\Error) {
            return false;
        }
    }
}
