<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Internal;

use Pronghorn\Cache\InvalidKey;
use Pronghorn\Cache\Store;

/**
 * Tags of entries. Each tag has an entry with a random number, and what is tagged is kept with the
 * numbers of its tags: without the number, which goes in one step, none of it is there any more.
 */
final class Tags
{
    public const NUMBERS = "\0tags";
    private const VALUE = "\0value";
    /** Before a tag in the name of its entry. */
    private const BEFORE = "tag\0";

    public function __construct(private readonly Store $store, private readonly string $prefix)
    {
    }

    /**
     * The numbers of these tags, by the names of their entries. Taken before a value is computed:
     * what is invalidated meanwhile is not there afterwards either.
     *
     * @param iterable<string> $tags
     * @return array<string, int>
     */
    public function numbers(iterable $tags): array
    {
        $names = $this->names($tags);
        $there = $this->store->many($names);
        $numbers = [];
        foreach ($names as $name) {
            $number = $there[$name] ?? null;
            if (!\is_int($number)) {
                $number = \random_int(1, \PHP_INT_MAX);
                // Another worker may have been quicker.
                $number = $this->store->add($name, $number) ? $number : (int) $this->store->get($name, 0);
            }
            $numbers[$name] = $number;
        }

        return $numbers;
    }

    /**
     * The kept form of a value with tags; {@see Fresh} gives the one without.
     *
     * @param array<string, int> $numbers
     */
    public static function wrap(mixed $value, array $numbers): mixed
    {
        return $numbers === [] ? $value : [self::NUMBERS => $numbers, self::VALUE => $value];
    }

    /**
     * The values of what is kept, without those whose tags were invalidated.
     *
     * @param array<string, mixed> $kept
     * @return array<string, mixed>
     */
    public function unwrap(array $kept): array
    {
        $tagged = \array_filter($kept, self::isTagged(...));
        if ($tagged === []) {
            return $kept;
        }
        $numbers = \array_column($tagged, self::NUMBERS);
        $there = $this->store->many(\array_keys(\array_merge(...$numbers)));
        foreach ($tagged as $key => $one) {
            if (\array_diff_assoc($one[self::NUMBERS], $there) === []) {
                $kept[$key] = $one[self::VALUE];
            } else {
                unset($kept[$key]);
            }
        }

        return $kept;
    }

    /**
     * Past this package a storage may be given an array that is like one of {@see wrap}: no entry
     * but those of tags is compared with what it says.
     */
    public static function isTagged(mixed $kept): bool
    {
        $numbers = \is_array($kept) ? $kept[self::NUMBERS] ?? null : null;
        if (!\is_array($numbers) || \count($kept) !== 2 || !\array_key_exists(self::VALUE, $kept)) {
            return false;
        }
        foreach ($numbers as $name => $number) {
            $isOfTag = \str_contains((string) $name, self::BEFORE) && \strlen((string) $name) <= Keys::LONGEST;
            if (!$isOfTag || !\is_int($number)) {
                return false;
            }
        }

        return $numbers !== [];
    }

    /** @param iterable<string> $tags */
    public function invalidate(iterable $tags): void
    {
        foreach ($this->names($tags) as $name) {
            $this->store->delete($name);
        }
    }

    /**
     * @param iterable<mixed> $tags
     * @return list<string>
     */
    private function names(iterable $tags): array
    {
        $names = [];
        foreach ($tags as $tag) {
            if (!\is_string($tag) || $tag === '') {
                throw new InvalidKey('A tag is a string with at least one byte.');
            }
            $name = $this->prefix . self::BEFORE . $tag;
            if (\strlen($name) > Keys::LONGEST) {
                throw new InvalidKey('A tag is too long: it has ' . \strlen($tag) . ' bytes.');
            }
            $names[] = $name;
        }

        return $names;
    }
}
