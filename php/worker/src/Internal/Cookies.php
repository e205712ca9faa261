<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/** What `$_COOKIE` would be. */
final class Cookies
{
    /** @return array<array-key, string|array<mixed>> */
    public static function parse(string $header): array
    {
        // Almost all names are plain; the others take PHP's own way through names.
        if (\strpbrk($header, '[.') !== false) {
            return self::withNames(self::pairs($header));
        }
        $cookies = [];
        $pairs = self::pairs($header);
        foreach ($pairs as [$name, $value]) {
            if (\str_contains($name, ' ')) {
                return self::withNames($pairs);
            }
            // The first one wins: browsers put the one with the longer path first.
            $cookies[$name] ??= $value;
        }

        return $cookies;
    }

    /**
     * Names are not decoded, and in values `+` stays what it is: that is how PHP reads cookies, and
     * only cookies.
     *
     * @return list<array{string, string}>
     */
    private static function pairs(string $header): array
    {
        $pairs = [];
        $limit = (int) \ini_get('max_input_vars');
        foreach (\explode(';', $header) as $cookie) {
            $cookie = \ltrim($cookie, " \t\n\v\f\r");
            $equals = \strpos($cookie, '=');
            if ($cookie === '' || $equals === 0) {
                continue;
            }
            if (\count($pairs) === $limit) {
                \error_log("PHP Warning:  More than $limit cookies. The limit is max_input_vars in php.ini.");
                break;
            }
            $pairs[] = $equals === false
                ? [$cookie, '']
                : [\substr($cookie, 0, $equals), \rawurldecode(\substr($cookie, $equals + 1))];
        }

        return $pairs;
    }

    /**
     * @param list<array{string, string}> $pairs
     * @return array<array-key, string|array<mixed>>
     */
    private static function withNames(array $pairs): array
    {
        $seen = [];
        $kept = [];
        foreach ($pairs as $pair) {
            $variable = Variables::ofPairs([[$pair[0], '']]);
            $key = \array_key_first($variable);
            // The first one wins, but what has brackets adds to what is there.
            if ($key !== null && (!isset($seen[$key]) || \is_array($variable[$key]))) {
                $seen[$key] = true;
                $kept[] = $pair;
            }
        }

        return Variables::ofPairs($kept);
    }
}
