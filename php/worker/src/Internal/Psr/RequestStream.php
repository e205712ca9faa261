<?php

declare(strict_types=1);

namespace Pronghorn\Internal\Psr;

use Pronghorn\Internal\BadStream;
use Pronghorn\Internal\BodyReader;
use Psr\Http\Message\StreamInterface;

/**
 * The body of a PSR-7 request that arrives while it is read.
 *
 * Parameters have no types and results have: so it fits version 1 and version 2 of the interface.
 */
final class RequestStream implements StreamInterface
{
    /** @param ?int $size as the client announced it */
    public function __construct(private ?BodyReader $reader, private readonly ?int $size)
    {
    }

    public function __toString(): string
    {
        return $this->getContents();
    }

    public function close(): void
    {
        $this->reader = null;
    }

    public function detach()
    {
        $this->close();

        return null;
    }

    public function getSize(): ?int
    {
        return $this->size;
    }

    public function tell(): int
    {
        return $this->reader()->position();
    }

    public function eof(): bool
    {
        return $this->reader === null || $this->reader->atEnd();
    }

    public function isSeekable(): bool
    {
        return false;
    }

    public function seek($offset, $whence = \SEEK_SET): void
    {
        throw new BadStream('A body that arrives while it is read can be read once; `request_body: buffer` keeps it.');
    }

    public function rewind(): void
    {
        // Many applications rewind before they read.
        if ($this->reader()->position() > 0) {
            $this->seek(0);
        }
    }

    public function isWritable(): bool
    {
        return false;
    }

    public function write($string): int
    {
        throw new BadStream('The body of a request cannot be written to.');
    }

    public function isReadable(): bool
    {
        return $this->reader !== null;
    }

    public function read($length): string
    {
        return $this->reader()->read($length);
    }

    public function getContents(): string
    {
        return $this->reader()->rest();
    }

    public function getMetadata($key = null)
    {
        return $key === null ? [] : null;
    }

    private function reader(): BodyReader
    {
        return $this->reader ?? throw new BadStream('This body was closed.');
    }
}
