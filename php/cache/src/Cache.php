<?php

declare(strict_types=1);

namespace Pronghorn\Cache;

use Pronghorn\Cache\Internal\Tags;
use Psr\SimpleCache\CacheInterface;

/**
 * A storage of the server that all workers share, as a PSR-16 cache with more: `add`, `increment`,
 * `compareAndSwap`, `remember`, tags, and all keys with a prefix cleared at once.
 */
final class Cache implements CacheInterface
{
    /** Seconds that a value may take to be computed before another worker tries as well. */
    public const COMPUTING = 30.0;
    /** Seconds between two looks at what another worker computes. */
    private const LOOK = 0.002;

    private readonly Tags $tags;

    public function __construct(public readonly Store $store, private readonly string $prefix = '')
    {
        $this->tags = new Tags($store, $prefix);
    }

    /**
     * The storage of this name: in shared memory where this process has mapped it, else over RPC.
     *
     * @param string $prefix before all keys of this cache
     * @throws \Pronghorn\ConnectionLost when it has to be RPC, and nobody listens
     */
    public static function open(string $storage, string $prefix = ''): self
    {
        $mapped = \class_exists(SharedMemory::class, false) ? SharedMemory::open($storage) : null;

        return new self($mapped ?? new Rpc(\Pronghorn\Rpc::connect(), $storage), $prefix);
    }

    public function get($key, $default = null): mixed
    {
        $kept = $this->store->get($this->name($key), $default);

        return Tags::isTagged($kept) ? $this->tags->unwrap([$kept])[0] ?? $default : $kept;
    }

    public function set($key, $value, $ttl = null): bool
    {
        return $this->store->set($this->name($key), $value, self::seconds($ttl));
    }

    /**
     * Keeps a value until one of its tags is invalidated. It is read as any other, but `increment`
     * and `compareAndSwap` are of values without tags.
     *
     * @param iterable<string> $tags
     * @param int|float|\DateInterval|null $ttl
     */
    public function setTagged(string $key, mixed $value, iterable $tags, mixed $ttl = null): bool
    {
        return $this->set($key, Tags::wrap($value, $this->tags->numbers($tags)), $ttl);
    }

    /**
     * Removes all that was kept with one of these tags, at once, however much it is.
     *
     * @param iterable<string> $tags
     */
    public function invalidateTags(iterable $tags): bool
    {
        $this->tags->invalidate($tags);

        return true;
    }

    /** As PSR-16 has it: whether the key is gone, also when it was not there. */
    public function delete($key): bool
    {
        $this->store->delete($this->name($key));

        return true;
    }

    public function has($key): bool
    {
        return $this->tags->unwrap($this->store->many([$this->name($key)])) !== [];
    }

    /** Removes what this cache's prefix begins; without one, all of the storage. */
    public function clear(): bool
    {
        $this->store->clear($this->prefix);

        return true;
    }

    /** Removes all keys that begin so; how many there were. */
    public function clearPrefix(string $prefix): int
    {
        return $this->store->clear($this->prefix . $prefix);
    }

    /**
     * @param iterable<string> $keys
     * @return iterable<string, mixed>
     */
    public function getMultiple($keys, $default = null): iterable
    {
        $names = [];
        foreach (self::each($keys) as $key) {
            $names[(string) $key] = $this->name((string) $key);
        }
        $found = $this->tags->unwrap($this->store->many(\array_values($names)));

        return \array_map(
            static fn (string $name): mixed => \array_key_exists($name, $found) ? $found[$name] : $default,
            $names,
        );
    }

    /** @param iterable<string, mixed> $values */
    public function setMultiple($values, $ttl = null): bool
    {
        $kept = true;
        foreach (self::each($values) as $key => $value) {
            $kept = $this->set((string) $key, $value, $ttl) && $kept;
        }

        return $kept;
    }

    /** @param iterable<string> $keys */
    public function deleteMultiple($keys): bool
    {
        foreach (self::each($keys) as $key) {
            $this->delete((string) $key);
        }

        return true;
    }

    /** Keeps a value where nothing is there; false: something is. */
    public function add(string $key, mixed $value, ?float $ttl = null): bool
    {
        return $this->store->add($this->name($key), $value, $ttl);
    }

    /** See {@see Store::increment}. */
    public function increment(string $key, int $by = 1, ?float $ttl = null): int
    {
        return $this->store->increment($this->name($key), $by, $ttl);
    }

    /** See {@see Store::compareAndSwap}. */
    public function compareAndSwap(string $key, mixed $old, mixed $new, ?float $ttl = null): bool
    {
        return $this->store->compareAndSwap($this->name($key), $old, $new, $ttl);
    }

    /**
     * The value of the key, computed when it is not there: by one worker, while the others wait for
     * it, or are given the value of before for `$stale` seconds more.
     *
     * What the function throws is thrown here, and nothing is kept. A worker that dies while it
     * computes holds the others up for {@see COMPUTING} seconds at most.
     *
     * @template T
     * @param float $ttl seconds for which the value is fresh, above 0
     * @param callable(): T $compute
     * @param float $stale seconds for which it is used beyond that while a worker computes it anew
     * @param iterable<string> $tags as in {@see setTagged}; what is invalidated is not used as stale
     * @return T
     */
    public function remember(
        string $key,
        float $ttl,
        callable $compute,
        float $stale = 0.0,
        iterable $tags = [],
    ): mixed {
        if (!($ttl > 0 && $stale >= 0)) {
            throw new \ValueError('A value is fresh for more than 0 seconds, and stale for 0 or more.');
        }
        $name = $this->name($key);
        // What is kept says until when it is fresh, so that a value of null is one as well.
        $kept = $this->kept($name);
        $since = \hrtime(true);
        while (!\is_array($kept) || \count($kept) !== 2 || $kept[1] <= \microtime(true)) {
            if ($this->store->add("$name\0computing", 1, self::COMPUTING)) {
                return $this->compute($name, $ttl, $compute, $stale, $tags);
            }
            if (\is_array($kept) && \count($kept) === 2) {
                return $kept[0];
            }
            if (\hrtime(true) - $since >= self::COMPUTING * 1e9) {
                // Whoever holds the place takes longer than that: it is not waited for any more.
                return $compute();
            }
            \usleep((int) (self::LOOK * 1e6)); // phpcs:ignore Generic.PHP.ForbiddenFunctions -- it waits
            $kept = $this->kept($name);
        }

        return $kept[0];
    }

    /** What is there, if its tags hold. */
    private function kept(string $name): mixed
    {
        $kept = $this->store->get($name);

        return Tags::isTagged($kept) ? $this->tags->unwrap([$kept])[0] ?? null : $kept;
    }

    /** @param iterable<string> $tags */
    private function compute(
        string $name,
        float $ttl,
        callable $compute,
        float $stale,
        iterable $tags,
    ): mixed {
        try {
            // Another one may have been done between the look and the place.
            $kept = $this->kept($name);
            if (\is_array($kept) && \count($kept) === 2 && $kept[1] > \microtime(true)) {
                return $kept[0];
            }
            $numbers = $this->tags->numbers($tags);
            $value = $compute();
            $kept = Tags::wrap([$value, \microtime(true) + $ttl], $numbers);
            $this->store->set($name, $kept, $ttl + $stale);

            return $value;
        } finally {
            $this->store->delete("$name\0computing");
        }
    }

    /** @throws InvalidKey */
    private function name(mixed $key): string
    {
        if (!\is_string($key) || $key === '') {
            throw new InvalidKey('A key is a string with at least one byte.');
        }

        return $this->prefix . $key;
    }

    private static function seconds(mixed $ttl): ?float
    {
        if ($ttl instanceof \DateInterval) {
            $now = new \DateTimeImmutable();

            return (float) ($now->add($ttl)->getTimestamp() - $now->getTimestamp());
        }
        if ($ttl !== null && !\is_int($ttl) && !\is_float($ttl)) {
            throw new InvalidKey('A time to live is seconds, a DateInterval or null.');
        }

        return $ttl === null ? null : (float) $ttl;
    }

    /** @return iterable<mixed> */
    private static function each(mixed $all): iterable
    {
        if (!\is_iterable($all)) {
            throw new InvalidKey('Keys and values are given as an array or another iterable.');
        }

        return $all;
    }
}
