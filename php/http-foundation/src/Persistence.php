<?php

declare(strict_types=1);

namespace Pronghorn\HttpFoundation;

/**
 * Takes persistent connections out of configurations of frameworks. A worker that stays holds its
 * connections itself. PHP gives a persistent one out again after it was closed, with all that its
 * session has: settings, locks, temporary tables, a transaction.
 */
final class Persistence
{
    /** Where Laravel and Doctrine have the attributes of a PDO. */
    private const ATTRIBUTES = ['options', 'driverOptions'];
    /** `PDO::ATTR_PERSISTENT`, also where PHP has no PDO. */
    private const PERSISTENT = 12;

    /**
     * The configuration of a connection, or of several, as it is without: `persistent`, also in the
     * query of a URL, and `PDO::ATTR_PERSISTENT` are false where they were set.
     *
     * @param array<mixed> $configuration
     * @return array<mixed>
     */
    public static function without(array $configuration): array
    {
        foreach ($configuration as $key => $value) {
            if (\is_array($value) && \in_array($key, self::ATTRIBUTES, true)) {
                $value = self::attributes($value);
            }
            $configuration[$key] = match (true) {
                \is_array($value) => self::without($value),
                // Laravel's Redis and Doctrine.
                $key === 'persistent' => $value ? false : $value,
                \is_string($value) && \str_contains($value, '://') => self::url($value),
                default => $value,
            };
        }

        return $configuration;
    }

    /**
     * @param array<mixed> $attributes
     * @return array<mixed>
     */
    private static function attributes(array $attributes): array
    {
        if (!empty($attributes[self::PERSISTENT])) {
            // Not taken away: a connector may have it among its own defaults.
            $attributes[self::PERSISTENT] = false;
        }

        return $attributes;
    }

    private static function url(string $url): string
    {
        return (string) \preg_replace('/(?<=[?&])(persistent)=[^&#]*/', '$1=0', $url);
    }
}
