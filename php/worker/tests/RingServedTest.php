<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use Pronghorn\Internal\Loop;
use Pronghorn\Internal\Output;
use Pronghorn\Internal\Psr\Messages;

/** The same over shared memory, when the extension calls the handlers. */
final class RingServedTest extends RingTest
{
    protected function loop(?\Closure $idle = null): Loop
    {
        if ($idle !== null) {
            // Nothing is asked before a wait that is the extension's own.
            return parent::loop($idle);
        }
        // Noticed when all requests are taken.
        $this->server->hangUp();

        return new Loop($this->transport, new Output($this->log, native: true), new Messages([]), survivesExit: true);
    }
}
