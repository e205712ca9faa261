<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use Pronghorn\Tests\Support\Box;
use Pronghorn\Tests\Support\Process;

/** Over shared memory. */
final class RingProcessTest extends ProcessTestCase
{
    protected function start(): Process
    {
        Box::expectPossible();

        return Process::started(self::WORKER, box: new Box());
    }
}
