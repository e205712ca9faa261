<?php

// Under php-fpm, or in `mode: classic`.

declare(strict_types=1);

use Illuminate\Http\Request;

require __DIR__ . '/../bootstrap/autoload.php';
$kernel = (require __DIR__ . '/../bootstrap/app.php')->make(Illuminate\Contracts\Http\Kernel::class);
$response = $kernel->handle($request = Request::capture())->send();
$kernel->terminate($request, $response);
