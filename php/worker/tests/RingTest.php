<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use Pronghorn\Tests\Support\Box;
use Pronghorn\Tests\Support\RingServer;

/** The same over shared memory. */
class RingTest extends TransportTestCase
{
    protected function connect(): array
    {
        Box::expectPossible();

        return RingServer::connect();
    }
}
