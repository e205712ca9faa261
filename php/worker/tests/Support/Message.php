<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

/** What a worker sent. */
final class Message
{
    /**
     * @param list<array{string, string}> $headers
     * @param ?array{class: string, message: string, file: string, line: int, trace: string} $error
     */
    public function __construct(
        public readonly string $kind,
        public readonly int $call = 0,
        public readonly int $flags = 0,
        public readonly bool $more = false,
        /** The status, or the milliseconds of an extension. */
        public readonly int $number = 0,
        public readonly array $headers = [],
        public readonly string $body = '',
        public readonly ?array $error = null,
    ) {
    }

    /** @return list<string> all values of a header */
    public function header(string $name): array
    {
        $values = [];
        foreach ($this->headers as [$field, $value]) {
            if (strcasecmp($field, $name) === 0) {
                $values[] = $value;
            }
        }

        return $values;
    }
}
