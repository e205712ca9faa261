<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * Why a call has no reply, as the server is told. Every part is capped: a message may hold a whole
 * query, a trace thousands of frames.
 */
final class Failure
{
    private const MAX_MESSAGE = 16 * 1024;
    private const MAX_TRACE = 64 * 1024;
    private const MAX_NAME = 4096;

    public readonly string $class;
    public readonly string $message;
    public readonly string $file;
    public readonly string $trace;

    public function __construct(
        string $class,
        string $message,
        string $file,
        public readonly int $line,
        string $trace = '',
    ) {
        $this->class = self::cut($class, self::MAX_NAME);
        $this->message = self::cut($message, self::MAX_MESSAGE);
        $this->file = self::cut($file, self::MAX_NAME);
        $this->trace = self::cut($trace, self::MAX_TRACE);
    }

    public static function of(\Throwable $thrown): self
    {
        $trace = $thrown->getTraceAsString();
        // Ten levels: deeper chains exist only by mistake.
        for ($cause = $thrown->getPrevious(), $level = 0; $cause !== null && $level < 10; $level++) {
            $trace .= "\ncaused by " . $cause::class . ': ' . self::cut($cause->getMessage(), self::MAX_NAME)
                . " in {$cause->getFile()}:{$cause->getLine()}\n" . $cause->getTraceAsString();
            $cause = $cause->getPrevious();
        }

        return new self($thrown::class, $thrown->getMessage(), $thrown->getFile(), $thrown->getLine(), $trace);
    }

    /** As it stands in a message, behind the envelope. */
    public function encode(): string
    {
        $strings = [$this->class, $this->message, $this->file, $this->trace];

        return \pack('V*', $this->line, ...\array_map('strlen', $strings)) . \implode('', $strings);
    }

    public static function cut(string $text, int $limit): string
    {
        return self::readable(\strlen($text) > $limit ? \substr($text, 0, $limit) . ' … cut off' : $text);
    }

    /** The server takes UTF-8; messages of databases and file names need not be. */
    public static function readable(string $text): string
    {
        if (\preg_match('//u', $text) === 1) {
            return $text;
        }
        // PHP's own way of replacing what is no UTF-8, without mbstring.
        $replaced = \htmlspecialchars($text, \ENT_NOQUOTES | \ENT_SUBSTITUTE, 'UTF-8');

        return \htmlspecialchars_decode($replaced, \ENT_NOQUOTES);
    }
}
