<?php

declare(strict_types=1);

namespace Pronghorn\Cache\Tests;

use PHPUnit\Framework\TestCase;

final class AutoloadTest extends TestCase
{
    /** @dataProvider classes */
    public function testWithoutComposerAnInterfaceIsFoundOrSaid(string $class, string $package): void
    {
        $packages = __DIR__ . '/../..';
        $code = "require '$packages/cache/autoload.php'; require '$packages/worker/autoload.php';
            try { echo class_exists('$class') ? 'there' : 'none'; }
            catch (LogicException \$said) { echo \$said->getMessage(); }";
        self::assertSame('there', self::said(['-r', $code]));
        self::assertStringContainsString(
            "which is not there. hint: `composer require psr/$package`",
            self::said(['-d', 'include_path=.', '-r', $code]),
        );
    }

    /** @return iterable<array{string, string}> */
    public static function classes(): iterable
    {
        yield ['Pronghorn\\Cache\\Cache', 'simple-cache'];
        yield ['Pronghorn\\Cache\\InvalidKey', 'simple-cache'];
        yield ['Pronghorn\\Cache\\Pool', 'cache'];
        yield ['Pronghorn\\Log', 'log'];
    }

    /** @param list<string> $arguments */
    private static function said(array $arguments): string
    {
        $process = \proc_open([\PHP_BINARY, ...$arguments], [1 => ['pipe', 'w']], $pipes);
        $said = (string) \stream_get_contents($pipes[1]);
        \proc_close($process);

        return $said;
    }
}
