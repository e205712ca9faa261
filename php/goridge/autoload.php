<?php

/**
 * Loads pronghorn/goridge without Composer.
 */

declare(strict_types=1);

\spl_autoload_register(static function (string $class): void {
    if (\str_starts_with($class, 'Pronghorn\\')) {
        $file = __DIR__ . '/src/' . \strtr(\substr($class, 10), '\\', '/') . '.php';
        if (\is_file($file)) {
            require $file;
        }
    }
});
