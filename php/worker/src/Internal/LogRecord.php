<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/** A record for the server's log. Every part is capped: a context may hold anything. */
final class LogRecord
{
    /** PSR-3's names, by the numbers of syslog. */
    public const LEVELS = ['emergency', 'alert', 'critical', 'error', 'warning', 'notice', 'info', 'debug'];

    private const MAX_MESSAGE = 16 * 1024;
    private const MAX_CONTEXT = 64 * 1024;
    /** Deeper values are cut off by json_encode(), and a circle ends there. */
    private const DEPTH = 16;

    private function __construct(
        public readonly int $level,
        public readonly string $message,
        public readonly string $context,
    ) {
    }

    /**
     * @param int<0, 7> $level
     * @param array<array-key, mixed> $context
     */
    public static function of(int $level, string $message, array $context): self
    {
        return new self(
            $level,
            Failure::cut(self::interpolate($message, $context), self::MAX_MESSAGE),
            self::encode($context),
        );
    }

    /** As a worker prints it that has no call. */
    public function line(): string
    {
        $message = \strtr($this->message, ["\r" => '\r', "\n" => '\n']);

        return self::LEVELS[$this->level] . ": $message" . ($this->context === '' ? '' : " $this->context") . "\n";
    }

    /** As it stands in a message, behind the envelope. */
    public function payload(): string
    {
        return \pack('V', \strlen($this->message)) . $this->message . $this->context;
    }

    /** @param array<array-key, mixed> $context */
    private static function interpolate(string $message, array $context): string
    {
        if ($context === [] || !\str_contains($message, '{')) {
            return $message;
        }
        $values = [];
        foreach ($context as $name => $value) {
            if (\is_scalar($value) || $value === null || $value instanceof \Stringable) {
                $values['{' . $name . '}'] = \is_bool($value) ? ($value ? 'true' : 'false') : (string) $value;
            }
        }

        return \strtr($message, $values);
    }

    /** @param array<array-key, mixed> $context */
    private static function encode(array $context): string
    {
        if ($context === []) {
            return '';
        }
        $shown = [];
        foreach ($context as $name => $value) {
            $shown[$name] = $value instanceof \Throwable ? self::thrown($value) : $value;
        }
        $flags = \JSON_PARTIAL_OUTPUT_ON_ERROR | \JSON_INVALID_UTF8_SUBSTITUTE | \JSON_UNESCAPED_SLASHES
            | \JSON_UNESCAPED_UNICODE;
        $json = \json_encode((object) $shown, $flags, self::DEPTH);
        if (!\is_string($json) || \strlen($json) > self::MAX_CONTEXT) {
            $why = \is_string($json) ? 'it is longer than ' . self::MAX_CONTEXT . ' bytes' : \json_last_error_msg();
            $json = (string) \json_encode(['context_left_out' => $why]);
        }

        return $json;
    }

    /** @return array<string, int|string> */
    private static function thrown(\Throwable $thrown): array
    {
        $failure = Failure::of($thrown);

        return [
            'class' => $failure->class,
            'message' => $failure->message,
            'file' => $failure->file,
            'line' => $failure->line,
            'trace' => Failure::cut($failure->trace, self::MAX_MESSAGE),
        ];
    }
}
