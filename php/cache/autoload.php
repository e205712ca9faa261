<?php

/**
 * Loads pronghorn/cache without Composer: `require '…/php/cache/autoload.php';`
 */

declare(strict_types=1);

\spl_autoload_register(static function (string $class): void {
    if (\str_starts_with($class, 'Pronghorn\\Cache\\')) {
        $file = __DIR__ . '/src/' . \strtr(\substr($class, 16), '\\', '/') . '.php';
        if (\is_file($file)) {
            require $file;
        }
    }
});

require_once __DIR__ . '/../goridge/autoload.php';
