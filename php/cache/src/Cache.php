<?php

declare(strict_types=1);

namespace Pronghorn\Cache;

use Pronghorn\Cache\Internal\Computing;
use Pronghorn\Cache\Internal\Fresh;
use Pronghorn\Cache\Internal\Keys;
use Pronghorn\Cache\Internal\Pairs;
use Pronghorn\Cache\Internal\Refusals;
use Pronghorn\Cache\Internal\Tags;
use Pronghorn\Cache\Internal\Wanted;
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
    /** Looks after which it is looked whether that worker is still there. */
    private const LOOKS_AT_OWNER = 10;
    /** Signs that PSR-16 reserves for extensions of keys that were never made. */
    private const RESERVED = '{}()/\\@:';

    private readonly Tags $tags;
    /** Bytes that a key may have before its prefix is there. */
    private readonly int $longest;

    /**
     * @param bool $strict what PSR-16 does not allow is a mistake: a key with one of its reserved
     *     signs, `{}()/\@:`, and a time to live with a fraction
     */
    public function __construct(
        public readonly Store $store,
        private readonly string $prefix = '',
        private readonly bool $strict = false,
    ) {
        $this->tags = new Tags($store, $prefix);
        $this->longest = \max(0, Keys::LONGEST - \strlen($prefix));
    }

    /**
     * The storage of this name: in shared memory where this process has mapped it, else over RPC.
     *
     * @param string $prefix before all keys of this cache
     * @param bool $strict what PSR-16 does not allow is a mistake: a key with one of its reserved
     *     signs, `{}()/\@:`, and a time to live with a fraction
     * @throws \Pronghorn\ConnectionLost when it has to be RPC, and nobody listens
     */
    public static function open(string $storage, string $prefix = '', bool $strict = false): self
    {
        $mapped = \class_exists(SharedMemory::class, false) ? SharedMemory::open($storage) : null;

        return new self($mapped ?? new Rpc(\Pronghorn\Rpc::connect(), $storage), $prefix, $strict);
    }

    public function get($key, $default = null): mixed
    {
        $isPlain = \is_string($key) && $key !== '' && \strlen($key) <= $this->longest && !$this->strict
            && !\str_contains($key, "\0");
        $kept = $this->store->get($isPlain ? $this->prefix . $key : $this->name($key), $default);
        if (!\is_array($kept)) {
            return $kept;
        }
        $found = Tags::isTagged($kept) ? $this->tags->unwrap([$kept]) : [$kept];
        $fresh = $found === [] ? [] : Fresh::of($found[0]);

        return $fresh === [] ? $default : $fresh[0];
    }

    public function set($key, $value, $ttl = null): bool
    {
        $isPlain = \is_string($key) && $key !== '' && \strlen($key) <= $this->longest && !$this->strict
            && !\str_contains($key, "\0");

        return $this->store->set(
            $isPlain ? $this->prefix . $key : $this->name($key),
            \is_array($value) ? Fresh::guard($value) : $value,
            $ttl === null ? null : $this->seconds($ttl),
        );
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
        $kept = Tags::wrap(Fresh::guard($value), $this->tags->numbers($tags));

        return $this->store->set($this->name($key), $kept, $this->seconds($ttl));
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
        $kept = $this->kept($this->name($key));

        return $kept !== [] && Fresh::of($kept[0]) !== [];
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
     * @return iterable<string, mixed> an array, unless it would make an integer of a key
     */
    public function getMultiple($keys, $default = null): iterable
    {
        $names = [];
        foreach (self::each($keys) as $key) {
            $names[$key] = $this->name($key);
        }
        $found = $this->tags->unwrap($this->store->many(\array_values($names)));
        $found = \array_filter(\array_map(Fresh::of(...), $found));

        return Pairs::of(\array_map(
            static fn (string $name): mixed => isset($found[$name]) ? $found[$name][0] : $default,
            $names,
        ));
    }

    /** @param iterable<string, mixed> $values */
    public function setMultiple($values, $ttl = null): bool
    {
        $seconds = $this->seconds($ttl);
        $named = [];
        foreach (self::each($values) as $key => $value) {
            // An array makes an integer of a number.
            $named[$this->name(\is_int($key) ? (string) $key : $key)] = $value;
        }
        $kept = true;
        foreach ($named as $name => $value) {
            $kept = $this->store->set((string) $name, Fresh::guard($value), $seconds) && $kept;
        }

        return $kept;
    }

    /** @param iterable<string> $keys */
    public function deleteMultiple($keys): bool
    {
        $names = [];
        foreach (self::each($keys) as $key) {
            $names[] = $this->name($key);
        }
        \array_map($this->store->delete(...), $names);

        return true;
    }

    /** Keeps a value where nothing is there; false: something is. */
    public function add(string $key, mixed $value, ?float $ttl = null): bool
    {
        return $this->store->add($this->name($key), Fresh::guard($value), $ttl);
    }

    /** See {@see Store::increment}. */
    public function increment(string $key, int $by = 1, ?float $ttl = null): int
    {
        $isPlain = $key !== '' && \strlen($key) <= $this->longest && !$this->strict
            && !\str_contains($key, "\0");
        $name = $isPlain ? $this->prefix . $key : $this->name($key);

        return $this->store->increment($name, $by, $ttl);
    }

    /** See {@see Store::compareAndSwap}. */
    public function compareAndSwap(string $key, mixed $old, mixed $new, ?float $ttl = null): bool
    {
        [$old, $new] = [Fresh::guard($old), Fresh::guard($new)];

        return $this->store->compareAndSwap($this->name($key), $old, $new, $ttl);
    }

    /**
     * The value of the key, computed when it is not there: by one worker, while the others wait for
     * it, or are given the value of before for `$stale` seconds more.
     *
     * An exception of the function is thrown here, and nothing is kept. In the place of a worker
     * that dies while it computes, one of those who wait goes on: at once where they are on one
     * machine and `/proc` can be read, else after {@see COMPUTING} seconds. A function that asks
     * for its own key computes it. What the storage does not take is computed by each of them, side
     * by side, and the log says so once.
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
        $wanted = null;
        $since = \hrtime(true);
        for ($looks = 0;; $looks++) {
            $kept = $this->kept($name);
            $fresh = $kept === [] ? [] : Fresh::of($kept[0]);
            if ($fresh !== []) {
                return $fresh[0];
            }
            $wanted ??= new Wanted(
                $name,
                $ttl,
                $stale,
                $compute(...),
                $tags,
                new Computing($this->store, $name, self::COMPUTING),
            );
            $looksAtOwner = $looks % self::LOOKS_AT_OWNER === 0;
            if ($wanted->computing->take() || ($looksAtOwner && $wanted->computing->inherit())) {
                return $this->compute($wanted);
            }
            if ($kept !== []) {
                return Fresh::stale($kept[0]);
            }
            if ($looksAtOwner && $wanted->computing->isInVain()) {
                return $this->computeApart($wanted);
            }
            if (\hrtime(true) - $since >= 2 * self::COMPUTING * 1e9) {
                return $compute(); // two have taken too long, and a third is not waited for
            }
            \usleep((int) (self::LOOK * 1e6)); // phpcs:ignore Generic.PHP.ForbiddenFunctions -- it waits
        }
    }

    /**
     * The value that is there, if its tags hold, in a list.
     *
     * @return list<mixed>
     */
    private function kept(string $name): array
    {
        return \array_values($this->tags->unwrap($this->store->many([$name])));
    }

    private function compute(Wanted $wanted): mixed
    {
        $isRefused = false;
        try {
            // Another one may have been done between the look and the place.
            $kept = $this->kept($wanted->name);
            $fresh = $kept === [] ? [] : Fresh::of($kept[0]);
            if ($fresh !== []) {
                return $fresh[0];
            }
            $numbers = $this->tags->numbers($wanted->tags);
            $value = ($wanted->compute)();
            // With a stale value nobody waits.
            $isRefused = $kept === [];
            $isRefused = !$this->keep($wanted, $value, $numbers) && $isRefused;

            return $value;
        } finally {
            $isRefused ? $wanted->computing->share() : $wanted->computing->give();
        }
    }

    /** As others may do at the same time: this one would wait for itself, or for nobody. */
    private function computeApart(Wanted $wanted): mixed
    {
        if ($wanted->computing->isOfThisProcess()) {
            return ($wanted->compute)(); // the call that it is a part of keeps its own
        }
        $numbers = $this->tags->numbers($wanted->tags);
        $value = ($wanted->compute)();
        $isKept = false;
        try {
            $isKept = $this->keep($wanted, $value, $numbers);
        } finally {
            $isKept ? $wanted->computing->unshare() : $wanted->computing->share();
        }

        return $value;
    }

    /** @param array<string, string> $numbers of its tags */
    private function keep(Wanted $wanted, mixed $value, array $numbers): bool
    {
        $kept = Tags::wrap(Fresh::wrap($value, \microtime(true) + $wanted->ttl), $numbers);
        $isKept = $this->store->set($wanted->name, $kept, $wanted->ttl + $wanted->stale);
        $isKept || Refusals::tell($this->store, $this->prefix, $wanted->name, $kept);

        return $isKept;
    }

    /**
     * Where most calls come from does it in place: a call of this takes a third of theirs.
     *
     * @throws InvalidKey
     */
    private function name(mixed $key): string
    {
        if (!\is_string($key) || $key === '') {
            throw new InvalidKey('A key is a string with at least one byte.');
        }
        if (\strlen($key) > $this->longest) {
            throw new InvalidKey(
                'A key has at most ' . Keys::LONGEST . ' bytes with its prefix, this one has '
                . \strlen($this->prefix . $key) . '.',
            );
        }
        if ($this->strict && \strpbrk($key, self::RESERVED) !== false) {
            throw new InvalidKey('A key has none of the signs ' . self::RESERVED . ' in PSR-16.');
        }

        return $this->prefix . Keys::plain($key);
    }

    /** @throws InvalidKey */
    private function seconds(mixed $ttl): ?float
    {
        if ($ttl instanceof \DateInterval) {
            $now = new \DateTimeImmutable();

            return (float) ($now->add($ttl)->getTimestamp() - $now->getTimestamp());
        }
        $isNumber = \is_int($ttl) || (!$this->strict && \is_float($ttl) && !\is_nan($ttl));
        if ($ttl !== null && !$isNumber) {
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
