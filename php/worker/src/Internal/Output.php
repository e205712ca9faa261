<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * What the application prints while it answers a call. Of a request it is part of the reply, before
 * what the handler returns; what comes behind the reply is dropped, because it may be a visitor's.
 * Of other calls it goes to the log, in whole lines.
 */
final class Output
{
    /** Bytes that are kept. More is sent at once: a worker that prints for hours must not grow. */
    private const LIMIT = 4 * 1024 * 1024;

    /** That of this process. */
    private static ?self $current = null;

    /** @var resource */
    private $log;
    private int $level = 0;
    /** Whether our buffer is there: the application may close it as any other. */
    private bool $open = false;
    /** Part of what was printed has left our buffer. */
    private bool $spilled = false;
    /** That part, where the extension does not get it. */
    private string $past = '';
    /** Bytes that were printed behind a reply, without the extension. */
    private int $late = 0;
    /** What is printed is not kept here any more. */
    private bool $released = false;
    /** The process ends because of a request. */
    private bool $isOver = false;
    /** The application has opened a buffer that nobody can close without the extension. */
    private bool $isStuck = false;

    /**
     * @param resource $log where the server reads lines for its log, e.g. stderr
     * @param bool $native whether the extension has what is printed past all buffers
     */
    public function __construct($log, private readonly bool $native = false)
    {
        $this->log = $log;
        self::$current = $this;
    }

    public function start(): void
    {
        \ob_start($this->flushed(...), self::LIMIT);
        $this->level = \ob_get_level();
        $this->open = true;
        $this->spilled = false;
    }

    /**
     * What the request under way has printed by now and the client has not, in a process that
     * answers any.
     *
     * @param bool $whole also what is in buffers that the application has left open; else nothing
     *     is taken while one is open, for that may be read by the application
     */
    public static function ofRequest(bool $whole): string
    {
        $output = self::$current;
        if ($output === null || $output->isSilent() || (!$whole && \ob_get_level() > $output->level)) {
            return '';
        }

        return $output->take();
    }

    /** Before the first call: what the boot has printed goes to the log. */
    public function flush(): void
    {
        $this->write($this->isSilent() ? '' : $this->rest());
    }

    /**
     * After a call, or between two: what was printed and is in no reply is dropped, and told by its
     * length. Of a call that is no request it goes to the log. Buffers that were left open are
     * closed.
     */
    public function settle(?Exchange $exchange): void
    {
        $rest = $this->isSilent() ? '' : $this->rest();
        if ($exchange === null || $exchange instanceof HttpExchange) {
            $this->late += \strlen($rest);
        } else {
            $this->write($rest);
        }
        $late = $this->late + ($this->native ? \Pronghorn\Internal\printed_settle() : 0);
        $this->late = 0;
        if ($late > 0) {
            $call = $exchange?->describe() ?? 'a call that is over';
            $this->write("pronghorn: $call has printed $late bytes after its reply, which nobody gets."
                . ' hint: error_log() and Pronghorn\Log write to the log');
        }
    }

    /** From now on output is the reply, as in a request of PHP's own. */
    public function release(): void
    {
        $this->stop();
        $this->released = true;
    }

    /** Ends with what was printed outside of calls. */
    public function stop(): void
    {
        if ($this->released) {
            return;
        }
        $this->flush();
        self::$current = null;
        if ($this->open && \ob_get_level() === $this->level) {
            \ob_end_clean();
        }
    }

    /** A request has ended this process, which may print more of it. */
    public function finish(HttpExchange $exchange): void
    {
        $this->settle($exchange);
        $this->isOver = true;
    }

    /** All that was printed and the client has not. Closes the buffers above ours. */
    public function take(): string
    {
        if ($this->released) {
            return '';
        }
        $lowest = $this->open ? $this->level : $this->level - 1;
        // What the application left open flows into ours.
        if (!self::close($this->level)) {
            // What it holds is all that can be read. The process ends, and prints it once more.
            $printed = $this->isStuck ? '' : (string) \ob_get_contents();
            $this->isStuck = $this->isOver = true;

            return $printed;
        }
        if (!$this->open) {
            // Into what it closed, else.
            $this->past .= \ob_get_level() > $lowest ? (string) \ob_get_clean() : '';
        }
        $printed = ($this->native ? \Pronghorn\Internal\printed_take() : '') . $this->past;
        $this->past = '';
        if ($this->open && \ob_get_level() === $this->level) {
            $printed .= (string) \ob_get_contents();
            \ob_clean();
            $this->spilled = false;
        } else {
            $this->start();
        }

        return $printed;
    }

    /**
     * The same of a call whose end is known: it stays so, whatever callbacks of its buffers throw.
     */
    public function rest(): string
    {
        if ($this->released || $this->isStuck) {
            return '';
        }
        do {
            $failed = false;
            try {
                $close = fn () => self::close($this->level);
                $this->native ? \Pronghorn\Internal\until_exit($close) : $close();
            } catch (\Throwable $thrown) {
                $failed = true;
                $this->write("pronghorn: the callback of an output buffer has failed: $thrown");
            }
        } while ($failed);

        return $this->take();
    }

    /** Whether this process can't serve another visitor. */
    public function isStuck(): bool
    {
        return $this->isStuck;
    }

    /**
     * Closes the buffers above this level: what each holds flows into the one below.
     *
     * @return bool false: one of them can't be closed
     */
    public static function close(int $above): bool
    {
        if (\function_exists('Pronghorn\Internal\printed_close')) {
            \Pronghorn\Internal\printed_close($above);
        }
        while (\ob_get_level() > $above && @\ob_end_flush()) {
        }

        return \ob_get_level() <= $above;
    }

    /** Lines for the log. */
    public function write(string $text): void
    {
        if ($text !== '') {
            @\fwrite($this->log, \str_ends_with($text, "\n") ? $text : "$text\n");
        }
    }

    /** What the destructor of a value of the application has thrown, when the worker freed that. */
    public function tellDestructor(\Throwable $thrown, string $call = 'a call'): void
    {
        $this->write(self::ofDestructor((string) $thrown, $call));
    }

    /** The same of work that knows no worker. */
    public static function tellOfDestructor(string $thrown, string $call): void
    {
        $told = self::ofDestructor($thrown, $call);
        self::$current === null ? \error_log($told) : self::$current->write($told);
    }

    private static function ofDestructor(string $thrown, string $call): string
    {
        return "pronghorn: a destructor behind $call has failed: $thrown";
    }

    /** Whether nothing was printed, and the buffers are as they were. */
    private function isSilent(): bool
    {
        return $this->released
            || ($this->open && !$this->spilled && \ob_get_level() === $this->level && \ob_get_length() === 0)
            || $this->isStuck;
    }

    /**
     * Called by PHP with what leaves the buffer: by its size, by flush(), or because it is closed.
     */
    private function flushed(string $text, int $phase): string
    {
        if ($phase & \PHP_OUTPUT_HANDLER_FINAL) {
            $this->open = false;
        }
        if ($phase & \PHP_OUTPUT_HANDLER_CLEAN || $text === '') {
            return '';
        }
        if ($this->isOver) {
            return '';
        }
        $this->spilled = true;
        $exchange = Exchange::$current;
        if (!$exchange instanceof HttpExchange) {
            $this->write($text);

            return '';
        }
        if ($this->native && $this->level === 1) {
            return $text;
        }
        if ($exchange->state === Exchange::DONE) {
            $this->late += \strlen($text);

            return '';
        }
        $this->past .= $text;
        if (\strlen($this->past) > self::LIMIT) {
            Sender::printed($exchange, $this->past);
            $this->past = '';
        }

        return '';
    }
}
