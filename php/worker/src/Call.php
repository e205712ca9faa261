<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\Exchange;

/** The call under way: one request on its way through this worker. */
final class Call
{
    /** The server's number of this call. */
    public readonly int $id;

    /** When the server accepted the request: seconds since the Unix epoch. */
    public readonly float $startedAt;

    /** @internal */
    public function __construct(private readonly Exchange $exchange)
    {
        $this->id = $exchange->id;
        $this->startedAt = $exchange->startedAt / 1e6;
    }

    /** @throws NotAWorker when no call is under way */
    public static function current(): self
    {
        return Exchange::$current?->call() ?? throw new NotAWorker('No call is under way in this process.');
    }
}
