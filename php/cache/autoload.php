<?php

/**
 * Loads pronghorn/cache without Composer: `require '…/php/cache/autoload.php';`
 */

declare(strict_types=1);

use Pronghorn\Internal\Interfaces;

\spl_autoload_register(static function (string $class): void {
    if (!\str_starts_with($class, 'Pronghorn\\Cache\\')) {
        return;
    }
    $file = __DIR__ . '/src/' . \strtr(\substr($class, 16), '\\', '/') . '.php';
    if (!\is_file($file)) {
        return;
    }
    match (\substr($class, 16)) {
        'Cache', 'InvalidKey' => Interfaces::expect($class, 'Psr\\SimpleCache\\CacheInterface', 'simple-cache'),
        'InvalidItem', 'Item', 'Pool' => Interfaces::expect($class, 'Psr\\Cache\\CacheItemPoolInterface', 'cache'),
        default => null,
    };
    require $file;
});

require_once __DIR__ . '/../goridge/autoload.php';
