<?php

declare(strict_types=1);

namespace Pronghorn\Grpc;

/** The class of the messages that a client streams: PHP has no type for what an iterable holds. */
#[\Attribute(\Attribute::TARGET_PARAMETER)]
final class Receives
{
    /** @param class-string $message a generated one */
    public function __construct(public readonly string $message)
    {
    }
}
