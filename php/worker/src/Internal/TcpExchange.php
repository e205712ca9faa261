<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\TcpConnection;

/** An event of a connection. */
final class TcpExchange extends Exchange
{
    /** @param int $startedAt microseconds since the Unix epoch */
    public function __construct(
        Transport $transport,
        int $id,
        ?int $deadline,
        private readonly int $startedAt,
        public readonly TcpConnection $connection,
        /** As it came. */
        public readonly string $packedState,
    ) {
        parent::__construct($transport, $id, $deadline);
    }

    public function kind(): Kind
    {
        return Kind::Tcp;
    }

    public function startedAt(): int
    {
        return $this->startedAt;
    }

    public function describe(): string
    {
        return "{$this->connection->event->name} of {$this->connection->remoteAddress}";
    }

    public function beginReply(): void
    {
    }

    /** What is echoed is text for the log: no answer to a client is made of it. */
    public function endByExit(string $printed, int $flags): bool
    {
        return false;
    }
}
