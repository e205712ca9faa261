<?php

// Under php-fpm, mod_php and `php -S`.

declare(strict_types=1);

use Symfony\Component\HttpFoundation\Request;

$kernel = require __DIR__ . '/../bootstrap.php';

$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
