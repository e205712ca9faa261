<?php

// With Composer this is vendor/autoload.php.

declare(strict_types=1);

require __DIR__ . '/../../../php/autoload.php';
require 'Illuminate/autoload.php'; // Debian's php-laravel-framework, version 8

spl_autoload_register(static function (string $class): void {
    $file = __DIR__ . '/../app/' . strtr(substr($class, 4), '\\', '/') . '.php';
    if (str_starts_with($class, 'App\\') && is_file($file)) {
        require $file;
    }
});
