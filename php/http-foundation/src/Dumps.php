<?php

declare(strict_types=1);

namespace Pronghorn\HttpFoundation;

use Symfony\Component\VarDumper\VarDumper;

/**
 * What `dump()` writes while a request is handled, for the page: for PHP a worker is a program at a
 * terminal, and nobody would see it there.
 */
final class Dumps
{
    private const FORMAT = 'VAR_DUMPER_FORMAT';
    private const HTML = 'html';

    /** Ours, while dumps are listened to. */
    private static ?\Closure $handler = null;
    /** @var ?callable the application's own, as of its boot */
    private static mixed $theirs = null;
    /** The framework's, where the application has none. */
    private static ?\Closure $register = null;
    private static bool $isSeen = false;

    /**
     * After the boot of an application. A format that VAR_DUMPER_FORMAT names, such as `server`,
     * stays.
     *
     * @param ?\Closure(): mixed $register gives VarDumper the framework's handler for pages
     */
    public static function listen(?\Closure $register = null): void
    {
        if (!\class_exists(VarDumper::class) || ($_SERVER[self::FORMAT] ?? self::HTML) !== self::HTML) {
            return;
        }
        // While it is there, VarDumper takes no handler.
        unset($_SERVER[self::FORMAT]);
        self::$handler = self::first(...);
        self::$theirs = VarDumper::setHandler(self::$handler);
        self::$register = $register;
    }

    /** Before an application boots anew, which may give VarDumper a handler. */
    public static function forget(): void
    {
        if (self::$handler !== null) {
            VarDumper::setHandler(null);
            self::$handler = self::$theirs = null;
        }
    }

    /**
     * The result of a function that handles a request, and what it has printed if it has dumped
     * something. Else what it prints goes where it went before.
     *
     * @template T
     * @param \Closure(): T $handle
     * @return array{T, string}
     */
    public static function of(\Closure $handle): array
    {
        if (self::$handler === null) {
            return [$handle(), ''];
        }
        self::$isSeen = false;
        VarDumper::setHandler(self::$handler);
        $level = \ob_get_level();
        // An `exit` leaves it open, so that what was dumped by then is the reply.
        \ob_start();
        $result = $handle();
        while (\ob_get_level() > $level + 1 && @\ob_end_flush()) {
        }
        if (\ob_get_level() !== $level + 1) {
            return [$result, '']; // the application has closed it
        }
        if (self::$isSeen) {
            return [$result, (string) \ob_get_clean()];
        }
        \ob_end_flush();

        return [$result, ''];
    }

    /** The first dump of a request: its page gets the styles and the script of VarDumper once. */
    private static function first(mixed $value, ?string $label = null): mixed
    {
        self::$isSeen = true;
        VarDumper::setHandler(self::$theirs);
        if (self::$theirs === null && self::$register !== null) {
            (self::$register)();
        }
        // For VarDumper's own handler, which it makes now if there is no other one.
        $_SERVER[self::FORMAT] = self::HTML;
        try {
            return VarDumper::dump($value, $label);
        } finally {
            unset($_SERVER[self::FORMAT]);
        }
    }
}
