<?php

declare(strict_types=1);

namespace Pronghorn\Grpc;

/** Ends a call with a status and, if wanted, details that clients can read. */
final class Failure extends \RuntimeException
{
    /**
     * @param int $status one of {@see Status}
     * @param list<object> $details messages of `google.rpc.*` or of one's own
     */
    public function __construct(
        int $status,
        string $message = '',
        public readonly array $details = [],
        ?\Throwable $previous = null,
    ) {
        parent::__construct($message, $status, $previous);
    }
}
