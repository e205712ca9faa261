<?php

// Makes the application: Debian's Laravel, and what `laravel new` would have put around it.

declare(strict_types=1);

require_once __DIR__ . '/../data.php';
require 'Illuminate/autoload.php'; // Debian's php-laravel-framework, version 8
require __DIR__ . '/../autoload.php';

\spl_autoload_register(static function (string $class): void {
    if (\str_starts_with($class, 'App\\')) {
        require __DIR__ . '/app/' . \strtr(\substr($class, 4), '\\', '/') . '.php';
    }
});

$app = new App\Application(__DIR__, data_folder('laravel'));
$app->singleton(Illuminate\Contracts\Http\Kernel::class, App\Http\Kernel::class);
$app->singleton(Illuminate\Contracts\Debug\ExceptionHandler::class, Illuminate\Foundation\Exceptions\Handler::class);

return $app;
