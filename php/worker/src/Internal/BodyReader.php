<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ClientGone;
use Pronghorn\ConnectionLost;

/**
 * The body of a request that came without it (`request_body: stream`): asks the server for the next
 * piece when somebody reads. What nobody reads stays with the client.
 */
final class BodyReader
{
    /** Asked for at a time, unless a reader wants more: few messages, and little memory. */
    private const PIECE = 64 * 1024;

    private string $piece = '';
    /** How far the piece was read. */
    private int $at = 0;
    private int $position = 0;
    private bool $complete = false;
    private bool $closed = false;

    public function __construct(private readonly Transport $transport, private readonly int $call)
    {
    }

    /**
     * At least one byte and at most so many; empty at the end. Waits for the client.
     *
     * @throws ClientGone when the rest does not come
     * @throws BadStream when the reply has begun
     * @throws ConnectionLost
     */
    public function read(int $length): string
    {
        while ($this->at === \strlen($this->piece)) {
            if ($this->complete) {
                return '';
            }
            if ($this->closed) {
                throw new BadStream('The reply has begun, and what was not read of the body by then is gone.');
            }
            [$this->piece, $this->complete] = $this->transport->body($this->call, \max($length, self::PIECE));
            $this->at = 0;
        }
        $read = $this->at === 0 && $length >= \strlen($this->piece)
            ? $this->piece
            : \substr($this->piece, $this->at, $length);
        $this->at += \strlen($read);
        $this->position += \strlen($read);

        return $read;
    }

    /**
     * @throws BodyTooLong when it is larger than the memory that is left, and whatever {@see
     *     read()} throws
     */
    public function rest(): string
    {
        $rest = '';
        while (($piece = $this->read(self::PIECE)) !== '') {
            // A string that grows may be copied.
            BodyTooLong::checkSize(\strlen($rest) + \strlen($piece));
            $rest .= $piece;
        }

        return $rest;
    }

    public function atEnd(): bool
    {
        return $this->complete && $this->at === \strlen($this->piece);
    }

    /** Bytes that were read. */
    public function position(): int
    {
        return $this->position;
    }

    /** From now on nothing is asked for: the reply has begun. */
    public function close(): void
    {
        $this->closed = true;
    }
}
