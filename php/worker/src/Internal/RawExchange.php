<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/** Bytes to be answered by bytes. */
final class RawExchange extends Exchange
{
    /** @param int $startedAt microseconds since the Unix epoch */
    public function __construct(
        Transport $transport,
        int $id,
        ?int $deadline,
        private readonly int $startedAt,
        public readonly string $payload,
    ) {
        parent::__construct($transport, $id, $deadline);
    }

    public function kind(): Kind
    {
        return Kind::Raw;
    }

    public function startedAt(): int
    {
        return $this->startedAt;
    }

    public function describe(): string
    {
        return 'a raw call';
    }

    public function beginReply(): void
    {
    }

    /** What is echoed is text for the log: no reply of such a call is made of it. */
    public function endByExit(string $printed, int $flags): bool
    {
        return false;
    }
}
