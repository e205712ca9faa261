<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * Work of a framework's package in which destructors of a call's values run. An `exit` in one ends
 * this work, and no process, where the extension can do that.
 */
final class Attempt
{
    private static bool $survivesExit = false;

    /** @param bool $survives whether the extension can end a call at an `exit`, and not the process */
    public static function survivesExit(bool $survives): void
    {
        self::$survivesExit = $survives;
    }

    /**
     * What it throws is thrown here.
     *
     * @param \Closure(): mixed $work
     * @return ?array{string, int} file and line of the `exit` that has ended it
     */
    public static function of(\Closure $work): ?array
    {
        if (self::$survivesExit) {
            return \Pronghorn\Internal\until_exit($work);
        }
        $work();

        return null;
    }

    /** Frees what the work has thrown: what it holds may have destructors, too. */
    public static function free(?\Throwable &$thrown): void
    {
        try {
            self::of(static function () use (&$thrown): void {
                $thrown = null;
            });
        } catch (\Throwable $again) {
            self::tell((string) $again);
        }
    }

    /** Says what a destructor of the call under way has thrown. */
    public static function tell(string $thrown): void
    {
        Output::tellOfDestructor($thrown, Exchange::$current?->describe() ?? 'a call');
    }
}
