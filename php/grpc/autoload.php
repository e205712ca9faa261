<?php

/**
 * Loads pronghorn/grpc without Composer: `require '…/php/grpc/autoload.php';`
 */

declare(strict_types=1);

\spl_autoload_register(static function (string $class): void {
    if (\str_starts_with($class, 'Pronghorn\\Grpc\\')) {
        $file = __DIR__ . '/src/' . \strtr(\substr($class, 15), '\\', '/') . '.php';
        if (\is_file($file)) {
            require $file;
        }
    }
});

require_once __DIR__ . '/../worker/autoload.php';
