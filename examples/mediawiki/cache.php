<?php

// MediaWiki's object cache on a storage of the server, which all workers share. settings.php names
// it in $wgObjectCaches.

declare(strict_types=1);

use Pronghorn\Cache\Rpc;
use Pronghorn\Cache\SharedMemory;
use Pronghorn\Cache\Store;

require __DIR__ . '/../../php/cache/autoload.php';

/** Without a server nothing is found and nothing kept: a wiki without a cache is still a wiki. */
final class PronghornCache extends MediumSpecificBagOStuff // phpcs:ignore -- the name is MediaWiki's
{
    /** A storage takes values of a 128th of its size, and of 64 KB at least. */
    private const LONGEST = 60_000;

    private ?Store $store = null;

    public function __construct(array $params = [])
    {
        parent::__construct($params + ['segmentationSize' => self::LONGEST]);
        $this->attrMap[self::ATTR_DURABILITY] = self::QOS_DURABILITY_SERVICE;
        try {
            $mapped = class_exists(SharedMemory::class, false) ? SharedMemory::open($params['storage']) : null;
            $this->store = $mapped ?? new Rpc(Pronghorn\Rpc::connect(), $params['storage']);
        } catch (Pronghorn\Exception $problem) {
            error_log("MediaWiki works without a cache: {$problem->getMessage()}");
        }
    }

    public function makeKeyInternal($keyspace, $components)
    {
        $plain = static fn ($part): string => strtr((string) $part, ['%' => '%25', ':' => '%3A']);

        return implode(':', array_map($plain, [$keyspace, ...$components]));
    }

    protected function doGet($key, $flags = 0, &$casToken = null)
    {
        $found = $this->ask(static fn (Store $store): mixed => $store->get($key, false), false);
        $casToken = $casToken === self::PASS_BY_REF && $found !== false ? $found : null;

        return $this->unserialize($found);
    }

    protected function doSet($key, $value, $exptime = 0, $flags = 0)
    {
        $kept = $this->getSerialized($value, $key);

        return $this->ask(function (Store $store) use ($key, $kept, $exptime): bool {
            $isKept = $store->set($key, $kept, $this->ttl($exptime));
            // The value of before must not outlive one that is too long.
            $isKept || $store->delete($key);

            return $isKept;
        }, false);
    }

    protected function doAdd($key, $value, $exptime = 0, $flags = 0)
    {
        $kept = $this->getSerialized($value, $key);

        return $this->ask(fn (Store $store): bool => $store->add($key, $kept, $this->ttl($exptime)), false);
    }

    protected function doCas($casToken, $key, $value, $exptime = 0, $flags = 0)
    {
        $kept = $this->getSerialized($value, $key);

        return $this->ask(
            fn (Store $store): bool => $store->compareAndSwap($key, $casToken, $kept, $this->ttl($exptime)),
            false,
        );
    }

    protected function doDelete($key, $flags = 0)
    {
        return $this->ask(static fn (Store $store): bool => $store->delete($key) || true, false);
    }

    protected function doIncrWithInit($key, $exptime, $step, $init, $flags)
    {
        return $this->ask(
            fn (Store $store): int => $store->add($key, $init, $this->ttl($exptime))
                ? $init
                : $store->increment($key, $step, $this->ttl($exptime)),
            false,
        );
    }

    public function incr($key, $value = 1, $flags = 0)
    {
        $add = static function (Store $store) use ($key, $value): int|false {
            return is_int($store->get($key)) ? $store->increment($key, (int) $value) : false;
        };

        return $this->ask($add, false);
    }

    public function decr($key, $value = 1, $flags = 0)
    {
        return $this->incr($key, -$value, $flags);
    }

    /** @param Closure(Store): mixed $question */
    private function ask(Closure $question, mixed $failed): mixed
    {
        try {
            return $this->store === null ? $failed : $question($this->store);
        } catch (Pronghorn\Exception | ValueError $problem) {
            $this->setLastError(self::ERR_UNREACHABLE);
            $this->logger->error($problem->getMessage());

            return $failed;
        }
    }

    private function ttl(int|float $exptime): ?float
    {
        $ttl = $this->getExpirationAsTTL($exptime);

        return $ttl === self::TTL_INDEFINITE ? null : (float) $ttl;
    }
}
