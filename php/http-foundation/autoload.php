<?php

/**
 * Loads pronghorn/http-foundation without Composer: `require '…/php/http-foundation/autoload.php';`
 * HttpFoundation itself is the application's.
 */

declare(strict_types=1);

\spl_autoload_register(static function (string $class): void {
    if (\str_starts_with($class, 'Pronghorn\\HttpFoundation\\')) {
        $file = __DIR__ . '/src/' . \strtr(\substr($class, 25), '\\', '/') . '.php';
        if (\is_file($file)) {
            require $file;
        }
    }
});

require_once __DIR__ . '/../worker/autoload.php';
