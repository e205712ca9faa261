<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use Pronghorn\Tests\Support\Box;
use Pronghorn\Tests\Support\RingServer;

/** The vectors, read and written by the extension. */
final class NativeRingTest extends NativeTestCase
{
    protected static function connect(): array
    {
        Box::expectPossible();

        return RingServer::connect();
    }
}
