<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * Names with brackets, dots and spaces turned into arrays, as PHP does it: by PHP, that is by
 * `parse_str`, whose rules for names are those of `$_GET`, `$_POST`, `$_COOKIE` and `$_FILES`.
 */
final class Variables
{
    private static ?\Closure $logWarning = null;

    /**
     * What `$_GET` would be.
     *
     * @return array<array-key, string|array<mixed>>
     */
    public static function ofQuery(string $query): array
    {
        // PHP warns of a variable too many and of one too deep before the application runs. Here
        // its error handler is set, and may make an exception of it: a client must not be able to
        // cause that.
        \set_error_handler(self::$logWarning ??= static fn (int $level, string $message): bool => \error_log(
            ($level === \E_WARNING ? 'PHP Warning' : 'PHP Notice') . ":  $message"
        ));
        try {
            \parse_str($query, $variables);
        } finally {
            \restore_error_handler();
        }

        return $variables;
    }

    /**
     * What `$_POST` would be.
     *
     * @return array<array-key, string|array<mixed>>
     */
    public static function ofBody(string $body): array
    {
        // parse_str() ends at a NUL byte, a form doesn't.
        $differs = ["\0" => '%00'];
        $separators = (string) \ini_get('arg_separator.input');
        if ($separators !== '&') {
            // Fields of a form are parted by & alone, whatever is set for query strings.
            foreach (\str_split($separators) as $separator) {
                $differs[$separator] = \rawurlencode($separator);
            }
            $differs['&'] = $separators[0];
        }

        return self::ofQuery(\strtr($body, $differs));
    }

    /**
     * @param iterable<array{string, string|int}> $pairs of names and values, taken as they are
     * @return array<array-key, string|array<mixed>>
     */
    public static function ofPairs(iterable $pairs): array
    {
        $encoded = '';
        foreach ($pairs as [$name, $value]) {
            $encoded .= \rawurlencode($name) . '=' . \rawurlencode((string) $value) . '&';
        }

        return self::ofBody($encoded);
    }
}
