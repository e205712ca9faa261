<?php

declare(strict_types=1);

namespace Pronghorn\Cache;

use Pronghorn\Rpc as Connection;
use Pronghorn\RpcError;

/** A storage of the server in memory, over RPC: for processes that have not mapped it. */
final class Rpc implements Store
{
    private const BYTES = 0;
    private const INTEGER = 1;
    private const FLOAT = 2;
    private const NULL = 3;
    private const FALSE = 4;
    private const TRUE = 5;
    private const SERIALIZED = 6;
    private const IGBINARY = 7;

    private ?int $longest = null;

    public function __construct(private readonly Connection $rpc, private readonly string $storage)
    {
    }

    public function get(string $key, mixed $default = null): mixed
    {
        $found = $this->many([$key]);

        return \array_key_exists($key, $found) ? $found[$key] : $default;
    }

    public function many(array $keys): array
    {
        $found = [];
        $asked = \array_map(static fn (mixed $key): string => \base64_encode((string) $key), \array_values($keys));
        foreach ($this->call('Get', ['keys' => $asked])['items'] ?? [] as $item) {
            $value = \base64_decode($item['value'] ?? '');
            $unpacked = self::unpack($item['kind'] ?? self::BYTES, $value);
            if ($unpacked !== []) {
                $found[\base64_decode($item['key'])] = $unpacked[0];
            }
        }

        return $found;
    }

    public function set(string $key, mixed $value, ?float $ttl = null): bool
    {
        if ($ttl !== null && $ttl <= 0) {
            $this->delete($key);

            return true;
        }

        return $this->done('Set', $key, ['value' => self::pack($value), 'ttl' => self::milliseconds($ttl)]);
    }

    public function add(string $key, mixed $value, ?float $ttl = null): bool
    {
        if ($ttl !== null && $ttl <= 0) {
            return false;
        }

        return $this->done('Add', $key, ['value' => self::pack($value), 'ttl' => self::milliseconds($ttl)]);
    }

    public function delete(string $key): bool
    {
        return $this->done('Delete', $key, []);
    }

    public function increment(string $key, int $by = 1, ?float $ttl = null): int
    {
        if ($ttl !== null && $ttl <= 0) {
            throw new \ValueError('A time to live of a new integer must be above 0');
        }
        $answer = $this->call('Increment', [
            'key' => \base64_encode($key), 'by' => $by, 'ttl' => self::milliseconds($ttl),
        ]);
        if (!($answer['done'] ?? false)) {
            throw new \ValueError('What is there is no integer, or the sum is too large');
        }

        return $answer['sum'] ?? 0;
    }

    public function compareAndSwap(string $key, mixed $old, mixed $new, ?float $ttl = null): bool
    {
        return $this->done('CompareAndSwap', $key, [
            'old' => self::pack($old),
            'value' => self::pack($new),
            'ttl' => self::milliseconds($ttl),
        ]);
    }

    public function clear(string $prefix = ''): int
    {
        return $this->call('Clear', ['key' => \base64_encode($prefix)])['sum'] ?? 0;
    }

    /** Bytes that an entry may have; null: nothing was too long yet. */
    public function longest(): ?int
    {
        return $this->longest;
    }

    /** @param array<string, mixed> $argument */
    private function done(string $method, string $key, array $argument): bool
    {
        $answer = $this->call($method, $argument + ['key' => \base64_encode($key)]);
        $this->longest = $answer['most'] ?? $this->longest;

        return $answer['done'] ?? false;
    }

    /**
     * @param array<string, mixed> $argument
     * @return array<string, mixed>
     */
    private function call(string $method, array $argument): array
    {
        try {
            return $this->rpc->call("cache.$method", $argument + ['storage' => $this->storage]);
        } catch (RpcError $error) {
            if (\str_starts_with($error->getMessage(), 'cache: the key ')) {
                throw new \ValueError($error->getMessage(), 0, $error);
            }
            throw $error;
        }
    }

    private static function milliseconds(?float $ttl): int
    {
        if ($ttl !== null && \is_nan($ttl)) {
            throw new \ValueError('A time to live must be a number of seconds, and NAN is none');
        }
        // What is longer than a million years has no end.
        return $ttl === null || $ttl >= 3e13 ? 0 : \max(1, (int) \ceil($ttl * 1000));
    }

    /** @return array{kind: int, bytes: string} */
    private static function pack(mixed $value): array
    {
        [$kind, $bytes] = match (true) {
            $value === null => [self::NULL, ''],
            $value === false => [self::FALSE, ''],
            $value === true => [self::TRUE, ''],
            \is_int($value) => [self::INTEGER, \pack('P', $value)],
            \is_float($value) => [self::FLOAT, \pack('e', $value)],
            \is_string($value) => [self::BYTES, $value],
            \function_exists('igbinary_serialize') => [self::IGBINARY, (string) \igbinary_serialize($value)],
            default => [self::SERIALIZED, \serialize($value)],
        };

        return ['kind' => $kind, 'bytes' => \base64_encode($bytes)];
    }

    /** @return list<mixed> the value; none where it can't be read */
    private static function unpack(int $kind, string $bytes): array
    {
        return match ($kind) {
            self::INTEGER => [\unpack('P', $bytes)[1]],
            self::FLOAT => [\unpack('e', $bytes)[1]],
            self::NULL => [null],
            self::FALSE => [false],
            self::TRUE => [true],
            self::SERIALIZED => self::unserialized($bytes),
            self::IGBINARY => self::byIgbinary($bytes),
            default => [$bytes],
        };
    }

    /** @return list<mixed> */
    private static function unserialized(string $bytes): array
    {
        $before = null;
        $told = false;
        // PHP warns of one value twice. What classes of the application warn of is not held back.
        $once = static function (int $type, string $message, string $file, int $line) use (&$told, &$before): bool {
            if (\str_starts_with($message, 'unserialize(): ')) {
                if ($told) {
                    return true;
                }
                $told = true;
            }

            return $before !== null && $before($type, $message, $file, $line) !== false;
        };
        $before = \set_error_handler($once);
        try {
            $value = \unserialize($bytes);
        } finally {
            \restore_error_handler();
        }

        // `false` is kept as it is, so it is never what was serialized.
        return $value === false ? [] : [$value];
    }

    /** @return list<mixed> */
    private static function byIgbinary(string $bytes): array
    {
        $value = \function_exists('igbinary_unserialize') ? \igbinary_unserialize($bytes) : null;

        // As above: it answers null, or false, for what it can't read.
        return $value === null || $value === false ? [] : [$value];
    }
}
