<?php

declare(strict_types=1);

// With Composer its autoloader does all of this.
if (is_file(__DIR__ . '/../vendor/autoload.php')) {
    require __DIR__ . '/../vendor/autoload.php';

    return;
}

require __DIR__ . '/../autoload.php';
require __DIR__ . '/../../goridge/tests/autoload.php';

spl_autoload_register(static function (string $class): void {
    $file = __DIR__ . '/' . strtr(substr($class, 16), '\\', '/') . '.php';
    if (str_starts_with($class, 'Pronghorn\\Tests\\') && is_file($file)) {
        require $file;
    }
});

// Distributions put these below a folder of include_path.
require_once 'Nyholm/Psr7/autoload.php';
require_once 'GuzzleHttp/Psr7/autoload.php';
require_once 'Slim/Psr7/autoload.php';
require_once 'PhpParser/autoload.php';
require_once 'Psr/Log/autoload.php';
