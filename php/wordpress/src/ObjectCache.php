<?php

declare(strict_types=1);

namespace Pronghorn\WordPress;

use Pronghorn\Cache\Rpc;
use Pronghorn\Cache\SharedMemory;
use Pronghorn\Cache\Store;
use Pronghorn\Exception;
use Pronghorn\Rpc as Connection;

/**
 * WordPress's object cache on a storage of the server, which all workers share.
 *
 * What a request has read or written it finds in its own memory, as with WordPress's cache. Groups
 * that are not to last stay there alone. If the server is gone, so does everything: a site without
 * a cache is slow, and it is still a site.
 */
final class ObjectCache
{
    /** What `wp_cache_supports()` is asked for. */
    public const FEATURES = [
        'add_multiple', 'set_multiple', 'get_multiple', 'delete_multiple', 'flush_runtime', 'flush_group',
    ];

    /** Plugins and the page of queries show them. */
    public int $cache_hits = 0; // phpcs:ignore -- the name is WordPress's
    public int $cache_misses = 0; // phpcs:ignore -- the name is WordPress's

    /** @var array<string, mixed> what this request knows, by the name in the storage */
    private array $known = [];
    /** @var array<string, true> */
    private array $globalGroups = [];
    /** @var array<string, true> */
    private array $passingGroups = [];

    /**
     * @param string $site what begins all names: sites that share a storage differ in it
     * @param int $blog of a network of sites; 0 is none
     */
    public function __construct(private ?Store $store, private readonly string $site, private int $blog = 0)
    {
    }

    /** The storage in shared memory where this process has mapped it, else over RPC. */
    public static function open(string $storage, string $site, int $blog = 0): self
    {
        try {
            $mapped = \class_exists(SharedMemory::class, false) ? SharedMemory::open($storage) : null;
            $store = $mapped ?? new Rpc(Connection::connect(), $storage);
        } catch (Exception $problem) {
            \error_log("WordPress works without a cache: {$problem->getMessage()}");
            $store = null;
        }

        return new self($store, $site, $blog);
    }

    /** @param list<string> $groups that all sites of a network share */
    public function addGlobalGroups(array $groups): void
    {
        $this->globalGroups += \array_fill_keys($groups, true);
    }

    /** @param list<string> $groups that end with the request */
    public function addPassingGroups(array $groups): void
    {
        $this->passingGroups += \array_fill_keys($groups, true);
    }

    public function switchToBlog(int $blog): void
    {
        $this->blog = $blog;
    }

    public function get(mixed $key, string $group, bool $force = false, ?bool &$found = null): mixed
    {
        $name = $this->name($key, $group);
        if ($force || !\array_key_exists($name, $this->known)) {
            $this->learn([$name], $group);
        }
        $found = \array_key_exists($name, $this->known);
        $found ? $this->cache_hits++ : $this->cache_misses++;

        return $found ? self::copy($this->known[$name]) : false;
    }

    /**
     * @param list<mixed> $keys
     * @return array<int|string, mixed> false for what is not there
     */
    public function many(array $keys, string $group, bool $force = false): array
    {
        $names = [];
        foreach ($keys as $key) {
            $names[$key] = $this->name($key, $group);
        }
        $known = $force ? [] : $this->known;
        $this->learn(\array_values(\array_diff($names, \array_keys($known))), $group);

        return \array_map(function (string $name): mixed {
            $found = \array_key_exists($name, $this->known);
            $found ? $this->cache_hits++ : $this->cache_misses++;

            return $found ? self::copy($this->known[$name]) : false;
        }, $names);
    }

    public function set(mixed $key, mixed $value, string $group, int $seconds): bool
    {
        $name = $this->name($key, $group);
        $this->known[$name] = self::copy($value);
        $this->write($group, function (Store $store) use ($name, $value, $seconds): void {
            $isKept = false;
            try {
                $isKept = $store->set($name, $value, self::ttl($seconds));
            } finally {
                // The value of before must not outlive one that is too long or can't be serialized.
                $isKept || $store->delete($name);
            }
        });

        return true;
    }

    /** False: something is there. */
    public function add(mixed $key, mixed $value, string $group, int $seconds): bool
    {
        $name = $this->name($key, $group);
        if (\array_key_exists($name, $this->known)) {
            return false;
        }
        $added = true;
        $this->write($group, function (Store $store) use ($name, $value, $seconds, &$added): void {
            // What is too long can't be added either, and nothing is there then.
            $added = $store->add($name, $value, self::ttl($seconds)) || $store->many([$name]) === [];
        });
        if ($added) {
            $this->known[$name] = self::copy($value);
        }

        return $added;
    }

    /** False: nothing is there. */
    public function replace(mixed $key, mixed $value, string $group, int $seconds): bool
    {
        $this->get($key, $group, false, $found);

        return $found && $this->set($key, $value, $group, $seconds);
    }

    /** Whether it was there. */
    public function delete(mixed $key, string $group): bool
    {
        $name = $this->name($key, $group);
        $was = \array_key_exists($name, $this->known);
        unset($this->known[$name]);
        $this->write($group, function (Store $store) use ($name, &$was): void {
            $was = $store->delete($name) || $was;
        });

        return $was;
    }

    /**
     * Adds to a number that is there, to an integer for all workers in one step. It never goes
     * below 0; what is no number counts as 0.
     *
     * @return int|float|false the sum; false: nothing is there
     */
    public function increment(mixed $key, int|float $by, string $group): int|float|false
    {
        $value = $this->get($key, $group, true, $found);
        if (!$found) {
            return false;
        }
        $name = $this->name($key, $group);
        $sum = \max(0, (\is_numeric($value) ? $value : 0) + $by);
        $this->write($group, function (Store $store) use ($name, $value, $by, &$sum): void {
            if (\is_int($value) && \is_int($by) && \is_int($sum) && $sum > 0) {
                // It keeps its time to live.
                $sum = \max(0, $store->increment($name, $by));
            } else {
                $store->set($name, $sum);
            }
        });

        return $this->known[$name] = $sum;
    }

    /** All of this site. */
    public function flush(): bool
    {
        $this->known = [];
        $this->write('', fn (Store $store): int => $store->clear(self::part($this->site) . ':'));

        return true;
    }

    public function flushGroup(string $group): bool
    {
        $prefix = $this->prefix($group);
        $isOther = static fn (string $name): bool => !\str_starts_with($name, $prefix);
        $this->known = \array_filter($this->known, $isOther, \ARRAY_FILTER_USE_KEY);
        $this->write($group, static fn (Store $store): int => $store->clear($prefix));

        return true;
    }

    /** What this request knows, not what all workers share. */
    public function forget(): void
    {
        $this->known = [];
    }

    /** WordPress's own cache has it for its page of queries. */
    public function stats(): void
    {
        echo "<p><strong>Cache Hits:</strong> $this->cache_hits<br />",
            "<strong>Cache Misses:</strong> $this->cache_misses</p>";
    }

    /** @param list<string> $names */
    private function learn(array $names, string $group): void
    {
        if ($names === [] || isset($this->passingGroups[$group])) {
            return;
        }
        $this->write($group, function (Store $store) use ($names): void {
            $found = $store->many($names);
            foreach ($names as $name) {
                unset($this->known[$name]);
            }
            $this->known = $found + $this->known;
        });
    }

    /**
     * Asks the storage, if it has this group. After a failure this request works without one.
     *
     * @param \Closure(Store): mixed $ask
     */
    private function write(string $group, \Closure $ask): void
    {
        if ($this->store === null || isset($this->passingGroups[$group])) {
            return;
        }
        try {
            $ask($this->store);
        } catch (Exception $problem) {
            \error_log("WordPress goes on without a cache: {$problem->getMessage()}");
            $this->store = null;
        } catch (\Throwable $problem) {
            // What can't be serialized, or has too long a name, is kept for this request alone.
            \error_log("WordPress can't keep an object: {$problem->getMessage()}");
        }
    }

    private function name(mixed $key, string $group): string
    {
        return $this->prefix($group) . (\is_scalar($key) ? (string) $key : '');
    }

    private function prefix(string $group): string
    {
        $blog = $this->blog === 0 || isset($this->globalGroups[$group]) ? '' : $this->blog;

        return self::part($this->site) . ":$blog:" . self::part($group === '' ? 'default' : $group) . ':';
    }

    /** Without the character that ends a part of a name, or one prefix could begin another. */
    private static function part(string $text): string
    {
        return \strtr($text, ['%' => '%25', ':' => '%3A']);
    }

    /** Null is for ever. */
    private static function ttl(int $seconds): ?float
    {
        return $seconds > 0 ? (float) $seconds : null;
    }

    /** As WordPress's own cache: who changes an object that it was given changes no entry. */
    private static function copy(mixed $value): mixed
    {
        return \is_object($value) ? clone $value : $value;
    }
}
