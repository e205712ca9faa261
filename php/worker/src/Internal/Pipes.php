<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\ConnectionLost;

/**
 * Two pipes, one for each direction.
 *
 * One system call to read a request and one to write its reply, as long as they are pipes: on a
 * socket PHP would poll before each read.
 */
final class Pipes
{
    /** Reads or writes in a row that may fail by signals before the server counts as gone. */
    private const TRIES = 16;

    /** @var resource */
    private $input;
    /** @var resource */
    private $output;
    private readonly bool $hasSignals;

    /**
     * @param resource $input from the server
     * @param resource $output to the server
     */
    public function __construct($input, $output)
    {
        $this->input = $input;
        $this->output = $output;
        \stream_set_blocking($input, true);
        \stream_set_blocking($output, true);
        // PHP's own would only be copied from: what is read is a frame and wanted at once.
        \stream_set_read_buffer($input, 0);
        $this->hasSignals = \function_exists('pcntl_async_signals');
    }

    /**
     * Waits until there is something.
     *
     * @param positive-int $most
     * @return string at least one byte; '' when the server has closed its end
     * @throws ConnectionLost
     */
    public function read(int $most): string
    {
        if ($this->hasSignals && \pcntl_async_signals()) {
            // A read goes on after a signal without PHP's handler having run, select doesn't: then
            // it answers no.
            while (!$this->select(null)) {
            }
        }
        // Nothing, and not at the end: a signal. More than a few in a row: something is broken.
        for ($tries = 0; $tries < self::TRIES; $tries++) {
            $piece = @\fread($this->input, $most);
            if (($piece !== '' && $piece !== false) || \feof($this->input)) {
                return (string) $piece;
            }
        }

        throw new ConnectionLost('the connection with the server is broken');
    }

    /** Whether a read would not wait. */
    public function isReadable(): bool
    {
        return $this->select(0);
    }

    /**
     * Writes all of it.
     *
     * @throws ConnectionLost
     */
    public function write(string $bytes): void
    {
        for ($tries = 0; $tries < self::TRIES; $tries++) {
            $sent = @\fwrite($this->output, $bytes);
            if ($sent === \strlen($bytes)) {
                return;
            }
            if ($sent > 0) {
                // Broken off by a signal.
                $bytes = \substr($bytes, $sent);
                $tries = 0;
            }
        }

        throw new ConnectionLost('the server closed the connection');
    }

    /** @param ?int $seconds to wait, null: until a signal comes */
    private function select(?int $seconds): bool
    {
        $read = [$this->input];
        $none = null;

        // The warning is about a signal.
        return @\stream_select($read, $none, $none, $seconds) > 0;
    }
}
