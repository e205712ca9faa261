<?php

// The two messages, as short as they can be. An application uses the classes that
// `pronghorn grpc generate` writes, with google/protobuf.

declare(strict_types=1);

namespace Hello;

abstract class Message
{
    final public function __construct(public string $text = '')
    {
    }

    public function serializeToString(): string
    {
        return $this->text === '' ? '' : "\x0a" . \chr(\strlen($this->text)) . $this->text;
    }

    public function mergeFromString(string $bytes): void
    {
        $length = \ord($bytes[1] ?? "\0");
        if ($bytes !== '' && ($bytes[0] !== "\x0a" || $length > 127 || \strlen($bytes) !== 2 + $length)) {
            throw new \InvalidArgumentException('these messages have one text of at most 127 bytes');
        }
        $this->text = \substr($bytes, 2);
    }
}

final class Name extends Message
{
}

final class Greeting extends Message
{
}
