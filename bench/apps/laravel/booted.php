<?php

// Boots the application, and makes what the package keeps between requests.

declare(strict_types=1);

use Illuminate\Contracts\Http\Kernel;
use Illuminate\Http\Request;

$app = require __DIR__ . '/bootstrap.php';
require_once __DIR__ . '/../../../php/laravel/autoload.php';

$app->instance('request', Request::create('http://localhost'));
$app->make(Kernel::class)->bootstrap();
$settings = require __DIR__ . '/../../../php/laravel/config/pronghorn.php';
foreach ($settings['warm'] as $name) {
    $app->bound($name) && $app->make($name);
}

return $app;
