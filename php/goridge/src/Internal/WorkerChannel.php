<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ConnectionLost;

/** Calls methods of the server over the connection that a worker has with it, without a socket. */
abstract class WorkerChannel
{
    /** That of this process, if it is a worker of a server that answers so. */
    public static ?self $current = null;

    /**
     * @param string $argument as JSON
     * @return ?array{bool, string} whether there is a result, and the result as JSON or why there
     *     is none; null: this call has to go another way
     * @throws ConnectionLost when the server is gone
     */
    abstract public function call(string $method, string $argument): ?array;
}
