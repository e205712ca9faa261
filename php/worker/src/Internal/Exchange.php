<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Call;
use Pronghorn\Request;

/**
 * One call as this package sees it: what came in, what went out so far, what is left to do. {@see Call} is its public
 * face, made when somebody asks for it.
 */
final class Exchange
{
    /** No byte of the reply was sent. */
    public const FRESH = 0;
    /** The head is out, the body is not complete. */
    public const STREAMING = 1;
    /** Reply or error is complete. */
    public const DONE = 2;

    /** The call that is under way in this process. */
    public static ?self $current = null;

    /** @var self::FRESH|self::STREAMING|self::DONE */
    public int $state = self::FRESH;

    /** @var ?array{int, array<array-key, string|list<string>>} status and headers of a streamed reply */
    public ?array $head = null;

    /** The client has left. */
    public bool $gone = false;

    /** @var list<callable(): mixed> what is left to do when the reply is sent */
    public array $deferred = [];

    /** What answers this call, in a loop of ours. */
    public ?Handler $handler = null;

    /** Set in an application's own loop, which answers through {@see Call}. */
    public ?Loop $loop = null;

    private ?Call $call = null;

    /**
     * @param ?int $deadline on the clock of `hrtime`, in nanoseconds; null: no limit
     */
    public function __construct(
        public readonly Transport $transport,
        public readonly int $id,
        public ?int $deadline,
        public readonly Request $request,
        /** What is asked for while it is read; null when the request came with its body. */
        public readonly ?BodyReader $body = null,
    ) {
    }

    public function call(): Call
    {
        return $this->call ??= new Call($this);
    }

    /** Lets go of what would make a circle: memory of a call is to be free with it, not when PHP looks for circles. */
    public function close(): void
    {
        $this->call = null;
    }

    /** Whether the client has left; asks the transport until it has. */
    public function isGone(): bool
    {
        return $this->gone = $this->gone || $this->transport->cancelled($this->id);
    }
}
