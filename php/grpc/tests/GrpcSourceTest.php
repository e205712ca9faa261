<?php

declare(strict_types=1);

namespace Pronghorn\Grpc\Tests;

use Pronghorn\Tests\SourceTestCase;

final class GrpcSourceTest extends SourceTestCase
{
    protected static function package(): string
    {
        return dirname(__DIR__);
    }
}
