<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\BadStream;
use Pronghorn\Internal\Pieces;
use Psr\Http\Message\StreamInterface;

/**
 * A PSR-7 body whose pieces are made while they are sent.
 *
 * Parameters have no types and results have: so it fits version 1 and version 2 of the interface.
 */
final class StreamBody implements StreamInterface
{
    private ?\Iterator $pieces;
    private bool $started = false;
    /** Of the current piece, what was not read yet. */
    private string $rest = '';
    private int $position = 0;

    /** @param iterable<string> $pieces */
    private function __construct(iterable $pieces)
    {
        $this->pieces = Pieces::iterator($pieces);
    }

    /**
     * Each element is sent to the client at once. When the client leaves, {@see ClientGone} is
     * thrown into a generator.
     *
     * @param iterable<string> $pieces
     */
    public static function from(iterable $pieces): StreamInterface
    {
        return new self($pieces);
    }

    /** @internal the pieces, when nobody has read any */
    public function untouched(): ?\Iterator
    {
        return $this->started ? null : $this->pieces;
    }

    public function __toString(): string
    {
        return $this->getContents();
    }

    public function close(): void
    {
        $this->pieces = null;
        $this->rest = '';
    }

    public function detach()
    {
        $this->close();

        return null;
    }

    public function getSize(): ?int
    {
        return null;
    }

    public function tell(): int
    {
        return $this->position;
    }

    public function eof(): bool
    {
        return $this->rest === '' && ($this->pieces === null || ($this->started && !$this->pieces->valid()));
    }

    public function isSeekable(): bool
    {
        return false;
    }

    public function seek($offset, $whence = \SEEK_SET): void
    {
        throw new BadStream('A streamed body cannot be read twice.');
    }

    public function rewind(): void
    {
        $this->seek(0);
    }

    public function isWritable(): bool
    {
        return false;
    }

    public function write($string): int
    {
        throw new BadStream('A streamed body cannot be written to.');
    }

    public function isReadable(): bool
    {
        return true;
    }

    /** At most one piece: waiting for more would hold it back. */
    public function read($length): string
    {
        if ($this->rest === '') {
            $this->rest = $this->next();
        }
        $read = \substr($this->rest, 0, $length);
        $this->rest = \substr($this->rest, \strlen($read));
        $this->position += \strlen($read);

        return $read;
    }

    public function getContents(): string
    {
        $contents = $this->rest;
        $this->rest = '';
        while (!$this->eof()) {
            $contents .= $this->next();
        }
        $this->position += \strlen($contents);

        return $contents;
    }

    public function getMetadata($key = null)
    {
        return $key === null ? [] : null;
    }

    private function next(): string
    {
        if ($this->pieces === null) {
            return '';
        }
        if ($this->started) {
            $this->pieces->next();
        } else {
            $this->started = true;
            $this->pieces->rewind();
        }

        return $this->pieces->valid() ? Pieces::text($this->pieces->current()) : '';
    }
}
