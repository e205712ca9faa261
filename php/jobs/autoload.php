<?php

/**
 * Loads pronghorn/jobs without Composer: `require '…/php/jobs/autoload.php';`
 */

declare(strict_types=1);

\spl_autoload_register(static function (string $class): void {
    if (\str_starts_with($class, 'Pronghorn\\Jobs\\')) {
        $file = __DIR__ . '/src/' . \strtr(\substr($class, 15), '\\', '/') . '.php';
        if (\is_file($file)) {
            require $file;
        }
    }
});

require_once __DIR__ . '/../goridge/autoload.php';
