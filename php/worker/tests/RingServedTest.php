<?php

declare(strict_types=1);

namespace Pronghorn\Tests;

use Pronghorn\Internal\Handler;
use Pronghorn\Internal\Loop;
use Pronghorn\Internal\Output;
use Pronghorn\Internal\Psr\Messages;
use Pronghorn\Tests\Support\Box;
use Pronghorn\Tests\Support\RingServer;

/** The same over shared memory, when the extension calls the handlers. */
final class RingServedTest extends TransportTestCase
{
    protected function connect(): array
    {
        Box::expectPossible();

        return RingServer::connect();
    }

    protected function serve(callable $handler, ?\Closure $idle = null): array
    {
        if ($idle !== null) {
            // Nothing is asked before a wait that is the extension's own.
            return parent::serve($handler, $idle);
        }
        // Noticed when all requests are taken.
        $this->server->hangUp();
        $loop = new Loop($this->transport, new Output($this->log), new Messages([]), survivesExit: true);
        try {
            $loop->run(Handler::of($handler));
        } finally {
            $loop->stop();
        }

        return $this->server->received();
    }
}
