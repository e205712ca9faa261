<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Cache;

use Illuminate\Cache\TaggableStore;
use Illuminate\Contracts\Cache\LockProvider;
use Pronghorn\Cache\Cache;

/** A storage of the server, for `config/cache.php`. */
final class PronghornStore extends TaggableStore implements LockProvider
{
    private ?Cache $cache = null;

    /**
     * @param \Closure(): Cache $open called by the first use: an application that keeps nothing
     *     needs no server
     */
    public function __construct(private readonly \Closure $open, private readonly string $prefix)
    {
    }

    /** @param array<string, mixed> $config of the store: `storage`, `prefix` */
    public static function of(array $config): self
    {
        $storage = $config['storage'] ?? 'cache';
        $prefix = (string) ($config['prefix'] ?? '');

        return new self(static fn (): Cache => Cache::open($storage, $prefix), $prefix);
    }

    public function get($key)
    {
        return \is_array($key) ? $this->many($key) : $this->cache()->get((string) $key);
    }

    public function many(array $keys)
    {
        return [...$this->cache()->getMultiple($keys)];
    }

    public function put($key, $value, $seconds)
    {
        return $this->cache()->set((string) $key, $value, $seconds);
    }

    public function putMany(array $values, $seconds)
    {
        return $this->cache()->setMultiple($values, $seconds);
    }

    /** Used by `Cache::add()` in place of a look and a change, between which others come. */
    public function add($key, $value, $seconds)
    {
        return $this->cache()->add((string) $key, $value, (float) $seconds);
    }

    public function increment($key, $value = 1)
    {
        try {
            return $this->cache()->increment((string) $key, (int) $value);
        } catch (\ValueError) {
            return false; // something else is there
        }
    }

    public function decrement($key, $value = 1)
    {
        return $this->increment($key, -(int) $value);
    }

    public function forever($key, $value)
    {
        return $this->cache()->set((string) $key, $value);
    }

    /** Gives what is there more time; Laravel 12 asks for it. */
    public function touch($key, $seconds)
    {
        $value = $this->cache()->get((string) $key);

        return $value !== null && $this->cache()->compareAndSwap((string) $key, $value, $value, (float) $seconds);
    }

    public function forget($key)
    {
        return $this->cache()->store->delete($this->prefix . $key);
    }

    public function flush()
    {
        return $this->cache()->clear();
    }

    public function getPrefix()
    {
        return $this->prefix;
    }

    public function lock($name, $seconds = 0, $owner = null)
    {
        return new PronghornLock($this->cache()->store, $this->prefix . $name, $seconds, $owner);
    }

    public function restoreLock($name, $owner)
    {
        return $this->lock($name, 0, $owner);
    }

    private function cache(): Cache
    {
        return $this->cache ??= ($this->open)();
    }
}
