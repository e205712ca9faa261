<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * What the application echoes while it answers a call. It is kept until the call is over, because
 * it is the reply if the handler ends with `exit`; else it goes to the log, in whole lines.
 */
final class Output
{
    /**
     * Bytes that are kept. More goes to the log at once: a worker that echoes for hours must not
     * grow.
     */
    private const LIMIT = 4 * 1024 * 1024;

    /** @var resource */
    private $log;
    private int $level = 0;
    /** Whether our buffer is there: the application may close it as any other. */
    private bool $open = false;
    /** Part of this call's output is in the log already. */
    private bool $spilled = false;
    /** What is echoed is not kept here any more. */
    private bool $released = false;

    /** @param resource $log where the server reads lines for its log, e.g. stderr */
    public function __construct($log)
    {
        $this->log = $log;
    }

    public function start(): void
    {
        \ob_start($this->flushed(...), self::LIMIT);
        $this->level = \ob_get_level();
        $this->open = true;
        $this->spilled = false;
    }

    /**
     * After a call: what was echoed goes to the log, and buffers that were left open are closed.
     */
    public function settle(): void
    {
        if ($this->released) {
            return;
        }
        if (!$this->open || \ob_get_level() !== $this->level || \ob_get_length() !== 0 || $this->spilled) {
            $this->stop();
            $this->start();
        }
    }

    /** From now on output is the reply, as in a request of PHP's own. */
    public function release(): void
    {
        $this->stop();
        $this->released = true;
    }

    public function stop(): void
    {
        $this->write($this->take());
    }

    /**
     * Everything echoed since the call began; empty when part of it went to the log. Closes the
     * buffer.
     */
    public function take(): string
    {
        if ($this->released) {
            return '';
        }
        // What the application left open flows into ours; into stdout, if it closed ours.
        while (\ob_get_level() > $this->level - ($this->open ? 0 : 1) && @\ob_end_flush()) {
        }
        if (!$this->open || \ob_get_level() !== $this->level) {
            return '';
        }
        $echoed = $this->spilled ? '' : (string) \ob_get_contents();
        $this->spilled ? \ob_end_flush() : \ob_end_clean();

        return $echoed;
    }

    /** Lines for the log. */
    public function write(string $text): void
    {
        if ($text !== '') {
            @\fwrite($this->log, \str_ends_with($text, "\n") ? $text : "$text\n");
        }
    }

    /**
     * Called by PHP with what leaves the buffer: by its size, by flush(), or because it is closed.
     */
    private function flushed(string $text, int $phase): string
    {
        if ($phase & \PHP_OUTPUT_HANDLER_FINAL) {
            $this->open = false;
        }
        if (!($phase & \PHP_OUTPUT_HANDLER_CLEAN) && $text !== '') {
            $this->spilled = true;
            $this->write($text);
        }

        return '';
    }
}
