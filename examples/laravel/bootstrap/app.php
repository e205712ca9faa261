<?php

declare(strict_types=1);

$app = new Illuminate\Foundation\Application(dirname(__DIR__));
foreach (['bootstrap/cache', 'storage/framework/sessions', 'storage/framework/views', 'storage/logs'] as $folder) {
    is_dir($app->basePath($folder)) || @mkdir($app->basePath($folder), 0777, true); // or another process has
}
$app->singleton(Illuminate\Contracts\Http\Kernel::class, App\HttpKernel::class);
$app->singleton(Illuminate\Contracts\Console\Kernel::class, App\ConsoleKernel::class);
$app->singleton(Illuminate\Contracts\Debug\ExceptionHandler::class, Illuminate\Foundation\Exceptions\Handler::class);

return $app;
