<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

use Psr\Http\Message\StreamInterface;

/** A body that can be read once. */
class StringStream implements StreamInterface
{
    private int $at = 0;

    public function __construct(private readonly string $content)
    {
    }

    public function __toString(): string
    {
        return $this->getContents();
    }

    public function close(): void
    {
    }

    public function detach()
    {
        return null;
    }

    public function getSize(): ?int
    {
        return strlen($this->content);
    }

    public function tell(): int
    {
        return $this->at;
    }

    public function eof(): bool
    {
        return $this->at === strlen($this->content);
    }

    public function isSeekable(): bool
    {
        return false;
    }

    public function seek($offset, $whence = SEEK_SET): void
    {
        throw new \RuntimeException();
    }

    public function rewind(): void
    {
        throw new \RuntimeException();
    }

    public function isWritable(): bool
    {
        return false;
    }

    public function write($string): int
    {
        throw new \RuntimeException();
    }

    public function isReadable(): bool
    {
        return true;
    }

    public function read($length): string
    {
        $piece = substr($this->content, $this->at, $length);
        $this->at += strlen($piece);

        return $piece;
    }

    public function getContents(): string
    {
        return $this->read(strlen($this->content));
    }

    public function getMetadata($key = null)
    {
        return $key === null ? [] : null;
    }
}
