<?php

// Finds the public suites of PSR-6 and PSR-16 below the directory SUITES.

declare(strict_types=1);

require __DIR__ . '/../bootstrap.php';
require_once __DIR__ . '/../../../goridge/autoload.php';

spl_autoload_register(static function (string $class): void {
    $prefix = 'Cache\\IntegrationTests\\';
    $name = strtr(substr($class, strlen($prefix)), '\\', '/');
    $file = getenv('SUITES') . "/integration-tests/src/$name.php";
    if (str_starts_with($class, $prefix) && is_file($file)) {
        require $file;
    }
});
