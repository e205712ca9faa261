<?php

declare(strict_types=1);

namespace Pronghorn;

use Psr\Http\Server\RequestHandlerInterface;

/**
 * Answers requests with the handler until the server stops this worker. The type of the handler's
 * first parameter says how it wants its call: `Psr\Http\Message\ServerRequestInterface` or
 * `Pronghorn\Request`.
 *
 * Returns when the server asked this worker to stop or is gone; what follows in the script may
 * clean up.
 */
function serve(callable|RequestHandlerInterface $handler): void
{
    (new Worker())->onRequest($handler)->run();
}
