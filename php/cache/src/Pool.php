<?php

declare(strict_types=1);

namespace Pronghorn\Cache;

use Pronghorn\Cache\Internal\Fresh;
use Pronghorn\Cache\Internal\Keys;
use Pronghorn\Cache\Internal\Pairs;
use Pronghorn\Cache\Internal\Tags;
use Psr\Cache\CacheItemInterface;
use Psr\Cache\CacheItemPoolInterface;

/**
 * A storage of the server that all workers share, as a PSR-6 pool, with tags. It needs the package
 * psr/cache.
 *
 * Keys are those of PSR-6 and longer ones: 1 to 65,000 bytes with the prefix, without `{}()/\@:`.
 */
final class Pool implements CacheItemPoolInterface
{
    /** @var array<string, Item> by key */
    private array $deferred = [];
    private readonly Tags $tags;

    /** @param string $prefix before all keys of this pool */
    public function __construct(private readonly Store $store, private readonly string $prefix = '')
    {
        $this->tags = new Tags($store, $prefix);
    }

    /** As {@see Cache::open}. */
    public static function open(string $storage, string $prefix = ''): self
    {
        return new self(Cache::open($storage)->store, $prefix);
    }

    /** What was deferred and not committed is kept as well. */
    public function __destruct()
    {
        $this->commit();
    }

    public function getItem($key): Item
    {
        return $this->items([$key])[$key];
    }

    /**
     * @param list<string> $keys
     * @return iterable<string, Item> by key; an array, unless it would make an integer of one
     */
    public function getItems(array $keys = []): iterable
    {
        return Pairs::of($this->items($keys));
    }

    /**
     * @param list<mixed> $keys
     * @return array<Item> by key
     */
    private function items(array $keys): array
    {
        $names = [];
        foreach ($keys as $key) {
            $names[$key] = $this->name($key);
        }
        $found = $this->store->many(\array_values(\array_diff_key($names, $this->deferred)));
        // Values of `Cache::remember()` are read here, too.
        $found = \array_filter(\array_map(Fresh::of(...), $this->tags->unwrap($found)));
        $items = [];
        foreach ($names as $key => $name) {
            $key = (string) $key;
            $items[$key] = match (true) {
                isset($this->deferred[$key]) => $this->ofDeferred($key),
                isset($found[$name]) => new Item($key, $found[$name][0], true),
                default => new Item($key),
            };
        }

        return $items;
    }

    public function hasItem($key): bool
    {
        return $this->getItem($key)->isHit();
    }

    /** Removes what this pool's prefix begins; without one, all of the storage. */
    public function clear(): bool
    {
        $this->deferred = [];
        $this->store->clear($this->prefix);

        return true;
    }

    public function deleteItem($key): bool
    {
        return $this->deleteItems([$key]);
    }

    /** @param list<string> $keys */
    public function deleteItems(array $keys): bool
    {
        foreach (\array_map($this->name(...), $keys) as $number => $name) {
            unset($this->deferred[$keys[$number]]);
            $this->store->delete($name);
        }

        return true;
    }

    public function save(CacheItemInterface $item): bool
    {
        if (!$item instanceof Item) {
            throw new InvalidItem('An item is of getItem(), and not made by somebody else.');
        }
        unset($this->deferred[$item->getKey()]);
        try {
            $numbers = $this->tags->numbers($item->tags());
        } catch (InvalidKey $mistake) {
            throw new InvalidItem($mistake->getMessage(), 0, $mistake);
        }
        $kept = Tags::wrap(Fresh::guard($item->get()), $numbers);

        return $this->store->set($this->name($item->getKey()), $kept, $item->left());
    }

    /**
     * Removes all items that were saved with one of these tags, at once, however many they are.
     *
     * @param iterable<string> $tags
     */
    public function invalidateTags(iterable $tags): bool
    {
        $gone = [...$tags];
        try {
            $this->tags->invalidate($gone);
        } catch (InvalidKey $mistake) {
            throw new InvalidItem($mistake->getMessage(), 0, $mistake);
        }
        // Those that are not saved yet were given their tags in this process.
        $this->deferred = \array_filter(
            $this->deferred,
            static fn (Item $item): bool => \array_intersect($item->tags(), $gone) === [],
        );

        return true;
    }

    public function saveDeferred(CacheItemInterface $item): bool
    {
        if (!$item instanceof Item) {
            throw new InvalidItem('An item is of getItem(), and not made by somebody else.');
        }
        $this->deferred[$item->getKey()] = $item;

        return true;
    }

    public function commit(): bool
    {
        $kept = true;
        foreach ($this->deferred as $item) {
            $kept = $this->save($item) && $kept;
        }

        return $kept;
    }

    private function ofDeferred(string $key): Item
    {
        $item = $this->deferred[$key];
        $left = $item->left();

        return $left !== null && $left <= 0 ? new Item($key) : new Item($key, $item->get(), true);
    }

    private function name(mixed $key): string
    {
        if (!\is_string($key) || $key === '' || \strlen($this->prefix . $key) > Keys::LONGEST) {
            throw new InvalidItem('A key is a string of 1 to ' . Keys::LONGEST . ' bytes with its prefix.');
        }
        if (\strpbrk($key, '{}()/\\@:') !== false) {
            throw new InvalidItem('A key has none of the signs {}()/\\@: in PSR-6.');
        }

        return $this->prefix . Keys::plain($key);
    }
}
