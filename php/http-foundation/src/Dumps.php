<?php

declare(strict_types=1);

namespace Pronghorn\HttpFoundation;

use Symfony\Component\VarDumper\VarDumper;

/**
 * `dump()` writes for pages: for PHP a worker is a program at a terminal. What is printed stands in
 * the reply, and each page needs the styles and the script of VarDumper, which it writes once.
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

    /** Before a request, whose first dump is one of its page. */
    public static function begin(): void
    {
        if (self::$handler !== null) {
            VarDumper::setHandler(self::$handler);
        }
    }

    /** The first dump of a request: its page gets the styles and the script of VarDumper once. */
    private static function first(mixed $value, ?string $label = null): mixed
    {
        VarDumper::setHandler(self::$theirs);
        if (self::$theirs === null && self::$register !== null) {
            (self::$register)();
        }
        // VarDumper makes its own handler by it, if there is no other one.
        $_SERVER[self::FORMAT] = self::HTML;
        try {
            return VarDumper::dump($value, $label);
        } finally {
            unset($_SERVER[self::FORMAT]);
        }
    }
}
