<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\Exchange;
use Pronghorn\Internal\LogRecord;
use Psr\Log\LoggerInterface;
use Psr\Log\LoggerTrait;

/**
 * A PSR-3 logger whose records go to the server's log, on the channel `app`, with the request's ID,
 * the route, the pool and the process. Needs `psr/log`.
 *
 * In scripts, and while no call is under way (the boot, work after the last call), a record is a
 * line on the standard error of this process, which the server logs as well.
 */
final class Log implements LoggerInterface
{
    use LoggerTrait;

    /**
     * @param mixed $level one of PSR-3's: `emergency` to `debug`
     * @param string|\Stringable $message with names of the context in braces
     * @param array<array-key, mixed> $context an exception under `exception` is written with its
     *     trace
     * @throws \Psr\Log\InvalidArgumentException when there is no such level
     * @throws ConnectionLost when the server is gone
     */
    public function log($level, $message, array $context = []): void
    {
        $number = \array_search($level, LogRecord::LEVELS, true);
        if ($number === false) {
            $given = \is_string($level) ? "`$level`" : \get_debug_type($level);
            $known = \implode(', ', LogRecord::LEVELS);
            throw new \Psr\Log\InvalidArgumentException("$given is no level of PSR-3: $known.");
        }
        $record = LogRecord::of($number, (string) $message, $context);
        $exchange = Exchange::$current;
        if ($exchange === null) {
            // The constant STDERR is not there for scripts in `mode: classic` and under php-fpm.
            \file_put_contents('php://stderr', $record->line());
        } else {
            $exchange->transport->log($record);
        }
    }
}
