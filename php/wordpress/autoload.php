<?php

/**
 * Loads pronghorn/wordpress without Composer: `require '…/php/wordpress/autoload.php';`
 */

declare(strict_types=1);

\spl_autoload_register(static function (string $class): void {
    if (\str_starts_with($class, 'Pronghorn\\WordPress\\')) {
        $file = __DIR__ . '/src/' . \strtr(\substr($class, 20), '\\', '/') . '.php';
        if (\is_file($file)) {
            require $file;
        }
    }
});

require_once __DIR__ . '/../worker/autoload.php';
require_once __DIR__ . '/../cache/autoload.php';
