<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ConnectionLost;

/**
 * What was counted and not yet sent. A call has one of these from its first change of a metric on:
 * when the call is over its memory is free, and that sends the sums. So calls that count nothing
 * pay nothing.
 */
final class Counts
{
    /** Bytes of a message, about; the server takes twice as many. */
    private const FULL = 32 * 1024;
    /** Series that are sent before the end of a call. */
    private const MOST = 1000;

    /** @var array<int, Counted> by the numbers of objects */
    private static array $pending = [];

    private function __construct(private readonly Transport $transport)
    {
    }

    /**
     * @return bool whether it is sent with the call under way. While there is none (in the boot),
     *     it waits for a call that counts something.
     */
    public static function add(Counted $series): bool
    {
        self::$pending[\spl_object_id($series)] = $series;
        $exchange = Exchange::$current;
        if ($exchange === null) {
            return false;
        }
        $exchange->counts ??= new self($exchange->transport);
        if (\count(self::$pending) >= self::MOST) {
            $exchange->counts->send();

            return false;
        }

        return true;
    }

    public function __destruct()
    {
        try {
            $this->send();
        } catch (ConnectionLost) {
            // Nobody is there who counts. The loop finds out by itself.
        }
    }

    private function send(): void
    {
        $batch = '';
        foreach (self::$pending as $series) {
            $flags = \JSON_INVALID_UTF8_SUBSTITUTE | \JSON_UNESCAPED_SLASHES | \JSON_UNESCAPED_UNICODE;
            $change = \json_encode($series->change(), $flags | \JSON_THROW_ON_ERROR);
            $batch .= ($batch === '' ? '[' : ',') . $change;
            if (\strlen($batch) >= self::FULL) {
                $this->transport->counts("$batch]");
                $batch = '';
            }
        }
        self::$pending = [];
        if ($batch !== '') {
            $this->transport->counts("$batch]");
        }
    }
}
