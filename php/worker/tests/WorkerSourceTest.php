<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use PhpParser\Node\Expr;
use Pronghorn\Internal\Superglobals;
use Pronghorn\Internal\Zygote;
use Pronghorn\Tests\Support\Sources;

final class WorkerSourceTest extends SourceTestCase
{
    protected const ALLOWED = [
        // The one place that ends a process: a worker that can't boot.
        'Internal/Boot.php' => [Expr\Exit_::class],
    ];
    /** What clears them. */
    protected const SUPERGLOBALS_ALLOWED = [
        // The server's variables in what PHP has filled, without naming it.
        'Internal/Boot.php' => ['GLOBALS'],
        'Internal/Superglobals.php' => ['_SERVER', '_GET', '_POST', '_FILES', '_COOKIE', '_REQUEST'],
        'Internal/Leftovers.php' => ['_SESSION'],
    ];

    protected static function package(): string
    {
        return dirname(__DIR__);
    }

    /** Both share the namespace, and which of two an autoloader takes depends on its order. */
    public function testNoClassIsInBothPackages(): void
    {
        $below = iterator_to_array(Sources::parsed(dirname(__DIR__, 2) . '/goridge'));
        $here = iterator_to_array(Sources::parsed(dirname(__DIR__)));
        self::assertSame([], array_keys(array_intersect_key($here, $below)));
    }

    /** PHP fills a superglobal at each call in a process that has compiled code which names it. */
    public function testWhatIsLoadedBeforeAForkNamesNoSuperglobal(): void
    {
        $loaded = (new \ReflectionClassConstant(Zygote::class, 'CLASSES'))->getValue();
        self::assertIsArray($loaded);
        self::assertNotContains(Superglobals::class, $loaded);
    }
}
