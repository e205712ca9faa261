<?php

/**
 * Loads pronghorn/worker without Composer: `require '…/php/worker/autoload.php';`
 */

declare(strict_types=1);

use Pronghorn\Internal\Interfaces;

\spl_autoload_register(static function (string $class): void {
    if (\str_starts_with($class, 'Pronghorn\\')) {
        $file = __DIR__ . '/src/' . \strtr(\substr($class, 10), '\\', '/') . '.php';
        if (\is_file($file)) {
            $class === 'Pronghorn\\Log' && Interfaces::expect($class, 'Psr\\Log\\LoggerInterface', 'log');
            require $file;
        }
    }
});

require_once __DIR__ . '/../goridge/autoload.php';
require_once __DIR__ . '/src/functions.php';
