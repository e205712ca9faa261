<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Call;

/**
 * One call as this package sees it: what came in, what went out so far, what is left to do. {@see
 * Call} is its public face, made when somebody asks for it.
 */
abstract class Exchange
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

    /** @var list<callable(): mixed> what is left to do when the reply is sent */
    public array $deferred = [];

    /** What was counted during this call, if anything was. */
    public ?Counts $counts = null;

    /** What answers this call, in a loop of ours. */
    public ?Handler $handler = null;

    /** Set in an application's own loop, which answers through {@see Call}. */
    public ?Loop $loop = null;

    protected ?Call $call = null;

    /**
     * @param ?int $deadline on the clock of `hrtime`, in nanoseconds; null: no limit
     */
    public function __construct(
        public readonly Transport $transport,
        public readonly int $id,
        public ?int $deadline,
    ) {
    }

    abstract public function kind(): Kind;

    /** When the server accepted the call: microseconds since the Unix epoch. */
    abstract public function startedAt(): int;

    /** The call in the words of a log record. */
    abstract public function describe(): string;

    /** What did not come with the call by now is not asked for any more. */
    abstract public function beginReply(): void;

    /**
     * The handler has called `exit()` before a byte of the reply was sent.
     *
     * @param string $printed by then, for a request
     * @param int $flags of the reply's end
     * @return bool whether there was something to send as the reply
     */
    abstract public function endByExit(string $printed, int $flags): bool;

    public function call(): Call
    {
        return $this->call ??= new Call($this);
    }

    /**
     * Lets go of what would make a circle: memory of a call is to be free with it, not when PHP
     * looks for circles.
     */
    public function close(): void
    {
        $this->call = null;
        // What was counted is sent, even if the application keeps the call.
        $this->counts = null;
    }

    /** Whether the client has left; asks the transport until it has. */
    public function isGone(): bool
    {
        return $this->gone = $this->gone || $this->transport->cancelled($this->id);
    }
}
