<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * What a call leaves in PHP's own state, where the next visitor's would find it: the session above
 * all. PHP clears this at the end of a request, and a worker of ours is one long request.
 *
 * What was wrong about it is told once for each place, and so is a reply that PHP was given and
 * nobody sends.
 */
final class Leftovers
{
    /** More mistakes than that are not told by one worker. */
    private const MOST_TOLD = 100;

    private const START = 'session_start';

    private const SESSION_CURE = ' hint: give session_id() the value of the request\'s cookie before session_start(),'
        . ' call session_write_close() before you return, and send the cookie in the Response; or run the application'
        . ' in a pool with `mode: classic`';
    private const REPLY_CURE = ' It is what the handler returns. hint: return new Pronghorn\Response($body, $status,'
        . ' $headers), or a PSR-7 response; or run the application in a pool with `mode: classic`';

    /** Each round may run destructors, which may leave things as the ones before did. */
    private const ROUNDS = 10;

    private readonly bool $hasSessions;
    private readonly bool $hadPrinted;
    /** @var array<string, true> by function and place */
    private array $told = [];

    /**
     * @param bool $native whether the extension tells where functions were called
     * @param ?Superglobals $superglobals null where the extension empties them
     * @param bool $resets whether the extension changes back what calls change in PHP, from now on
     */
    public function __construct(
        private readonly Transport $transport,
        private readonly Output $output,
        private readonly bool $native,
        private readonly ?Superglobals $superglobals,
        private readonly bool $resets = false,
    ) {
        $this->hasSessions = \function_exists('session_id');
        $this->clear(null);
        $this->hadPrinted = \headers_sent();
        if ($resets) {
            \Pronghorn\Internal\reset_keep();
        }
    }

    /**
     * The same when the last values of a call are freed, whose destructors may have left things as
     * well.
     *
     * @return bool as above
     */
    public function settle(): bool
    {
        for ($round = 0; $round < self::ROUNDS; $round++) {
            $isFit = $this->clear(null);
            if (!($this->resets && \Pronghorn\Internal\reset_again()) && !$this->isLeft()) {
                return $isFit;
            }
        }
        $this->output->write('pronghorn: destructors of a call leave sessions, superglobals, handlers or settings'
            . ' without an end: this worker leaves');

        return false;
    }

    /** There are no more calls. The last one may have ended in its middle. */
    public function stop(): void
    {
        if ($this->resets) {
            \Pronghorn\Internal\reset_again();
            \Pronghorn\Internal\reset_let_go();
        }
    }

    private function isLeft(): bool
    {
        return $this->hasSessions && (isset($_SESSION) || \session_id() !== '')
            || ($this->superglobals?->areChanged() ?? false);
    }

    /**
     * Costs a look where a call left nothing.
     *
     * @return bool false: this process can't serve another visitor
     */
    public function clear(?Exchange $exchange): bool
    {
        $places = $this->native ? \Pronghorn\Internal\places_seen() : [];
        // First, because destructors may run, and open a session; those of the session's own values
        // may open another.
        if ($this->superglobals !== null) {
            $this->free($this->superglobals->reset(...));
        }
        for ($times = 0; $times < 2 && $this->hasSessions && (isset($_SESSION) || \session_id() !== ''); $times++) {
            $this->endSession($exchange, $places);
        }
        $status = \http_response_code();
        if ($status !== false && $status !== 200 || $places !== []) {
            $this->tellReply($exchange, $places, $status);
        }

        return !($this->hasSessions && \headers_sent($file, $line)) || $this->isOfBoot($file, $line);
    }

    /** Frees values of the application, whose destructors may throw. */
    private function free(\Closure $work): void
    {
        for ($times = 0; $times < 8; $times++) {
            try {
                // An `exit` in one ends that one, and no worker.
                $this->native ? \Pronghorn\Internal\until_exit($work) : $work();

                return;
            } catch (\Throwable $thrown) {
                $this->output->tellDestructor($thrown);
            }
        }
    }

    /**
     * Without the extension nothing takes it back that a call has printed past the worker's buffer:
     * PHP lets nobody change the number of a session any more, so the last visitor's would stay.
     */
    private function isOfBoot(string $file, int $line): bool
    {
        if ($this->hadPrinted ?? true) {
            return true;
        }
        $this->tell('output', $file, $line, 'A call has closed the output buffers of its worker and printed: no session'
            . ' works in this process any more, so it is replaced. hint: close only buffers that you have opened');

        return false;
    }

    /**
     * Nothing tells without the extension where session_start() was called: PHP keeps no trace of
     * it, and a save handler of ours, which could look at the stack, would take the place of the
     * application's and of strict mode's.
     *
     * @param list<array{string, string, int}> $places
     */
    private function endSession(?Exchange $exchange, array $places): void
    {
        $wasOpen = \session_status() === \PHP_SESSION_ACTIVE;
        if ($wasOpen) {
            $this->closeSession();
        }
        // Through the reference that the session module has of it, and then as in a new request.
        $this->free(static function (): void {
            $_SESSION = [];
            unset($_SESSION);
        });
        if (!\headers_sent() || !\ini_get('session.use_cookies')) {
            // Else PHP refuses it with a warning, and to start a session as well.
            \session_id('');
        }
        if ($wasOpen) {
            $this->tellSession($exchange, $places);
        }
    }

    private function closeSession(): void
    {
        try {
            \session_write_close();
        } catch (\Throwable $thrown) {
            $this->output->write("pronghorn: the session of a call could not be written: $thrown");
        }
        if (\session_status() === \PHP_SESSION_ACTIVE) {
            \session_abort();
        }
    }

    /** @param list<array{string, string, int}> $places */
    private function tellSession(?Exchange $exchange, array $places): void
    {
        [$file, $line] = self::handler($exchange);
        foreach ($places as [$function, $inFile, $atLine]) {
            if ($function === self::START) {
                [$file, $line] = [$inFile, $atLine];
            }
        }
        $this->tell('session', $file, $line, match (true) {
            $exchange !== null => 'A session was still open when the call was over. It was written and closed, or the'
                . ' next visitor would have been in it.',
            (bool) \ini_get('session.auto_start') => 'session.auto_start has opened a session for all visitors of this'
                . ' worker. It was closed before the first call.',
            default => 'The worker has opened a session between two calls, for all visitors. It was closed.',
        } . self::SESSION_CURE);
    }

    /**
     * PHP's CLI takes headers and throws them away. Without the extension only the status is seen
     * that some of them set, and not where.
     *
     * @param list<array{string, string, int}> $places
     */
    private function tellReply(?Exchange $exchange, array $places, int|false $status): void
    {
        $hasPlace = false;
        foreach ($places as [$function, $file, $line]) {
            if ($function !== self::START) {
                $hasPlace = true;
                $message = "$function() does nothing for a worker's reply." . self::REPLY_CURE;
                $this->tell($function, $file, $line, $message);
            }
        }
        if ($status === false || $status === 200) {
            return;
        }
        \http_response_code(200);
        if (!$hasPlace) {
            [$file, $line] = self::handler($exchange);
            $this->tell('header', $file, $line, "header() or http_response_code() has set the status $status in this"
                . " handler, which does nothing for a worker's reply." . self::REPLY_CURE);
        }
    }

    private function tell(string $what, string $file, int $line, string $message): void
    {
        $place = "$what $file:$line";
        if (isset($this->told[$place]) || \count($this->told) >= self::MOST_TOLD) {
            return;
        }
        $this->told[$place] = true;
        $this->transport->remark(new Failure($what, $message, $file, $line));
    }

    /** @return array{string, int} */
    private static function handler(?Exchange $exchange): array
    {
        $handler = $exchange?->handler;

        return $handler === null ? [\get_included_files()[0] ?? '', 0] : [$handler->file, $handler->line];
    }
}
