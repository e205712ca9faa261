<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Cache\Cache;
use Pronghorn\Cache\Tests\Support\ArrayStore;
use Symfony\Component\Cache\Adapter\Psr16Adapter;
use Symfony\Component\Cache\Adapter\TagAwareAdapter;
use Symfony\Contracts\Cache\ItemInterface;

/** What Symfony makes of a pool with `adapter: cache.adapter.pronghorn` and `tags: true`. */
final class CacheTest extends TestCase
{
    public function testTagsOfSymfonyWork(): void
    {
        $pool = new TagAwareAdapter(new Psr16Adapter(new Cache(new ArrayStore()), 'app', 0), null, 0.0);
        $computed = 0;
        $compute = static function (ItemInterface $item) use (&$computed): string {
            $item->tag(['all', $item->getKey()]);

            return (string) ++$computed;
        };
        $get = static fn (string $key): string => $pool->get($key, $compute);
        self::assertSame(['1', '2', '1', '2'], [$get('a'), $get('b'), $get('a'), $get('b')]);
        $pool->invalidateTags(['a']);
        self::assertSame(['3', '2'], [$get('a'), $get('b')]);
        $pool->invalidateTags(['all']);
        self::assertSame(['4', '5'], [$get('a'), $get('b')]);
    }
}
