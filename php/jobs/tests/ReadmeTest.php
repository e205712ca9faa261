<?php

declare(strict_types=1);

namespace Pronghorn\Jobs\Tests;

use PHPUnit\Framework\TestCase;

/** The end-to-end tests run the example against a server; here, that it can be found and parsed. */
final class ReadmeTest extends TestCase
{
    public function testTheExampleIsPhp(): void
    {
        $readme = (string) file_get_contents(dirname(__DIR__) . '/README.md');
        self::assertSame(1, preg_match('/^```php example\n(.*?)^```$/ms', $readme, $found));
        token_get_all($found[1], \TOKEN_PARSE);
    }
}
