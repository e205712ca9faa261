<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Cache;

use Illuminate\Cache\TaggableStore;
use Illuminate\Contracts\Cache\LockProvider;
use Pronghorn\Cache\Cache;
use Pronghorn\Cache\Internal\Keys;
use Pronghorn\Cache\InvalidKey;
use Pronghorn\Cache\Store;

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
        return \is_array($key) ? $this->many($key) : $this->store()->get($this->name($key));
    }

    public function many(array $keys)
    {
        $found = $this->store()->many(\array_values(\array_map($this->name(...), $keys)));
        $values = [];
        foreach ($keys as $key) {
            $values[$key] = $found[$this->name($key)] ?? null;
        }

        return $values;
    }

    public function put($key, $value, $seconds)
    {
        return $this->store()->set($this->name($key), $value, (float) $seconds);
    }

    public function putMany(array $values, $seconds)
    {
        $kept = true;
        foreach ($values as $key => $value) {
            $kept = $this->put($key, $value, $seconds) && $kept;
        }

        return $kept;
    }

    /** Used by `Cache::add()` in place of a look and a change, between which others come. */
    public function add($key, $value, $seconds)
    {
        return $this->store()->add($this->name($key), $value, (float) $seconds);
    }

    public function increment($key, $value = 1)
    {
        $name = $this->name($key);
        $by = \filter_var($value, \FILTER_VALIDATE_INT);
        try {
            return $by === false ? false : $this->store()->increment($name, $by);
        } catch (\ValueError) {
            return false; // something else is there
        }
    }

    public function decrement($key, $value = 1)
    {
        $by = \filter_var($value, \FILTER_VALIDATE_INT);

        return $this->increment($key, $by === false ? $value : -$by);
    }

    public function forever($key, $value)
    {
        return $this->store()->set($this->name($key), $value);
    }

    /** Gives what is there more time; Laravel 12 asks for it. */
    public function touch($key, $seconds)
    {
        $name = $this->name($key);
        $value = $this->store()->get($name);

        return $value !== null && $this->store()->compareAndSwap($name, $value, $value, (float) $seconds);
    }

    public function forget($key)
    {
        return $this->store()->delete($this->name($key));
    }

    public function flush()
    {
        $this->store()->clear($this->prefix);

        return true;
    }

    public function getPrefix()
    {
        return $this->prefix;
    }

    public function lock($name, $seconds = 0, $owner = null)
    {
        return new PronghornLock($this->store(), $this->prefix . $name, $seconds, $owner);
    }

    public function restoreLock($name, $owner)
    {
        return $this->lock($name, 0, $owner);
    }

    /** Any text that the storage takes: Laravel's repository is a PSR-16 cache to its callers. */
    private function name(string|int $key): string
    {
        $name = $this->prefix . $key;
        if ($name === '' || \strlen($name) > Keys::LONGEST) {
            throw new InvalidKey(
                'A key has 1 to ' . Keys::LONGEST . ' bytes with its prefix, this one has ' . \strlen($name) . '.',
            );
        }

        return $this->prefix . Keys::plain((string) $key);
    }

    /** Laravel takes any key, which PSR-16 does not. */
    private function store(): Store
    {
        return ($this->cache ??= ($this->open)())->store;
    }
}
