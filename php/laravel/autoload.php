<?php

/**
 * Loads pronghorn/laravel without Composer: `require '…/php/laravel/autoload.php';` Laravel itself
 * is the application's.
 */

declare(strict_types=1);

\spl_autoload_register(static function (string $class): void {
    if (\str_starts_with($class, 'Pronghorn\\Laravel\\')) {
        $file = __DIR__ . '/src/' . \strtr(\substr($class, 18), '\\', '/') . '.php';
        if (\is_file($file)) {
            require $file;
        }
    }
});

require_once __DIR__ . '/../cache/autoload.php';
require_once __DIR__ . '/../http-foundation/autoload.php';
require_once __DIR__ . '/../jobs/autoload.php';
