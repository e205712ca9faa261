<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Call;
use Pronghorn\Request;

/**
 * One call as the loop sees it: what came in, what went out so far, what is left to do. {@see Call} is its public face,
 * made when somebody asks for it.
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

    /** The client has left. */
    public bool $gone = false;

    /** @var list<callable(): mixed> */
    public array $deferred = [];

    private ?Call $call = null;

    /**
     * @param int $startedAt microseconds since the Unix epoch
     * @param ?int $deadline on the clock of {@see \hrtime()}, in nanoseconds; null: no limit
     */
    public function __construct(
        public readonly Transport $transport,
        public readonly int $id,
        public readonly int $startedAt,
        public ?int $deadline,
        public readonly Request $request,
    ) {
    }

    public function call(): Call
    {
        return $this->call ??= new Call($this);
    }
}
