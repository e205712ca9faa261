<?php

declare(strict_types=1);

namespace Pronghorn\Jobs\Tests;

use Pronghorn\Tests\SourceTestCase;

final class JobsSourceTest extends SourceTestCase
{
    protected static function package(): string
    {
        return dirname(__DIR__);
    }
}
