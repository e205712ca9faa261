<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ClientGone;

/**
 * Server-Sent Events as bytes.
 *
 * @implements \IteratorAggregate<int, string>
 */
final class Events implements \IteratorAggregate
{
    /** @param iterable<mixed> $events */
    public function __construct(private readonly iterable $events)
    {
    }

    public function getIterator(): \Generator
    {
        $events = Pieces::iterator($this->events);
        for ($events->rewind(); $events->valid(); $events->next()) {
            try {
                yield self::format($events->current());
            } catch (ClientGone $gone) {
                Pieces::abandon($events, $gone);

                return;
            }
        }
    }

    private static function format(mixed $event): string
    {
        if (!\is_array($event)) {
            $event = ['data' => $event];
        }
        $lines = '';
        foreach ($event as $field => $value) {
            $lines .= match ($field) {
                'data' => self::lines('data', $value),
                'comment' => self::lines('', $value),
                'event', 'id' => "$field: " . self::single($field, $value) . "\n",
                'retry' => 'retry: ' . self::number($value) . "\n",
                default => throw new BadResponse(
                    "An event has the field \"$field\": data, event, id, retry and comment are known."
                ),
            };
        }

        return $lines . "\n";
    }

    private static function lines(string $field, mixed $text): string
    {
        $lines = '';
        foreach (\preg_split('/\r\n|\r|\n/', Pieces::text($text)) as $line) {
            $lines .= "$field: $line\n";
        }

        return $lines;
    }

    /**
     * A line end would let the value add fields and events of its own; with a NUL byte browsers
     * ignore an id.
     */
    private static function single(string $field, mixed $value): string
    {
        $value = Pieces::text($value);
        if (\strpbrk($value, "\r\n\0") !== false) {
            throw new BadResponse("The $field of an event holds a line end or a NUL byte.");
        }

        return $value;
    }

    private static function number(mixed $value): int
    {
        if (!\is_int($value) || $value < 0) {
            throw new BadResponse('The retry of an event is a number of milliseconds, 0 or more.');
        }

        return $value;
    }
}
