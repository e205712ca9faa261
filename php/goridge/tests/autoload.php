<?php

// Loads the test classes of this package without Composer, also for packages above it.

declare(strict_types=1);

spl_autoload_register(static function (string $class): void {
    $file = __DIR__ . '/' . strtr(substr($class, 16), '\\', '/') . '.php';
    if (str_starts_with($class, 'Pronghorn\\Tests\\') && is_file($file)) {
        require $file;
    }
});
