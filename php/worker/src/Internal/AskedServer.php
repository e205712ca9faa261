<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/** Methods of the server over the transport of this worker, while a call is under way. */
final class AskedServer extends WorkerChannel
{
    private bool $asks = false;

    public function __construct(private readonly Transport $transport, private readonly int $pid)
    {
    }

    public function call(string $method, string $argument): ?array
    {
        // The handler of a signal may ask while it is waited for an answer, and a forked child has
        // no part in the connection.
        if ($this->asks || \strlen($argument) > Native::MAX_ARGUMENT || $this->pid !== \getmypid()) {
            return null;
        }
        $this->asks = true;
        try {
            return $this->transport->ask($method, $argument);
        } finally {
            $this->asks = false;
        }
    }
}
