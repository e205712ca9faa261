<?php

// Finds Symfony's own tests, and those of PSR-6 that they stand on, below the directory SUITES.

declare(strict_types=1);

require __DIR__ . '/../bootstrap.php';

spl_autoload_register(static function (string $class): void {
    $places = [
        'Symfony\\Component\\' => 'symfony/src/Symfony/Component/',
        'Cache\\IntegrationTests\\' => 'integration-tests/src/',
    ];
    foreach ($places as $prefix => $folder) {
        $file = getenv('SUITES') . "/$folder" . strtr(substr($class, strlen($prefix)), '\\', '/') . '.php';
        if (str_starts_with($class, $prefix) && str_contains($class, 'Tests') && is_file($file)) {
            require $file;
        }
    }
});
